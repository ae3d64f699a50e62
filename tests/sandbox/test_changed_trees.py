"""A tree that somebody changed is mended or the machine's fault; what it answered is never an empty result."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from codegrep.config import SandboxConfig
from codegrep.errors import InfrastructureError
from codegrep.protocol.calls import ToolCall, ToolResult, ToolStatus
from codegrep.sandbox import Repositories, Sandbox, Worktrees
from tests.sandbox.trees import Made, run_git, tool_limits

FILE = "pkg0/mod0.py"
RIGHT = b"def f0():\n    return 0\n" * 20


def delete(tree: Path) -> None:
    (tree / FILE).unlink()


def delete_a_folder(tree: Path) -> None:
    for path in (tree / "pkg1").iterdir():
        path.unlink()
    (tree / "pkg1").rmdir()


def overwrite(tree: Path) -> None:
    (tree / FILE).write_bytes(b"changed\n")


def replace_by_one_of_the_same_size_and_time(tree: Path) -> None:
    before = (tree / FILE).stat()
    fresh = tree / "fresh"
    fresh.write_bytes(RIGHT.replace(b"f0", b"g0"))
    os.utime(fresh, ns=(before.st_atime_ns, before.st_mtime_ns))
    fresh.rename(tree / FILE)


def add(tree: Path) -> None:
    (tree / "build").mkdir()
    (tree / "build" / "stray.py").write_text("def stray(): pass\n")


def lose_the_content_but_neither_size_nor_name(tree: Path) -> None:
    (tree / FILE).write_bytes(bytes(len(RIGHT)))


def make_executable(tree: Path) -> None:
    (tree / FILE).chmod(0o755)


def lose_the_link_to_git(tree: Path) -> None:
    (tree / ".git").write_text("gitdir: /nowhere\n")


CHANGES = [
    delete,
    delete_a_folder,
    overwrite,
    replace_by_one_of_the_same_size_and_time,
    add,
    lose_the_content_but_neither_size_nor_name,
    make_executable,
    lose_the_link_to_git,
]


def worktrees(folder: Path, made: Made) -> Worktrees:
    repositories = Repositories(folder / "bare", 60)
    repositories.ensure("o/n", made)
    return Worktrees(folder / "trees", repositories)


def assert_right(tree: Path) -> None:
    assert run_git("status", "--porcelain", "--ignored", cwd=tree) == ""
    assert (tree / FILE).read_bytes() == RIGHT


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_tree_is_mended_at_its_next_lease(tmp_path: Path, many: Made, change: Callable[[Path], None]) -> None:
    trees = worktrees(tmp_path, many)
    lease = trees.lease("o/n", many.commits[0])
    lease.release()
    change(lease.path)
    with trees.lease("o/n", many.commits[0]) as again:
        assert again.path == lease.path and again.digest != lease.digest
        assert_right(again.path)
    with trees.lease("o/n", many.commits[0]) as unchanged:
        assert unchanged.digest == again.digest
    assert trees.counts.repairs + trees.counts.adds == 2


def test_a_tree_that_changed_while_somebody_uses_it_is_the_machines_fault(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    lease = trees.lease("o/n", many.commits[0])
    delete(lease.path)
    with pytest.raises(InfrastructureError, match="was changed") as caught:
        trees.lease("o/n", many.commits[0])
    assert "\n" not in str(caught.value) and not (lease.path / FILE).exists()
    lease.release()
    with trees.lease("o/n", many.commits[0]) as mended:
        assert_right(mended.path)


@pytest.mark.parametrize("change", [delete, overwrite])
def test_nothing_is_borrowed_from_a_changed_tree(tmp_path: Path, many: Made, change: Callable[[Path], None]) -> None:
    trees = worktrees(tmp_path, many)
    lease = trees.lease("o/n", many.commits[0])
    lease.release()
    change(lease.path)
    with trees.lease("o/n", many.commits[1]) as other:
        assert_right(other.path)
    assert trees.counts.linked == 0


def test_a_file_that_trees_share_is_mended_in_each(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    first, second = (trees.lease("o/n", commit) for commit in many.commits[:2])
    for lease in (first, second):
        lease.release()
    overwrite(first.path)
    assert (second.path / FILE).read_bytes() == b"changed\n"
    for lease in (first, second):
        with trees.lease("o/n", lease.commit) as mended:
            assert_right(mended.path)
    untouched = "pkg2/mod2.py"
    assert (first.path / untouched).stat().st_ino == (second.path / untouched).stat().st_ino


def test_a_tree_without_a_digest_is_checked_file_by_file(tmp_path: Path, many: Made) -> None:
    trees = worktrees(tmp_path, many)
    lease = trees.lease("o/n", many.commits[0])
    lease.release()
    complete = trees.root / ".ledger" / lease.path.name / "complete"
    complete.write_text("")
    overwrite(lease.path)
    with trees.lease("o/n", many.commits[0]) as mended:
        assert_right(mended.path)


# --- in a sandbox -----------------------------------------------------------------------------------------------------


def sandbox(folder: Path, made: Made) -> Sandbox:
    settings = SandboxConfig(clone_timeout=60, min_free_gib=0, actors=1, max_worktrees=0)
    return Sandbox.under(folder, tool_limits(), settings, {"o/n": made})


def ask(box: Sandbox, made: Made, name: str, **arguments: str) -> ToolResult:
    return asyncio.run(box.run_turn("o/n", made.commits[0], [ToolCall(name, arguments)]))[0]


def tree_of(box: Sandbox, made: Made) -> Path:
    return box.worktrees.root / f"o__n_{made.commits[0][:8]}"


@pytest.mark.parametrize("change", [delete, overwrite])
@pytest.mark.parametrize(
    ("tool", "arguments"), [("grep", {"pattern": "def f0"}), ("glob", {"pattern": "mod0.*"}), ("read", {"path": FILE})]
)
def test_an_empty_answer_of_a_changed_tree_is_the_machines_fault(
    tmp_path: Path, many: Made, change: Callable[[Path], None], tool: str, arguments: dict[str, str]
) -> None:
    box = sandbox(tmp_path, many)
    assert ask(box, many, "read", path="which.py").status is ToolStatus.OK  # from here on its lease lingers
    change(tree_of(box, many))
    result = ask(box, many, tool, **arguments)
    if change is overwrite and tool != "grep":
        return  # the answer is not empty: noticed at the next lease only
    assert result.status is ToolStatus.INFRASTRUCTURE and "changed" in result.text
    again = ask(box, many, tool, **arguments)
    assert again.status is ToolStatus.OK and FILE in {match.path for match in again.files}
    box.close()


def test_names_that_went_are_noticed_at_every_empty_answer(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many)
    for pattern in ("nowhere", "nowhere else"):
        assert ask(box, many, "grep", pattern=pattern).text.startswith("[no matching")
    delete(tree_of(box, many))
    assert ask(box, many, "grep", pattern="def f0").status is ToolStatus.INFRASTRUCTURE
    box.close()


def test_what_a_changed_tree_answered_is_not_given_again(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many)
    ask(box, many, "read", path="which.py")
    add(tree_of(box, many))
    for _ in range(2):
        assert ask(box, many, "grep", pattern="def stray").files and ask(box, many, "glob", pattern="stray*").files
    box.worktrees.close()
    for _ in range(2):
        assert not ask(box, many, "grep", pattern="def stray").files
        assert not ask(box, many, "glob", pattern="stray*").files
    box.close()


# --- what is left open ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leases", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_leases_leave_no_process_and_no_descriptor(tmp_path: Path, many: Made, leases: int) -> None:
    trees = worktrees(tmp_path, many)
    me = psutil.Process()

    def use(count: int) -> tuple[int, int]:
        for number in range(count):
            trees.lease("o/n", many.commits[number % len(many.commits)]).release()
            if number % 20 == 0:  # made again, through git
                trees._remove_unleased(f"o__n_{many.commits[number % len(many.commits)][:8]}")
        return me.num_fds(), len(me.children(recursive=True))

    assert use(leases) == use(30)
    trees.close()
