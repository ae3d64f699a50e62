"""Results of a turn's calls -> the text that the model reads next.

Two styles (conf/tools, `observation`): "results" gives each result in a numbered `<tool_response>` block, as the
paper's agents see them; "table" lists errors, refusals, reads and globs by number and merges the greps of the turn
into one short table of files, for models that pay for every token. Every cut is stated in words.

The text comes as segments, so that the chat format can encode our markers as the model's own tokens and everything
that stems from a repository or from the model as plain characters (codegrep.protocol.chat).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from codegrep.config import ToolsConfig
from codegrep.protocol.calls import ToolResult
from codegrep.protocol.ranking import RankedFile, rank_files

TABLE_TOOLS = frozenset({"grep", "semantic"})
ROW_TEXT_CHARS = 60
MIN_RESULT_CHARS = 80


@dataclass(frozen=True)
class Segment:
    """A piece of a message. trusted: written by this project, so that markers in it may become control tokens."""

    text: str
    trusted: bool


def text_of(segments: Sequence[Segment]) -> str:
    """The segments as one string."""
    return "".join(segment.text for segment in segments)


def render(results: Sequence[ToolResult], tools: ToolsConfig, key: str = "", note: str = "") -> list[Segment]:
    """The observation of one turn.

    Args:
        results: in call order.
        tools: style, order and caps.
        key: seeds the order "shuffled"; the issue's id, so that the same search gives the same order.
        note: one trusted line after the results ("answer now"), outside the cap.
    """
    segments = _table(results, tools, key) if tools.observation == "table" else _results(results, tools)
    if note:
        segments.append(Segment(("\n" if segments else "") + note, True))
    return segments


def _results(results: Sequence[ToolResult], tools: ToolsConfig) -> list[Segment]:
    budget = tools.max_observation_chars
    texts = _share([_named(result) for result in results], budget) if budget else [_named(result) for result in results]
    segments: list[Segment] = []
    for result, text in zip(results, texts, strict=True):
        opening = "\n<tool_response>\n" if segments else "<tool_response>\n"
        segments += [
            Segment(f"{opening}[{result.number}] ", True),
            Segment(_disarm(text), False),
            Segment("\n</tool_response>", True),
        ]
    return segments


def _table(results: Sequence[ToolResult], tools: ToolsConfig, key: str) -> list[Segment]:
    merged = [result for result in results if _name(result) in TABLE_TOOLS and result.files]
    listed = [result for result in results if result not in merged]
    files = _ordered(rank_files(merged), tools.table_order, key)
    rows = [_row(file) for file in files[: tools.table_rows]]
    lines = [f"[{result.number}] {_named(result)}" for result in listed]
    budget = tools.max_observation_chars
    if budget:
        # The table is what such a model works with: what is listed gets what the table leaves, but a third at least.
        lines = _share(lines, max(budget // 3, budget - sum(len(row) + 1 for row in rows)))
        room = budget - sum(len(line) + 1 for line in lines)
        while len(rows) > 1 and sum(len(row) + 1 for row in rows) > room:
            rows.pop()
    cut = [str(result.number) for result in merged if result.matched_files > len(result.files)]
    if len(files) > len(rows):
        rows.append(f"({len(files) - len(rows)} more files)")
    if cut:
        rows.append(f"(cut: {', '.join(cut)})")
    text = "\n".join([*lines, *rows])
    return [Segment(_disarm(text), False)] if text else []


def _ordered(files: list[RankedFile], order: str, key: str) -> list[RankedFile]:
    if order == "path":
        return sorted(files, key=lambda file: file.path)
    if order == "shuffled":
        return sorted(files, key=lambda file: hashlib.sha256(f"{key}\0{file.path}".encode()).digest())
    return files


def _row(file: RankedFile) -> str:
    hits = " ".join(f"{number}:{count}" for number, count in file.hits)
    text = " ".join(file.text.split())
    shown = text if len(text) <= ROW_TEXT_CHARS else text[: ROW_TEXT_CHARS - 1] + "…"
    return f"{file.path} {hits} {shown}".rstrip()


def _name(result: ToolResult) -> str:
    return getattr(result.call, "name", "")


def _named(result: ToolResult) -> str:
    name = _name(result)
    # The name is the model's word too: it may be anything.
    return f"{name[:40]}: {result.text}" if name else result.text


def _share(texts: list[str], budget: int) -> list[str]:
    """Cut the longest texts so that all fit into `budget` characters, fairly; a cut text says so."""
    if sum(map(len, texts)) <= budget or not texts:
        return texts
    left, allowed = budget, 0
    for place, length in enumerate(sorted(map(len, texts))):
        allowed = max(left // (len(texts) - place), MIN_RESULT_CHARS)
        if length > allowed:
            break
        left -= length
    return [text if len(text) <= allowed else _cut(text, allowed) for text in texts]


def _cut(text: str, allowed: int) -> str:
    note = f"\n[cut: {allowed} of {len(text)} characters]"
    kept = text[: max(allowed - len(note), 0)]
    # Cut at a line's end where that loses little.
    line_end = kept.rfind("\n")
    if line_end > len(kept) // 2:
        kept = kept[:line_end]
    return kept + f"\n[cut: {len(kept)} of {len(text)} characters]"


def _disarm(text: str) -> str:
    # For a model whose markers are plain text, repository text could otherwise close its own block.
    return text.replace("<tool_response", "<\\tool_response").replace("</tool_response", "<\\/tool_response")
