"""search(query, k, path, pattern): functions, classes and text ranked by an index (codegrep.index), not by a regex."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from codegrep.config import ToolsConfig
from codegrep.errors import CodegrepError
from codegrep.index.search import Hit, Index, PatternError
from codegrep.index.tree import IndexedUnit
from codegrep.index.units import MAX_PARSED
from codegrep.protocol.calls import FileMatches, ToolStatus
from codegrep.sandbox.guard import Guard, PathRefused
from codegrep.sandbox.tools.arguments import check_arguments
from codegrep.sandbox.tools.formatting import fit, shown_line, shown_path
from codegrep.sandbox.tools.search import SearchPrograms
from codegrep.sandbox.tools.tool import Argument, ArgumentError, Outcome, fault, mistake
from codegrep.sandbox.tree_indexes import TreeIndexes

_WILDCARDS = "*?["


class Search:
    """Gives `path:start-end: head` for each unit, the best first; the head is its signature or its first line.

    A first call on a tree waits for the index. At the deadline the call is the machine's fault, and the index goes on
    being built for the next one.

    Args:
        limits: caps and deadline; `limits.search.index` names the index.
        programs: the search programs; ripgrep finds the matches of `pattern`.
        index_folder: where indexes are kept; None: a temporary folder.
    """

    name = "search"
    description = "Find code by what it is about. Gives path:first-last line: head for each function, best first."
    # Waits for an index must not take the places of other calls; `limits.concurrency` queries run at once.
    has_own_queue = True

    def __init__(
        self, limits: ToolsConfig, programs: SearchPrograms | None = None, index_folder: Path | None = None
    ) -> None:
        self._limits = limits
        ripgrep = (programs or SearchPrograms()).ripgrep
        self._trees = TreeIndexes(
            index_folder, limits.search.index, with_tests=not limits.exclude_tests, ripgrep=ripgrep
        )
        self._threads = ThreadPoolExecutor(max(1, limits.concurrency), thread_name_prefix="query")
        most = limits.search.max_results
        few = min(limits.search.results, most)
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "what the code is about, in words or names"},
                "k": {
                    "type": "integer",
                    "description": f"results, default: {few}, at most {most}",
                },
                "path": {"type": "string", "description": "folder, file or glob, default: the whole repository"},
                "pattern": {"type": "string", "description": "regular expression that a result must match"},
            },
            "required": ["query"],
            "additionalProperties": False,
        }
        self._defaults: dict[str, Argument] = {"k": few, "path": ".", "pattern": ""}

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Argument]:
        """See Tool.check."""
        checked = check_arguments(self.parameters, self._defaults, arguments)
        if not str(checked["query"]).strip():
            raise ArgumentError("argument 'query' is empty")
        most = self._limits.search.max_results
        if not 1 <= int(checked["k"] or 0) <= most:
            raise ArgumentError(f"argument 'k' must be from 1 to {most}")
        if "\n" in str(checked["pattern"]) or "\r" in str(checked["pattern"]):
            raise ArgumentError("argument 'pattern' contains a line break; lines are searched one by one")
        return checked

    async def run(self, root: Path, arguments: Mapping[str, Argument]) -> Outcome:
        """See Tool.run."""
        guard = Guard(root)
        try:
            path = guard.resolve(str(arguments["path"]))
        except PathRefused as refused:
            return mistake(str(refused))
        if not os.path.lexists(root / path) and not any(c in path for c in _WILDCARDS):
            return mistake(f"no such file or folder: {shown_path(os.fsencode(path))}")
        index: Index | None = None
        try:
            async with asyncio.timeout(self._limits.search.timeout):
                index = await asyncio.shield(asyncio.wrap_future(self._trees.of(root)))
                asking = self._threads.submit(self._hits, index, guard, path, arguments)
                hits = await asyncio.wrap_future(asking)
        except TimeoutError:
            waited = f"timed out after {self._limits.search.timeout:g}s"
            late = "" if index else "; the index of the repository is still being built, ask again later"
            return fault(waited + late, timed_out=True)
        except PatternError as error:
            return mistake(f"argument 'pattern' cannot be used: {error}")
        except CodegrepError as error:
            return fault(str(error))
        except OSError as error:
            return fault(f"the repository's files cannot be read ({error.strerror})")
        return self._outcome(hits, path, bool(arguments["pattern"]))

    def _hits(self, index: Index, guard: Guard, path: str, arguments: Mapping[str, Argument]) -> list[tuple[Hit, str]]:
        """Units and their heads."""
        hits = index.search(
            str(arguments["query"]),
            int(arguments["k"] or 0),
            None if path == "." else path,
            str(arguments["pattern"]) or None,
        )
        return [(hit, _head(hit.unit) or _first_line(guard, hit.unit)) for hit in hits]

    def _outcome(self, hits: Sequence[tuple[Hit, str]], path: str, filtered: bool) -> Outcome:
        limits = self._limits
        if not hits:
            what = " that matches the pattern" if filtered else ""
            where = "the repository" if path == "." else shown_path(os.fsencode(path))
            tests = ", test files left out" if limits.exclude_tests else ""
            return Outcome(ToolStatus.OK, shown_line(f"[nothing found{what} in {where}{tests}]", limits.max_chars))
        files: dict[str, list[tuple[IndexedUnit, str]]] = {}
        lines = []
        for hit, head in hits:
            unit, name = hit.unit, shown_path(os.fsencode(hit.unit.path))
            text = shown_line(" ".join(head.split()), limits.max_line_chars)
            lines.append(f"{name}:{unit.start}-{unit.end}: {text}")
            files.setdefault(name, []).append((unit, text))

        def header(shown: int) -> str:
            return "" if shown == len(lines) else f"[first {shown} of {len(lines)} results]"

        text, shown = fit(lines, limits.max_chars, header)
        matches = tuple(FileMatches(name, len(units), units[0][0].start, units[0][1]) for name, units in files.items())
        return Outcome(ToolStatus.OK, text, matches, truncated=shown < len(lines))


def _head(unit: IndexedUnit) -> str:
    """Return the signature, the class or function around it, and the first line of the docstring."""
    owner = unit.name.rpartition(".")[0]
    inside = f" in {owner}" if owner and unit.signature else ""
    summary = unit.docstring.partition("\n")[0]
    return f"{unit.signature}{inside}{': ' if summary and unit.signature else ''}{summary}"


def _first_line(guard: Guard, unit: IndexedUnit) -> str:
    try:
        with Path(guard.root, guard.resolve(unit.path)).open("rb") as file:
            lines = file.read(MAX_PARSED).decode("utf-8", "replace").split("\n")
    except (OSError, PathRefused):
        return unit.name
    return lines[unit.start - 1] if unit.start <= len(lines) else unit.name
