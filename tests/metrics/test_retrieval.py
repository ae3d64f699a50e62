"""Per-issue scores and macro means, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.issues.issue import Entity, LineRange
from codegrep.metrics.retrieval import score_issue, summarise
from codegrep.rewards.outcome import Outcome
from codegrep.rollout.outcome import place_scores


def test_one_issue_by_hand() -> None:
    score = score_issue("i", "o/n", ("a", "x"), ("a",))
    assert (score.precision, score.recall, score.hit, score.good, score.files) == (0.5, 1.0, 1.0, 0.0, 2)
    assert score.f05 == pytest.approx(0.5556, abs=5e-5)
    first = score_issue("i", "o/n", ("a", "x"), ("a",), k=1)
    assert (first.f05, first.good, first.files) == (1.0, 1.0, 1)


@pytest.mark.parametrize(
    ("files", "gold", "f05", "hit"), [((), ("a",), 0.0, 0.0), ((), (), 1.0, 0.0), (("a",), (), 0.0, 0.0)]
)
def test_empty_lists(files: tuple[str, ...], gold: tuple[str, ...], f05: float, hit: float) -> None:
    score = score_issue("i", "o/n", files, gold)
    assert (score.f05, score.precision, score.recall, score.hit) == (f05, f05, f05, hit)


def test_four_of_nine_counts_as_good() -> None:
    # precision 1, recall 4/9 is exactly 0.8
    assert score_issue("i", "o/n", tuple("abcd"), tuple("abcdefghi")).good == 1.0


def test_a_repeated_file_counts_once() -> None:
    assert score_issue("i", "o/n", ("a", "a", "b", "c"), ("a", "b"), k=2).f05 == 1.0
    assert score_issue("i", "o/n", ("a", "a"), ("a",)).files == score_issue("i", "o/n", ("a",), ("a",), k=5).files == 1


def test_summary_by_hand() -> None:
    scores = [
        score_issue("1", "o/n", ("a",), ("a",)),  # 1
        score_issue("2", "o/n", ("a", "x"), ("a",)),  # .5556
        score_issue("3", "o/m", (), ("a",)),  # 0
    ]
    summary = summarise(scores)
    assert summary.issues == 3
    assert summary.f05_mean == pytest.approx((1 + 5 / 9) / 3)
    assert summary.f05_median == pytest.approx(5 / 9)
    assert (summary.precision, summary.recall) == pytest.approx((0.5, 2 / 3))
    assert (summary.hit, summary.share_08, summary.files) == pytest.approx((2 / 3, 1 / 3, 1.0))


def test_nothing_and_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="no issue"):
        summarise([])
    one = score_issue("1", "o/n", ("a",), ("a",))
    with pytest.raises(ValueError, match="twice"):
        summarise([one, one])


names = st.lists(st.sampled_from("abcdef"), max_size=6)


@given(names, st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(1, 6))
def test_longer_lists_never_lose_recall(files: list[str], gold: set[str], k: int) -> None:
    short, full = score_issue("i", "r", files, gold, k=k), score_issue("i", "r", files, gold)
    assert short.recall <= full.recall
    assert short.hit <= full.hit
    assert short.files <= k


def outcome(**more: object) -> Outcome:
    return Outcome(predicted=("a.py",), gold=frozenset({"a.py"}), calls_per_turn=(1,), answered=True, **more)  # type: ignore[arg-type]


def test_lines_classes_and_functions_by_hand() -> None:
    # Lines: one of two predictions covers half of one gold range of two: P = R = 1/2. Classes: the method answers its
    # class, P = R = 1. Functions: one of two predictions, one gold: P = 1/2, R = 1, F1 = 2/3.
    found = place_scores(
        outcome(
            predicted_ranges=(LineRange("a.py", 1, 5), LineRange("a.py", 90, 95)),
            gold_ranges=(LineRange("a.py", 1, 10), LineRange("a.py", 50, 51)),
            predicted_entities=(Entity("a.py", "Model.save", "function"), Entity("a.py", "helper", "function")),
            gold_entities=frozenset({Entity("a.py", "Model", "class"), Entity("a.py", "Model.save", "function")}),
        )
    )
    assert found == pytest.approx({"line_f05": 0.5, "class_f1": 1.0, "function_f1": 2 / 3})


def test_gold_without_lines_or_classes_gives_no_score() -> None:
    found = place_scores(outcome(gold_entities=frozenset({Entity("a.py", "f", "function")})))
    assert found == {"line_f05": None, "class_f1": None, "function_f1": 0.0}
    assert set(place_scores(outcome()).values()) == {None}  # unknown entities are not the same as none
