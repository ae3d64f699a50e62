"""Which classes and functions a gold patch touches: the pre-image of a Python file, parsed, and the patch's old lines.

Rules, which the papers with class and function scores do not state (colgrep, arXiv 2610.05099; CodeScout):

- A touched line belongs to the innermost function around it and to the innermost class around it, decorators included.
  A line of a class body outside its methods gives the class alone; a line outside both gives nothing.
- An insertion counts with the line that it follows, as the line ranges do (CodeGrep, App. B).
- Only Python is known. An issue's entities are known when every gold file that has gold lines can be parsed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from codegrep.issues.issue import Entity, EntityKind, LineRange

MAX_SOURCE = 2_000_000  # characters; parsing takes about a hundred bytes of memory for each


@dataclass(frozen=True)
class _Definition:
    name: str
    kind: EntityKind
    start: int
    end: int


def gold_entities(
    gold_files: Sequence[str], gold_ranges: Sequence[LineRange], read: Callable[[str], str | None]
) -> tuple[Entity, ...] | None:
    """Entities of one issue, sorted; None where they are not known.

    Args:
        gold_files: of the issue.
        gold_ranges: its touched old lines. Without any, nothing is known.
        read: text of a path at the base commit, None where there is none.
    """
    if not gold_ranges or any(not path.endswith(".py") for path in gold_files):
        return None
    found: set[Entity] = set()
    for path in sorted({span.path for span in gold_ranges}):
        source = read(path)
        touched = None if source is None else entities_at(source, [span for span in gold_ranges if span.path == path])
        if touched is None:
            return None
        found |= touched
    return tuple(sorted(found))


def entities_at(source: str, spans: Iterable[LineRange]) -> set[Entity] | None:
    """Classes and functions of `source` that hold lines of `spans`; None where it is not Python that can be parsed."""
    definitions = _definitions(source)
    if definitions is None:
        return None
    found: set[Entity] = set()
    # Definitions nest, so of those around a line the one that begins last is the innermost.
    definitions.sort(key=lambda d: (d.start, -d.end))
    last = max((d.end for d in definitions), default=0)
    innermost: dict[EntityKind, list[_Definition | None]] = {
        kind: [None] * (last + 1) for kind in ("class", "function")
    }
    for d in definitions:
        innermost[d.kind][d.start : d.end + 1] = [d] * (d.end + 1 - d.start)
    for span in spans:
        for around in innermost.values():
            inner = {d for d in around[span.start : span.end + 1] if d is not None}
            found |= {Entity(span.path, d.name, d.kind) for d in inner}
    return found


def _definitions(source: str) -> list[_Definition] | None:
    if len(source) > MAX_SOURCE:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old code are not this program's news
            tree = ast.parse(source)
        return list(_walk(tree, ""))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # Python 2, null bytes, nested beyond the parser


def _walk(node: ast.AST, prefix: str) -> Iterator[_Definition]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            kind: EntityKind = "class" if isinstance(child, ast.ClassDef) else "function"
            start = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield _Definition(name, kind, start, child.end_lineno or child.lineno)
            yield from _walk(child, f"{name}.")
        else:
            yield from _walk(child, prefix)
