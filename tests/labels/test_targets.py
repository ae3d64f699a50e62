"""Target sets: filters in their order, joins, unions."""

from __future__ import annotations

import pyarrow as pa

from codegrep.judges.files import NOT_RELEVANT, RELEVANT
from codegrep.labels.candidates import SCHEMA
from codegrep.labels.gold import Gold
from codegrep.labels.targets import SCHEMA as SAMPLES
from codegrep.labels.targets import Filters, samples, united
from codegrep.labels.weights import weighting

GOLD = {"o__n-1": Gold("o/n", "0" * 40, ("src/gold.py",))}


def candidates(*rows: tuple[int, str, str, int, str]) -> pa.Table:
    """(row, instance, path, tokens, verdict)."""
    columns = {name: [] for name in SCHEMA.names}  # type: ignore[var-annotated]
    for row, instance, path, tokens, verdict in rows:
        values = {
            **dict.fromkeys(SCHEMA.names),
            **{"row": row, "trajectory_id": f"t{row}", "instance_id": instance, "repo": "o/n", "path": path},
            **{"tokens": tokens, "verdict": verdict, "resolved": row % 2},
        }
        for name in SCHEMA.names:
            columns[name].append(values[name])
    return pa.table(columns, schema=SCHEMA)


def made(table: pa.Table, filters: Filters) -> list[dict]:  # type: ignore[type-arg]
    weights = weighting({100: 1})  # w(100) = 1, w(30) = 0.376, w(10) = 0.134
    return samples(table, weights, GOLD, min_tokens=5, min_weight=0.15, filters=filters)


def test_each_candidate_ends_at_the_first_filter_that_it_fails() -> None:
    filters = Filters()
    rows = made(
        candidates(
            (0, "o__n-1", "src/b.py", 100, RELEVANT),
            (0, "o__n-1", "src/gold.py", 100, RELEVANT),
            (0, "o__n-1", "src/no.py", 100, NOT_RELEVANT),
            (0, "o__n-1", "src/short.py", 4, ""),
            (0, "o__n-1", "src/light.py", 10, RELEVANT),
            (1, "o__n-1", "src/no.py", 100, NOT_RELEVANT),
            (2, "o__n-9", "src/b.py", 100, RELEVANT),
            (3, "o__n-1", "src/b.py", 100, ""),
            (3, "o__n-1", "src/c.py", 100, RELEVANT),
        ),
        filters,
    )
    assert filters.files == {
        **{"surviving": 4, "not_relevant": 2, "too_short": 1, "low_weight": 1},
        "judge_error": 1,
    }
    # What the judge could not be asked about makes no sample, and is no label.
    assert filters.trajectories == {"samples": 1, "no_surviving_file": 1, "no_gold": 1, "judge_error": 1}
    (sample,) = rows
    assert sample["target_files"] == ["src/b.py", "src/gold.py"]
    assert [label["path"] for label in sample["mined"]] == ["src/b.py", "src/gold.py"]
    assert [label["weight"] for label in sample["mined"]] == [1.0, 1.0]
    assert filters.sizes == {2: 1} and filters.added == {1: 1}
    assert pa.Table.from_pylist(rows, schema=SAMPLES).num_rows == 1


def test_a_trajectory_twice_is_one_sample() -> None:
    filters = Filters()
    table = candidates((0, "o__n-1", "a.py", 100, RELEVANT), (1, "o__n-1", "b.py", 100, RELEVANT))
    table = table.set_column(1, "trajectory_id", pa.array(["same", "same"]))
    assert len(made(table, filters)) == 1 and filters.trajectories["duplicate_id"] == 1


def test_union_over_attempts_keeps_the_label_of_most_weight() -> None:
    filters = Filters()
    table = candidates(
        (0, "o__n-1", "a.py", 50, RELEVANT), (1, "o__n-1", "a.py", 100, RELEVANT), (1, "o__n-1", "b.py", 60, RELEVANT)
    )
    (whole,) = united(made(table, filters), GOLD, filters)
    assert whole["trajectory_ids"] == ["t0", "t1"] and whole["resolved"] == 1
    assert whole["target_files"] == ["a.py", "b.py", "src/gold.py"]
    assert [(label["path"], label["trajectory_id"]) for label in whole["mined"]] == [("a.py", "t1"), ("b.py", "t1")]
    assert filters.sizes == {3: 1}
