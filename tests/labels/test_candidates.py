"""One candidate a file: the read with the longest post-reasoning; lengths under both readings."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegrep.errors import ModelError
from codegrep.labels.candidates import select
from codegrep.labels.tokens import FolderCounter, WordCounter, open_counter
from codegrep.labels.trajectory import Read


def read(path: str, message: int, text: str, thought: str = "", row: int = 0) -> Read:
    return Read(row, message, 0, "c", "editor", message, path, message + 2, text, thought)


def test_the_longest_post_reasoning_wins_and_the_earliest_of_equals() -> None:
    reads = [
        read("a.py", 2, "one two"),
        read("b.py", 4, "one"),
        read("a.py", 6, "one two three"),
        read("a.py", 8, "four five six"),
        read("a.py", 2, "other row", row=1),
    ]
    made, report = select(reads, WordCounter(), with_thought=False, min_tokens=3)
    assert [(c.read.row, c.read.path, c.read.message, c.tokens, c.reads) for c in made] == [
        *((0, "a.py", 6, 3, 3), (0, "b.py", 4, 1, 1)),
        (1, "a.py", 2, 2, 1),
    ]
    assert (report.reads, report.short["content"], report.empty["content"]) == (5, 3, 0)


def test_thoughts_count_where_they_are_asked_for_and_are_reported_anyway() -> None:
    reads = [read("a.py", 2, "", thought="it is the cache"), read("b.py", 4, "words here", thought="and more")]
    plain, report = select(reads, WordCounter(), with_thought=False, min_tokens=3)
    assert [(c.tokens, c.evidence) for c in plain] == [(0, ""), (2, "words here")]
    whole, again = select(reads, WordCounter(), with_thought=True, min_tokens=3)
    assert [(c.tokens, c.evidence) for c in whole] == [(4, "it is the cache"), (4, "words here\nand more")]
    assert report == again and report.thoughts == 2
    assert dict(report.short) == {"content": 2, "content and thought": 0} and report.empty["content"] == 1


def test_counters(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    assert FolderCounter(tmp_path).counts(["a b", "", "  ", "c d a"]) == [2, 0, 0, 3]
    assert open_counter("words").counts(["I don't.", ""]) == [5, 0]
    with pytest.raises(ModelError, match=r"labels\.tokenizer"):
        open_counter(str(tmp_path / "nowhere"))
