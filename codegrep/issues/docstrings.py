"""Docstrings of Python files: found and cut out by syntax tree, and turned into search queries."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Lines that end the prose: headings, parameter tables, fields, doctests, directives, tables, HTML, formulas.
_HEADINGS = (
    "args|arguments|parameters?|params|kwargs|keyword arguments?|inputs?|outputs?|returns?|yields?|raises|examples?"
    "|example usage|usage|notes?|attributes?|see also|references?|warnings?|methods|properties|fields|shape|todo|tips?"
    "|caveats?|details|defaults?"
)
_SECTION = re.compile(
    rf"\s*+(?:(?:{_HEADINGS})\s*+(?:\([^)]*\)\s*+)?:?:?\s*$"
    r"|(?:args|arguments|parameters|returns?|raises|examples?|usage|note|see also)\s*:.*"
    r"|:(?:param|type|returns?|rtype|raises?|arg|keyword|note|warning|see)\b.*|@(?:param|return|type|raise)\b.*"
    r"|(?:>>>|\.\. |```|~~~|\$\$|<\w|\{\{|\||#+ ).*|[-=~^*]{4,}\s*$"
    r"|[\w`*]++\s*+(?:\([^)]{1,60}\)|:\s)\s*+(?:(?::|--|-)\s*+)?(?:the|a|an|optional|whether|defaults?)\b.*)",
    re.IGNORECASE,
)
_ROLE = re.compile(r":[a-zA-Z:+-]{1,40}:`~?\.?([^`<]*)(?:<[^`>]*>)?`")
_LINK = re.compile(r"\[([^\[\]]+)\]\([^)\s\[]+\)")
_TICKS = re.compile(r"(?<!`)`++~?([^`]+)`+_*")
_BRACKETED = re.compile(r"\[([A-Za-z_][\w.~]*)\]")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")


@dataclass(frozen=True)
class Docstring:
    """One docstring that can be cut without touching code.

    Attributes:
        name: qualified name of the documented object inside its file, such as "Trainer.fit".
        kind: "class", "function" or "method".
        text: the docstring, indentation cleaned.
        first, last: its lines in the file, 1-based, inclusive. No other code stands on them.
        indent: bytes before it on its first line.
        alone: it is the only statement of its body, so a `pass` has to take its place.
    """

    name: str
    kind: str
    text: str
    first: int
    last: int
    indent: bytes
    alone: bool


def find_docstrings(source: bytes, tree: ast.Module) -> Iterator[Docstring]:
    r"""Docstrings of all classes, functions and methods (not of the module and not of nested functions), top-down.

    Args:
        source: the file's bytes, UTF-8, with "\\n" or "\\r\\n" line ends.
        tree: its syntax tree.
    """
    yield from _in_body(tree, "", False, source.split(b"\n"))


def _in_body(node: ast.Module | ast.ClassDef, prefix: str, in_class: bool, lines: list[bytes]) -> Iterator[Docstring]:
    for child in node.body:
        if not isinstance(child, _Documented):
            continue
        kind = "class" if isinstance(child, ast.ClassDef) else "method" if in_class else "function"
        found = _docstring(child, f"{prefix}{child.name}", kind, lines)
        if found is not None:
            yield found
        if isinstance(child, ast.ClassDef):
            yield from _in_body(child, f"{prefix}{child.name}.", True, lines)


def _docstring(node: _Documented, name: str, kind: str, lines: list[bytes]) -> Docstring | None:
    text = ast.get_docstring(node, clean=True)
    statement = node.body[0]
    if text is None or statement.end_lineno is None or statement.end_col_offset is None:
        return None
    before = lines[statement.lineno - 1][: statement.col_offset]
    after = lines[statement.end_lineno - 1][statement.end_col_offset :]
    # `def f(): "text"`, a following `;` or a comment on the line: cutting lines would cut more than the docstring.
    if before.strip() or after.strip():
        return None
    return Docstring(name, kind, text, statement.lineno, statement.end_lineno, before, len(node.body) == 1)


def cut_docstrings(source: bytes, chosen: Collection[Docstring]) -> bytes:
    """Return the file without the chosen docstrings, `pass` in their place where a body holds nothing else.

    Raises:
        ValueError: the result is not the same code (which would be an error here, never in the file).
    """
    lines = source.split(b"\n")
    for docstring in sorted(chosen, key=lambda found: found.first, reverse=True):
        ending = b"\r" if lines[docstring.last - 1].endswith(b"\r") else b""
        lines[docstring.first - 1 : docstring.last] = [docstring.indent + b"pass" + ending] if docstring.alone else []
    cut = b"\n".join(lines)
    if _code(cut, frozenset()) != _code(source, frozenset(docstring.name for docstring in chosen)):
        raise ValueError("cutting docstrings changed the code")
    return cut


def lines_of(source: bytes, name: str) -> tuple[int, int]:
    """First and last line, 1-based, of the object called `name`, decorators included.

    Of a class it is what stands before its first method or inner class.

    Raises:
        ValueError: no such object, outside of other statements than classes.
    """
    node: ast.Module | _Documented = ast.parse(source)
    for part in name.split("."):
        of_name = [child for child in node.body if isinstance(child, _Documented) and child.name == part]
        if not of_name:
            raise ValueError(f"no {name} in the source")
        node = of_name[0]
    assert isinstance(node, _Documented)
    last = node.end_lineno or node.lineno
    inner = [child for child in node.body if isinstance(child, _Documented)]
    if isinstance(node, ast.ClassDef) and inner:
        lines = source.split(b"\n")
        last = _first_line(inner[0]) - 1
        while not lines[last - 1].strip():
            last -= 1
    return _first_line(node), last


def _first_line(node: _Documented) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _code(source: bytes, without: frozenset[str]) -> str:
    """Return the syntax tree as text, without positions and the docstrings of the objects `without`."""
    tree = ast.parse(source)
    _drop(tree, "", without)
    return ast.dump(tree)


def _drop(node: ast.Module | ast.ClassDef, prefix: str, without: frozenset[str]) -> None:
    for child in node.body:
        if not isinstance(child, _Documented):
            continue
        name = f"{prefix}{child.name}"
        if name in without and ast.get_docstring(child, clean=False) is not None:
            child.body = child.body[1:] or [ast.Pass()]
        if isinstance(child, ast.ClassDef):
            _drop(child, f"{name}.", without)


def query_of(docstring: Docstring, max_words: int, hide_name: bool) -> str:
    """Return the descriptive paragraphs of a docstring as plain text: no parameter tables, examples, roles or links.

    Args:
        docstring: whose text is taken.
        max_words: later paragraphs are left out once so many words are reached.
        hide_name: the object's own name is replaced by "this function" (class, method) unless it is a plain word.
    """
    paragraphs: list[list[str]] = [[]]
    for line in docstring.text.split("\n"):
        if _SECTION.fullmatch(line):
            break
        if line.strip():
            paragraphs[-1].append(line.strip())
        elif paragraphs[-1]:
            paragraphs.append([])
    taken: list[str] = []
    words = 0
    for paragraph in paragraphs:
        text = _plain(" ".join(paragraph))
        if not text or words >= max_words:
            break
        taken.append(text)
        words += len(text.split())
    query = "\n\n".join(taken)
    own = docstring.name.rpartition(".")[2]
    if hide_name and re.search(r"[_A-Z0-9]", own):
        query = re.sub(
            rf"(?<![\w.])(?:(?:an?|the|this)\s+)?(?:[\w.]*\.)?{re.escape(own)}(?:\(\))?(?!\w)(?:\s+{docstring.kind}\b)?",
            f"this {docstring.kind}",
            query,
            flags=re.IGNORECASE,
        )
        query = query[:1].upper() + query[1:]
    return query


def _plain(text: str) -> str:
    text = _ROLE.sub(lambda match: match[1].rstrip().rpartition(".")[2] or match[1], text)
    text = _LINK.sub(r"\1", text)
    text = _TICKS.sub(r"\1", text)
    text = _BRACKETED.sub(lambda match: match[1].lstrip("~"), text)
    return re.sub(r"\s+", " ", text.replace("**", "")).strip()


def informative_words(query: str) -> int:
    """Distinct words of at least three letters: a measure of how much a query says."""
    return len({word.lower() for word in _WORD.findall(query) if len(word) >= 3})
