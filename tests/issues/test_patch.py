from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.issues.commit_log import read_patches
from codegrep.issues.issue import LineRange
from codegrep.issues.patch import PatchError, parse_patch
from codegrep.issues.patch_names import unquote


def diff(body: str, old: str = "a/f.py", new: str = "b/f.py") -> str:
    return f"diff --git a/f.py b/f.py\n--- {old}\n+++ {new}\n{body}"


def ranges(text: str) -> list[tuple[int, int]]:
    return [(found.start, found.end) for found in parse_patch(text).old_ranges]


def test_range_is_the_changed_part_without_context() -> None:
    text = diff("@@ -10,7 +10,6 @@ def f():\n a\n b\n c\n-d\n-e\n+D\n f\n g\n")
    assert parse_patch(text).old_ranges == (LineRange("f.py", 13, 14),)


def test_interior_context_belongs_to_the_range() -> None:
    assert ranges(diff("@@ -1,5 +1,3 @@\n a\n-b\n c\n-d\n e\n")) == [(2, 4)]


def test_pure_insertion_is_anchored_at_the_line_before() -> None:
    assert ranges(diff("@@ -10,4 +10,5 @@\n a\n b\n+new\n c\n d\n")) == [(11, 11)]
    assert ranges(diff("@@ -5,0 +6,2 @@\n+x\n+y\n")) == [(5, 5)]  # without context git names the line before
    assert ranges(diff("@@ -1,2 +1,3 @@\n+top\n a\n b\n")) == [(1, 1)]
    assert ranges(diff("@@ -0,0 +1 @@\n+only\n")) == [(1, 1)]


def test_insertion_at_the_edge_does_not_widen_a_removal() -> None:
    assert ranges(diff("@@ -1,3 +1,3 @@\n a\n+n\n-b\n c\n")) == [(2, 2)]
    assert ranges(diff("@@ -1,3 +1,3 @@\n a\n-b\n+n\n c\n")) == [(2, 2)]


def test_several_hunks_and_counts_of_one() -> None:
    assert ranges(diff("@@ -1 +1 @@\n-a\n+b\n@@ -9 +9 @@\n-a\n+b\n")) == [(1, 1), (9, 9)]


def test_hunk_content_that_looks_like_headers() -> None:
    text = diff("@@ -1,4 +1,4 @@\n a\n--- a/other.py\n+++ b/other.py\n-@@ -1 +1 @@\n+diff --git a/x b/x\n z\n")
    patch = parse_patch(text)
    assert patch.old_files == ("f.py",)
    assert patch.added_files == ()
    assert patch.old_ranges == (LineRange("f.py", 2, 3),)


@pytest.mark.parametrize("head", ["--- a/b.py\n+++ b/b.py\n", "diff --git a/b.py b/b.py\n--- a/b.py\n+++ b/b.py\n"])
@pytest.mark.parametrize("counts", ["1,9 +1,9", "1,4 +1,4", "1,3 +1,9", "1,9 +1,3"])
def test_a_hunk_that_announces_too_much_ends_at_the_next_file(head: str, counts: str) -> None:
    text = f"--- a/a.py\n+++ b/a.py\n@@ -{counts} @@\n x\n-y\n+Y\n z\n{head}@@ -1 +1 @@\n-u\n+U\n"
    assert parse_patch(text).old_ranges == (LineRange("a.py", 2, 2), LineRange("b.py", 1, 1))
    created = text.replace("--- a/b.py", "--- /dev/null").replace("@@ -1 +1 @@\n-u\n", "@@ -0,0 +1 @@\n")
    assert parse_patch(created).added_files == ("b.py",)


def test_comments_that_look_like_a_header_stay_content() -> None:
    text = diff("@@ -3 +3 @@\n--- one comment\n+++ another\n@@ -9 +9 @@\n-a\n+b\n")
    assert parse_patch(text).old_ranges == (LineRange("f.py", 3, 3), LineRange("f.py", 9, 9))


def test_no_newline_markers() -> None:
    text = diff("@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n")
    assert ranges(text + "diff --git a/g.py b/g.py\n--- a/g.py\n+++ b/g.py\n@@ -3 +3 @@\n-x\n+y\n") == [(2, 2), (3, 3)]


def test_crlf_throughout() -> None:
    text = diff("@@ -1,3 +1,3 @@\n a\n-b\n+c\n d\n").replace("\n", "\r\n")
    patch = parse_patch(text)
    assert patch.old_files == ("f.py",)
    assert patch.old_ranges == (LineRange("f.py", 2, 2),)


def test_form_feeds_and_separators_end_no_line() -> None:
    assert ranges(diff("@@ -1,3 +1,3 @@\n a\x0c\u2028b\n-b\x85\n+c\n d\n")) == [(2, 2)]


def test_blank_context_lines_that_lost_their_space() -> None:
    assert ranges(diff("@@ -1,4 +1,4 @@\n a\n\n\n-b\n+c")) == [(4, 4)]


def test_added_deleted_renamed_copied_binary_and_mode() -> None:
    text = (
        "diff --git a/new.py b/new.py\nnew file mode 100644\nindex 000..111\n"
        "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+x\n"
        "diff --git a/empty.py b/empty.py\nnew file mode 100644\nindex 000..111\n"
        "diff --git a/gone.py b/gone.py\ndeleted file mode 100644\n"
        "--- a/gone.py\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n"
        "diff --git a/gone_empty.py b/gone_empty.py\ndeleted file mode 100644\nindex 111..000\n"
        "diff --git a/was here.py b/is here.py\nsimilarity index 90%\nrename from was here.py\nrename to is here.py\n"
        "diff --git a/from.py b/copy.py\nsimilarity index 100%\ncopy from from.py\ncopy to copy.py\n"
        "diff --git a/pic.png b/pic.png\nindex 1..2 100644\nBinary files a/pic.png and b/pic.png differ\n"
        "diff --git a/run.py b/run.py\nold mode 100644\nnew mode 100755\n"
        "diff --git a/data.bin b/data.bin\nindex 1..2\nGIT binary patch\n"
        "literal 3\nKcmZ?wbhEHbRA\n\nliteral 0\nHcmV?d00001\n\n"
        "diff --git a/last.py b/last.py\n--- a/last.py\n+++ b/last.py\n@@ -2 +2 @@\n-x\n+y\n"
    )
    patch = parse_patch(text)
    assert patch.old_files == ("data.bin", "gone.py", "gone_empty.py", "last.py", "pic.png", "run.py", "was here.py")
    assert patch.added_files == ("empty.py", "new.py")
    assert LineRange("gone.py", 1, 2) in patch.old_ranges
    assert [change.old for change in patch.changes if change.binary] == ["pic.png", "data.bin"]


def test_file_created_and_then_changed_within_one_patch_is_not_old() -> None:
    text = "--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+x\n--- a/n.py\n+++ b/n.py\n@@ -1 +1 @@\n-x\n+y\n"
    assert parse_patch(text).old_files == ()


def test_quoted_names() -> None:
    quoted = '"a/caf\\303\\251 \\"x\\"\\t.py"'
    new = quoted.replace("a/", "b/")
    text = f"diff --git {quoted} {new}\n--- {quoted}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n"
    assert parse_patch(text).old_files == ('café "x"\t.py',)
    assert unquote('"\\377.py"') == "\ufffd.py"


def test_plain_diffs_time_stamps_and_prefixes() -> None:
    assert parse_patch("--- a/x y.py\t2024-01-01\n+++ b/x y.py\t2024-01-02\n@@ -1 +1 @@\n-a\n+b\n").old_files == (
        "x y.py",
    )
    assert parse_patch("--- src/x.py\n+++ src/x.py\n@@ -1 +1 @@\n-a\n+b\n").old_files == ("src/x.py",)
    assert parse_patch("--- a/x.py\n+++ a/x.py\n@@ -1 +1 @@\n-a\n+b\n").old_files == ("a/x.py",)
    assert parse_patch("diff --git i/x.py w/x.py\n--- i/x.py\n+++ w/x.py\n@@ -1 +1 @@\n-a\n+b\n").old_files == ("x.py",)
    assert parse_patch(
        "diff --git a.py a.py\nnew file mode 100644\n--- /dev/null\n+++ a.py\n@@ -0,0 +1 @@\n+b\n"
    ).added_files == ("a.py",)


def test_prose_around_and_wrong_counts() -> None:
    text = "From: someone\nSubject: fix\n\n--- \nall fine\n" + diff("@@ -1,90 +1,90 @@\n a\n-b\n+c\n") + "-- \n2.43.0\n"
    assert parse_patch(text).old_files == ("f.py",)


def test_blank_is_empty_and_prose_is_an_error() -> None:
    assert parse_patch(" \n").changes == ()
    with pytest.raises(PatchError, match="not a unified diff"):
        parse_patch("please fix it")


@pytest.mark.parametrize("name", ["../x.py", "/etc/passwd", "x/../../y.py", "x//y.py", "a\\b.py"])
def test_unsafe_paths_are_refused(name: str) -> None:
    with pytest.raises(PatchError, match="unsafe path"):
        parse_patch(f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b\n")


_PIECES = st.sampled_from(
    [
        "diff --git a/x b/x",
        "diff --git ",
        'diff --git "a/\\',
        "--- a/x",
        "+++ b/x",
        "--- /dev/null",
        "+++ /dev/null",
        "@@ -1,2 +1,3 @@",
        "@@ -0,0 +0,0 @@",
        "@@ -999999999999 +1 @@",
        "rename from x",
        "rename to y",
        "copy from q",
        "copy to r",
        "new file mode 1",
        "deleted file mode 1",
        "+",
        "-",
        " ",
        "\\ No newline",
        "Binary files a/x and b/x differ",
        "GIT binary patch",
        "",
        "\r",
        "diff --cc x",
        "-- ",
    ]
)


@given(st.lists(st.one_of(_PIECES, st.text(max_size=20)), max_size=25))
def test_never_raises_anything_else(lines: list[str]) -> None:
    try:
        patch = parse_patch("\n".join(lines))
    except PatchError:
        return
    assert not set(patch.old_files) & set(patch.added_files)
    assert all(1 <= found.start <= found.end for found in patch.old_ranges)
    assert all(not path.startswith("/") and ".." not in path.split("/") for path in patch.old_files)


@given(st.text())
def test_any_text(text: str) -> None:
    with contextlib.suppress(PatchError):
        parse_patch(text)


_LINES = st.lists(
    st.sampled_from(["a", "b", "c", "-- x", "++ y", "@@ -1 +1 @@", "", "diff --git a/q b/q", "\x0c"]), max_size=12
)


@settings(deadline=None, max_examples=60)  # each example runs git
@given(_LINES, _LINES)
def test_files_of_real_git_diffs(
    build_pair: Callable[[list[str], list[str]], str], old: list[str], new: list[str]
) -> None:
    text = build_pair(old, new)
    patch = parse_patch(text)
    if old == new:
        assert patch.changes == ()
        return
    assert patch.old_files == ("x y.py",)
    # Every removed line lies in a range, and every range boundary touches a change.
    removed = [number for number, line in enumerate(old, start=1) if line not in new]
    covered = {number for found in patch.old_ranges for number in range(found.start, found.end + 1)}
    assert set(removed) <= covered
    assert all(found.end <= max(len(old), 1) for found in patch.old_ranges)


@pytest.fixture(scope="module")
def build_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[str], list[str]], str]:
    import subprocess

    from codegrep.issues.git import git_environment

    folder = tmp_path_factory.mktemp("diffs")

    def make(old: list[str], new: list[str]) -> str:
        for side, lines in (("a", old), ("b", new)):
            path = folder / side / "x y.py"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        command = ["git", "diff", "--no-index", "--no-prefix", "--no-color", "a", "b"]
        done = subprocess.run(command, cwd=folder, capture_output=True, env=git_environment())
        return done.stdout.decode()

    return make


def test_patches_of_commits_come_back_whole(build) -> None:  # type: ignore[no-untyped-def]
    repository = build("r")
    repository.commit("start", {"a.py": "1\n2\n3\n", "é b.py": "x\n"})
    first = repository.commit("one", {"a.py": "1\nzwei\n3\n" + "a" * 40 + "\n"})
    second = repository.commit("two", {"é b.py": "y\n", "a.py": None})
    found = dict(read_patches(repository.folder, [second, first]))
    assert list(found) == [second, first]
    assert parse_patch(found[first]).old_files == ("a.py",)
    assert parse_patch(found[second]).old_files == ("a.py", "é b.py")


def test_against_the_shared_gold_files(shared_data: Path) -> None:
    expected = json.loads((shared_data / "gold_files.json").read_text())
    rows = [json.loads(line) for line in (shared_data / "instances.jsonl").read_text().splitlines()]
    assert len(rows) == 230
    for row in rows:
        patch = parse_patch(row["patch"])
        of_row = expected[row["instance_id"]]
        assert list(patch.old_files) == of_row["gold_files"], row["instance_id"]
        assert list(patch.added_files) == of_row["added_files"], row["instance_id"]
        assert {found.path for found in patch.old_ranges} == set(patch.old_files)
