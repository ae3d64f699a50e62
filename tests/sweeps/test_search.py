"""A search goes on after kill -9 as if nothing had happened; its values reach the trials as they are."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from codegrep.compose import compose_overrides, load
from codegrep.config import SearchConfig
from codegrep.errors import ConfigError
from codegrep.hydra_settings import PassedOn
from codegrep.pipeline.run_identity import run_name
from codegrep.sweeps import search as searches
from codegrep.sweeps.search_record import Report, SearchRecord, TrialRun, next_point, values_of
from codegrep.sweeps.search_tune import Asha, Proposals

ROOT = Path(__file__).parents[2]
CHOICES = [None, True, "a, b", "it's [c]", "k=v", 1e-5, [1, {"a": "b,c"}], "null"]


def sweep(**more: Any) -> SearchConfig:
    given = {"space": {"x": {"low": 0.0, "high": 1.0}}, "trials": 12, "grace": 1, "reduction": 3, **more}
    return SearchConfig(name="mine", **given)


def unnamed(values: Any) -> TrialRun:
    return TrialRun((), "")


def play(settings: SearchConfig, folder: Path, f05: Any, starts: list[int], steps: int = 9) -> list[tuple[Any, int]]:
    """A search, one trial at a time, that is killed after so many reports; (value, trained to) of each trial."""
    reached: dict[int, int] = {}
    for most in [*starts, 10**6]:
        record = SearchRecord(folder)
        asha, proposals = Asha(settings, record, steps), Proposals(settings, record, unnamed)
        reports = 0
        while len(record.trials) < settings.trials or record.unfinished():
            proposed = proposals.suggest(name := f"{most}-{len(record.trials)}-{reports}")
            number = proposed["trial"]
            trial = SimpleNamespace(config=proposed)
            for step in range(1, steps + 1):
                if reports == most:
                    break
                reports += 1
                reached[number] = max(step, reached.get(number, 0))
                result = {"f05": f05(number), "step": step}
                if asha.on_trial_result(None, trial, result) == asha.STOP:  # type: ignore[arg-type]
                    break
            if reports == most:
                break
            proposals.on_trial_complete(name, result)
    return [(trial.point["x"], reached[number]) for number, trial in enumerate(record.trials)]


def strong_then_weak(number: int) -> float:
    return 0.9 + 0.01 * number if number < 6 else 0.3


@pytest.mark.parametrize("starts", [[50], [1, 2, 3, 4], [9], [54, 55]])
def test_a_killed_search_goes_on_as_if_nothing_had_happened(tmp_path: Path, starts: list[int]) -> None:
    """Twelve trials, grace 1, reduction 3: the six weak ones end at their first rung."""
    whole = play(sweep(), tmp_path / "whole", strong_then_weak, [])
    assert [trained for _, trained in whole] == [9] * 6 + [1] * 6
    assert play(sweep(), tmp_path / "killed", strong_then_weak, starts) == whole


def test_a_trial_that_was_to_end_when_the_search_was_killed_has_ended(tmp_path: Path) -> None:
    record = SearchRecord(tmp_path)
    for point in (0.1, 0.2):
        record.propose({"x": point}, "r")
    record.report(Report(0, 1, 0.9, stop=False))
    record.report(Report(1, 1, 0.1, stop=True))
    again = SearchRecord(tmp_path)
    assert again.unfinished() == [0] and again.ended == [1] and again.result(1) == 0.1


def test_a_point_is_tried_once(tmp_path: Path) -> None:
    settings = sweep(space={"x": {"choices": CHOICES}, "n": {"low": 1, "high": 2, "integer": True}}, trials=40)
    record = SearchRecord(tmp_path)
    while (point := next_point(settings, record)) is not None:
        number = record.propose(point, "r")
        record.report(Report(number, 1, 0.5, stop=False))
        record.end(number)
    values = [values_of(settings, trial.point) for trial in record.trials]
    assert sorted(map(repr, values)) == sorted(repr({"x": x, "n": n}) for x in CHOICES for n in (1, 2))
    proposals = Proposals(settings, record, unnamed)
    assert proposals.suggest("t") == "FINISHED" and proposals.exhausted


@pytest.mark.parametrize("space", [{"choices": [4, 8, 4, 8]}, {"low": 0.0, "high": 1.0}])
def test_a_run_is_tried_once(tmp_path: Path, space: dict[str, Any]) -> None:
    """A choice that stands twice, and a key that changes no result."""
    settings = sweep(space={"x": space}, trials=4)

    def name(values: Any) -> TrialRun:
        return TrialRun((), f"run-{values['x']}" if "choices" in space else "run")

    proposals = Proposals(settings, SearchRecord(tmp_path), name)
    found = [proposals.suggest(str(number)) for number in range(4)]
    runs = [one["run"] for one in found if one != "FINISHED"]
    assert sorted(runs) == (["run-4", "run-8"] if "choices" in space else ["run"]) and proposals.exhausted


def test_values_reach_the_trial_and_the_printed_command(tmp_path: Path) -> None:
    typed_before = ("+experiment=v3", "data=git_history", "data.sources.git_history.args.path=.", f"outputs={tmp_path}")
    base = searches.CommandLine(typed_before, PassedOn(("--config-dir", "/a b"), ()))
    for value in (None, "it's a, b", CHOICES):
        named = base.trial({"+data.sources.git_history.args.mine": value})
        assert not named.refused, named.refused
        typed = shlex.split(base.report({"+data.sources.git_history.args.mine": value}))
        assert typed[1:5] == ["-m", "codegrep", "--config-dir", "/a b"]
        for arguments in (named.arguments[2:], typed[5:]):
            config = load(compose_overrides(arguments))
            mine = config.data.sources["git_history"].args["mine"]
            assert mine == value and type(mine) is type(value)
            assert run_name(config) == named.run


def test_a_trial_that_cannot_be_run_says_why() -> None:
    named = searches.CommandLine(("+experiment=v3",), PassedOn()).trial({"train.grpo.kl": -1})
    assert named.run == "" and "train.grpo.kl" in named.refused


def test_a_choice_that_cannot_be_written_is_refused_at_once() -> None:
    composed = compose_overrides(["+experiment=v3", "+sweep=tune_lr"])
    composed.sweep.space = {"x": {"choices": [{"it's": 1}]}}
    with pytest.raises(ConfigError, match="x cannot be set to"):
        load(composed)


_SEARCH = """
import json, sys, time
from pathlib import Path
import ray
from codegrep.sweeps.search_record import SearchRecord, TrialRun
from codegrep.sweeps.search_tune import fit
from codegrep.config import SearchConfig

folder = Path(sys.argv[1])

def trial(config):
    from ray import tune
    number = config["trial"]
    (folder / f"begun-{number}").touch()
    for step in range(1, 10):
        reached = folder / f"reached-{number}"
        if not reached.exists() or int(reached.read_text()) < step:
            reached.write_text(str(step))
        tune.report({"f05": 0.9 + 0.01 * number if number < 6 else 0.3, "step": step})
        time.sleep(0.3)

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
sweep = SearchConfig("mine", {"x": {"low": 0.0, "high": 1.0}}, trials=8, grace=1, reduction=3)
record = SearchRecord(folder)
fitted = fit(sweep, record, trial, lambda values: TrialRun((), str(values)), steps=9, at_once=1, folder=folder)
assert not fitted.errors, fitted.errors
print(json.dumps([[t.point["x"] for t in record.trials], record.ended]))
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_search_of_tune_that_is_killed(tmp_path: Path) -> None:
    """kill -9 in the sixth trial of eight; the two weak ones that follow end at their first rung."""
    command = [sys.executable, "-c", _SEARCH, str(tmp_path)]
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 500
    while not (tmp_path / "begun-5").exists():
        assert first.poll() is None and time.monotonic() < limit
        time.sleep(0.05)
    time.sleep(1)
    first.kill()
    first.wait()
    before = json.loads((tmp_path / "search.json").read_text())
    assert len(before["trials"]) == 6 and before["ended"] == [0, 1, 2, 3, 4]
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr
    points, ended = json.loads(again.stdout.strip().splitlines()[-1])
    assert ended == list(range(8)) and points[:6] == [row["point"]["x"] for row in before["trials"]]
    reached = [int((tmp_path / f"reached-{number}").read_text()) for number in range(8)]
    assert reached[:6] == [9] * 6 and all(step <= 2 for step in reached[6:]), reached
