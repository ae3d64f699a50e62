"""Search terms from an issue's text: what a person would grep for before seeing the code."""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from dataclasses import dataclass

# Names that occur in nearly every file or report.
_COMMON = frozenset(
    """
    self cls args kwargs true false none null todo fixme python pip conda import from print return class def lambda
    error exception traceback file line code example issue bug fix test tests testing version versions expected actual
    output input result results value values name names type types object objects function method module package
    list dict tuple set str int float bool bytes array data df np pd plt foo bar baz x y z main init string number
    valueerror typeerror keyerror attributeerror indexerror runtimeerror importerror assertionerror exceptions
    numpy pandas matplotlib github https http www com org html readme stdout stderr usr lib local home site dist
    packages windows linux macos darwin ubuntu debian anaconda miniconda users documents appdata
    does doesn should always never than then rather could would cannot when where which what while with without this
    that
    these those there here have from into also only some same other another more most very wrong wrongly correct
    correctly
    incorrect incorrectly fails failed failing broken breaks work works working changed change changes behavior
    behaviour
    longer still just after before because about possible seems instead using used uses give gives given problem
    fixed fixes fixing backport backported merged master commit
    """.split()
) | frozenset(k.lower() for k in keyword.kwlist)

# Each of these matches in linear time on any text.
_PATH = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.(?:py|pyx|pyi|js|ts|go|rs|java|rb|c|h|cpp|hpp))\b")
_TRACE = re.compile(r'File "([^"\n]+)", line \d+, in (\w+)')
_TICKED = re.compile(r"`{1,2}([^`\n]{2,80})`{1,2}")
_CALL = re.compile(r"(?<![\w.])([\w.]++)\(")  # add_name drops parts that are no names
_DOTTED = re.compile(r"\b([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\b")
_SNAKE = re.compile(r"\b(_{0,2}[A-Za-z]\w*_\w+)\b")
_CAMEL = re.compile(r"\b([A-Z][a-z0-9]++[A-Z][A-Za-z0-9]*+|[a-z][a-z0-9]*+[A-Z]\w++)\b")
_OPTION = re.compile(r"(?<!\w)--?([a-z][a-z0-9]+(?:-[a-z0-9]+)+)\b")
_QUOTED = re.compile(r"[\"']([^\"'\n]{8,80})[\"']")
_RAISED = re.compile(r"^[^\S\n]*+(?:E[^\S\n]++)?(\w*(?:Error|Exception|Warning)): (.{6,120})$", re.MULTILINE)
_WORD = re.compile(r"\b([A-Za-z][a-z]{3,}[a-z0-9]*)\b")
_IDENT = re.compile(r"[A-Za-z_]\w*\Z")
# A longer first line is no title.
_TITLE_CHARS = 1000


@dataclass(frozen=True)
class Term:
    """A search term.

    Attributes:
        text: literal text to search for (not a regular expression); for a path, its last part.
        kind: "path", "identifier", "message" (part of an error message), or "word".
        weight: > 0; more telling terms weigh more, only the order matters.
    """

    text: str
    kind: str
    weight: float


def search_terms(statement: str) -> list[Term]:
    """Return the search terms of an issue, most telling first, without duplicates (case ignored).

    Paths and names in tracebacks weigh most, then names written as code, messages of raised errors, and words of the
    title. A name that is repeated, or stands in the title, weighs more.

    Args:
        statement: problem statement of any length; its first line is taken for the title.
    """
    title = title_of(statement)
    weights: dict[tuple[str, str], float] = defaultdict(float)
    spelled: dict[tuple[str, str], str] = {}

    def add(text: str, kind: str, weight: float) -> None:
        text = text.strip()
        if len(text) < 3 or (kind != "message" and text.lower().strip("_") in _COMMON):
            return
        key = (kind, text.lower())
        spelled.setdefault(key, text)
        # Each repetition adds less.
        weights[key] = weight if key not in weights else weights[key] + 0.25 * weight

    def add_name(name: str, weight: float) -> None:
        parts = [p for p in name.split(".") if p]
        if parts and _IDENT.match(parts[-1]):
            add(parts[-1], "identifier", weight)
            if len(parts) > 1 and _IDENT.match(parts[-2]):
                add(parts[-2], "identifier", 0.4 * weight)

    traced = _TRACE.findall(statement)
    for depth, (path, function) in enumerate(reversed(traced)):  # the innermost frame comes last and is most telling
        inside = "site-packages" in path or "/lib/python" in path
        share = 1.0 / (1 + depth)
        add(path.replace("\\", "/").rpartition("/")[2], "path", 5.0 * share * (0.7 if inside else 1.0))
        if not function.startswith("<"):
            add(function, "identifier", 4.0 * share)
    for path in _PATH.findall(_TRACE.sub(" ", statement)):
        add(path.rpartition("/")[2], "path", 5.0 if "/" in path else 3.5)
    for span in _TICKED.findall(statement):
        if _IDENT.match(span) or _DOTTED.fullmatch(span):
            add_name(span, 3.0)
        for name in _CALL.findall(span):
            add_name(name, 3.0)
    for name in _CALL.findall(statement):
        add_name(name, 2.0)
    for name in _DOTTED.findall(statement):
        if not _PATH.fullmatch(name):
            add_name(name, 1.5)
    for name in _SNAKE.findall(statement):
        add(name, "identifier", 2.5)
    for name in _CAMEL.findall(statement):
        add(name, "identifier", 2.5)
    for name in _OPTION.findall(statement):
        add(name, "message", 2.5)
    for _, message in _RAISED.findall(statement):
        add(_literal_part(message), "message", 3.0)
    for quoted in _QUOTED.findall(statement):
        if " " in quoted:
            add(_literal_part(quoted), "message", 1.0)
    for word in _WORD.findall(title):
        add(word, "word", 0.8 + 0.02 * len(word))
    for word in _WORD.findall(statement[:1500]):
        add(word, "word", 0.1 + 0.01 * len(word))
    lowered = title.lower()
    for key in weights:
        if key[1] in lowered:
            weights[key] *= 1.6
    best: dict[str, Term] = {}
    for (kind, low), weight in weights.items():
        term = Term(spelled[kind, low], kind, weight)
        if low not in best or best[low].weight < weight:
            best[low] = term
    return sorted(best.values(), key=lambda t: (-t.weight, t.text))


def title_of(statement: str) -> str:
    """Return the first line of an issue."""
    return statement.strip().partition("\n")[0][:_TITLE_CHARS]


def _literal_part(message: str) -> str:
    """Return the longest piece of a message that may stand verbatim in the source, without values and quotes."""
    pieces = re.split(r"['\"`{}<>\[\]()%]|\b\d[\w.]*|\b[\w.]*[/\\][\w./\\]*|: ", message)
    return max((p.strip(" .,:;-") for p in pieces), key=len, default="")[:60]
