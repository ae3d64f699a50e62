"""What a run's end says in words."""

from __future__ import annotations

from typing import Any

import pytest

from codegrep.pipeline.run_summary import column_notes, happened, key_figures, next_commands, telling_issues
from codegrep.tracking.rows import EvaluationRow


def _line(retriever: str, f05: float, kind: str = "model") -> EvaluationRow:
    return EvaluationRow(retriever, kind, 3, f05, f05, f05, precision=f05, share_08=0.5)  # type: ignore[arg-type]


def _rows(**answers: list[tuple[list[str], float]]) -> list[dict[str, Any]]:
    return [
        {"retriever": name, "instance_id": f"i{n}", "answer": answer, "f05": f05}
        for name, given in answers.items()
        for n, (answer, f05) in enumerate(given)
    ]


def test_training_that_changed_nothing_is_called_so() -> None:
    same = [(["a.py"], 1.0), ([], 0.0)]
    said = happened(_rows(warm_start=same, trained=same), [_line("warm_start", 0.5), _line("trained", 0.5)])
    assert said == "GRPO changed the answer on 0 of 2 issues: trained answers what warm_start answers."


def test_changed_answers_are_counted_by_what_they_did_and_the_best_without_training_is_named() -> None:
    table = _rows(
        warm_start=[(["a.py"], 0.0), (["b.py"], 1.0), (["c.py"], 0.0), (["d.py"], 0.0)],
        trained=[(["x.py"], 1.0), (["c.py"], 0.0), (["e.py"], 0.0), (["d.py"], 0.0)],
    )
    lines = [
        _line("warm_start", 0.25),
        _line("trained", 0.25),
        _line("bm25_top1", 0.4, "baseline"),
        _line("first_row", 0.5, "scripted"),
        _line("oracle", 0.9, "oracle"),
    ]
    assert happened(table, lines) == (
        "GRPO changed the answer on 3 of 4 issues: 1 better, 1 worse, 1 of the same score. "
        "trained (F0.5 0.250) trails first_row (0.500), the best without training."
    )


def test_a_table_without_models_says_nothing() -> None:
    assert happened(_rows(bm25_top1=[([], 0.0)]), [_line("bm25_top1", 0.0, "baseline")]) == ""


def test_the_few_numbers_that_matter_first() -> None:
    last = {"reward/total": 0.41, "policy/kl": 0.00123, "completions/clipped_ratio": 0.25, "optim/grad_norm": 1.0}
    lines = [_line("warm_start", 0.2), _line("trained", 0.25)]
    assert key_figures(lines, last) == "held-out F0.5 0.250 · reward 0.410 · KL 0.0012 · 25% cut by the budget"


def test_traces_are_shown_of_issues_on_which_training_made_most_difference() -> None:
    table = _rows(
        base=[([], 0.0)] * 3,
        warm_start=[([], 0.5), ([], 0.0), ([], 1.0)],
        trained=[([], 0.6), ([], 1.0), ([], 1.0)],
    )
    assert telling_issues(table, ["base", "warm_start", "trained"], most=2) == ["i1", "i0"]
    assert telling_issues(table, ["base"], most=1) == ["i0"] and telling_issues(table, []) == []


def test_notes_explain_the_columns_and_rows_that_are_there() -> None:
    notes = column_notes([_line("first_row", 0.5, "scripted")])
    assert [note.partition(":")[0] for note in notes] == ["F0.5", "P, R", "≥0.8", "first_row"]


@pytest.mark.parametrize("has_policy", [True, False])
def test_a_policy_can_be_registered_where_there_is_one(has_policy: bool) -> None:
    commands = [command for command, _ in next_commands("v3-seed0-12345678", "outputs", has_policy=has_policy)]
    assert any("register v3-seed0-12345678 codegrep" in command for command in commands) == has_policy
    assert any(command.endswith("compare") for command in commands)
