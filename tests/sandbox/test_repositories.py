"""Bare clones: from folders, bundles and URLs; failures leave nothing behind and say one line."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from codegrep.errors import RepositoryError
from codegrep.issues.git import (
    GitError,
    Limits,
    blob,
    clone,
    git_environment,
    holds,
    open_repository,
    without_credentials,
)
from codegrep.sandbox import BareClone, Repositories
from codegrep.sandbox.repositories import folder_name
from tests.sandbox.trees import At, Made, assert_gone, make_repository, run_git


def held(repositories: Repositories, clone: BareClone, commit: str) -> bool:
    return repositories.commit_time(clone, commit) is not None


def test_a_local_clone_survives_the_loss_of_its_source(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "source.git", [{"a.py": b"1\n"}, {"a.py": b"2\n"}])
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.ensure("owner/name", made)
    assert clone.path == (tmp_path / "bare" / "owner__name").resolve()
    shutil.rmtree(made.local)
    assert all(held(repositories, clone, commit) for commit in made.commits)
    assert repositories.ensure("owner/name", made).path == clone.path
    with pytest.raises(RepositoryError, match="is not at"):
        repositories.ensure("owner/name", At(tmp_path / "another.git"))
    assert repositories.ensure("owner/name", At(tmp_path / "bare" / "owner__name")).path == clone.path
    assert run_git("show", f"{made.commits[0]}:a.py", cwd=clone.path) == "1\n"


@pytest.mark.parametrize("form", ["path", "url"])
def test_names_are_resolved_where_the_source_stands_now(tmp_path: Path, form: str) -> None:
    made = make_repository(tmp_path / "source.git", [{"a.py": b"1\n"}, {"a.py": b"2\n"}])
    location = made if form == "path" else At(None, f"file://{made.local}")
    run_git(
        "-c", "user.name=a", "-c", "user.email=a@b", "tag", "-a", "v1", "-m", "first", made.commits[0], cwd=made.local
    )
    repositories = Repositories(tmp_path / "bare", 60, {"o/n": location})
    clone = repositories.open("o/n")
    assert repositories.resolve("o/n", "HEAD") == repositories.resolve("o/n", "main") == made.commits[1]
    assert repositories.resolve("o/n", "v1") == made.commits[0] == repositories.resolve("o/n", made.commits[0])
    run_git("branch", "-f", "old", made.commits[0], cwd=made.local)  # after the clone was made
    assert repositories.resolve("o/n", "old") == made.commits[0] and held(repositories, clone, made.commits[0])
    for name in ("nowhere", "--upload-pack=touch x", made.commits[0][:8], ""):
        with pytest.raises(RepositoryError, match="no branch or tag"):
            repositories.resolve("o/n", name)


def test_a_source_that_borrows_objects_is_copied_whole(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "source.git", [{"a.py": b"1\n"}])
    run_git("clone", "-q", "--bare", "--shared", str(made.local), str(tmp_path / "borrower.git"), cwd=tmp_path)
    clone = Repositories(tmp_path / "bare", 60).ensure("o/n", At(tmp_path / "borrower.git"))
    shutil.rmtree(made.local)
    shutil.rmtree(tmp_path / "borrower.git")
    assert not (clone.path / "objects" / "info" / "alternates").exists()
    assert run_git("show", f"{made.commits[0]}:a.py", cwd=clone.path) == "1\n"


@pytest.mark.parametrize("form", ["working", "bundle", "url"])
def test_other_forms_of_a_source(tmp_path: Path, many: Made, form: str) -> None:
    if form == "working":
        run_git("clone", "-q", str(many.local), str(tmp_path / "work"), cwd=tmp_path)
        location = At(tmp_path / "work")
    elif form == "bundle":
        run_git("bundle", "create", "-q", str(tmp_path / "x.bundle"), "--all", cwd=many.local)
        location = At(tmp_path / "x.bundle")
    else:
        location = At(None, f"file://{many.local}")
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.ensure("o/n", location)
    assert all(held(repositories, clone, commit) for commit in many.commits)


def test_many_processes_make_one_clone(tmp_path: Path, many: Made) -> None:
    code = (
        "import sys; from pathlib import Path; from codegrep.sandbox import Repositories;"
        "from tests.sandbox.trees import At;"
        "print(Repositories(Path(sys.argv[1]), 60).ensure('o/n', At(Path(sys.argv[2]))).path)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "bare"), str(many.local)]
    with ThreadPoolExecutor(6) as pool:
        outputs = list(
            pool.map(lambda _: subprocess.run(command, capture_output=True, text=True, check=True), range(6))
        )
    assert len({done.stdout for done in outputs}) == 1
    assert sorted(p.name for p in (tmp_path / "bare").iterdir()) == [".incoming", ".locks", "o__n"]
    assert not list((tmp_path / "bare" / ".incoming").iterdir())


def test_a_new_commit_is_fetched_and_a_missing_one_is_one_line(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "source.git", [{"a.py": b"1\n"}])
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.ensure("o/n", made)
    work = tmp_path / "work"
    run_git("clone", "-q", str(made.local), str(work), cwd=tmp_path)
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    run_git(*identity, "commit", "-q", "--allow-empty", "-m", "new", cwd=work)
    run_git("push", "-q", "origin", "HEAD:refs/heads/other", cwd=work)
    new = run_git("rev-parse", "HEAD", cwd=work).strip()
    assert not held(repositories, clone, new)
    repositories.fetch_commit(clone, new)
    assert held(repositories, clone, new)
    with pytest.raises(RepositoryError) as caught:
        repositories.fetch_commit(clone, "0" * 40)
    assert "0" * 40 in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("commit", ["HEAD", "main", "abc", "--upload-pack=touch /tmp/x", "A" * 40, ""])
def test_only_full_hashes_reach_git(tmp_path: Path, many: Made, commit: str) -> None:
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.ensure("o/n", many)
    for ask in (repositories.commit_time, repositories.fetch_commit):
        with pytest.raises(RepositoryError, match="no full commit hash"):
            ask(clone, commit)


@pytest.mark.parametrize(
    "location",
    [
        At(Path("nowhere/at/all")),
        At(None, None),
        At(None, "ext::sh -c touch% pwned"),
        At(None, "--upload-pack=touch pwned"),
        At(None, "file:///nowhere/at/all"),
        None,
    ],
)
def test_a_clone_that_fails_leaves_nothing(
    tmp_path: Path, location: At | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RepositoryError) as caught:
        Repositories(tmp_path / "bare", 60).ensure("o/n", location)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "bare" / "o__n").exists()
    incoming = tmp_path / "bare" / ".incoming"
    assert not incoming.exists() or not list(incoming.iterdir())


def test_a_killed_clone_is_swept_by_the_next(tmp_path: Path, many: Made) -> None:
    left = tmp_path / "bare" / ".incoming" / "o__n@dead"
    left.mkdir(parents=True)
    other = tmp_path / "bare" / ".incoming" / "o__n2@alive"
    other.mkdir()
    Repositories(tmp_path / "bare", 60).ensure("o/n", many)
    assert not left.exists() and other.exists()


def test_a_blobless_clone_is_refused(tmp_path: Path, many: Made) -> None:
    run_git("config", "uploadpack.allowFilter", "true", cwd=many.local)
    blobless = tmp_path / "blobless.git"
    run_git("clone", "-q", "--bare", "--filter=blob:none", f"file://{many.local}", str(blobless), cwd=tmp_path)
    with pytest.raises(RepositoryError, match="partial clone"):
        Repositories(tmp_path / "bare", 60).ensure("o/n", At(blobless))


def test_hooks_and_templates_do_not_run(tmp_path: Path, many: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    template = tmp_path / "template"
    (template / "hooks").mkdir(parents=True)
    for hook in ("post-checkout", "reference-transaction"):
        (template / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
        (template / "hooks" / hook).chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\nhooksPath = {template}/hooks\n[init]\ntemplateDir = {template}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(config.read_text())
    clone = Repositories(tmp_path / "bare", 60).ensure("o/n", many)
    assert not (clone.path / "hooks").exists()
    assert not (tmp_path / "pwned").exists()


def test_folder_names_never_collide() -> None:
    names = ["a/b", "a__b/c", "a/b__c", "a/b/c", "../../x", "a b/c", "a/.git", "é/x", "x" * 300, ""]
    folders = [folder_name(name) for name in names]
    assert folders[0] == "a__b" and folder_name("django/django") == "django__django"
    assert len(set(folders)) == len(names)
    assert all(len(f) < 120 and "/" not in f and not f.startswith(".") for f in folders)


def test_a_changed_source_is_followed(tmp_path: Path, many: Made) -> None:
    repositories = Repositories(tmp_path / "bare", 60)
    repositories.ensure("o/n", many)
    moved = make_repository(tmp_path / "moved.git", [{"b.py": b"moved\n"}])
    clone = repositories.ensure("o/n", moved)
    repositories.fetch_commit(clone, moved.commits[0])
    assert held(repositories, clone, moved.commits[0])


@pytest.fixture
def slow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git that never ends, with a helper whose process id it writes into the file given back."""
    script = f"[ $1 = version ] && exec echo git version 2.39.5\nsleep 300 &\necho $! > {tmp_path}/child\nwait\n"
    (tmp_path / "git").write_text(f"#!/bin/sh\n{script}")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "child"


@pytest.mark.parametrize("command", ["clone", "status"])
def test_git_is_killed_at_its_deadline(tmp_path: Path, many: Made, slow_git: Path, command: str) -> None:
    with pytest.raises(GitError, match=f"git {command} took longer than 1 s"):
        if command == "clone":
            clone(str(many.local), tmp_path / "clone.git", Limits(1))
        else:
            with open_repository(many.local, Limits(1)) as repo:
                repo.git.status()
    assert_gone(int(slow_git.read_text()))


def test_stop_ends_a_clone(tmp_path: Path, many: Made, slow_git: Path) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    with pytest.raises(RepositoryError, match="was stopped"):
        Repositories(tmp_path / "bare", 60, stop=stop).ensure("o/n", many)
    assert_gone(int(slow_git.read_text()))


def test_ctrl_c_ends_git(tmp_path: Path, many: Made, slow_git: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from codegrep.issues.git import Limits, clone;"
        "clone(sys.argv[1], Path(sys.argv[2]), Limits())"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(many.local), str(tmp_path / "c.git")], start_new_session=True
    )
    deadline = time.monotonic() + 30
    while not (slow_git.exists() and slow_git.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert child.wait(10) != 0
    assert_gone(int(slow_git.read_text()))


def test_a_damaged_clone_is_never_taken_for_the_repository_around_it(tmp_path: Path) -> None:
    around = make_repository(tmp_path / "around" / ".git", [{"a.py": b"1\n"}])
    inner = make_repository(tmp_path / "around" / "inner", [{"a.py": b"2\n"}])
    (inner.local / "HEAD").write_text("")
    with pytest.raises(GitError), open_repository(inner.local) as repo:
        repo.git.cat_file("-e", around.commits[0])


def test_objects_are_asked_for_through_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_repository(tmp_path / "source.git", [{"a b.py": b"1\n", "c.py": b"2\n"}])
    started = []
    real = subprocess.Popen
    monkeypatch.setattr("subprocess.Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])
    with open_repository(made.local) as repo:
        commit = made.commits[0]
        names = [
            commit,
            f"{commit}:a b.py",
            f"{commit}:c.py",
            f"{commit}:d.py",
            f"{commit}:x y z",
            "1" * 40,
            "a\nb",
            "",
        ]
        assert [holds(repo, name) for name in names] == [True, True, True, *[False] * 5]
        assert blob(repo, f"{commit}:a b.py") == b"1\n"
    assert len(started) == 2  # one for headers, one for contents
    assert all(process.poll() is not None for process in started)


def test_a_repository_that_git_refuses_is_an_error_and_no_missing_object(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "source.git", [{"a.py": b"1\n"}])
    run_git("config", "core.repositoryFormatVersion", "1", cwd=made.local)
    run_git("config", "extensions.unheardOf", "true", cwd=made.local)
    with pytest.raises(GitError, match="unknown repository extension"), open_repository(made.local) as repo:
        holds(repo, made.commits[0])


def test_the_environment_asks_nobody_and_forgets_the_callers_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("https_proxy", "http://proxy")
    for isolated in (True, False):
        environment = git_environment(isolated)
        assert "GIT_DIR" not in environment
        assert environment["GIT_TERMINAL_PROMPT"] == "0" and environment["GIT_ASKPASS"] == "echo"
        assert (environment.get("https_proxy") is None) == isolated
    assert "API_TOKEN" not in git_environment(isolated=True)
    assert without_credentials("fatal: https://user:token@host/x") == "fatal: https://host/x"


def test_first_commits_are_those_of_all_branches_and_are_listed_again_when_one_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_repository(tmp_path / "source.git", [{"a.py": b"1\n"}, {"a.py": b"2\n"}])
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.ensure("o/n", made)
    assert repositories.roots(clone) == (made.commits[0],)
    asked: list[str] = []
    started = subprocess.Popen

    def counting(command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        asked.append(command[1])
        return started(command, **more)

    monkeypatch.setattr("codegrep.issues.git.subprocess.Popen", counting)
    assert repositories.roots(clone) == (made.commits[0],) and asked == ["for-each-ref"]
    tree = run_git("rev-parse", f"{made.commits[0]}^{{tree}}", cwd=clone.path).strip()
    person = ["-c", "user.name=t", "-c", "user.email=t@invalid"]
    pages = run_git(*person, "commit-tree", tree, "-m", "pages", cwd=clone.path).strip()
    run_git("update-ref", "refs/heads/pages", pages, cwd=clone.path)
    assert repositories.roots(clone) == tuple(sorted((made.commits[0], pages))) and "rev-list" in asked


def test_the_oldest_commit_of_a_shallow_clone_is_no_first_commit(tmp_path: Path) -> None:
    made = make_repository(tmp_path / "source.git", [{"a.py": b"1\n"}, {"a.py": b"2\n"}])
    run_git("clone", "-q", "--depth=1", f"file://{made.local}", str(tmp_path / "shallow"), cwd=tmp_path)
    repositories = Repositories(tmp_path / "bare", 60)
    assert repositories.roots(repositories.ensure("o/n", At(tmp_path / "shallow"))) == ()
