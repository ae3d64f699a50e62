"""Text for a language model that judges, and what is taken out of its answers. Pure.

What is judged was written by others: issue texts, file names, and the policy that is rewarded for a good verdict. So it
stands between marks that hold a code, and only an answer that repeats the code counts. The code is a hash of all that
is judged, so that who writes a part of it cannot know it beforehand.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterator
from typing import Any

from codegrep.text import without_thoughts

_KEPT_CONTROLS = frozenset("\n\t")
# Format characters, controls, surrogates and private use: invisible, or turning text around.
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
    """`text` without characters that a reader does not see; line ends and tabs stay."""
    return "".join(c for c in text if c in _KEPT_CONTROLS or unicodedata.category(c) not in _INVISIBLE)


def code_of(*parts: str) -> str:
    """Code for the marks around judged text: eight hexadecimal digits that depend on every character of it."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:8]


def fenced(name: str, text: str, code: str) -> str:
    """`text` between marks that name it and hold the code."""
    return f"<<{name} {code}>>\n{visible(text)}\n<<end of {name} {code}>>"


def objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects of an answer, in order; thoughts are left out, and what is no JSON is passed over."""
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


def object_with(text: str, code: str) -> dict[str, Any] | None:
    """The one JSON object of an answer whose "code" is `code`.

    None without one, and where two of them differ: somebody has been made to say two things.
    """
    found = [value for value in objects(text) if value.get("code") == code]
    return found[0] if found and all(value == found[0] for value in found) else None


def content_key(identity: object, text: str, vote: int = 0) -> str:
    """Key of an answer in the cache: who was asked (anything JSON-able that changes answers), what, and which vote."""
    packed = json.dumps([identity, text, vote], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(packed.encode()).hexdigest()
