"""A reward that scores lines or entities does not train on issues that lack them, and one line says what to set."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from codegrep.compose import compose_overrides, load
from codegrep.config import Config
from codegrep.errors import DataError
from codegrep.issues.issue import Entity, Issue, LineRange
from codegrep.pipeline import needed_gold
from codegrep.pipeline.run import Run
from codegrep.pipeline.stages import prepare
from codegrep.runtime.artifacts import ArtifactStore, Places
from codegrep.runtime.progress import Progress
from tests.pipeline.experiments import make_repository

HISTORY = ("data=git_history", "data.sources.git_history.args.path=clones", "data.split.by=instance")


def config_of(*overrides: str) -> Config:
    return load(compose_overrides(overrides))


def issue(number: int, lines: bool = True, entities: bool = False) -> Issue:
    ranges = (LineRange("a.py", 2, 4),) if lines else ()
    known = (Entity("a.py", "f", "function"),) if entities else None
    return Issue(f"i{number}", "o/n", "c", "s", gold_files=("a.py",), gold_ranges=ranges, gold_entities=known)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ("+experiment=v2", *HISTORY, "data.sources.git_history.args.gold_ranges=false"),
            "reward=v2 scores line ranges, and 20 of 20 training issues have no gold lines. "
            "Set data.sources.git_history.args.gold_ranges=true, or data.max_missing_gold=1 to train all the same",
        ),
        (("+experiment=v1",), "reward=v1 scores line ranges, and 20 of 20 .* Use issues with a gold patch, or"),
        (("+experiment=swe_grep",), "reward=swe_grep scores line ranges"),
        (
            ("+experiment=colgrep", "reward=colgrep_entities"),
            "reward=colgrep_entities scores classes and functions, and 20 of 20 .* Set data.gold_entities=true, or",
        ),
        (("+experiment=codescout",), "reward=codescout scores .* Use issues with a gold patch of Python files, or"),
    ],
)
def test_what_is_missing_stops_with_the_key(overrides: tuple[str, ...], words: str) -> None:
    bare = [issue(number, lines=False) for number in range(20)]
    with pytest.raises(DataError, match=words) as raised:
        needed_gold.check(config_of(*overrides), bare)
    assert "\n" not in str(raised.value)
    needed_gold.check(config_of(*overrides, "data.max_missing_gold=1"), bare)
    needed_gold.check(config_of(*overrides, "stages=[prepare,evaluate,report]"), bare)


@pytest.mark.parametrize("experiment", ["v3", "colgrep", "signal_reshaping"])
def test_a_file_score_needs_files_only(experiment: str) -> None:
    needed_gold.check(config_of(f"+experiment={experiment}"), [issue(0, lines=False)])


def test_a_few_issues_without_lines_stop_nothing() -> None:
    """2 of 20 are the tenth that may lack them; 3 are more."""
    config = config_of("+experiment=v2")
    needed_gold.check(config, [issue(number, lines=number >= 2) for number in range(20)])
    with pytest.raises(DataError, match="3 of 20"):
        needed_gold.check(config, [issue(number, lines=number >= 3) for number in range(20)])
    needed_gold.check(config_of("+experiment=codescout"), [issue(0, entities=True)])


def run_of(config: Config, outputs: Path) -> Run:
    quiet = SimpleNamespace(metrics=lambda *_, **__: None, tags=lambda *_: None, artifact=lambda *_: None)
    store, progress = ArtifactStore(outputs / "artifacts"), Progress(Console(file=StringIO()))
    return Run(config, Places(outputs), outputs, store, cast(Any, quiet), progress)


def test_prepare_stops_also_where_another_reward_has_prepared_the_issues(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "acme__shop")
    data = (*HISTORY[:1], f"data.sources.git_history.args.path={repository}", HISTORY[2], f"outputs={tmp_path}")
    off = "data.sources.git_history.args.gold_ranges=false"

    def prepared(*overrides: str) -> None:
        run = run_of(config_of(*overrides, *data, "sandbox.min_free_gib=0.1"), tmp_path)
        artifact = run.store.open("prepare", run.call(prepare.inputs))
        if artifact.complete:
            run.call(prepare.already, artifact=artifact)
        else:
            artifact.finish(run.call(prepare.run, artifact=artifact))

    with pytest.raises(DataError, match="have no gold lines"):
        prepared("+experiment=v2", off)
    prepared("+experiment=v3", off)
    with pytest.raises(DataError, match="have no gold lines"):
        prepared("+experiment=v2", off)
    prepared("+experiment=v2", off, "data.max_missing_gold=1")
    prepared("+experiment=v2")
    prepared("+experiment=codescout")  # with the entities of the lines
