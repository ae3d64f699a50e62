"""Text for a language model that judges, and the reading of its answers. Pure.

What is judged was written by others: issue texts, file names, and the policy that is rewarded for a good judgement. It
stands between marks that hold a code, and only an answer that repeats the code counts. The code is a hash of all
that is judged, so the writer of a part cannot know it beforehand.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from typing import Any

from codegrep.text import without_thoughts

# Format characters, controls, surrogates and private use: invisible, or reversing text.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co"})
_MOST_OBJECTS = 64  # of one answer; more is garbage


def shortened(text: str, limit: int) -> str:
    """Return `text` without white space around it, at most `limit` characters: the middle is cut out, with a note."""
    text = text.strip()
    if len(text) <= limit:
        return text
    half = (limit - len(_left_out(len(text)))) // 2
    if half <= 0:
        return text[:limit]
    return f"{text[:half]}{_left_out(len(text) - 2 * half)}{text[-half:]}"


def _left_out(count: int) -> str:
    return f"\n[… {count} characters …]\n"


def visible(text: str) -> str:
    """Return `text` without invisible characters; line ends and tabs stay."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE)


def code_of(*parts: str) -> str:
    """Return the code for the marks: eight hexadecimal digits that depend on every character of the judged text."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def fenced(name: str, text: str, code: str) -> str:
    """Return `text` between marks that name it and hold the code."""
    return f"<<{name} {code}>>\n{visible(text)}\n<<end of {name} {code}>>"


def object_with(text: str, code: str) -> dict[str, Any] | None:
    """Return the one JSON object of an answer whose "code" is `code`; None without one, and where two differ."""
    coded = [value for value in _objects(text) if value.get("code") == code]
    return coded[0] if coded and all(value == coded[0] for value in coded) else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of an answer, in order, leaving out the model's thoughts."""
    shown, decoder = without_thoughts(text), json.JSONDecoder()
    place, tried = shown.find("{"), 0
    while place >= 0 and tried < _MOST_OBJECTS:
        tried += 1
        try:
            value, end = decoder.raw_decode(shown, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(value, dict):
                yield value
        place = shown.find("{", end)
