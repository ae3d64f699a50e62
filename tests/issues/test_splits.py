from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.config import SplitConfig
from codegrep.errors import ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.splits import Split, check_leaks, draw, make_split

PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old line {0}\n+new line {0}\n"


def issue(repo: str, number: int, **changes: str) -> Issue:
    made = Issue(
        instance_id=f"{repo.replace('/', '__')}-{number}",
        repo=repo,
        base_commit=f"{repo} {number}".encode().hex().zfill(40),
        problem_statement=f"{repo} fails in way {number}",
        patch=PATCH.format(f"{repo} {number}"),
        gold_files=("x.py",),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def some(repositories: int = 6, each: int = 5) -> list[Issue]:
    return [issue(f"own/r{r}", n) for r in range(repositories) for n in range(each)]


def repos(names: tuple[str, ...]) -> set[str]:
    return {name.rsplit("-", 1)[0] for name in names}


def test_by_repository_drawn() -> None:
    issues = some()
    split = make_split(issues, SplitConfig(held_out_share=0.34, seed=3))
    assert len(repos(split.held_out)) == 2 and len(repos(split.train)) == 4
    assert not repos(split.train) & repos(split.held_out)
    assert len(split.train) + len(split.held_out) == 30
    shuffled = issues[:]
    random.Random(1).shuffle(shuffled)
    assert make_split(shuffled, SplitConfig(held_out_share=0.34, seed=3)) == split
    others = {make_split(issues, SplitConfig(held_out_share=0.34, seed=seed)).held_out for seed in range(8)}
    assert len(others) > 1
    check_leaks(split, issues)


def test_by_name_without_case_and_with_absent_names() -> None:
    split = make_split(some(), SplitConfig(held_out=["OWN/R1", "far/away"]))
    assert repos(split.held_out) == {"own__r1"}
    assert split.record["held_out_absent"] == ["far/away"]
    with pytest.raises(DataError, match="no issue belongs"):
        make_split(some(), SplitConfig(held_out=["far/away"]))


def test_a_misspelt_name_stops() -> None:
    issues = [*some(), issue("pytest-dev/pytest", 1)]
    with pytest.raises(DataError, match=r"Is pytest-dev/pytest meant"):
        make_split(issues, SplitConfig(held_out=["own/r1", "pytest-dev/pytests"]))
    with pytest.raises(DataError, match=r"validation names own/stores, .*Is own/store meant"):
        make_split([*some(), issue("own/store", 1)], SplitConfig(held_out=["own/r1"], validation=["own/stores"]))


def test_training_material_stays_training_material() -> None:
    issues = some()
    material = [issue("own/r1", 100), issue("else/where", 1), issue("else/where", 2)]
    split = make_split([*issues, *material], SplitConfig(held_out=["own/r1"]), [one.instance_id for one in material])
    assert "own__r1-100" not in split.train + split.held_out
    assert {"else__where-1", "else__where-2"} <= set(split.train)
    assert split.record["removed_training_material"] == {"own/r1": 1}
    check_leaks(split, [*issues, *material])
    # Material never is what a drawn share holds out.
    drawn = make_split([*issues, *material], SplitConfig(held_out_share=0.9), [one.instance_id for one in material])
    assert not repos(drawn.held_out) & {"else__where"}
    with pytest.raises(DataError, match="use=train"):
        make_split(material, SplitConfig(), [one.instance_id for one in material])


def test_by_instance_keeps_equals_together() -> None:
    issues = [issue("own/r", n) for n in range(20)]
    issues += [issue("own/r", 100 + n, problem_statement=issues[n].problem_statement.upper() + "!") for n in range(10)]
    issues += [issue("own/r", 200 + n, patch=issues[n + 5].patch) for n in range(10)]
    for seed in range(10):
        split = make_split(issues, SplitConfig(by="instance", held_out_share=0.3, seed=seed))
        check_leaks(split, issues)
        assert split.train and split.held_out
    with pytest.raises(DataError, match="by to instance"):
        make_split(issues, SplitConfig())
    with pytest.raises(ConfigError, match="by is instance"):
        make_split(issues, SplitConfig(by="instance", held_out=["own/r"]))


def test_cuts_are_seeded_and_counted() -> None:
    split = make_split(some(), SplitConfig(held_out=["own/r1"], max_train=7, max_held_out=2))
    assert (len(split.train), len(split.held_out)) == (7, 2)
    assert split.record["cut"] == {"train": 18, "held_out": 3}
    assert len(draw(some(), 4, 0)) == 4 and draw(some(), 4, 0) != draw(some(), 4, 1)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"repo": "OWN/r1"}, "repository"),
        ({"base_commit": "LIKE"}, "base commit"),
        ({"problem_statement": "OWN/R1   fails,\nin way 0."}, "problem statement"),
        (
            {"patch": PATCH.format("own/r1 0").replace("@@ -1 +1 @@", "@@ -9 +9 @@").replace("x.py", "y.py")},
            "gold patch",
        ),
    ],
)
def test_leaks_stop_the_run(changes: dict[str, str], what: str) -> None:
    held = issue("own/r1", 0)
    if changes.get("base_commit") == "LIKE":
        changes = {"base_commit": held.base_commit}
    trained = replace(issue("fork/r1", 7), **changes)  # type: ignore[arg-type]
    split = Split((trained.instance_id,), (held.instance_id,), {"by": "repository"})
    with pytest.raises(DataError, match=f"leak between splits.*{what}"):
        check_leaks(split, [held, trained])


def test_other_leaks() -> None:
    one = issue("own/r1", 0)
    with pytest.raises(DataError, match="same instance id"):
        check_leaks(Split((one.instance_id,), (one.instance_id,)), [one])
    with pytest.raises(DataError, match="not loaded"):
        check_leaks(Split((one.instance_id,), ("gone",)), [one])
    # By instance, one base commit for all issues is how a one-commit repository looks.
    two = replace(issue("own/r1", 1), base_commit=one.base_commit)
    check_leaks(Split((one.instance_id,), (two.instance_id,), {"by": "instance"}), [one, two])
    empty = [replace(found, patch="") for found in (one, issue("own/r2", 2))]
    check_leaks(Split((empty[0].instance_id,), (empty[1].instance_id,)), empty)


def test_json_and_fingerprint() -> None:
    split = make_split(some(), SplitConfig())
    again = Split.from_json(split.to_json())
    assert again == split and again.fingerprint == split.fingerprint
    with pytest.raises(DataError, match="changed by hand"):
        Split.from_json(split.to_json().replace("own__r0-0", "own__r9-0"))
    with pytest.raises(DataError, match="cannot be read"):
        Split.from_json("{}")


@given(
    st.sets(st.tuples(st.integers(0, 8), st.integers(0, 30)), min_size=1),
    st.floats(0.01, 0.99),
    st.integers(min_value=0),
    st.sampled_from(["repository", "instance"]),
)
def test_every_split_is_a_partition_without_leaks(keys: set[tuple[int, int]], share: float, seed: int, by: str) -> None:
    issues = [issue(f"own/r{r}", n) for r, n in keys]
    try:
        split = make_split(issues, SplitConfig(by=by, held_out_share=share, seed=seed))
    except DataError:
        assert len({one.repo for one in issues}) < 2 if by == "repository" else len(issues) < 2
        return
    assert set(split.train) | set(split.held_out) == {one.instance_id for one in issues}
    assert split.train and split.held_out
    check_leaks(split, issues)
