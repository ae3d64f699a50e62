"""The record of a sweep and its table."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from codegrep.sweeps import job_results
from codegrep.sweeps.job_results import JobResult

ALL = [
    JobResult(
        0, ("+experiment=v1",), "v1-seed0-1", job_results.COMPLETED, 0, seconds=12.0, starts=1, f05=0.5, log="0.log"
    ),
    JobResult(1, ("+experiment=v2",), "v2-seed0-2", job_results.FAILED, 2, "[data] is wrong", 3.0, 1, log="1.log"),
    JobResult(2, ("+experiment=v3",), "v3-seed0-3", job_results.LOST, -9, "killed", 3.0, 2, log="2.log"),
    JobResult(3, ("seed=4",), "v3-seed4-4", job_results.WAITING),
]


def test_the_record_is_read_back(tmp_path: Path) -> None:
    assert job_results.read(tmp_path) == []
    job_results.write(tmp_path, ALL)
    assert job_results.read(tmp_path) == ALL


def test_the_table_says_what_became_of_each() -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(job_results.table("v1-v2", ALL))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for said in ("0.500", "failed (exit code 2)", "lost (signal 9)", "waiting"):
        assert said in text, text
    assert job_results.reasons(ALL) == ["job 1: [data] is wrong (log: 1.log)", "job 2: killed (log: 2.log)"]


def test_an_earlier_completion_says_so() -> None:
    console = Console(file=io.StringIO(), width=160)
    console.print(job_results.table("v1", [JobResult(0, ("seed=0",), "r", job_results.COMPLETED, f05=0.25)]))
    assert "completed before" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\nb\n\n", "b"),
        ("", ""),
        ("codegrep: data is gone. Mend it\n", "data is gone. Mend it"),
        ("x" * 20000, "x" * 240),
    ],
)
def test_the_last_line_of_a_log(text: str, line: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert job_results.last_line(log) == line
    assert job_results.last_line(tmp_path / "none") == ""


def test_f05_is_that_of_the_last_model(tmp_path: Path) -> None:
    assert job_results.held_out_f05(tmp_path) is None
    (tmp_path / "report").mkdir()
    rows = [{"retriever": "bm25_top1", "f05_mean": 0.9}, {"retriever": "warm_start", "f05_mean": 0.2}]
    (tmp_path / "report" / "retrievers.json").write_text(json.dumps(rows))
    assert job_results.held_out_f05(tmp_path) == 0.2
