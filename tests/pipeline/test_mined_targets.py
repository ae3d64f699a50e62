"""Results against mined target sets, and of lines and entities, beside the files of the patch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from codegrep.errors import DataError
from codegrep.issues.issue import Entity, Issue, LineRange
from codegrep.issues.source import RepositoryLocation
from codegrep.labels.targets import SCHEMA
from codegrep.pipeline import mined_targets
from codegrep.pipeline.stages import evaluate
from codegrep.rollout.record import Rollout, Turn
from codegrep.sandbox.repositories import Repositories
from tests.pipeline.experiments import make_repository
from tests.sandbox.trees import run_git

MINED = "shop/parser/pars_core.py"
GOLD = "shop/cache/cach_core.py"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("repository") / "o__r", ("parser", "cache"))


def samples(path: Path, *rows: tuple[str, str, list[str]]) -> Path:
    made = [
        {**dict.fromkeys(SCHEMA.names), "instance_id": i, "base_commit": commit, "target_files": files}
        for i, commit, files in rows
    ]
    parquet.write_table(pa.Table.from_pylist(made, schema=SCHEMA), path)
    return path


def targets_of(folder: Path, repository: Path, path: Path, held_out: list[Issue]) -> dict[str, tuple[str, ...]]:
    repositories = Repositories(folder / "bare", clone_timeout=60.0)
    locations = {"o/r": RepositoryLocation(local=repository)}
    return mined_targets.held_out_targets(mined_targets.targets_file(str(path)), held_out, locations, repositories)


def test_targets_are_united_over_attempts_and_exist_at_the_base_commit(tmp_path: Path, repository: Path) -> None:
    head = run_git("rev-parse", "HEAD", cwd=repository).strip()
    held_out = [Issue(i, "o/r", head, "text", gold_files=(GOLD,)) for i in ("i1", "i2", "i3")]
    path = samples(
        tmp_path / "samples.parquet",
        ("i1", head, [GOLD, MINED]),
        ("i1", head, [GOLD, "reproduce.py"]),  # made by the agent: the base commit does not have it
        ("i2", "f" * 40, [MINED]),  # another issue of that name
        ("elsewhere", head, [MINED]),
    )
    assert targets_of(tmp_path, repository, path, held_out) == {"i1": (GOLD, MINED)}


def test_files_that_are_of_no_use_are_named(tmp_path: Path, repository: Path) -> None:
    held_out = [Issue("i1", "o/r", "a" * 40, "text")]
    other = samples(tmp_path / "other.parquet", ("i9", "a" * 40, [MINED]))
    broken = tmp_path / "broken.parquet"
    broken.write_text("no Parquet")
    for path, words in (
        (other, "no sample of the 1 held-out"),
        (broken, "is no samples.parquet"),
        (tmp_path, "no file"),
    ):
        with pytest.raises(DataError, match=words):
            targets_of(tmp_path, repository, path, held_out)


def rollout(text: str, files: list[str]) -> Rollout:
    return Rollout(
        rollout_id="r",
        instance_id="i1",
        repo="o/r",
        base_commit="c" * 40,
        source="model",
        prompt_ids=[],
        completion_ids=[],
        loss_mask=[],
        logprobs=[],
        turns=[Turn(start=0, end=0, text=text)],
        answer=files,
        answered=True,
        gold_files=[GOLD],
        exit_cause="answer",
    )


def test_rows_have_what_there_is_to_report() -> None:
    issue = Issue(
        "i1",
        "o/r",
        "c" * 40,
        "text",
        gold_files=(GOLD,),
        gold_ranges=(LineRange(GOLD, 1, 2),),
        gold_entities=(Entity(GOLD, "f", "function"),),
    )
    answered = rollout(f'<answer>{{"files": ["{GOLD}"], "line_ranges": [["{GOLD}", 1, 9]]}}</answer>', [GOLD])
    assert evaluate._places_in(answered, issue, "short") == {}
    assert evaluate._places_in(answered, issue, "detailed") == {"line_f05": 1.0}
    assert evaluate._places_in(answered, issue, "entities") == {"class_f1": None, "function_f1": 0.0}
    model = {"retriever": "trained", "instance_id": "i1", "files": [GOLD], "line_f05": 1.0}
    baseline = {"retriever": "bm25_top1", "kind": "baseline", "instance_id": "i1", "files": [GOLD]}
    plain = evaluate._without_empty([evaluate._scored(row, issue, None) for row in (baseline,)])
    assert not {"f05_mined", "mined", "line_f05", "class_f1", "latency_seconds"} & plain[0].keys()
    both = evaluate._without_empty([evaluate._scored(row, issue, (GOLD, MINED)) for row in (model, baseline)])
    # One of two targets: P = 1, R = 1/2, F0.5 = .8333 (the patch alone: 1).
    assert [row["f05_mined"] for row in both] == pytest.approx([5 / 6, 5 / 6]) and both[0]["f05"] == 1.0
    assert [row["line_f05"] for row in both] == [1.0, None] and "class_f1" not in both[0]
