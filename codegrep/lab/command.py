"""`python -m codegrep replay | gaming | simulate`: the reward lab on the command line."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_DESIGN_HELP = (
    'an experiment (v3), or overrides behind a label ("no_factor: reward=v3 advantage=none"); may be repeated. '
    "Without it: all designs of the papers"
)


def replay(argv: list[str]) -> int:
    """Score stored rollouts again under a set of designs."""
    parser = _parser("replay", "Score stored rollouts again under any set of reward designs: no model, no GPU.")
    parser.add_argument("place", nargs="+", type=Path, help="outputs folder, artifact, or folder with rollouts")
    parser.add_argument("--group", choices=("step", "issue"), default="step", help="what is compared (default: step)")
    parser.add_argument("--issues", type=Path, help="issues.jsonl, for gold lines; default: found beside the rollouts")
    parser.add_argument("--judgements", type=Path, help="JSONL of a judge's judgements: rollout_id, judgement")
    parser.add_argument(
        "--judge",
        metavar="OVERRIDES",
        help='ask for missing judgements: "answer_judge=llm answer_judge.params.model=NAME"; what training has asked '
        "the same judge costs nothing",
    )
    parser.add_argument("--html", type=Path, help="write the report as one HTML file")
    parser.add_argument("--json", type=Path, help="write the numbers as JSON")
    parser.add_argument("--mlflow", metavar="URI", help="log an MLflow run there: a tracking URI, or an outputs folder")
    parser.add_argument("--name", default="replay", help="of the MLflow run")
    arguments = parser.parse_args(argv)

    from codegrep.lab.designs import SHIPPED, load_designs, load_judge
    from codegrep.lab.page import replay_page
    from codegrep.lab.replay import read_issues, read_judgements
    from codegrep.lab.replay import replay as score_again
    from codegrep.lab.tables import replay_tables

    console = _console()
    designs = load_designs(arguments.design or SHIPPED, arguments.config_dir)
    issues = read_issues(arguments.issues) if arguments.issues else None
    judgements = read_judgements(arguments.judgements) if arguments.judgements else None
    open_judge = load_judge(arguments.judge, arguments.config_dir) if arguments.judge else None
    with _progress() as progress:
        reading = progress.add_task("reading", total=None)
        scoring = progress.add_task("scoring", total=None)
        done = score_again(
            arguments.place,
            designs,
            issues=issues,
            judgements=judgements,
            open_judge=open_judge,
            group_by=arguments.group,
            on_read=lambda rows: progress.advance(reading, rows),
            on_scored=lambda rows: progress.advance(scoring, rows),
        )
    console.print(replay_tables(done))
    if arguments.json:
        _write(arguments.json, json.dumps(_finite(done.as_json()), indent=1) + "\n")
    if arguments.html or arguments.mlflow:
        page = replay_page(done)
        if arguments.html:
            _write(arguments.html, page)
            console.print(f"report: {arguments.html}")
        if arguments.mlflow:
            from codegrep.lab.record import log_replay
            from codegrep.tracking.store import sqlite_uri

            uri = arguments.mlflow if "://" in arguments.mlflow else sqlite_uri(Path(arguments.mlflow))
            places = [str(place) for place in arguments.place]
            with tempfile.TemporaryDirectory(prefix="codegrep-") as scratch:
                run_id = log_replay(done, designs, uri, places, page, Path(scratch, "run_id"), arguments.name)
            console.print(f"MLflow run: {run_id}")
    return 0


def gaming(argv: list[str]) -> int:
    """Run scripted policies through the designs."""
    parser = _parser("gaming", "Run scripted policies that game a reward through the designs, beside honest ones.")
    parser.add_argument("--issues", type=Path, help="issues.jsonl: real issues in place of the built-in ones")
    parser.add_argument("--markdown", type=Path, help="write the report as Markdown")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a design is gamed")
    arguments = parser.parse_args(argv)

    from codegrep.lab.designs import SHIPPED, load_designs
    from codegrep.lab.gaming import play, worlds_of
    from codegrep.lab.gaming_report import gaming_markdown, gaming_table
    from codegrep.lab.replay import read_issues

    designs = load_designs(arguments.design or SHIPPED, arguments.config_dir)
    worlds = worlds_of(list(read_issues(arguments.issues).values())) if arguments.issues else None
    result = play(designs, worlds)
    _console().print(gaming_table(result))
    if arguments.markdown:
        _write(arguments.markdown, gaming_markdown(result))
    return int(arguments.strict and any(result.findings))


def simulate(argv: list[str]) -> int:
    """Train a softmax policy over scripted behaviours under each design."""
    parser = _parser("simulate", "Train a small softmax policy over scripted behaviours: a prediction of each design.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=0.5)
    parser.add_argument("--kl", type=float, help="coefficient of KL to the initial policy; default: each design's own")
    parser.add_argument("--json", type=Path, help="write the curves as JSON")
    parser.add_argument("--html", type=Path, help="write the curves as one HTML file")
    arguments = parser.parse_args(argv)

    from codegrep.lab.bandit import Schedule, train
    from codegrep.lab.bandit_report import simulation_page, simulation_table
    from codegrep.lab.designs import SHIPPED, load_designs

    designs = load_designs(arguments.design or SHIPPED, arguments.config_dir)
    schedule = Schedule(arguments.steps, arguments.learning_rate, arguments.kl)
    runs = [train(design, schedule) for design in designs]
    _console().print(simulation_table(runs))
    if arguments.json:
        _write(arguments.json, json.dumps(_finite([run.as_json() for run in runs])) + "\n")
    if arguments.html:
        _write(arguments.html, simulation_page(runs))
    return 0


def _parser(name: str, text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"codegrep {name}", description=text)
    parser.add_argument("--design", action="append", metavar="DESIGN", help=_DESIGN_HELP)
    parser.add_argument("--config-dir", type=Path, help="a folder of your own, laid out as conf/, that is searched too")
    return parser


def _console() -> Console:
    from rich.console import Console

    # Output that goes to a file is not limited to 80 columns.
    return Console() if sys.stdout.isatty() else Console(width=140)


@contextmanager
def _progress() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        yield progress


def _write(path: Path, text: str) -> None:
    from codegrep.errors import ConfigError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as failure:
        raise ConfigError(f"{path} cannot be written: {failure.strerror}", "Give another path") from failure


def _finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by null."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value
