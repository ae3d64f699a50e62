"""The replay as one HTML file: nothing is loaded from anywhere, so it can be mailed and read offline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.table import Table
from rich.text import Text

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


def replay_page(replay: Replay, title: str = "Reward lab: replay") -> str:
    """HTML text of the whole replay."""
    stored = replay.stored
    designs = "".join(f"<li><b>{escape(m.name)}</b>: {escape(m.summary)}</li>" for m in replay.designs)
    notes = "".join(f'<p class="note">Note: {escape(note)}</p>' for note in replay.notes)
    sections = [
        _section("Signal", _html(signal_table(replay)) + figures.svg(figures.update_mass(replay))),
        _section("Distributions", figures.svg(figures.distributions(replay))),
        _section(
            "What the advantages push",
            '<p class="note">Correlation, within groups, of the final advantage with what a policy could change. These '
            "rollouts were sampled from one policy: it says in which direction the first updates would go, not where "
            "training ends.</p>" + _html(push_table(replay)) + figures.svg(figures.pushes(replay)),
        ),
        _section("Components", _html(component_table(replay))),
    ]
    if len(replay.designs) > 1:
        cells = figures.svg(figures.rank_agreement(replay))
        sections.insert(3, _section("Agreement", _html(agreement_table(replay)) + cells))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{len(stored):,} rollouts in {len(stored.group_names):,} groups, judged again under {len(replay.designs)} "
        f"designs.</p><ul>{designs}</ul>{notes}{''.join(sections)}</body></html>\n"
    )


def _section(heading: str, body: str) -> str:
    return f'<h2>{escape(heading)}</h2><div class="wide">{body}</div>'


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(str(column.header))}</th>" for column in table.columns)
    columns: Sequence[Sequence[object]] = [list(column.cells) for column in table.columns]
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_plain(c))}</td>" for c in row) + "</tr>" for row in zip(*columns, strict=True)
    )
    caption = f'<p class="note">{escape(str(table.caption))}</p>' if table.caption else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{caption}"


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
