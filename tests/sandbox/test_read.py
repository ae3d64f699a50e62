"""read: numbered lines, every kind of file has a defined answer."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import pytest

from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.sandbox import ArgumentError, Outcome
from codegrep.sandbox.tools import Read
from codegrep.sandbox.tools.read import MAX_BYTES
from tests.sandbox.trees import Tree, tool_limits


def read(tree: Tree, arguments: dict[str, Any], **changed: Any) -> Outcome:
    tool = Read(tool_limits(**changed))
    return asyncio.run(tool.run(tree.root, tool.check(arguments)))


def test_a_file(tree: Tree) -> None:
    out = read(tree, {"path": "/repo/src/deep/util.py"})
    assert out.text == "[src/deep/util.py, lines 1-2 of 2]\n1\tdef helper():\n2\t    return 'run'"
    assert out.files == (FileMatches("src/deep/util.py", 2, 1, "def helper():"),)
    assert out.status is ToolStatus.OK and not out.truncated


@pytest.mark.parametrize(
    ("arguments", "first", "last", "more"),
    [
        ({}, 1, 200, ", go on with start=201"),
        ({"start": 201}, 201, 400, ", go on with start=401"),
        ({"start": "940"}, 940, 950, ""),
        ({"start": 10, "end": 12}, 10, 12, ""),
        ({"start": 10.0, "end": 2000}, 10, 209, ", go on with start=210"),
        ({"start": 0, "end": 3}, 1, 3, ""),
        ({"start": -5, "end": 3}, 1, 3, ""),
        ({"start": 949, "end": -1}, 949, 950, ""),
        ({"start": 950, "end": 950}, 950, 950, ""),
    ],
)
def test_ranges(tree: Tree, arguments: dict[str, Any], first: int, last: int, more: str) -> None:
    tree.write("n.py", b"".join(b"%d\n" % i for i in range(1, 951)))
    out = read(tree, {"path": "n.py", **arguments})
    lines = out.text.split("\n")
    assert lines[0] == f"[n.py, lines {first}-{last} of 950{more}]"
    assert lines[1:] == [f"{i}\t{i}" for i in range(first, last + 1)]
    assert out.truncated is bool(more)
    assert out.files == (FileMatches("n.py", last - first + 1, first, str(first)),)


def test_the_characters_cap_cuts_at_whole_lines_and_says_where_to_go_on(tree: Tree) -> None:
    tree.write("w.py", b"".join(b"x" * 90 + b"\n" for _ in range(300)))
    out = read(tree, {"path": "w.py", "start": 5})
    shown = len(out.text.split("\n")) - 1
    assert len(out.text) <= 4096 and out.truncated and 30 < shown < 50
    assert out.text.startswith(f"[w.py, lines 5-{4 + shown} of 300, go on with start={5 + shown}]\n5\t")
    assert read(tree, {"path": "w.py"}, max_chars=60).text == "[w.py, line 1 does not fit into one result]"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "[f.py is empty]"),
        (b"a", "[f.py, lines 1-1 of 1]\n1\ta"),
        (b"\n", "[f.py, lines 1-1 of 1]\n1\t"),
        (b"a\r\nb\r\n", "[f.py, lines 1-2 of 2]\n1\ta\n2\tb"),
        (b"\xef\xbb\xbfa\n", "[f.py, lines 1-1 of 1]\n1\ta"),
        ("a\nü\n".encode("utf-16"), "[f.py, lines 1-2 of 2]\n1\ta\n2\tü"),
        (b"caf\xe9\n", "[f.py, lines 1-1 of 1, not UTF-8: unreadable bytes are shown as \ufffd]\n1\tcaf\ufffd"),
        (b"a\rb\x1b[0m\x0c\n", "[f.py, lines 1-1 of 1]\n1\ta\ufffdb\ufffd[0m\ufffd"),
        ("a\u2028b\n".encode(), "[f.py, lines 1-1 of 1]\n1\ta\ufffdb"),
        (
            b"x" * 5000 + b"\nend\n",
            "[f.py, lines 1-2 of 2, long lines cut: grep for a word shows what is around it]\n"
            "1\t" + "x" * 198 + " …\n2\tend",
        ),
    ],
)
def test_contents(tree: Tree, content: bytes, text: str) -> None:
    tree.write("f.py", content)
    out = read(tree, {"path": "f.py"})
    assert out.text == text and out.status is ToolStatus.OK


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("nowhere.py", "does not exist"),
        ("src/app.py/x", "does not exist"),
        ("x" * 300, "does not exist"),
        ("src", "src is a folder with app.py, deep/; read one file"),
        (".", ". is a folder with"),
        ("binary", "is a binary file"),
        ("huge", "has 17 MiB, too much to read"),
        ("fifo", "is no regular file"),
        ("socket", "is no regular file"),
        ("loop", "is no regular file"),
        ("out/secret.py", "outside of the repository"),
        ("out.py", "outside of the repository"),
        ("/etc/passwd", "outside of the repository"),
        ("../outside/secret.py", "contains '..'"),
        (".git", "belongs to git"),
        ("/dev/zero", "outside of the repository"),
    ],
)
def test_what_cannot_be_read(tree: Tree, path: str, words: str) -> None:
    root = tree.root
    tree.write("binary", b"GIF89a\0\0")
    with (root / "huge").open("wb") as file:
        file.truncate(MAX_BYTES + (1 << 20))
    os.mkfifo(root / "fifo")
    (root / "loop").symlink_to("loop")
    (root / "out").symlink_to(tree.outside)
    (root / "out.py").symlink_to(tree.outside / "secret.py")
    with socket.socket(socket.AF_UNIX) as server:
        if path == "socket":
            here = os.open(".", os.O_RDONLY)
            os.chdir(root)  # the address of a socket is short
            server.bind("socket")
            os.fchdir(here)
            os.close(here)
        out = read(tree, {"path": path})
    assert out.status is ToolStatus.MODEL_ERROR
    assert out.text.startswith("ERROR: ") and words in out.text and "SECRET" not in out.text and ".git," not in out.text


def test_behind_the_end(tree: Tree) -> None:
    out = read(tree, {"path": "src/deep/util.py", "start": 3})
    assert out.status is ToolStatus.MODEL_ERROR and "has only 2 lines" in out.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "x", "start": 5, "end": 4}, "end=4 is before start=5"),
        ({"path": "x", "start": "five"}, "must be an integer, not 'five'"),
        ({"path": "x", "start": 1.5}, "must be an integer"),
        ({"path": "x", "start": True}, "must be an integer"),
        ({"path": "x", "start": 10**12}, "too large"),
        ({"path": "x", "start": float("inf")}, "must be an integer"),
        ({"file": "x"}, "unknown argument 'file'"),
        ({}, "'path' is missing"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Read(tool_limits()).check(arguments)
    assert words in str(caught.value)


def test_ten_thousand_files_in_a_folder(tree: Tree) -> None:
    for i in range(10_000):
        (tree.root / f"f{i:05}").touch()
    out = read(tree, {"path": "."})
    assert "and 9983 more" in out.text and len(out.text) < 400
