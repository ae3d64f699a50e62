from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.errors import DataError
from codegrep.issues.commit_filters import CommitFilter
from codegrep.issues.commit_log import Commit, FileEntry, read_commits
from codegrep.issues.commit_words import is_chore, is_merge_message, is_revert, tells_of_a_fix
from codegrep.issues.git import open_repository, pieces
from codegrep.issues.git_history import GitHistory
from codegrep.issues.statements import names_gold, statement_hash, statement_of_message

from .conftest import Builder

FIX = "Fix crash of the parser when the input has no header line"


def test_reasons(build: Callable[[str], Builder]) -> None:
    made = build("own__er")
    made.commit(
        "initial",
        {
            "src/a.py": "1\n",
            "src/b.py": "1\n",
            "tests/test_a.py": "1\n",
            "README.md": "1\n",
            "x/_vendor/v.py": "1\n",
            "x.c": "1",
        },
    )
    base = made.git("rev-parse", "HEAD")
    made.commit(
        f"{FIX}\n\nFixes #12\n\nSigned-off-by: A <a@b>",
        {"src/a.py": "2\n", "tests/test_a.py": "2\n", "src/new.py": "1\n"},
    )
    made.commit("Fix the broken test of the parser again today", {"tests/test_a.py": "3\n"})
    made.commit("Fix wrong sentence about the parser in there", {"README.md": "2\n"})
    made.commit("Fix crash in the vendored copy of the parser", {"x/_vendor/v.py": "2\n"})
    made.commit("Fix crash in the native part of the parser", {"x.c": "2\n"})
    made.commit("Fix all pep8 errors of the parser and others", {"src/a.py": "3\n"})
    made.commit("Fix #13", {"src/a.py": "4\n"})
    made.commit(f'Revert "{FIX}"\n\nThis reverts commit {base}.', {"src/a.py": "5\n"})
    made.commit("Speed up the parser by reading larger blocks at once", {"src/a.py": "6\n"})
    made.commit(f"{FIX} (#14)", {"src/a.py": "7\n"})
    made.commit(f"{FIX.lower()}.", {"src/a.py": "8\n"})
    made.commit("Fix crash because the new helper module was not there", {"src/late.py": "1\n"})
    made.commit("Fix crash of nothing: no file is changed by this one", {})
    made.commit("Fix errors in very many files of the whole parser", {f"many/{i}.txt": "1" for i in range(31)})
    made.commit("Fix errors in four files of the parser together", {f"f{i}.py": "1" for i in range(4)})
    made.commit("Fix errors in four files of the parser once more", {f"f{i}.py": "2" for i in range(4)})
    made.git("checkout", "-q", "-b", "side", "HEAD~1")
    made.commit("Fix missing error when the side branch is empty", {"src/b.py": "2\n"})
    made.git("checkout", "-q", "main")
    made.git("merge", "-q", "--no-ff", "-m", "Merge branch side", "side")
    result = GitHistory(str(made.folder)).load()
    assert dict(result.skipped) == {
        "no parent": 1,
        "only tests": 1,
        "only documentation": 1,
        "only vendored files": 1,
        "no source file by suffix": 1,
        "chore (style, documentation, tests, release, vague)": 1,
        "trivial message": 1,
        "revert": 1,
        "message tells of no fix": 1,
        "duplicate message": 1,
        "no gold file that exists in the parent": 2,
        "no changed file": 1,
        "bulk change": 1,
        "too many gold files": 1,
        "merge": 1,
    }
    # Of two commits with one message the newer is kept: the log runs backwards.
    assert {issue.problem_statement: issue.gold_files for issue in result.issues} == {
        f"{FIX.lower()}.": ("src/a.py",),
        f"{FIX}\n\nFixes #12": ("src/a.py",),
        "Fix missing error when the side branch is empty": ("src/b.py",),
    }
    oldest = next(issue for issue in result.issues if "Fixes #12" in issue.problem_statement)
    assert oldest.base_commit == base
    assert oldest.repo == "own/er"
    assert result.repositories["own/er"].local == made.folder


@pytest.fixture
def small(build: Callable[[str], Builder]) -> Builder:
    made = build("small")
    made.commit("initial", {"src/a.py": "1\n2\n3\n", "src/b c.py": "1\n"})
    for number in range(6):
        made.commit(f"Fix crash number {number} of the parser with odd input", {"src/a.py": f"1\n{number}x\n3\n"})
    return made


def test_patches_and_ranges(small: Builder) -> None:
    plain = GitHistory(str(small.folder), gold_ranges=False).load().issues
    full = GitHistory(str(small.folder), with_patch=True).load().issues
    assert [issue.instance_id for issue in plain] == [issue.instance_id for issue in full]
    assert all(not issue.patch and not issue.gold_ranges for issue in plain)
    assert all(
        [(found.path, found.start, found.end) for found in issue.gold_ranges] == [("src/a.py", 2, 2)] for issue in full
    )
    assert all(issue.patch.startswith("diff --git a/src/a.py b/src/a.py") for issue in full)
    assert not GitHistory(str(small.folder)).load().issues[0].patch


def test_limits(small: Builder) -> None:
    everything = GitHistory(str(small.folder)).load().issues
    assert len(everything) == 6
    spread = GitHistory(str(small.folder), max_per_repository=2).load()
    assert spread.issues == [everything[0], everything[3]]
    assert spread.skipped["over max_per_repository"] == 4
    assert len(GitHistory(str(small.folder), max_commits=2).load().issues) == 2
    with pytest.raises(DataError, match="no commit"):
        GitHistory(str(small.folder), since="2024-03-02").load()
    assert len(GitHistory(str(small.folder), since="2024-03-01", until="2024-03-01").load().issues) == 6
    with pytest.raises(DataError, match="date"):
        GitHistory(str(small.folder), since="yesterday; rm")
    for date in ("2020-13-45", "2023-02-29", "0000-01-01", "1960-01-01", "2100-01-01", "2020-1-31", "20200131"):
        for key in ("since", "until"):
            with pytest.raises(DataError, match=f"{key} must be a date .* got '{date}'"):
                GitHistory(str(small.folder), **{key: date})
    with pytest.raises(DataError, match="since 2024-03-02 is after until 2024-03-01"):
        GitHistory(str(small.folder), since="2024-03-02", until="2024-03-01")
    with pytest.raises(DataError, match="no name of a branch"):
        GitHistory(str(small.folder), ref="--output=/x").load()


def test_folders_includes_bundles_and_damage(build: Callable[[str], Builder], tmp_path: Path) -> None:
    for name in ("all/own__one", "all/own/two"):
        made = build(name)
        made.commit("initial", {"a.py": "1\n"})
        made.commit(f"{FIX} {name}", {"a.py": "2\n"})
    made.git("bundle", "create", "-q", str(tmp_path / "all" / "own__three.bundle"), "HEAD", "main")
    (tmp_path / "all" / "own__bad" / ".git").mkdir(parents=True)
    (tmp_path / "all" / "notes").mkdir()
    result = GitHistory(str(tmp_path / "all")).load()
    assert sorted(result.repositories) == ["own/one", "own/three", "own/two"]
    assert result.skipped["unreadable repository"] == 1
    assert result.broken[0].where == "own/bad"
    assert [*GitHistory(str(tmp_path / "all"), include=["Own/One"]).load().repositories] == ["own/one"]
    assert "own/one" not in GitHistory(str(tmp_path / "all"), exclude=["own/one"]).load().repositories
    with pytest.raises(DataError, match="Known: own/bad, own/one"):
        GitHistory(str(tmp_path / "all"), include=["own/onw"]).load()
    with pytest.raises(DataError, match="not found"):
        GitHistory(str(tmp_path / "nowhere")).load()
    with pytest.raises(DataError, match="no git repository"):
        GitHistory(str(tmp_path / "all" / "notes")).load()


def test_hostile_repository_runs_nothing(small: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "ran"
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "diff.external", "core.pager", "gpg.program", "diff.x.textconv", "core.sshCommand"):
        small.git("config", key, str(script))
    small.git("config", "log.showSignature", "true")
    small.git("config", "diff.noprefix", "true")
    small.git("config", "format.pretty", "oneline")
    (small.folder / ".git" / "info").mkdir()
    (small.folder / ".git" / "info" / "attributes").write_text("*.py diff=x\n")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(script))
    issues = GitHistory(str(small.folder), with_patch=True).load().issues
    assert len(issues) == 6
    assert "diff --git a/src/a.py b/src/a.py" in issues[0].patch
    assert not mark.exists()


def test_odd_names_and_messages_survive(build: Callable[[str], Builder]) -> None:
    made = build("odd")
    names = ["a b.py", "é\tx.py", ":100644 100644 a b M.py", "new\nline.py"]
    made.commit("initial", dict.fromkeys(names, "1\n"))
    message = "Fix crash: \x1e and \x01 in :100644 100644 abc def M\n\n\x1e" + "0" * 40 + "\nmore text of the body here"
    made.commit(message, dict.fromkeys(names, "2\n"))
    commits = list(read_commits(made.folder))
    assert [entry.path for entry in commits[0].entries] == sorted(names)
    assert len(commits) == 2
    assert GitHistory(str(made.folder), max_files=4).load().issues[0].gold_files == tuple(sorted(names))


def test_non_utf8_path_is_no_gold(build: Callable[[str], Builder]) -> None:
    made = build("latin")
    name = os.fsdecode(b"caf\xe9.py")
    made.commit("initial", {name: "1\n", "b.py": "1\n"})
    made.commit(FIX, {name: "2\n", "b.py": "2\n"})
    assert GitHistory(str(made.folder)).load().issues[0].gold_files == ("b.py",)


def test_moved_files_are_no_gold() -> None:
    moved = (
        FileEntry("D", "old.py", "b1", "0"),
        FileEntry("A", "new.py", "0", "b1"),
        FileEntry("M", "user.py", "b2", "b3"),
    )
    chosen = CommitFilter().judge(Commit("c", ("p",), "", FIX, moved))
    assert not isinstance(chosen, str)
    assert chosen.gold_files == ("user.py",)


def test_closing_the_stream_ends_git(small: Builder) -> None:
    with open_repository(small.folder) as repo:
        process = repo.git.log(format="%H", as_process=True)
        stream, child = pieces(process, b"\n", chunk=1), process.proc
        del process
        next(stream)
        stream.close()
        assert child.poll() is not None


@pytest.mark.parametrize(
    ("message", "statement"),
    [
        ("Fix it (#12)\n\nCo-authored-by: A <a@b>", "Fix it"),
        ("Fix it\r\n\r\nFixes #3\r\n\r\n(cherry picked from commit abc)", "Fix it\n\nFixes #3"),
        ("Fix it (gh-1)\n\n* Fix it.\n* update whatsnew\n* lint\n* keep this bullet", "Fix it\n\n* keep this bullet"),
        ("--HG--\nbranch : trunk", ""),
        ("", ""),
    ],
)
def test_statement_of_message(message: str, statement: str) -> None:
    assert statement_of_message(message) == statement


def test_message_kinds() -> None:
    assert is_revert('Revert "x"') and is_revert("[3.2] Revert x") and not is_revert("Fix reverted order")
    assert (
        is_merge_message("Merge pull request #1 from x")
        and is_merge_message("merged")
        and not is_merge_message("Merge cells correctly in tables")
    )
    for chore in (
        "fix typo in parser",
        "style: fix",
        "Bump version to 1.2",
        "Fix flake8",
        "Fix tests on Windows",
        "[docs] fix",
        "Release 2.0",
        "cleanup",
    ):
        assert is_chore(chore), chore
    for fine in ("Fix crash on empty input", "fix(parser): handle nested lists", "Prevent wrong result of integrate"):
        assert not is_chore(fine), fine
        assert tells_of_a_fix(fine)
    assert not tells_of_a_fix("Add a new transform for lists")
    assert tells_of_a_fix("Allow lists\n\nCloses #12")


REPORTS = (
    "Few workers hang when the queue is closed early",
    "Some requests fail after a redirect to another host",
    "Small files are corrupted by the parallel writer",
    "Several threads deadlock while the pool is closed",
    "More than one cookie of a name crashes the client",
    "Start time is wrong for jobs of another zone",
    "First argument of a partial is ignored",
    "Next page of the listing can’t be opened",
    "Version 1.10 is sorted before version 1.9",
    "Initial values of a field never reach the form",
    "Moved files are lost when the target is on another disk",
    "Renaming a column twice raises KeyError",
    "Simplify hangs on nested powers",
    "Deprecated aliases break the import of the module",
    "Continuation lines crash the lexer",
    "Blank lines are dropped from the output of a block",
    "Comments in a config file crash the parser",
    "Release of a lock to the pool never happens",
    "Reverting a booking twice no longer raises",
    "Reverted migrations are applied again",
    "Revert fails for an empty journal",
    "Merge with how=cross raises KeyError",
)


@pytest.mark.parametrize("subject", REPORTS)
def test_a_report_is_kept_whatever_its_first_word_is(subject: str) -> None:
    assert not (is_chore(subject) or is_revert(subject) or is_merge_message(subject))
    message = f"{subject}\n\nThe traceback ends in the second line of it."
    judged = CommitFilter().judge(Commit("c", ("p",), "", message, (FileEntry("M", "a.py", "1", "2"),)))
    assert not isinstance(judged, str), judged


@pytest.mark.parametrize(
    "subject",
    [
        *("Minor fixes of wrong names", "Some more cleanup", "Small refactoring of the parser", "First version of it"),
        *("Move code that is broken into its own module", "Rename variable since it is wrong", "Start work on errors"),
        *("Simplify error handling so that it never raises", "Fix failing tests, they hang", "Fix flake8, it fails"),
        *("Refactor Field.fail to raise errors", "Tiny fixes. It hangs no more"),
        *("Bump version to 2.0, the last one was broken", "Deprecate the old parser, because it hangs"),
    ],
)
def test_a_chore_stays_one_whatever_it_says_later(subject: str) -> None:
    assert is_chore(subject)


@pytest.mark.parametrize(
    "subject",
    [
        *('Revert "Fix crash of the parser"', "Revert the change that breaks imports", "revert: it hangs", "Reverted"),
        *("Reverting to the old parser, since the new one crashes", "Back out 12ab34cd, it fails", "Revert 12ab34cd"),
        *("Revert to avoid hangs", "Revert 'x never raises'", "Revert raise of an error", "revert fix didn't work"),
    ],
)
def test_a_revert_stays_one(subject: str) -> None:
    assert is_revert(subject)


def test_merges_stay_merges() -> None:
    for subject in ("Merge branch 'fix-hang'", "Merge pull request #1 from x/crashes", "Merge from main, it fails"):
        assert is_merge_message(subject)


@given(st.text(max_size=200))
def test_messages_of_any_kind(message: str) -> None:
    statement = statement_of_message(message)
    assert "\0" not in statement and statement == statement.strip()
    judged = CommitFilter().judge(Commit("c", ("p",), "", message, (FileEntry("M", "a.py", "1", "2"),)))
    assert isinstance(judged, str) or judged.gold_files == ("a.py",)
    statement_hash(message)
    names_gold(message, ["a/b.py"])


def test_what_names_gold() -> None:
    assert names_gold("in `sympy/core/add.py` line 3", ["sympy/core/add.py"])
    assert names_gold("File x/site-packages/add.py", ["sympy/core/add.py"])
    assert names_gold("sympy.core.add fails", ["sympy/core/add.py"])
    assert names_gold("flask.cli fails", ["src/flask/cli.py"])
    assert not names_gold("add fails, madd.py, __init__.py", ["sympy/core/add.py", "x/__init__.py"])


def test_ground_floor_stays_light() -> None:
    code = "import sys, pkgutil, codegrep.issues as i\nfor m in pkgutil.iter_modules(i.__path__): "
    code += "__import__(f'codegrep.issues.{m.name}')\n"
    code += (
        "print([n for n in ('torch','ray','transformers','mlflow','datasets','pyarrow','numpy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
