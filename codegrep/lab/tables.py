"""Tables of the reward lab, for a terminal and as Markdown; and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from codegrep.lab.measures import PROPERTIES
from codegrep.lab.replay import Replay


def replay_tables(replay: Replay) -> RenderableType:
    """Return all tables of a replay, then its notes."""
    tables = [signal_table(replay), push_table(replay)]
    if len(replay.designs) > 1:
        tables.append(agreement_table(replay))
    return Group(*tables, component_table(replay), *(Text(f"note: {note}", style="dim") for note in replay.notes))


def signal_table(replay: Replay) -> Table:
    """Return one row a design: the reward, dead groups, and the update that is left."""
    rows = [
        [
            m.name,
            *map(number, (m.reward_mean, m.reward_std, m.group_std)),
            percent(m.dead),
            *map(number, (m.mass_normalised, m.mass_factor, m.mass)),
            percent(m.effective),
            signed(m.bias),
        ]
        for m in replay.designs
    ]
    return terminal_table(
        f"{len(replay.stored):,} rollouts in {len(replay.stored.group_names):,} groups",
        ("design", "reward", "std", "in group", "dead", "|A|", "x factor", "x mask", "effective", "bias"),
        rows,
        "in group: mean standard deviation within a group. dead: groups without two different rewards. "
        "|A|: mean size of the advantage, then after the factor, then of what masks leave. "
        "effective: share of rollouts that an equal update would need. bias: mean advantage after the factor.",
    )


def push_table(replay: Replay) -> Table:
    """Return the within-group correlation of the advantage with what a policy could change."""
    return terminal_table(
        "what the advantages push (correlation within groups)",
        ("design", *map(words, PROPERTIES)),
        [[m.name, *map(signed, m.pushes.values())] for m in replay.designs],
    )


def agreement_table(replay: Replay) -> Table:
    """Return every pair of designs once: Kendall's τ above the diagonal, sign flips below it."""
    names = [m.name for m in replay.designs]
    of_pair = {(a.first, a.second): a for a in replay.agreements}

    def cell(row: str, column: str) -> str:
        if (row, column) in of_pair:
            return signed(of_pair[row, column].tau)
        return percent(of_pair[column, row].flips) if (column, row) in of_pair else ""

    return terminal_table(
        "agreement: Kendall τ above the diagonal, sign flips below",
        ("", *names),
        [[row, *(cell(row, column) for column in names)] for row in names],
        "τ: order of the rewards within a group. Sign flips: share of rollouts that one design raises and the other "
        "lowers, of those that both move.",
    )


def component_table(replay: Replay) -> Table:
    """Return the parts of every reward."""
    rows = [
        [m.name if place == 0 else "", part.name, number(part.mean), percent(part.alone), percent(part.unique)]
        for m in replay.designs
        for place, part in enumerate(m.components)
    ]
    head = ("design", "part", "mean", "alone", "unique")
    return terminal_table("components: share of the within-group variance of the reward", head, rows)


def terminal_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None) -> Table:
    """Return a table whose first column is on the left and the others on the right; cells are plain text."""
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left", pad_edge=False, box=box.SIMPLE_HEAD
    )
    for place, column in enumerate(head):
        table.add_column(column, justify="left" if place == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def number(value: float) -> str:
    """Return three decimals, or a dash for what is not defined."""
    return "–" if math.isnan(value) else f"{value:.3f}"


def signed(value: float) -> str:
    """Return two decimals with a sign, or a dash for what is not defined."""
    return "–" if math.isnan(value) else f"{value:+.2f}"


def percent(value: float) -> str:
    """Return a share as a percentage, or a dash for what is not defined."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}%"


def words(name: str) -> str:
    """Return a name of the code as it is read."""
    return name.replace("_", " ")
