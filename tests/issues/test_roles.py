"""conf/roles.yaml itself, and that a split keeps to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from codegrep.config import DataConfig, SourceConfig, SplitConfig
from codegrep.errors import ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.load import load_issues
from codegrep.issues.roles import EVALUATION, ROLES, Role, known_roles, read_roles
from codegrep.issues.splits import Split, check_leaks, check_split, make_split, side_of

from .test_splits import issue

ROOT = Path(__file__).parents[2]
BY_ROLE = SplitConfig(held_out=["held_out_1"], validation=["validation"])

# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_seven_and_the_five_are_exactly_these() -> None:
    roles = known_roles()
    assert roles.named(["held_out_1"]) == {
        *("pytest-dev/pytest", "psf/requests", "mwaskom/seaborn", "pallets/flask"),
        *("marshmallow-code/marshmallow", "pydata/xarray", "pylint-dev/pylint"),
    }
    assert roles.named(["reserved"]) == {
        *("sphinx-doc/sphinx", "astropy/astropy", "pylint-dev/astroid", "sqlfluff/sqlfluff", "pydicom/pydicom"),
    }
    assert len(roles.named(["held_out_2"])) >= 25
    assert {role for role, _ in roles.repositories.values()} == set(ROLES)


def test_no_repository_has_two_roles_and_no_first_commit_has() -> None:
    # Read as text too: YAML takes the last of equal keys without a word.
    text = (ROOT / "conf" / "roles.yaml").read_text(encoding="utf-8")
    names = [name.lower() for name in re.findall(r"(?m)^  ([\w.-]+/[\w.-]+):", text)]
    assert max(Counter(names).values()) == 1 and len(names) == len(known_roles().repositories)
    roles_of_root: dict[str, set[str]] = {}
    for role, roots in known_roles().repositories.values():
        for root in roots:
            roles_of_root.setdefault(root, set()).add(role)
    assert [root for root, roles in roles_of_root.items() if len(roles) > 1] == []


def test_first_commits_are_known_but_for_the_three_whose_histories_are_not_used() -> None:
    unknown = {name for name, (_, roots) in known_roles().repositories.items() if not roots}
    assert unknown == {"django/django", "matplotlib/matplotlib", "scikit-learn/scikit-learn"}
    assert {known_roles().repositories[name][0] for name in unknown} == {"validation"}


_KEYS = ("held_out", "validation", "include", "exclude", "exclude_repositories")
_LABEL = re.compile(r"[\w.-]+/[\w.-]+")
#: Owners of repositories that are made up or built on the spot.
_MADE_UP = {"a", "acme", "demo", "else", "far", "fork", "local", "mine", "other", "own", "owner", "b"}
_MISSPELT = {"pytest-dev/pytests"}


def _values(content: object, key: str = "") -> Iterator[str]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _values(value, str(name))
    elif isinstance(content, list):
        for value in content:
            yield from _values(value, key)
    elif key in _KEYS and isinstance(content, str):
        yield content


def _named() -> Iterator[tuple[str, str]]:
    """(file, repository or role) wherever a configuration, a page, a script or a test chooses repositories by name."""
    listed = re.compile(rf"\b(?:{'|'.join(_KEYS)})=\[([^\]]*)\]")
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        yield from ((path.name, value) for value in _values(yaml.safe_load(text)))
        yield from ((path.name, name) for found in listed.findall(text) for name in _LABEL.findall(found))
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for path in sorted([*pages, *(ROOT / "scripts").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        for found in listed.findall(path.read_text(encoding="utf-8")):
            yield from ((path.name, name) for name in _LABEL.findall(found))


def test_every_repository_that_is_chosen_by_name_has_a_role_or_is_made_up() -> None:
    named = set(_named())
    assert {("codegrep.yaml", "django/django"), ("results.md", "bokeh/bokeh"), ("demo.yaml", "demo/git")} <= named
    assert {("swe_bench.yaml", "held_out_1"), ("swe_bench.yaml", "validation")} <= named
    unknown = {
        (file, name)
        for file, name in named
        if name not in ROLES and name.partition("/")[0].lower() not in _MADE_UP and name not in _MISSPELT
        if known_roles().of(name) is None
    }
    assert unknown == set()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("training:\n  a/b: []\n", "the role 'training'"),
        ("train: [a/b]\n", "train is no mapping"),
        ("train:\n  a/b: [abc]\n", "a/b is no owner/name with a list"),
        ("train:\n  a: []\n", "train.a is no owner/name"),
        ("train:\n  a/b: []\nreserved:\n  A/B: []\n", "A/B twice"),
        ("train: {", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "roles.yaml").write_text(text)
    with pytest.raises(ConfigError, match=what) as caught:
        read_roles(tmp_path / "roles.yaml")
    assert "\n" not in str(caught.value)


def test_the_strictest_role_counts_by_name_and_by_first_commit(tmp_path: Path) -> None:
    one, two = "1" * 40, "2" * 40
    path = tmp_path / "roles.yaml"
    path.write_text(f"reserved:\n  r/r: ['{one}']\ntrain:\n  t/t: ['{two}', '{one}']\nheld_out_2:\n  h/h: ['{two}']\n")
    roles = read_roles(path)
    assert roles.of("T/T") == Role("train", "t/t")
    assert roles.of("t/t", [one, two]) == Role("reserved", "r/r")
    assert roles.of("some/fork", [two]) == Role("held_out_2", "h/h")
    assert roles.of("some/body", ["3" * 40]) is None


# --- the split --------------------------------------------------------------------------------------------------------


def public() -> list[Issue]:
    """Three issues of one repository of each role, and of one without."""
    names = ("sympy/sympy", "encode/httpx", "psf/requests", "Textualize/rich", "sphinx-doc/sphinx", "own/er")
    return [issue(name, number) for name in names for number in range(3)]


def repos(split: Split, side: str) -> set[str]:
    return {name.rsplit("-", 1)[0].replace("__", "/") for name in getattr(split, side)}


def test_a_split_by_role_leaves_out_and_counts_what_has_no_side() -> None:
    split = make_split(public(), BY_ROLE)
    assert repos(split, "train") == {"sympy/sympy", "own/er"}
    assert repos(split, "validation") == {"encode/httpx"}
    assert repos(split, "held_out") == {"psf/requests"}
    assert split.record["removed_by_role"] == {
        "held_out_2": {"Textualize/rich": 3},
        "reserved": {"sphinx-doc/sphinx": 3},
    }
    assert split.record["roles"]["sphinx-doc/sphinx"] == "reserved" and "own/er" not in split.record["roles"]
    assert Split.from_json(split.to_json()) == split
    check_leaks(split, public())
    second = make_split(public(), replace(BY_ROLE, held_out=["held_out_2"]))
    assert repos(second, "held_out") == {"Textualize/rich"}
    assert second.record["removed_by_role"]["held_out_1"] == {"psf/requests": 3}
    assert second.fingerprint != split.fingerprint


def test_nothing_that_is_kept_for_evaluation_trains_or_chooses_whatever_the_configuration_says() -> None:
    issues = public()
    settings = [
        BY_ROLE,
        SplitConfig(held_out=["psf/requests", "Textualize/rich", "encode/httpx", "sphinx-doc/sphinx"]),
        SplitConfig(held_out=["sympy/sympy"], validation=["validation"]),
        SplitConfig(held_out=["own/er"], validation=["train", "encode/httpx"]),
        SplitConfig(validation=["validation"]),
        *(SplitConfig(validation=["own/er"], seed=seed) for seed in range(4)),
        *(SplitConfig(seed=seed, held_out_share=0.5) for seed in range(8)),
        SplitConfig(by="instance"),
    ]
    made = 0
    for config in settings:
        for material in ([], [one.instance_id for one in issues if one.repo != "sympy/sympy"]):
            try:
                split = make_split(issues, config, material)
            except DataError:
                continue
            made += 1
            roles = [known_roles().of(repo) for side in ("train", "validation") for repo in repos(split, side)]
            assert not [role for role in roles if role is not None and role.name in EVALUATION]
    assert made >= 5


def test_who_does_not_speak_of_roles_is_told_what_to_set() -> None:
    for config in (SplitConfig(), SplitConfig(held_out=["own/er"]), SplitConfig(by="instance")):
        with pytest.raises(DataError, match=r"Textualize/rich is held_out_2 in conf/roles\.yaml") as caught:
            make_split([one for one in public() if one.repo not in ("encode/httpx", "psf/requests")], config)
        assert "data.split.held_out=[held_out_2]" in caught.value.fix
        assert "data.split.enforce_roles=false" in caught.value.fix and "\n" not in str(caught.value)
    free = make_split(public(), SplitConfig(held_out=["own/er"], enforce_roles=False))
    assert "psf/requests" in repos(free, "train") and free.record["removed_by_role"] == {}
    held = make_split(public(), replace(BY_ROLE, enforce_roles=False))
    assert repos(held, "held_out") == {"psf/requests"} and "Textualize/rich" in repos(held, "train")
    # Named as held out it may be measured, also what is reserved: that is the independent check.
    check = make_split(public(), replace(BY_ROLE, held_out=["sphinx-doc/sphinx"]))
    assert repos(check, "held_out") == {"sphinx-doc/sphinx"}


def test_a_drawn_share_is_drawn_of_what_may_train() -> None:
    for seed in range(6):
        split = make_split(public(), SplitConfig(validation=["validation"], seed=seed, held_out_share=0.5))
        assert repos(split, "train") | repos(split, "held_out") == {"sympy/sympy", "own/er"}
        assert repos(split, "validation") == {"encode/httpx"}


def test_a_fork_goes_with_its_origin() -> None:
    issues = [issue(name, n) for name in ("own/er", "own/req", "own/ahttpx", "own/doc") for n in range(2)]
    roles = {
        "own/req": Role("held_out_1", "psf/requests"),
        "own/ahttpx": Role("validation", "encode/httpx"),
        "own/doc": Role("reserved", "sphinx-doc/sphinx"),
    }
    split = make_split(issues, BY_ROLE, roles=roles)
    sides = [repos(split, side) for side in ("train", "validation", "held_out")]
    assert sides == [{"own/er"}, {"own/ahttpx"}, {"own/req"}]
    assert split.record["removed_by_role"] == {"reserved": {"own/doc": 2}}
    assert split.record["forks"] == {repo: role.origin for repo, role in roles.items()}
    with pytest.raises(DataError, match="own/doc shares its first commits with sphinx-doc/sphinx, which is reserved"):
        make_split([one for one in issues if one.repo in ("own/er", "own/doc")], SplitConfig(), roles=roles)
    # Naming the fork does not let it choose either.
    assert side_of("own/req", roles["own/req"], SplitConfig(validation=["own/req"])) is None
    assert side_of("own/req", roles["own/req"], SplitConfig(held_out=["psf/requests"])) == "held_out"


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (SplitConfig(held_out=["held_out_3"]), r"data\.split\.held_out holds 'held_out_3'"),
        (SplitConfig(validation=["requests"]), r"data\.split\.validation holds 'requests'"),
        (SplitConfig(validation=["PSF/requests"]), r"PSF/requests, which is held_out_1"),
        (SplitConfig(validation=["reserved"]), r"validation names reserved: nothing is chosen by it"),
        (SplitConfig(held_out=["A/b"], validation=["a/B"]), r"both name a/b"),
        (SplitConfig(by="instance", validation=["validation"]), r"by is instance"),
    ],
)
def test_a_split_that_contradicts_the_roles_is_refused(config: SplitConfig, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        check_split(config)


def test_validation_issues_are_on_no_other_side() -> None:
    one, two = issue("own/r1", 0), issue("own/r2", 0)
    same = replace(two, problem_statement=one.problem_statement)
    for split in (
        Split((one.instance_id,), (), {}, (two.instance_id,)),
        Split((), (one.instance_id,), {}, (two.instance_id,)),
    ):
        check_leaks(split, [one, two])
        with pytest.raises(DataError, match=r"leak between splits.*validation.*problem statement"):
            check_leaks(split, [one, same])


def test_a_message_that_was_sent_to_several_projects_is_left_out_of_the_laxer_side() -> None:
    """As "Fix issue probably-meant-fstring found at https://codereview.doctor" was, to rich, aiohttp and others."""
    issues = [replace(one, source="git_history") for one in public()]
    text = issues[0].problem_statement
    same = [replace(one, problem_statement=text) if one.instance_id.endswith("-0") else one for one in issues]
    split = make_split(same, BY_ROLE)
    assert [len(getattr(split, side)) for side in ("train", "validation", "held_out")] == [4, 2, 3]
    assert split.record["removed_shared_messages"] == 3
    check_leaks(split, same)
    fork = [replace(one, base_commit="1" * 40) if one.problem_statement == text else one for one in same]
    reported = [replace(one, source="swe_bench") for one in same]
    for issues in (fork, reported):
        with pytest.raises(DataError, match="leak between splits"):
            check_leaks(make_split(issues, BY_ROLE), issues)


def test_a_use_train_source_gives_training_and_validation_issues_and_counts_the_rest() -> None:
    kind = "tests.issues.test_load:Fixed"
    sources = {"open": SourceConfig(kind, {"repo": "pallets/flask"})}
    for name in ("scrapy/scrapy", "encode/httpx", "psf/requests", "hynek/structlog", "pydicom/pydicom"):
        sources[name] = SourceConfig(kind, {"repo": name}, use="train", limit=2)
    data = DataConfig("t", sources, BY_ROLE)
    loaded = load_issues(data)
    assert loaded.counts == {
        **{"open": 3, "scrapy/scrapy": 2, "encode/httpx": 3},
        **{"psf/requests": 0, "hynek/structlog": 0, "pydicom/pydicom": 0},
    }
    assert loaded.skipped == {
        "over limit": 1,
        "repository is held out": 3,
        "repository is held_out_2 (conf/roles.yaml)": 3,
        "repository is reserved (conf/roles.yaml)": 3,
    }
    split = make_split(loaded.issues, data.split, loaded.train_only, left_out=loaded.removed_by_role)
    assert split.record["removed_by_role"] == {"held_out_2": {"hynek/structlog": 3}, "reserved": {"pydicom/pydicom": 3}}
    assert repos(split, "validation") == {"encode/httpx"} and repos(split, "train") == {"scrapy/scrapy"}
    # A split that does not speak of roles is refused for what such a source would bring, and not silently emptied.
    with pytest.raises(DataError, match=r"httpx is validation in conf/roles\.yaml: nothing is trained on it\. Leave"):
        plain = replace(data, split=SplitConfig(held_out=["pallets/flask", "psf/requests"]))
        make_split(load_issues(plain).issues, plain.split, load_issues(plain).train_only)
