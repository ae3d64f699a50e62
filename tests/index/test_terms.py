from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.index.terms import _Identifiers, count_terms, split_identifier, term_id, words_of


@pytest.mark.parametrize(
    ("identifier", "words"),
    [
        ("parse", ("parse",)),
        ("parseURL_of", ("parse", "url", "of", "parseurl_of")),
        ("HTTPServer2", ("http", "server", "httpserver2")),
        ("__init__", ("init",)),
        ("naïve_Ärger", ("naïve", "ärger", "naïve_ärger")),
        ("errors", ("error",)),
        ("class", ("class",)),
        ("status", ("status",)),
        ("_", ()),
    ],
)
def test_identifiers_are_split_where_their_parts_meet(identifier: str, words: tuple[str, ...]) -> None:
    assert split_identifier(identifier) == words


def test_words_are_counted() -> None:
    text = "load_file(load, 'The file')"
    assert sorted(words_of(text)) == ["file", "file", "load", "load", "load_file", "the"]
    counted = count_terms(["", text, "file"])
    assert counted.starts.tolist() == [0, 0, 4, 5]
    own = counted.part(1, 2)
    expected = {term_id(word): count for word, count in {"load": 2, "file": 2, "load_file": 1, "the": 1}.items()}
    assert dict(zip(own.terms.tolist(), own.counts.tolist(), strict=True)) == expected
    assert counted.part(2, 3).terms.tolist() == [term_id("file")]


@given(st.lists(st.text(), max_size=4))
def test_counts_are_those_of_the_words(texts: list[str]) -> None:
    counted = count_terms(texts)
    for number, text in enumerate(texts):
        own = counted.part(number, number + 1)
        expected = Counter(map(term_id, words_of(text)))
        assert dict(zip(own.terms.tolist(), own.counts.tolist(), strict=True)) == expected


def test_threads_that_count_at_the_same_time_count_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [[f"name{thread}x{n}y{n * thread}Zed_{n}" for n in range(400)] for thread in range(8)]
    alone = [count_terms(some).terms.tolist() for some in texts]
    monkeypatch.setattr("codegrep.index.terms._known", _Identifiers())
    monkeypatch.setattr("codegrep.index.terms._MAX_KNOWN", 1000)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            together = list(threads.map(lambda some: [count_terms([text]).terms.tolist() for text in some], texts))
    finally:
        sys.setswitchinterval(interval)
    assert [[term for terms in some for term in terms] for some in together] == alone
