from __future__ import annotations

import pytest

from codegrep.index.terms import split_identifier, words_of


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
    assert words_of("load_file(load, 'The file')") == {"load": 2, "file": 2, "load_file": 1, "the": 1}
