"""The replay in a terminal."""

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
    """Signal, what is pushed, agreement, components; then the notes."""
    parts: list[RenderableType] = [signal_table(replay), push_table(replay)]
    if len(replay.designs) > 1:
        parts.append(agreement_table(replay))
    parts.append(component_table(replay))
    parts += [Text(f"note: {note}", style="dim") for note in replay.notes]
    return Group(*parts)


def signal_table(replay: Replay) -> Table:
    """One row a design: the reward, dead groups, and the update that is left."""
    table = _table(
        f"{len(replay.stored):,} rollouts in {len(replay.stored.group_names):,} groups",
        ("design", "reward", "std", "in group", "dead", "|A|", "x factor", "x mask", "effective", "bias"),
    )
    table.caption = (
        "in group: mean standard deviation within a group. dead: groups without two different rewards. "
        "|A|: mean size of the advantage, then after the factor, then of what masks leave. "
        "effective: share of rollouts that an equal update would need. bias: mean advantage after the factor."
    )
    for m in replay.designs:
        table.add_row(
            Text(m.name),
            *_numbers((m.reward_mean, m.reward_std, m.group_std)),
            percent(m.dead),
            *_numbers((m.mass_normalised, m.mass_factor, m.mass)),
            percent(m.effective),
            signed(m.bias),
        )
    return table


def push_table(replay: Replay) -> Table:
    """Within-group correlation of the advantage with what a policy could change."""
    table = _table("what the advantages push (correlation within groups)", ("design", *map(words, PROPERTIES)))
    for m in replay.designs:
        table.add_row(Text(m.name), *map(signed, m.pushes.values()))
    return table


def agreement_table(replay: Replay) -> Table:
    """Every pair of designs once: Kendall's τ above the diagonal, sign flips below it."""
    names = [m.name for m in replay.designs]
    table = _table("agreement: Kendall τ above the diagonal, sign flips below", ("", *names))
    table.caption = (
        "τ: order of the rewards within a group. Sign flips: share of rollouts that one design raises and the other "
        "lowers, of those that both move."
    )
    found = {(a.first, a.second): a for a in replay.agreements}
    for row in names:
        cells = [
            signed(found[row, column].tau)
            if (row, column) in found
            else percent(found[column, row].flips)
            if (column, row) in found
            else ""
            for column in names
        ]
        table.add_row(Text(row), *cells)
    return table


def component_table(replay: Replay) -> Table:
    """The parts of every reward."""
    table = _table(
        "components: share of the within-group variance of the reward", ("design", "part", "mean", "alone", "unique")
    )
    for m in replay.designs:
        for place, part in enumerate(m.components):
            table.add_row(
                Text(m.name if place == 0 else ""),
                Text(part.name),
                number(part.mean),
                percent(part.alone),
                percent(part.unique),
            )
    return table


def number(value: float, digits: int = 3) -> str:
    """A dash for what is not defined."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def signed(value: float) -> str:
    """With its sign; a dash for what is not defined."""
    return "–" if math.isnan(value) else f"{value:+.2f}"


def percent(value: float) -> str:
    """A share as a percentage."""
    return "–" if math.isnan(value) else f"{100 * value:.1f}%"


def words(name: str) -> str:
    """A name of the code as it is read."""
    return name.replace("_", " ")


def _numbers(values: Iterable[float]) -> list[str]:
    return [number(value) for value in values]


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left", pad_edge=False, box=box.SIMPLE_HEAD)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right", overflow="fold")
    return table
