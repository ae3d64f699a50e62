"""Results of a turn's calls -> the text that the model reads next.

Two styles (conf/tools, `observation`): "results" gives each result in a numbered `<tool_response>` block, as the
paper's agents see them; "table" lists errors, refusals, reads and globs by number and merges the greps and
searches of the turn into one short table of files, for models that pay for every token. Every cut is stated in words.

The text comes as segments, so that the chat format can encode our markers as the model's own tokens and everything
that stems from a repository or from the model as plain characters (codegrep.protocol.chat).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegrep.config import ToolsConfig
from codegrep.protocol.calls import ToolResult
from codegrep.protocol.ranking import RankedFile, rank_files
from codegrep.protocol.shown import ShownFile, merged, shown_files
from codegrep.text import around

TABLE_TOOLS = frozenset({"grep", "search"})
ROW_TEXT_CHARS = 60
_CLOSING = "\n</tool_response>"


@dataclass(frozen=True)
class Segment:
    """A piece of a message. trusted: written by this project, so that markers in it may become control tokens."""

    text: str
    trusted: bool


@dataclass(frozen=True)
class Observation:
    """The text that the model reads after a turn, and what it shows of files.

    Attributes:
        results: what the text was made of, in call order: more than it shows.
        segments: the text in pieces, the closing note included.
        calls: for each result, in call order, the files that the text shows for it, in the order of the text.
        files: the same over the whole turn, each file once.
    """

    results: tuple[ToolResult, ...] = ()
    segments: tuple[Segment, ...] = ()
    calls: tuple[tuple[ShownFile, ...], ...] = ()
    files: tuple[ShownFile, ...] = ()

    @property
    def text(self) -> str:
        """The segments as one string."""
        return "".join(segment.text for segment in self.segments)


def render(results: Sequence[ToolResult], tools: ToolsConfig, key: str = "", note: str = "") -> Observation:
    """Return the observation of one turn.

    Args:
        results: in call order.
        tools: style, order and caps.
        key: seeds the order "shuffled"; the issue's id, so that the same search gives the same order.
        note: one trusted line after the results ("answer now"), outside the cap.
    """
    observation = _table(results, tools, key) if tools.observation == "table" else _results(results, tools)
    if not note:
        return observation
    closing = Segment(("\n" if observation.segments else "") + note, True)
    return replace(observation, segments=(*observation.segments, closing))


def _results(results: Sequence[ToolResult], tools: ToolsConfig) -> Observation:
    openings = ["\n" * (place > 0) + f"<tool_response>\n[{r.number}] " for place, r in enumerate(results)]
    frames = sum(len(opening) + len(_CLOSING) for opening in openings)
    texts = _share([_named(r) for r in results], tools.max_observation_chars and tools.max_observation_chars - frames)
    segments: list[Segment] = []
    for opening, text in zip(openings, texts, strict=True):
        segments += [Segment(opening, True), Segment(text, False), Segment(_CLOSING, True)]
    calls = tuple(_shown(result, text) for result, text in zip(results, texts, strict=True))
    return Observation(tuple(results), tuple(segments), calls, merged(file for files in calls for file in files))


def _table(results: Sequence[ToolResult], tools: ToolsConfig, key: str) -> Observation:
    searches = [result for result in results if _name(result) in TABLE_TOOLS and result.files]
    listed = [result for result in results if result not in searches]
    files = _ordered(rank_files(searches), tools.table_order, key)
    rows = [_row(file) for file in files[: tools.table_rows]]
    texts = [_named(result) for result in listed]
    numbers = [f"[{result.number}] " for result in listed]
    if budget := tools.max_observation_chars:
        notes = _length(_table_notes(len(files), searches))
        # The table is what such a model works with: what is listed gets what the table leaves, but a third at least.
        texts = _share(texts, max(budget // 3, budget - _length(rows) - notes) - _length(numbers))
        room = budget - _length(numbers) - _length(texts) - notes
        while rows and _length(rows) > room + len(texts):  # a number and its text are one line
            rows.pop()
    lines = [number + text for number, text in zip(numbers, texts, strict=True)]
    text = "\n".join([*lines, *rows, *_table_notes(len(files) - len(rows), searches)])
    in_rows = shown_files("\n".join(rows), (file.path for file in files))
    in_lists = [_shown(result, kept) for result, kept in zip(listed, texts, strict=True)]
    hits = {file.path: {number for number, _ in file.hits} for file in files}
    left = iter(in_lists)
    calls = tuple(
        tuple(file for file in in_rows if result.number in hits[file.path]) if result in searches else next(left)
        for result in results
    )
    files_shown = merged([*(file for shown in in_lists for file in shown), *in_rows])
    return Observation(tuple(results), (Segment(text, False),) if text else (), calls, files_shown)


def _table_notes(missing: int, searches: Sequence[ToolResult]) -> list[str]:
    cut = [str(result.number) for result in searches if result.matched_files > len(result.files)]
    return [f"({missing} more files)"] * (missing > 0) + [f"(cut: {', '.join(cut)})"] * bool(cut)


def _shown(result: ToolResult, text: str) -> tuple[ShownFile, ...]:
    whole = _named(result)
    prefix = len(whole) - len(_disarm(result.text))
    return shown_files(text[prefix:], (file.path for file in result.files), whole[prefix:])


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _ordered(files: list[RankedFile], order: str, key: str) -> list[RankedFile]:
    if order == "path":
        return sorted(files, key=lambda file: file.path)
    if order == "shuffled":
        return sorted(files, key=lambda file: hashlib.sha256(f"{key}\0{file.path}".encode()).digest())
    return files


def _row(file: RankedFile) -> str:
    place = f"{file.path}:{file.line}" if file.line else file.path
    hits = " ".join(f"{number}:{count}" for number, count in file.hits)
    before = " ".join(file.text[: file.at].split())
    text, _ = around(" ".join(file.text.split()), len(before), ROW_TEXT_CHARS)
    return _disarm(f"{place} {hits} {text}".rstrip())


def _name(result: ToolResult) -> str:
    return getattr(result.call, "name", "")


def _named(result: ToolResult) -> str:
    name = _name(result)
    # The name is the model's word too: it may be anything.
    return _disarm(f"{name[:40]}: {result.text}" if name else result.text)


def _share(texts: list[str], budget: int) -> list[str]:
    """Cut the longest texts so that all fit into `budget` characters, fairly; a cut text says so. 0 cuts nothing."""
    if budget == 0 or sum(map(len, texts)) <= budget:
        return texts
    left, allowed = budget, 0
    for place, length in enumerate(sorted(map(len, texts))):
        allowed = max(left, 0) // (len(texts) - place)
        if length > allowed:
            break
        left -= length
    return [text if len(text) <= allowed else _cut(text, allowed) for text in texts]


def _cut(text: str, allowed: int) -> str:
    note = f"\n[cut: {allowed} of {len(text)} characters]"
    if len(note) > allowed:
        return "[cut]"[:allowed]
    kept = text[: allowed - len(note)]
    # Cut at a line's end where that loses little.
    line_end = kept.rfind("\n")
    if line_end > len(kept) // 2:
        kept = kept[:line_end]
    return kept + f"\n[cut: {len(kept)} of {len(text)} characters]"


def _disarm(text: str) -> str:
    # For a model whose markers are plain text, repository text could otherwise close its own block.
    return text.replace("<tool_response", "<\\tool_response").replace("</tool_response", "<\\/tool_response")
