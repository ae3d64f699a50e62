"""A lease that was released is kept for a moment, and stands in nobody's way."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from codegrep.sandbox import Repositories, Worktrees
from tests.sandbox.trees import Made, assert_no_leases


def worktrees(folder: Path, made: Made, **options: float) -> Worktrees:
    repositories = Repositories(folder / "bare", 60)
    repositories.ensure("o/n", made)
    return Worktrees(folder / "trees", repositories, **options)  # type: ignore[arg-type]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "trees" / ".ledger").glob("*/leases/*"))


def test_the_next_lease_stands_on_the_same_file_until_its_time_has_passed(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many, linger=0.3)
    first = trees.lease("o/n", many.commits[0])
    (name,) = files(tmp_path)
    first.release()
    first.release()
    second, third = trees.lease("o/n", many.commits[0]), trees.lease("o/n", many.commits[0])
    assert files(tmp_path) == [name] and second.path == first.path and trees.counts.leases == 3
    second.release()
    time.sleep(0.5)
    assert files(tmp_path) == [name]  # the third one holds it
    third.release()
    assert files(tmp_path) == [name]
    assert_no_leases(tmp_path / "trees", 5)
    trees.lease("o/n", many.commits[0]).release()
    assert len(files(tmp_path)) == 1 and files(tmp_path) != [name]
    trees.close()
    assert files(tmp_path) == []


def test_its_own_budget_takes_a_tree_that_only_lingers(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many, max_worktrees=2, linger=600.0)
    held = trees.lease("o/n", many.commits[0])
    for commit in many.commits[1:5]:
        trees.lease("o/n", commit).release()
    there = {p.name for p in (tmp_path / "trees").iterdir() if not p.name.startswith(".")}
    assert there == {f"o__n_{many.commits[i][:8]}" for i in (0, 4)} and trees.counts.removals == 3
    assert (held.path / "which.py").read_text() == "0\n"
    trees.close()


def test_for_others_it_is_a_lease(tmp_path: Path, many: Made) -> None:
    ours, theirs = worktrees(tmp_path, many, linger=600.0), worktrees(tmp_path, many, max_worktrees=1)
    lease = ours.lease("o/n", many.commits[0])
    lease.release()
    theirs.lease("o/n", many.commits[1]).release()
    assert lease.path.exists()
    ours.close()
    theirs.lease("o/n", many.commits[2]).release()
    assert not lease.path.exists()


def test_a_tree_that_was_deleted_by_hand_is_made_anew(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many, linger=600.0)
    lease = trees.lease("o/n", many.commits[0])
    lease.release()
    shutil.rmtree(lease.path)
    assert (trees.lease("o/n", many.commits[0]).path / "which.py").read_text() == "0\n"
    assert len(files(tmp_path)) == 1 and trees.counts.adds == 2
    trees.close()


def test_threads_lease_and_release_while_the_budget_removes(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many, max_worktrees=2, linger=0.01)
    wrong: list[str] = []

    def use(number: int) -> None:
        for turn in range(15):
            with trees.lease("o/n", many.commits[(number + turn) % 4]) as lease:
                if (lease.path / "which.py").read_text() != f"{(number + turn) % 4}\n":
                    wrong.append(lease.commit)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert_no_leases(tmp_path / "trees", 5)
    trees.close()
