"""The lines of a shared output, given out by arrays, are those that a reader of each question's own output finds."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.sandbox.tools import output_columns as printed_module
from codegrep.sandbox.tools.literals import Text
from codegrep.sandbox.tools.matches import BlockReader, Found, LineReader, name_words
from codegrep.sandbox.tools.output_columns import Printed

WIDTH, KEEP, MOST_FILES = 40, 5, 3
Files = dict[bytes, list[tuple[int, bytes]]]
LINES = st.sampled_from(
    [
        b"def run(self):", b"    class Kind:", b"x = run", b"KIND", b"kindkind", b"async def other(run)", b"\tdef a",
        b" " * 60 + b"def run(kind)", b"def " + b"run" * 30, b"pub(crate) fn kind", b"kind" + b"." * 80 + b"run",
        b"run", b"class", b"a", b"\xff run", b"deferred kind", b"enum run:", b"final static class Run", b"12:def run",
        b"binary file matches run\r",
    ]
)  # fmt: skip
PATHS = st.sampled_from(
    [
        b"a.py", b"run/kind.py", b"12:def run", b"b b.py", b"./c.py", b"z\n.py", b"z\n1:def run", b"kind",
        b"z\n\n1:run.py", b"\n\nkind",
    ]
)  # fmt: skip
FILES = st.dictionaries(
    PATHS, st.dictionaries(st.integers(1, 12345), LINES, min_size=1, max_size=6).map(dict.items).map(sorted), max_size=6
)
TEXTS = [(text,) for text in (b"run", b"Kind", b"def", b"a", b"d", b" ", b"nowhere")]
TEXTS += [(b"def", b"run"), (b"r", b"n"), (b"s", b"c", b"l", b"ss"), (b"kind", b"kind"), (b"f", b":"), (b"Run", b"x")]
QUESTIONS = st.tuples(st.lists(st.sampled_from(TEXTS), min_size=1), st.booleans())


def output_of(files: Files) -> bytes:
    blocks = (path + b"\0" + b"".join(b"%d:%s\n" % line for line in lines) for path, lines in files.items())
    return b"\n".join(blocks)


def alone(files: Files, texts: list[Text], ignore_case: bool, left_out: bytes) -> Found:
    """What a reader of this question's own output makes of it."""

    def holds(line: bytes) -> bool:
        return any(re.search(b".".join(map(re.escape, t)), line, re.IGNORECASE if ignore_case else 0) for t in texts)

    own = {path: [one for one in lines if holds(one[1])] for path, lines in files.items()}
    reader = BlockReader(KEEP, 1 << 20, words_of(texts))
    # As ripgrep shows what is longer.
    note = b" [... omitted end of long line]"
    short = {
        path: [(n, text if len(text) <= WIDTH else text[:WIDTH] + note) for n, text in lines]
        for path, lines in own.items()
        if lines
    }
    assert reader.take(output_of(short))
    hits = sorted((h for h in reader.hits() if h.path != left_out), key=lambda h: h.path)
    return Found.of(hits, KEEP, MOST_FILES)


def words_of(texts: list[Text]) -> frozenset[bytes]:
    return name_words("|".join(b".".join(text).decode() for text in texts))


def comparable(found: Found) -> tuple[object, ...]:
    def start(line: bytes) -> bytes:
        number, _, text = line.partition(b":")
        return number + b":" + text[:WIDTH]

    return (
        found.count,
        found.files,
        [(path, start(line)) for path, line in found.first],
        [(h.path, h.count, h.rank, start(h.telling)) for h in found.telling],
    )


@settings(max_examples=300, deadline=None)
@given(FILES, st.lists(QUESTIONS, min_size=1, max_size=4), PATHS, st.sampled_from([7, 64, 1 << 17]))
def test_each_question_is_given_what_it_would_find_alone(
    files: Files, questions: list[tuple[list[Text], bool]], left_out: bytes, chunk: int
) -> None:
    reader = LineReader(1 << 20)
    assert reader.take(output_of(files))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(printed_module, "_CHUNK", chunk)
        patch.setattr(printed_module, "_BLOCK", chunk)
        printed = Printed(reader, lambda path: path == left_out.removeprefix(b"./"), WIDTH)
        for texts, ignore_case in questions:
            found = printed.found(texts, ignore_case, words_of(texts), KEEP, MOST_FILES)
            if found is None:
                assert any(len(text) > 1 for text in texts) and not output_of(files).isascii()
                continue
            assert comparable(found) == comparable(alone(files, texts, ignore_case, left_out.removeprefix(b"./")))


def test_nothing_was_printed() -> None:
    assert Printed(LineReader(10), lambda path: False, WIDTH).found([(b"a",)], True, frozenset(), 5, 5) == Found()


@pytest.mark.parametrize(("line", "folds"), [("plain", False), ("größe", False), ("\u212a", True), ("\u017f", True)])
def test_letters_that_are_ascii_when_case_is_ignored(line: str, folds: bool) -> None:
    reader = LineReader(1000)
    reader.take(b"a.py\x001:" + line.encode() + b"\n")
    assert Printed(reader, lambda path: False, WIDTH).folds is folds


def test_what_is_kept_of_a_long_line_is_what_counts() -> None:
    reader = LineReader(1 << 20)
    reader.take(b"a.js\x00123456:" + b"def run " * 10_000 + b"\n")
    found = Printed(reader, lambda path: False, WIDTH).found([(b"run",)], False, frozenset(), KEEP, MOST_FILES)
    assert found is not None
    for line in (found.first[0][1], found.telling[0].telling):
        assert WIDTH < len(line) < 2 * WIDTH and line.startswith(b"123456:def run def")
