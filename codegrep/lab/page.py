"""Reports of the reward lab as one HTML file that loads nothing, so that it can be mailed and read offline."""

from __future__ import annotations

import io
from collections.abc import Iterable
from html import escape

import matplotlib
from matplotlib.figure import Figure
from rich.table import Table

from codegrep.lab import figures
from codegrep.lab.replay import Replay
from codegrep.lab.tables import agreement_table, component_table, push_table, signal_table

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1d1d1d;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2.2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.88rem;margin:.6rem 0}
th,td{padding:.22rem .7rem;text-align:right;border-bottom:1px solid #e4e4e4}
th:first-child,td:first-child{text-align:left}
.wide{overflow-x:auto}p.note{color:#555;font-size:.88rem}svg{max-width:100%;height:auto}
"""


def replay_page(replay: Replay) -> str:
    """Return the HTML of a whole replay."""
    stored = replay.stored
    introduction = (
        f"<p>{len(stored):,} rollouts in {len(stored.group_names):,} groups, scored under {len(replay.designs)} "
        f"designs.</p>{named_items((m.name, m.summary) for m in replay.designs)}"
        + "".join(f'<p class="note">Note: {escape(note)}</p>' for note in replay.notes)
    )
    sections = [
        _section("Signal", _html(signal_table(replay)) + svg(figures.update_mass(replay))),
        _section("Distributions", svg(figures.distributions(replay))),
        _section(
            "What the advantages push",
            '<p class="note">Correlation, within groups, of the final advantage with what a policy could change. These '
            "rollouts were sampled from one policy: it is the direction of the first updates, not where training ends."
            "</p>" + _html(push_table(replay)) + svg(figures.pushes(replay)),
        ),
    ]
    if len(replay.designs) > 1:
        sections.append(_section("Agreement", _html(agreement_table(replay)) + svg(figures.rank_agreement(replay))))
    sections.append(_section("Components", _html(component_table(replay))))
    return document("Reward lab: replay", introduction + "".join(sections))


def document(title: str, body: str) -> str:
    """Return a page with this title around HTML."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def named_items(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a bullet list of names and their texts as HTML."""
    return "<ul>" + "".join(f"<li><b>{escape(name)}</b>: {escape(text)}</li>" for name, text in pairs) + "</ul>"


def svg(figure: Figure) -> str:
    """Return a figure as SVG to stand inside a page; equal figures give equal bytes."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "codegrep", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _section(heading: str, body: str) -> str:
    return f'<h2>{escape(heading)}</h2><div class="wide">{body}</div>'


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(str(column.header))}</th>" for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in zip(*(column.cells for column in table.columns), strict=True)
    )
    caption = f'<p class="note">{escape(str(table.caption))}</p>' if table.caption else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{caption}"
