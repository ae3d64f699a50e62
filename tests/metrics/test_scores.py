"""File and line scores against values worked by hand, and their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.issues.issue import Entity, LineRange
from codegrep.metrics.scores import entity_f_beta, f_beta, f_from_counts, line_f_beta, module_f_beta, precision, recall

names = st.sets(st.sampled_from("abcdefgh"))
spans = st.builds(
    lambda path, start, length: LineRange(path, start, start + length),
    st.sampled_from("abc"),
    st.integers(1, 40),
    st.integers(0, 30),
)


@pytest.mark.parametrize(
    ("predicted", "gold", "expected_precision", "expected_recall", "expected"),
    [
        ("a", "abc", 1, 1 / 3, 0.7143),
        ("abx", "ab", 2 / 3, 1, 0.7143),
        ("ax", "a", 1 / 2, 1, 0.5556),
        ("ax", "ab", 1 / 2, 1 / 2, 0.5),
        ("ax", "abc", 1 / 2, 1 / 3, 0.4545),
        ("a", "ab", 1, 1 / 2, 0.8333),
        ("abcd", "abcdefghi", 1, 4 / 9, 0.8),
        ("ab", "ab", 1, 1, 1),
        ("x", "a", 0, 0, 0),
    ],
)
def test_f05_of_spec(
    predicted: str, gold: str, expected_precision: float, expected_recall: float, expected: float
) -> None:
    assert precision(predicted, gold) == pytest.approx(expected_precision)
    assert recall(predicted, gold) == pytest.approx(expected_recall)
    assert f_beta(predicted, gold) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("metric", [f_beta, precision, recall])
def test_empty_rules(metric: object) -> None:
    assert callable(metric)
    assert metric((), ()) == 1.0
    assert metric((), ("a",)) == 0.0
    assert metric(("a",), ()) == 0.0


def test_f1_and_f2_weigh_recall_more() -> None:
    # precision 1, recall 1/2: F1 = 2/3, F2 = 5·0.5/(4+0.5) = 5/9
    assert f_beta("a", "ab", 1.0) == pytest.approx(2 / 3)
    assert f_beta("a", "ab", 2.0) == pytest.approx(5 / 9)


def test_repeated_answers_count_once() -> None:
    assert f_beta(("a", "a", "x"), ("a",)) == f_beta(("a", "x"), ("a",))


@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_beta_must_be_positive(beta: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        f_beta("a", "a", beta)
    with pytest.raises(ValueError, match="positive"):
        f_from_counts(0, 0, 0, beta)


@given(names, names, st.floats(0.1, 4))
def test_f_lies_between_precision_and_recall(predicted: set[str], gold: set[str], beta: float) -> None:
    both = sorted((precision(predicted, gold), recall(predicted, gold)))
    assert both[0] - 1e-12 <= f_beta(predicted, gold, beta) <= both[1] + 1e-12


@given(names, names)
def test_f_equals_the_formula_as_printed(predicted: set[str], gold: set[str]) -> None:
    p, r = precision(predicted, gold), recall(predicted, gold)
    expected = 0.0 if p == r == 0 else 1.25 * p * r / (0.25 * p + r)
    assert f_beta(predicted, gold) == pytest.approx(expected)


GOLD = (LineRange("a.py", 10, 19), LineRange("a.py", 30, 33), LineRange("b.py", 5, 5))


def test_coverage_of_gold_at_the_edge() -> None:
    gold = GOLD[:1]
    assert line_f_beta([LineRange("a.py", 1, 14)], gold) == 1.0  # 5 of 10 lines
    assert line_f_beta([LineRange("a.py", 1, 13)], gold) == 0.0  # 4 of 10
    assert line_f_beta([LineRange("c.py", 10, 19)], gold) == 0.0  # another file


def test_one_huge_range_matches_one_gold_range_only() -> None:
    # TP 1 of 1 predicted and 3 gold: precision 1, recall 1/3
    assert line_f_beta([LineRange("a.py", 1, 100_000)], GOLD) == pytest.approx(0.7143, abs=5e-5)
    assert line_f_beta([LineRange("a.py", 1, 100_000)], GOLD, match="jaccard") == 0.0


def test_greedy_matching_follows_the_order_of_the_answer() -> None:
    wide, narrow = LineRange("a.py", 1, 40), LineRange("a.py", 10, 19)
    # wide takes the first gold range (10-19), so that narrow finds nothing left: TP 1 of 2 predicted
    assert line_f_beta([wide, narrow], GOLD[:2]) == pytest.approx(0.5)
    # narrow takes it first, and wide takes 30-33: TP 2
    assert line_f_beta([narrow, wide], GOLD[:2]) == 1.0


def test_ranges_in_mined_files_are_dropped() -> None:
    answer = [LineRange("a.py", 10, 19), LineRange("mined.py", 1, 5)]
    assert line_f_beta(answer, GOLD[:1]) == pytest.approx(0.5556, abs=5e-5)
    assert line_f_beta(answer, GOLD[:1], mined_files=("mined.py",)) == 1.0
    assert line_f_beta(answer[1:], (), mined_files=("mined.py",)) == 1.0  # nothing left on either side


def test_line_empty_rules_and_backward_range() -> None:
    assert line_f_beta((), ()) == 1.0
    assert line_f_beta((), GOLD) == 0.0
    assert line_f_beta(GOLD, ()) == 0.0
    assert line_f_beta([LineRange("a.py", 19, 10)], GOLD[:1]) == 0.0
    assert line_f_beta([LineRange("a.py", 19, 10)], GOLD[:1], match="jaccard") == 0.0


def test_unknown_match_is_refused() -> None:
    with pytest.raises(ValueError, match="coverage"):
        line_f_beta((), (), match="iou")  # type: ignore[arg-type]


@given(st.lists(spans, max_size=6), st.lists(spans, max_size=6))
def test_line_score_is_bounded_and_perfect_on_itself(predicted: list[LineRange], gold: list[LineRange]) -> None:
    for match in ("coverage", "jaccard"):
        assert 0.0 <= line_f_beta(predicted, gold, match=match) <= 1.0  # type: ignore[arg-type]
    distinct = sorted(set(gold))
    assert line_f_beta(distinct, distinct, match="jaccard", threshold=1.0) == 1.0


def test_what_a_name_is_is_what_gold_says() -> None:
    gold = [Entity("a.py", "ordered", "class"), Entity("a.py", "ordered.pop", "function")]
    spelled = Entity("a.py", "ordered", "function")  # lower case: an answer looks like a function
    assert entity_f_beta([spelled], gold, kind="class") == 1.0
    assert entity_f_beta([spelled], gold, kind="function") == 0.0
    method = Entity("a.py", "ordered.pop", "function")
    assert entity_f_beta([method], gold, kind="class") == 1.0  # its class, by gold
    assert entity_f_beta([method], gold, kind="function") == 1.0


def test_an_unknown_method_answers_its_class() -> None:
    gold = [Entity("a.py", "Model", "class")]
    answered = [Entity("a.py", "Model.save", "function"), Entity("a.py", "Other.save", "function")]
    assert entity_f_beta(answered, gold, kind="class") == pytest.approx(2 / 3)  # 1 of 2, 1 of 1
    assert entity_f_beta(answered, gold, kind="function") == 0.0
    nested = [Entity("a.py", "Model.Meta.go", "function")]
    assert entity_f_beta(nested, gold, kind="class") == 0.0  # the nearest class is Meta
    assert module_f_beta(nested, gold) == 1.0
    assert module_f_beta([Entity("b.py", "Model", "class")], gold) == 0.0  # another file


def test_entity_empty_rules() -> None:
    gold = [Entity("a.py", "run", "function")]
    assert entity_f_beta([], gold, kind="class") == 1.0
    assert entity_f_beta([], gold, kind="function") == 0.0
    assert entity_f_beta(gold, [], kind="function") == 0.0
    assert module_f_beta([], []) == 1.0


kinds = st.builds(
    Entity, st.sampled_from("ab"), st.sampled_from(["A", "A.go", "A.B", "A.B.go", "run", "run.A"]), st.just("function")
) | st.builds(Entity, st.sampled_from("ab"), st.sampled_from(["A", "A.B", "run.A"]), st.just("class"))


@given(st.lists(kinds, max_size=5), st.lists(kinds, max_size=5), st.sampled_from(["class", "function"]))
def test_entity_scores_are_bounded_and_see_no_order(predicted: list[Entity], gold: list[Entity], kind: str) -> None:
    value = entity_f_beta(predicted, gold, kind=kind)  # type: ignore[arg-type]
    assert 0.0 <= value <= 1.0
    assert value == entity_f_beta(predicted[::-1], gold, kind=kind)  # type: ignore[arg-type]
