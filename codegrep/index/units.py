"""What an index ranks: functions, class headers and remaining lines of source files, chunks of other text files."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tree_sitter import Node, QueryCursor

from codegrep.index.languages import grammar, language_of

Kind = Literal["function", "class", "module", "text"]
MAX_LINES, MAX_CHARACTERS = 60, 4_000
"""Bounds of a unit; what is longer continues in further units of the same name."""
MAX_PARSED, MAX_TEXT = 1 << 19, 1 << 16
"""Bytes of a file that are looked at: of one that is parsed, of any other text."""
# A function that is longer and defines others (the wrapper of a JavaScript module) is divided as a class is.
_LONG_FUNCTION = 150
# A query takes quadratic time over the children of an error node: 3 s for 40,000 open brackets.
_MAX_ERROR_CHILDREN = 5_000
# Fewer lines between two definitions are no unit of their own.
_FEW_LINES = 3
_MAX_SIGNATURE, _MAX_DOCSTRING = 200, 600
_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
_SPACE = re.compile(r"\s+")
_COMMENT_MARKS = re.compile(r"^\s*(?:///?!?|/\*+!?|\*+/|\*|#+)|\*/\s*$", re.MULTILINE)
_STRING_MARKS = re.compile(r"^[a-zA-Z]*(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$")
_LAST_NAME = re.compile(r"(\w+)\W*$")


@dataclass(frozen=True)
class Unit:
    """A piece of one file.

    Attributes:
        path: repo-relative POSIX path.
        name: qualified with dots inside the file; "" outside definitions.
        kind: methods are functions; "module" is code outside definitions, "text" a chunk of a file that is not parsed.
        start, end: its lines, 1-based, both included. Of a class: up to its first method.
        signature: the head of the definition in one line.
        docstring: of the definition, or the comment above it.
        body: its text, at most MAX_CHARACTERS.
    """

    path: str
    name: str
    kind: Kind
    start: int
    end: int
    signature: str
    docstring: str
    body: str


@dataclass
class _Definition:
    """A definition in the parsed file; rows count from 0."""

    kind: Kind
    start: int
    end: int
    node: Node
    name: str = ""
    divided: bool = False  # its inner definitions are units of their own


def units_of(path: str, content: bytes) -> list[Unit]:
    """Divide a file into units in the order of their lines; a binary or blank file has none."""
    language = language_of(path)
    text = _decode(content[: MAX_PARSED if language else MAX_TEXT])
    if not text.strip():
        return []
    lines = text.split("\n")
    # A file that is cut off would be parsed into errors; generated files are mostly the ones so large.
    if not language or len(content) > MAX_PARSED:
        return [Unit(path, "", "text", a + 1, b + 1, "", "", body) for a, b, body in _chunks(lines, range(len(lines)))]
    source = text.encode("utf-8", "replace")
    definitions = _definitions(source, language)
    owners = [-1] * len(lines)
    for index, found in enumerate(definitions):
        owners[found.start : found.end + 1] = [index] * (found.end + 1 - found.start)
    rows: dict[int, list[int]] = {}
    for row, owner in enumerate(owners):
        rows.setdefault(owner, []).append(row)
    units: list[Unit] = []
    for owner, own in rows.items():
        if owner < 0:
            units += [Unit(path, "", "module", a + 1, b + 1, "", "", body) for a, b, body in _chunks(lines, own)]
            continue
        found = definitions[owner]
        signature, docstring = _signature(found.node, source), _docstring(found.node, source, language)
        for a, b, body in _chunks(lines, own):
            units.append(Unit(path, found.name, found.kind, a + 1, b + 1, signature, docstring, body))
            signature, docstring = "", ""  # further pieces of a long definition have the name alone
    units.sort(key=lambda unit: unit.start)
    return units


def _decode(content: bytes) -> str:
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    if b"\0" in content[:8192]:
        return ""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(content)  # the last character may be cut off
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _chunks(lines: list[str], rows: list[int] | range) -> Iterator[tuple[int, int, str]]:
    """(first row, last row, text) of runs of neighbouring rows, within the bounds of a unit.

    A run of a few lines joins the text of the chunk before it, whose rows stay what they are.
    """
    chunks: list[list[int]] = []  # first row, last row
    texts: list[list[str]] = []
    size = 0
    for run in _runs(rows):
        filled = [row for row in run if lines[row].strip()]
        if not filled:
            continue
        joins = bool(texts) and len(filled) < _FEW_LINES
        for row in range(filled[0], filled[-1] + 1):
            line = lines[row].rstrip("\r")[:MAX_CHARACTERS]
            full = bool(texts) and (len(texts[-1]) >= MAX_LINES or size + len(line) >= MAX_CHARACTERS)
            if full or (row == filled[0] and not joins):
                chunks.append([row, row])
                texts.append([])
                size, joins = 0, False
            elif not joins:
                chunks[-1][1] = row
            texts[-1].append(line)
            size += len(line) + 1
    return ((first, last, "\n".join(text)) for (first, last), text in zip(chunks, texts, strict=True))


def _runs(rows: list[int] | range) -> Iterator[list[int]]:
    run: list[int] = []
    for row in rows:
        if run and row != run[-1] + 1:
            yield run
            run = []
        run.append(row)
    if run:
        yield run


def _definitions(source: bytes, language: str) -> list[_Definition]:
    """Definitions that are units, outer ones before inner ones; those inside a function belong to it."""
    parts = grammar(language)
    root = parts.parser.parse(source).root_node
    if _too_broken(root):
        return []
    captures = QueryCursor(parts.definitions).captures(root)
    found = [
        _Definition("function" if kind == "function" else "class", _first_row(node, language), node.end_point.row, node)
        for kind, nodes in captures.items()
        for node in nodes
    ]
    found.sort(key=lambda d: (d.node.start_byte, -d.node.end_byte))
    units: list[_Definition] = []
    around: list[_Definition] = []
    for position, definition in enumerate(found):
        while around and around[-1].node.end_byte <= definition.node.start_byte:
            around.pop()
        if around and not around[-1].divided:
            continue
        inner = found[position + 1] if position + 1 < len(found) else None
        long = definition.end - definition.start >= _LONG_FUNCTION
        definition.divided = definition.kind == "class" or (
            long and inner is not None and inner.node.start_byte < definition.node.end_byte
        )
        name = _name(definition.node, source)
        definition.name = ".".join(part for part in (around[-1].name if around else "", name) if part)
        around.append(definition)
        units.append(definition)
    return units


def _too_broken(root: Node) -> bool:
    pending = [root] if root.has_error else []
    while pending:
        node = pending.pop()
        if node.child_count > _MAX_ERROR_CHILDREN:
            return True
        pending += [child for child in node.children if child.has_error]
    return False


def _first_row(node: Node, language: str) -> int:
    """Return the first row of a definition, its decorators or the comment above it included."""
    if language == "python":
        parent = node.parent
        return (parent if parent is not None and parent.type == "decorated_definition" else node).start_point.row
    comments = _comments_above(node)
    return (comments[0] if comments else node).start_point.row


def _comments_above(node: Node) -> list[Node]:
    comments: list[Node] = []
    above = node
    while (before := above.prev_sibling) is not None and "comment" in before.type:
        # The node of a Rust comment ends at the beginning of the next line.
        if above.start_point.row - before.end_point.row > 1 or len(comments) >= MAX_LINES:
            break
        comments.append(before)
        above = before
    return comments[::-1]


def _name(node: Node, source: bytes) -> str:
    for field in ("name", "left", "type"):
        child = node.child_by_field_name(field)
        if child is not None and not (field == "type" and node.child_by_field_name("declarator")):
            name = _text(child, source)
            receiver = node.child_by_field_name("receiver")  # of a method in Go
            owner = _LAST_NAME.search(_text(receiver, source)) if receiver is not None else None
            return f"{owner[1]}.{name}" if owner else name
    inner = node.child_by_field_name("declarator")  # C: *name(…) is a pointer to a function declarator
    while inner is not None and (child := inner.child_by_field_name("declarator")) is not None:
        inner = child
    return _text(inner, source).replace("::", ".") if inner is not None else ""


def _signature(node: Node, source: bytes) -> str:
    body = node.child_by_field_name("body")
    end = body.start_byte if body is not None else node.end_byte
    head = source[node.start_byte : min(end, node.start_byte + 4 * _MAX_SIGNATURE)].decode("utf-8", "replace")
    return _SPACE.sub(" ", head).strip(" {:")[:_MAX_SIGNATURE]


def _docstring(node: Node, source: bytes, language: str) -> str:
    if language != "python":
        comments = "\n".join(_text(comment, source) for comment in _comments_above(node))
        return _COMMENT_MARKS.sub("", comments).strip()[:_MAX_DOCSTRING]
    body = node.child_by_field_name("body")
    first = body.named_child(0) if body is not None and body.named_child_count else None
    if first is not None and first.type == "expression_statement" and first.named_child_count:
        first = first.named_child(0)
    if first is None or first.type != "string":
        return ""
    return _STRING_MARKS.sub("", _text(first, source)).strip()[:_MAX_DOCSTRING]


def _text(node: Node, source: bytes) -> str:
    return source[node.start_byte : min(node.end_byte, node.start_byte + _MAX_DOCSTRING * 4)].decode("utf-8", "replace")
