"""Rank the files that several searches found. Used for the merged table of a turn and by the baseline without a model.

score(file) = sum over the calls c that matched it of  idf(c) * (1 + ln count) * boost  for greps and globs, and of
SEARCH_WEIGHT * ln(F + 1) / rank  for `search`, whose results are ranked already; rank counts its files from 1, and the
weight was chosen on issues made of installed packages (data=demo). Here

- idf(c) = ln((F + 1) / df_c): df_c is the number of files that call matched, F the number of files that any call of
  the list matched, so a search that hits everything says little (the idea of inverse document frequency; the number
  of files in the repository is not known here, and only the order matters);
- count is the number of matching lines of the file;
- boost is DEFINITION_BOOST where the line shown defines a name that the pattern asks for, else 1.

Reads do not count: they name a file that the model already had. A call that matched more files than its result names
counts with the number that it matched, F at most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from codegrep.protocol.calls import FileMatches, ToolCall, ToolResult

DEFINITION_BOOST = 2.0
SEARCH_WEIGHT = 4.0
NO_SEARCH = frozenset({"read"})
_DEFINITION = re.compile(
    r"^(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|abstract\s+|pub\s+|async\s+)*"
    r"(?:(?:def|class|func|function|fn|struct|enum|interface|trait|type|module|impl)\s+(\w+)|(\w+)\s*(?::[^=]*)?=(?!=))"
)
_WORD = re.compile(r"[A-Za-z_]\w{2,}")


@dataclass(frozen=True)
class RankedFile:
    """One file over all calls.

    Attributes:
        path: repo-relative POSIX path.
        score: see the module; higher is better.
        hits: (call number, matching lines) of each call that matched, by call number.
        line, text, at: as in FileMatches, of the most telling line (of the call with the largest share of the score).
    """

    path: str
    score: float
    hits: tuple[tuple[int, int], ...]
    line: int = 0
    text: str = ""
    at: int = 0


def rank_files(results: Sequence[ToolResult]) -> list[RankedFile]:
    """Files of all the results, best first; ties by number of calls that matched, then by path.

    Args:
        results: of one turn or of several (call numbers then repeat).
    """
    results = [result for result in results if getattr(result.call, "name", "") not in NO_SEARCH]
    total = len({match.path for result in results for match in result.files})
    shares: dict[str, list[tuple[float, int, FileMatches]]] = {}
    for result in results:
        found = min(result.matched_files, total)
        ranked = getattr(result.call, "name", "") == "search"
        for rank, match in enumerate(result.files, 1):
            weight = math.log((total + 1) / found) * (1 + math.log(max(match.count, 1))) * _boost(result, match)
            if ranked:
                weight = SEARCH_WEIGHT * math.log(total + 1) / rank
            shares.setdefault(match.path, []).append((weight, result.number, match))
    ranked = []
    for path, parts in shares.items():
        best = max(parts, key=lambda part: (bool(part[2].text), part[0], -part[1]))[2]
        hits = tuple(sorted((number, match.count) for _, number, match in parts))
        ranked.append(RankedFile(path, sum(weight for weight, _, _ in parts), hits, best.line, best.text, best.at))
    return sorted(ranked, key=lambda file: (-file.score, -len(file.hits), file.path))


def _boost(result: ToolResult, match: FileMatches) -> float:
    defined = _DEFINITION.match(match.text.strip())
    pattern = result.call.arguments.get("pattern") if isinstance(result.call, ToolCall) else None
    if defined is None or not isinstance(pattern, str):
        return 1.0
    # The pattern is the model's: its words are compared, it is never run as a regular expression here.
    name = (defined.group(1) or defined.group(2)).lower()
    return DEFINITION_BOOST if any(word.lower() == name for word in _WORD.findall(pattern)) else 1.0
