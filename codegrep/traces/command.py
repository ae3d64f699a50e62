"""`python -m codegrep trace A [B]`: one attempt at an issue turn by turn, or two side by side."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from codegrep.errors import ConfigError
from codegrep.traces.places import trace_at
from codegrep.tracking.trace_page import Trace, html, measured, segments, summary

_EPILOG = """
examples:
  python -m codegrep trace outputs/artifacts/measured-trained-1a2b3c4d5e6f --issue pallets__flask-4992
  python -m codegrep trace outputs/artifacts/measured-base-… outputs/artifacts/measured-trained-… --issue ID
  python -m codegrep trace trajectories.jsonl.gz --issue ID --gold src/app.py
"""


def main(argv: list[str]) -> int:
    """Print the traces, or write their page; return the exit code.

    Raises:
        CodegrepError: no such place or issue, or nothing can be read.
    """
    options = _parse(argv)
    traces = [
        trace_at(place, options.issue, number, options.gold)
        for place, number in zip(options.places, _numbers(options), strict=True)
    ]
    gold = next((trace.gold for trace in traces if trace.gold), ())
    traces = [trace if trace.gold else replace(trace, gold=gold) for trace in traces]
    if options.html:
        options.html.write_text(html(traces), encoding="utf-8")
        print(f"Page: {options.html}")
        return 0
    console = Console(highlight=False, soft_wrap=True)
    for trace in traces:
        _print(console, trace, options.lines)
    return 0


def _numbers(options: argparse.Namespace) -> list[int]:
    """Return which attempt is asked for in each place."""
    numbers: Sequence[int] = options.number or [1]
    if len(numbers) > len(options.places):
        raise ConfigError(f"--number has {len(numbers)} values for {len(options.places)} places", "Give one a place")
    return [*numbers, *[numbers[-1]] * (len(options.places) - len(numbers))]


def _print(console: Console, trace: Trace, lines: int) -> None:
    console.print(Text(f"{trace.instance_id} · {trace.label}", "bold"))
    console.print(Text(" · ".join(f"{name} {value}" for name, value in summary(trace)), "dim"))
    for number, turn in enumerate(trace.turns, 1):
        console.print(Text(f"\nturn {number}  {measured(turn)}", "bold"))
        for call in turn.calls:
            status = f"  [{call.status}]" if call.status not in ("", "ok") else ""
            console.print(_marked(f"  {call.name or 'unreadable call'} {call.arguments}{status}", trace.gold, 3))
        if turn.text.strip() and not turn.calls:
            console.print(_marked(turn.text.strip(), trace.gold, lines))
        if turn.observation.strip():
            console.print(_marked(turn.observation.strip(), trace.gold, lines), style="dim")
    console.print(_marked(f"\nanswer: {', '.join(trace.answer) or 'none'}", trace.gold, lines))
    if trace.gold:
        console.print(_marked(f"gold: {', '.join(trace.gold)}\n", trace.gold, lines))


def _marked(text: str, gold: Sequence[str], lines: int) -> Text:
    """Return a text with gold files marked, cut to some lines (0: whole)."""
    rows = text.split("\n")
    cut = rows[:lines] if lines and len(rows) > lines else rows
    marked = Text()
    for piece, is_gold in segments("\n".join(cut), gold):
        marked.append(piece, "bold green" if is_gold else "")
    if len(cut) < len(rows):
        marked.append(f"\n… {len(rows) - len(cut)} more lines", "italic")
    return marked


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m codegrep trace",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("places", type=Path, nargs="+", help="a folder with rollouts at or below it, or trajectories")
    parser.add_argument("--issue", default="", help="instance id; needed where a place has several issues")
    parser.add_argument(
        "--number", type=int, action="append", help="which attempt, from 1; may be given for each place"
    )
    parser.add_argument("--gold", action="append", default=[], help="a gold file, for trajectories; may be repeated")
    parser.add_argument("--html", type=Path, help="write a page instead of printing")
    parser.add_argument("--lines", type=int, default=12, help="lines of each text that are printed; 0: all (12)")
    options = parser.parse_args(argv)
    if len(options.places) > 2:
        raise ConfigError(f"{len(options.places)} places are named", "Give one, or two to set side by side")
    return options
