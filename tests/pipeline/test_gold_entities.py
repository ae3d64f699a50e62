"""prepare: classes and functions of the gold patch, from a real repository, through the file and back."""

from __future__ import annotations

import subprocess
from pathlib import Path

from codegrep.issues.issue import Entity, Issue, LineRange
from codegrep.issues.jsonl import issue_from_json, read_issues, write_issues
from codegrep.issues.source import RepositoryLocation
from codegrep.pipeline.stages.prepare import _check
from codegrep.sandbox.repositories import Repositories

SOURCE = "class Model:\n    def save(self):\n        return 1\n\n\ndef run():\n    return 2\n"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_entities_of_a_patch(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    (origin / "a.py").write_text(SOURCE)
    (origin / "old.py").write_text("print 'python 2'\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "first")
    commit = git(origin, "rev-parse", "HEAD")
    known = Issue("i1", "o/n", commit, "s", gold_files=("a.py",), gold_ranges=(LineRange("a.py", 3, 3),))
    unknown = Issue("i2", "o/n", commit, "s", gold_files=("old.py",), gold_ranges=(LineRange("old.py", 1, 1),))
    repositories = Repositories(tmp_path / "bare", clone_timeout=60)
    location = RepositoryLocation(origin, None)
    kept = _check(repositories, "o/n", [known, unknown], location, entities=True).usable
    assert [issue.gold_entities for issue in kept] == [
        (Entity("a.py", "Model", "class"), Entity("a.py", "Model.save", "function")),
        None,
    ]
    plain = _check(repositories, "o/n", [known], location, entities=False).usable
    assert plain[0].gold_entities is None
    write_issues(tmp_path / "issues.jsonl", {"train": kept})
    assert read_issues(tmp_path / "issues.jsonl") == kept


def test_issues_from_before_there_were_entities() -> None:
    text = (
        '{"instance_id": "i", "repo": "o/n", "base_commit": "c", "problem_statement": "s", "patch": "", '
        '"gold_files": ["a.py"], "gold_ranges": [], "source": "", "created_at": ""}'
    )
    assert issue_from_json(text).gold_entities is None
