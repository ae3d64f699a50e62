from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from codegrep.compose import compose_overrides
from codegrep.conf_folder import CONF
from codegrep.config import DataConfig, SourceConfig, SplitConfig
from codegrep.errors import ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.load import build_source, load_issues
from codegrep.issues.source import LoadResult, RepositoryLocation
from codegrep.issues.splits import check_leaks, make_split

from .conftest import Builder
from .test_swe_bench import row

DEMO = "codegrep.issues.demo.Demo"
SWE = "codegrep.issues.swe_bench.SWEBench"
HISTORY = "codegrep.issues.git_history.GitHistory"


@dataclass
class Fixed:
    """A user's own source: any class with load()."""

    repo: str = "own/er"
    count: int = 3

    def load(self) -> LoadResult:
        issues = [
            Issue(
                f"{self.repo.replace('/', '__')}-{n}", self.repo, f"{n:040x}", f"{self.repo} {n}", gold_files=("a.py",)
            )
            for n in range(self.count)
        ]
        return LoadResult(issues, {self.repo: RepositoryLocation(url="u")})


def data(split: SplitConfig | None = None, **sources: SourceConfig) -> DataConfig:
    return DataConfig("t", sources, split or SplitConfig(held_out=["own/er"]))


def own(**changes: Any) -> SourceConfig:
    return SourceConfig(kind=f"{__name__}:Fixed", **changes)


def test_sources_are_merged_and_counted() -> None:
    loaded = load_issues(
        data(one=own(), two=own(args={"repo": "b/b"}, use="train", limit=2), three=own(), four=own(use="train"))
    )
    assert loaded.counts == {"one": 3, "two": 2, "three": 0, "four": 0}
    assert loaded.train_only == {issue.instance_id for issue in loaded.issues if issue.repo == "b/b"}
    assert loaded.skipped_by_source["two"] == {"over limit": 1}
    assert loaded.skipped_by_source["three"] == {"instance_id already in source one": 3}
    assert loaded.skipped_by_source["four"] == {"repository is held out": 3}
    assert sum(loaded.skipped.values()) == 7
    assert set(loaded.repositories) == {"own/er", "b/b"}


def test_limit_is_seeded() -> None:
    sources = {"one": own(limit=3, args={"count": 50})}
    drawn = [
        tuple(issue.instance_id for issue in load_issues(DataConfig("t", sources, SplitConfig(seed=seed))).issues)
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SourceConfig("codegrep.issues.nothing.X"), r"data\.sources\.s\.kind .* cannot be found"),
        (SourceConfig("codegrep.issues.demo.Demoo"), r"data\.sources\.s\.kind .* cannot be found"),
        (SourceConfig("not a name"), r"data\.sources\.s\.kind .* cannot be found"),
        (SourceConfig("codegrep.issues.paths.is_test_path"), r"no issue source"),
        (SourceConfig("codegrep.issues.issue.Issue"), r"no issue source"),
        (
            SourceConfig(DEMO, {"folder": "x", "packages": ["git"], "per_pakage": 1}),
            r"data\.sources\.s\.args\.per_pakage is not known to Demo",
        ),
        (SourceConfig(DEMO, {"folder": "x"}), r"data\.sources\.s\.args: .*packages"),
        (SourceConfig(DEMO, {"folder": "x", "packages": "git"}), r"args\.packages is 'git'"),
        (SourceConfig(DEMO, {"folder": "x", "packages": ["git"], "seed": "a"}), r"args\.seed is 'a'. Expected int"),
        (SourceConfig(SWE, {"path": "???"}), r"args\.path is not set"),
        (SourceConfig(SWE, {"path": "x", "clone": "yes"}), r"args\.clone is 'yes'. Expected bool"),
        (SourceConfig(SWE, {"path": "x"}), r"data\.sources\.s\.args: swe_bench needs"),
        (SourceConfig(HISTORY, {"path": "x", "since": "soon"}), r"args: since must be a date"),
        (SourceConfig(HISTORY, {"path": "x", "max_files": 1.5}), r"max_files is 1\.5"),
    ],
)
def test_wrong_configuration_is_one_line_with_the_key(source: SourceConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build_source("s", source)
    assert "\n" not in str(caught.value)


def test_a_source_that_fails_names_itself(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^data\.sources\.mine: issues file not found"):
        load_issues(data(mine=SourceConfig(SWE, {"path": str(tmp_path / "no.jsonl"), "clone": True})))


def test_issues_split_with_history_as_material(build: Callable[[str], Builder], tmp_path: Path) -> None:
    """swe_bench_plus_history in small: both sources read one folder; the held-out repository gives no material."""
    for name in ("clones/own__er", "clones/own__two", "clones/far__away"):
        made = build(name)
        made.commit("initial", {"src/m.py": f"{name}\n", "b.py": "1\n"})
        for number in range(3):
            made.commit(f"Fix crash number {number} of {name} with odd input", {"src/m.py": f"{number}\n"})
    rows = [
        row(1),
        row(2),
        row(
            3, repo="own/two", instance_id="own__two-3", base_commit="1" * 40, patch=row()["patch"].replace("-b", "-bb")
        ),
    ]
    (tmp_path / "i.jsonl").write_text("\n".join(map(json.dumps, rows)))
    folder = str(tmp_path / "clones")
    config = data(
        issues=SourceConfig(SWE, {"path": str(tmp_path / "i.jsonl"), "repositories": folder}),
        history=SourceConfig(HISTORY, {"path": folder, "with_patch": True}, use="train"),
    )
    loaded = load_issues(config)
    assert loaded.counts == {"issues": 3, "history": 6}
    assert loaded.skipped_by_source["history"]["repository is held out"] == 3
    split = make_split(loaded.issues, config.split, loaded.train_only)
    check_leaks(split, loaded.issues)
    assert split.held_out == ("own__er-1", "own__er-2")
    assert split.record["train_repositories"] == {"far/away": 3, "own/two": 4}


def test_config_files_name_real_sources() -> None:
    seen = 0
    for path in sorted((CONF / "data").glob("*.yaml")):
        content = OmegaConf.to_container(compose_overrides([f"data={path.stem}"]).data)
        assert isinstance(content, dict)
        for name, source in content["sources"].items():
            given = {
                key: (["git"] if key == "packages" else "x" if value == "???" else value)
                for key, value in source["args"].items()
            }
            build_source(name, SourceConfig(source["kind"], given, source.get("use", "split"), source.get("limit", 0)))
            seen += 1
        assert content["name"] == path.stem
        SplitConfig(**content.get("split", {}))
    assert seen >= 4
