"""Worktrees: one a commit, leased between processes, repaired after kill -9."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from codegrep.errors import DiskError, InfrastructureError, RepositoryError
from codegrep.sandbox import Repositories, Worktrees
from codegrep.sandbox.locks import FileLock
from tests.sandbox.trees import Made, make_repository, run_git

ROOT = Path(__file__).parents[2]


def worktrees(folder: Path, made: Made, **options: float) -> Worktrees:
    repositories = Repositories(folder / "bare", 60)
    repositories.ensure("o/n", made)
    return Worktrees(folder / "trees", repositories, **options)  # type: ignore[arg-type]


def registered(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "bare" / "o__n" / "worktrees").iterdir())


def start(code: str, folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    prelude = (
        "import os, sys, time\nfrom pathlib import Path\nfrom codegrep.sandbox import Repositories, Worktrees\n"
        "folder = Path(sys.argv[1])\ntrees = Worktrees(folder / 'trees', Repositories(folder / 'bare', 60))\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code, str(folder), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: object, seconds: float = 30.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.01)


def test_a_lease_is_the_tree_of_its_commit(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    with trees.lease("o/n", many.commits[3]) as lease:
        assert lease.path == (tmp_path / "trees" / f"o__n_{many.commits[3][:8]}").resolve()
        assert (lease.path / "which.py").read_text() == "3\n"
        assert run_git("status", "--porcelain", cwd=lease.path) == ""
    with trees.lease("o/n", many.commits[3]) as again:
        assert again.path == lease.path
    assert trees.counts.adds == 1 and trees.counts.leases == 2
    assert not [p for p in lease.path.iterdir() if p.name not in (*(f"pkg{i}" for i in range(7)), "which.py", ".git")]


def test_commits_that_share_their_first_digits_have_their_own_trees(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    first, second = many.commits[:2]
    with trees.lease("o/n", first):
        pass
    # As if `first` had been taken under the name of `second`.
    ledger = tmp_path / "trees" / ".ledger"
    (ledger / f"o__n_{first[:8]}").rename(ledger / f"o__n_{second[:8]}")
    with trees.lease("o/n", second) as lease:
        assert lease.path.name == f"o__n_{second[:16]}"
        assert (lease.path / "which.py").read_text() == "1\n"


def test_forty_leases_from_four_processes(tmp_path: Path, many: Made) -> None:
    worktrees(tmp_path, many)
    code = """
import random
from concurrent.futures import ThreadPoolExecutor
commits = sys.argv[3:]
def one(i):
    with trees.lease('o/n', commits[i % len(commits)]) as lease:
        assert (lease.path / 'which.py').read_text() == f'{i % len(commits)}\\n', lease.path
        assert len(list(lease.path.rglob('*.py'))) == 61, lease.path
numbers = list(range(10)) * 1
random.Random(int(sys.argv[2])).shuffle(numbers)
with ThreadPoolExecutor(10) as pool:
    list(pool.map(one, numbers))
print(trees.counts.adds)
"""
    children = [start(code, tmp_path, str(n), *many.commits[:8]) for n in range(4)]
    added = [int(child.communicate(timeout=120)[0]) for child in children]
    assert [child.returncode for child in children] == [0] * 4
    assert sum(added) == 8  # each commit was added once, whoever came first
    assert len(registered(tmp_path)) == 8


def test_adds_and_fetches_at_the_same_time(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    repositories = Repositories(tmp_path / "bare", 60)
    clone = repositories.open("o/n")

    def fetch(_: int) -> bool:
        try:
            repositories.fetch_commit(clone, "1" * 40)
        except RepositoryError:
            return True
        return False

    def add(commit: str) -> bool:
        with trees.lease("o/n", commit) as lease:
            return (lease.path / "which.py").exists()

    with ThreadPoolExecutor(16) as pool:
        fetched = [pool.submit(fetch, i) for i in range(6)]
        added = [pool.submit(add, commit) for commit in many.commits]
        assert all(f.result() for f in [*fetched, *added])


def test_an_add_waits_for_the_lock_on_the_real_path_of_the_clone(tmp_path: Path, many: Made) -> None:
    worktrees(tmp_path, many)
    (tmp_path / "other name").symlink_to(tmp_path / "bare")
    trees = Worktrees(tmp_path / "trees", Repositories(tmp_path / "other name", 60))
    clone = Repositories(tmp_path / "bare", 60).open("o/n")
    with ThreadPoolExecutor(1) as pool:
        with FileLock(clone.lock_path):
            adding = pool.submit(trees.lease, "o/n", many.commits[0])
            time.sleep(0.5)
            assert not adding.done() and not (clone.path / "worktrees").exists()
        assert (adding.result().path / "which.py").exists()


def test_nothing_of_the_repository_or_of_the_person_changes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        ".gitattributes": b"*.txt text eol=crlf\n*.bin filter=lfs\n*.id ident\n*.u working-tree-encoding=UTF-16\n",
        "unix.txt": b"a\nb\n",
        "dos.txt": b"a\r\nb\r\n",
        "pointer.bin": b"version https://git-lfs.github.com/spec/v1\n",
        "x.id": b"$Id$\n",
        "w.u": b"plain\n",
        ".gitmodules": b'[submodule "s"]\n\tpath = s\n\turl = ../elsewhere\n',
    }
    made = make_repository(tmp_path / "source.git", [files])
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-checkout").write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned\n")
    (hooks / "post-checkout").chmod(0o755)
    (tmp_path / ".gitconfig").write_text(
        f"[core]\nautocrlf = true\nhooksPath = {hooks}\n"
        f'[filter "lfs"]\nsmudge = touch {tmp_path}/pwned\nprocess = touch {tmp_path}/pwned\nrequired = true\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    with worktrees(tmp_path, made).lease("o/n", made.commits[0]) as lease:
        assert {name: (lease.path / name).read_bytes() for name in files} == files
    assert not (tmp_path / "pwned").exists()


def test_the_least_recently_used_tree_goes_and_a_leased_one_never(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many, max_worktrees=3)
    held = trees.lease("o/n", many.commits[0])
    for commit in many.commits[1:6]:
        trees.lease("o/n", commit).release()
        time.sleep(0.01)
    there = {p.name for p in (tmp_path / "trees").iterdir() if not p.name.startswith(".")}
    assert there == {f"o__n_{many.commits[i][:8]}" for i in (0, 4, 5)}
    assert (held.path / "which.py").read_text() == "0\n"
    assert len(registered(tmp_path)) == 3
    assert trees.counts.removals == 3
    held.release()
    trees.lease("o/n", many.commits[6]).release()
    assert not held.path.exists()


def test_a_lease_of_another_process_keeps_its_tree_until_that_process_dies(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many, max_worktrees=1)
    child = start(
        "l = trees.lease('o/n', sys.argv[2])\nprint(l.path, flush=True)\ntime.sleep(60)", tmp_path, many.commits[0]
    )
    assert child.stdout is not None
    path = Path(child.stdout.readline().strip())
    trees.lease("o/n", many.commits[1]).release()
    assert path.exists()
    assert trees.repair() == [] and path.exists()
    child.send_signal(signal.SIGKILL)
    child.wait()
    trees.lease("o/n", many.commits[2]).release()
    assert not path.exists()


def test_too_little_disk_is_said_before_anything_is_written(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many, min_free_gib=1e9)
    with pytest.raises(DiskError, match=r"min_free_gib"):
        trees.lease("o/n", many.commits[0])
    assert not [p for p in (tmp_path / "trees").iterdir() if not p.name.startswith(".")]


def test_full_disk_makes_room_first_and_a_leased_tree_never_goes(
    tmp_path: Path, many: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = worktrees(tmp_path, many, min_free_gib=1.0)
    held = trees.lease("o/n", many.commits[0])
    trees.lease("o/n", many.commits[1]).release()
    free = iter([0.5, 0.5, 0.5, 2.0, 2.0])  # until one tree is gone

    def usage(path: object) -> SimpleNamespace:
        return SimpleNamespace(free=next(free, 2.0) * 2**30)

    monkeypatch.setattr("codegrep.sandbox.budget.shutil.disk_usage", usage)
    trees.lease("o/n", many.commits[2]).release()
    there = {p.name for p in (tmp_path / "trees").iterdir() if not p.name.startswith(".")}
    assert there == {f"o__n_{many.commits[i][:8]}" for i in (0, 2)} and held.path.name in there


def test_a_disk_budget_removes_the_least_recently_used(tmp_path: Path) -> None:
    trees_of_files = [{f"f{i}.bin": b"%d" % n + bytes(100_000) for i in range(5)} for n in range(4)]
    made = make_repository(tmp_path / "source.git", trees_of_files)
    trees = worktrees(tmp_path, made, max_disk_gib=1_200_000 / 2**30)  # two trees of 500 kB, not three
    for commit in made.commits:
        trees.lease("o/n", commit).release()
        time.sleep(0.01)
    there = {p.name for p in (tmp_path / "trees").iterdir() if not p.name.startswith(".")}
    assert {f"o__n_{made.commits[3][:8]}"} < there and len(there) == 3 and trees.counts.removals == 1
    held = [trees.lease("o/n", commit) for commit in made.commits]
    assert all((lease.path / "f0.bin").exists() for lease in held)


ODD: dict[str, bytes | str] = {
    "same/a.py": b"1\n",
    "same/deep/b.py": b"2\n" * 1000,
    "link": "same/a.py",
    "out": "../../outside",
    "new\nline.py": b"n\n",
    "empty.py": b"",
    ".github/x.yml": b"x: 1\n",
}


def test_trees_of_one_repository_share_their_files(tmp_path: Path) -> None:
    second = {**ODD, "changed.py": b"2\n", "same/deep/b.py": b"another\n", "added/x/y.py": b"y\n"}
    second.pop("empty.py")
    made = make_repository(tmp_path / "source.git", [{**ODD, "changed.py": b"1\n"}, second])
    trees = worktrees(tmp_path, made)
    first = trees.lease("o/n", made.commits[0])
    lease = trees.lease("o/n", made.commits[1])
    assert trees.counts.linked == 3
    assert (lease.path / "same/a.py").stat().st_ino == (first.path / "same/a.py").stat().st_ino
    assert (lease.path / "changed.py").read_bytes() == b"2\n" and (first.path / "changed.py").read_bytes() == b"1\n"
    for tree in (first.path, lease.path):
        assert run_git("status", "--porcelain", cwd=tree) == ""
    assert (lease.path / "link").is_symlink() and not (lease.path / "empty.py").exists()
    first.release()
    shutil.rmtree(first.path)  # what is borrowed stays whole without its lender
    trees.repair()
    assert run_git("status", "--porcelain", cwd=lease.path) == ""
    assert {p.relative_to(lease.path).as_posix() for p in lease.path.rglob("*") if not p.is_dir()} >= set(second) - {
        "out"
    }


def test_git_never_writes_through_a_shared_file(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    first, second = (trees.lease("o/n", commit) for commit in many.commits[:2])
    shared = Path("pkg0/mod0.py")
    assert (first.path / shared).stat().st_ino == (second.path / shared).stat().st_ino
    before = (first.path / shared).read_bytes()
    run_git("rm", "-q", "--cached", str(shared), cwd=second.path)
    run_git("reset", "-q", "--hard", cwd=second.path)  # what mending a tree does
    assert (first.path / shared).read_bytes() == before == (second.path / shared).read_bytes()


def test_executable_files_and_submodules_come_through(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run_git("init", "-q", "-b", "main", cwd=work)
    identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    (work / "run.sh").write_text("#!/bin/sh\n")
    (work / "run.sh").chmod(0o755)
    for i in range(4):
        (work / f"f{i}").write_text(f"{i}\n")
    run_git("add", ".", cwd=work)
    run_git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module", cwd=work)
    commits = []
    for number in range(2):
        (work / "n").write_text(f"{number}\n")
        run_git("add", "n", cwd=work)
        run_git(*identity, "commit", "-q", "-m", "x", cwd=work)
        commits.append(run_git("rev-parse", "HEAD", cwd=work).strip())
    (work / "run.sh").chmod(0o644)
    run_git("add", "run.sh", cwd=work)
    run_git(*identity, "commit", "-q", "-m", "x", cwd=work)
    commits.append(run_git("rev-parse", "HEAD", cwd=work).strip())
    trees = worktrees(tmp_path, Made(work, commits))
    leases = [trees.lease("o/n", commit) for commit in commits]
    assert trees.counts.linked > 0
    assert [os.access(lease.path / "run.sh", os.X_OK) for lease in leases] == [True, True, False]
    assert all((lease.path / "module").is_dir() for lease in leases)


def test_a_folder_in_the_way_is_left_alone(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    mine = trees.root / f"o__n_{many.commits[0][:8]}"
    mine.mkdir()
    (mine / "precious").write_text("x")
    with pytest.raises(InfrastructureError, match="in the way"):
        trees.lease("o/n", many.commits[0])
    trees.repair()
    assert (mine / "precious").read_text() == "x"


def test_missing_commit_and_unknown_repository(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    with pytest.raises(RepositoryError, match="neither in the clone"):
        trees.lease("o/n", "1" * 40)
    with pytest.raises(RepositoryError, match="no clone of"):
        trees.lease("other/name", many.commits[0])


def test_repair_touches_only_what_the_ledger_names(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    lease = trees.lease("o/n", many.commits[0])
    lease.release()
    foreign = tmp_path / "foreign"
    bare = tmp_path / "bare" / "o__n"
    run_git("worktree", "add", "-q", "--detach", str(foreign), many.commits[1], cwd=bare)
    (bare / "worktrees" / "foreign" / "index.lock").touch()
    stray = trees.root / "stray"
    stray.mkdir()
    (bare / "worktrees" / lease.path.name / "index.lock").touch()  # left by a repair that was killed
    (lease.path / "which.py").unlink()
    assert trees.repair() == []
    with trees.lease("o/n", many.commits[0]) as again:
        assert (again.path / "which.py").read_text() == "0\n"
    assert stray.exists() and foreign.exists() and (bare / "worktrees" / "foreign" / "index.lock").exists()


def test_repair_mends_what_is_half_there(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    leases = [trees.lease("o/n", commit) for commit in many.commits[:4]]
    for lease in leases:
        lease.release()
    names = [lease.path.name for lease in leases]
    ledger, bare = trees.root / ".ledger", tmp_path / "bare" / "o__n" / "worktrees"
    (ledger / names[0] / "complete").unlink()  # killed in the checkout
    (ledger / names[1] / "complete").unlink()  # killed in the add: a registration that is locked and names no tree
    (bare / names[1] / "gitdir").unlink()
    (bare / names[1] / "commondir").unlink()
    (bare / names[1] / "locked").write_text("initializing")
    shutil.rmtree(leases[1].path)
    shutil.rmtree(leases[2].path)  # the tree was deleted by hand
    (leases[3].path / "which.py").write_bytes(b"")  # the machine went down; a file was not written out
    assert len(trees.repair()) == 3
    assert registered(tmp_path) == [names[3]]
    assert trees.repair() == []
    for number, commit in enumerate(many.commits[:4]):
        with trees.lease("o/n", commit) as lease:
            assert (lease.path / "which.py").read_text() == f"{number}\n"


@pytest.mark.parametrize("phase", ["worktree", "reset", "read-tree", "checkout-index"])
def test_git_that_outlives_its_killed_parent_keeps_the_lock(tmp_path: Path, many: Made, phase: str) -> None:
    trees = worktrees(tmp_path, many)
    # A tree of the repository that the new one borrows from; alone, git's own checkout makes all files.
    other = trees.lease("o/n", many.commits[5]) if phase != "reset" else None
    slow = tmp_path / "bin"
    slow.mkdir()
    real = shutil.which("git")
    (slow / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" {phase} "*)\n'
        f"touch {tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done;;\nesac\n"
        f'exec {real} "$@"\n'
    )
    (slow / "git").chmod(0o755)
    child = start("trees.lease('o/n', sys.argv[2])", tmp_path, many.commits[0], PATH=f"{slow}:{os.environ['PATH']}")
    wait_for((tmp_path / "begun").exists)
    child.send_signal(signal.SIGKILL)
    child.wait()
    # git still writes: nobody may take its tree away yet.
    assert trees.repair() == []
    assert not FileLock(trees.root / ".locks" / f"o__n_{many.commits[0][:8]}.lock").try_acquire()
    (tmp_path / "go").touch()
    name = f"o__n_{many.commits[0][:8]}"
    done: list[str] = []
    wait_for(lambda: done.extend(trees.repair()) or done)
    assert done == [f"removed the unfinished tree {name}"]
    assert registered(tmp_path) == ([other.path.name] if other else [])
    assert other is None or (other.path / "which.py").read_text() == "5\n"
    with trees.lease("o/n", many.commits[0]) as lease:
        assert (lease.path / "which.py").read_text() == "0\n"


def test_kill_dash_nine_at_any_moment(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    held = trees.lease("o/n", many.commits[-1])
    code = "print('x', flush=True)\nfor commit in sys.argv[2:]: trees.lease('o/n', commit)"
    rng = random.Random(7)
    for round_number in range(8):
        commits = rng.sample(many.commits[:-1], 6)
        child = start(code, tmp_path, *commits)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(rng.random() * 0.25)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        if round_number % 2:
            continue  # the next process meets the mess without a repair
        wait_for(lambda: trees.repair() == [])
    assert (held.path / "which.py").read_text() == f"{len(many.commits) - 1}\n"
    wait_for(lambda: trees.repair() == [])
    for number, commit in enumerate(many.commits):
        with trees.lease("o/n", commit) as lease:
            assert (lease.path / "which.py").read_text() == f"{number}\n"
            assert run_git("status", "--porcelain", cwd=lease.path) == ""
    assert not list((trees.root / ".trash").iterdir())
    # A child of a killed process holds its owner's lock too until it has become git.
    wait_for(lambda: trees.repair() == [] and len(list((trees.root / ".owners").iterdir())) == 1)


def test_close_ends_all_leases(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    trees.lease("o/n", many.commits[0])
    trees.close()
    other = worktrees(tmp_path, many, max_worktrees=1)
    other.lease("o/n", many.commits[1])
    assert len(registered(tmp_path)) == 1
