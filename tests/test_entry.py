"""The command line: quick, light, and one line for what is wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from codegrep.cli import COMMANDS

ROOT = Path(__file__).parent.parent
_APART = ("experiment", "sweep")
HEAVY = ("torch", "ray", "mlflow", "transformers", "trl", "pandas")


def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments] if code else [sys.executable, "-m", "codegrep", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments", [("--help",), ("--cfg", "job"), ("+experiment=v3", "--cfg", "job")])
def test_help_and_config_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['codegrep', *sys.argv[1:]]\n"
        "try:\n    runpy.run_module('codegrep', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])\n"
    )
    done = run(*arguments, code=code)
    assert "HEAVY []" in done.stdout, done.stdout[-500:] + done.stderr[-500:]


def test_help_answers_quickly() -> None:
    # CPU time of the whole process, which a busy machine does not stretch; the bound is 1 s of wall time when idle.
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run([sys.executable, '-m', 'codegrep', '--help'], check=True, stdout=subprocess.DEVNULL)\n"
        "use = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(use.ru_utime + use.ru_stime)\n"
    )
    run(code=code)  # byte code is written once
    started = time.perf_counter()
    seconds = float(run(code=code).stdout)
    assert seconds < 1, (seconds, time.perf_counter() - started)


def test_help_names_everything_that_can_be_typed() -> None:
    done = run("--help")
    assert done.returncode == 0 and done.stdout == run("-h").stdout
    lines = done.stdout.splitlines()
    for path in [*(ROOT / "conf/experiment").glob("*.yaml"), *(ROOT / "conf/sweep").glob("*.yaml")]:
        (line,) = [one for one in lines if one.startswith(f"  {path.stem} ")]
        assert len(line.split()) > 3, line  # and says what it is
    for name, command in COMMANDS.items():
        assert any(one.startswith(f"  {name} ") and command.summary.split()[0] in one for one in lines), name
    for path in (ROOT / "conf").glob("*/*.yaml"):
        assert (path.stem in done.stdout and f"  {path.parent.name} " in done.stdout) or path.parent.name in _APART
    assert max(map(len, lines)) <= 120
    values = run("+experiment=v3", "--help").stdout  # Hydra's own, with every value
    assert "group_size" in values


def test_a_wrong_path_is_found_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n", encoding="utf-8")
    code = (
        "import runpy, sys\n"
        "sys.argv = ['codegrep', *sys.argv[1:]]\n"
        "try:\n    runpy.run_module('codegrep', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', [m for m in {('torch', 'ray', 'mlflow')!r} if m in sys.modules])\n"
    )
    for data, words in (
        (["data=git_history", "data.sources.git_history.args.path=nowhere"], "git_history path not found"),
        (
            [
                "data=swe_bench",
                f"data.sources.swe_bench.args.path={tmp_path / 'rows.jsonl'}",
                "data.sources.swe_bench.args.repositories=nowhere",
            ],
            "repositories names no folder",
        ),
    ):
        done = run("+experiment=v3", *data, f"outputs={tmp_path / 'out'}", code=code)
        assert words in done.stderr and "HEAVY []" in done.stdout, done.stderr + done.stdout
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("+experiment=v33",), ("no experiment called 'v33'", "v3")),
        (("+experiment=v3", "train.grpo.klx=1"), ("unknown key 'train.grpo.klx'", "train.grpo.kl")),
        (("+experiment=v3", "+train.grpo.klx=1"), ("unknown key 'train.grpo.klx'", "train.grpo.kl")),
        (("+experiment=v3", "train.grpo.kl=much"), ("train.grpo.kl", "much")),
        (("+experiment=v3", "rewardd=v2"), ("unknown key 'rewardd'", "reward")),
        (("experiment=v3",), ("plus sign", "+experiment=")),
        (("+sweep=tune_l",), ("no sweep called 'tune_l'", "+sweep=tune_lr")),
        (("+experiment=v3", "reward.params.btea=1"), ("'reward.params.btea'", "reward.params.beta")),
        (("+experiment=v3", "reward=v9"), ("no reward called 'v9'", "v1")),
        (("+experiment=v3", "train.grpo.group_size=1"), ("train.grpo.group_size=1", "greater than or equal to 2")),
        (("+experiment=v3", "stages=[train,evalute]"), ("evalute", "evaluate")),
        (("+experiment=v3", "data=swe_bench"), ("data.sources.swe_bench.args.path", "not set")),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], words: tuple[str, ...], tmp_path: Path) -> None:
    done = run(*arguments, f"outputs={tmp_path}")
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("codegrep: ")
    for word in words:
        assert word in lines[0]
    assert not list(tmp_path.iterdir()), "nothing may be started"
