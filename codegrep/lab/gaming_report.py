"""The gaming suite's result: a table for the terminal, Markdown for the documentation."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from codegrep.lab.gaming import Finding, Played
from codegrep.lab.policies import GAMING, HONEST

LEGEND = (
    "R: its reward is above that of an honest policy that it must not beat, on some issue (most_edited and echo: in "
    "the mean). A: its final advantage is, in a group of one rollout a policy. =: it earns exactly as much as an "
    "honest policy with a good answer. ·: below."
)


def gaming_table(played: Played) -> RenderableType:
    """Designs by policies, then the worst example of every design."""
    table = Table(
        title=f"gaming suite, {played.worlds} issues", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("policy")
    for design in played.designs:
        table.add_column(design, justify="center")
    for policy in GAMING:
        table.add_row(policy.name, *(_cell(played, design, policy.name) for design in played.designs))
    return Group(table, Text(LEGEND, style="dim italic"), *(Text(f"{f.design}: {sentence(f)}") for f in _worst(played)))


def gaming_markdown(played: Played) -> str:
    """The same, with the policies and all rewards."""
    lines = [f"{played.worlds} issues, one rollout of every policy each. {LEGEND}", ""]
    lines += _rows(["gaming policy", *(f"`{d}`" for d in played.designs)], [
        [f"`{p.name}`: {p.what}", *(_cell(played, d, p.name) for d in played.designs)] for p in GAMING
    ])  # fmt: skip
    lines += ["", "What was found, the worst example of each policy:", ""]
    for design in played.designs:
        seen: set[str] = set()
        found = [f for f in played.findings if f.design == design]
        if not found:
            lines.append(f"- `{design}`: nothing.")
        for finding in found:
            if finding.policy not in seen:
                seen.add(finding.policy)
                lines.append(f"- `{design}`: {sentence(finding)}")
    lines += ["", "Mean rewards:", ""]
    lines += _rows(["policy", *(f"`{d}`" for d in played.designs)], [
        [f"`{p.name}`", *(f"{played.rewards[d][p.name]:.3f}" for d in played.designs)] for p in (*HONEST, *GAMING)
    ])  # fmt: skip
    return "\n".join(lines) + "\n"


def sentence(finding: Finding) -> str:
    """One finding with its example."""
    what = "reward" if finding.ranking == "reward" else "final advantage"
    return (
        f"{finding.policy} has {what} {finding.gaming_there:+.3f}, the honest {finding.rival} "
        f'{finding.honest_there:+.3f}, on the issue "{finding.world}" (means {finding.gaming:+.3f}, '
        f"{finding.honest:+.3f})"
    )


def _cell(played: Played, design: str, policy: str) -> str:
    rankings = {finding.ranking for finding in played.of(design, policy)}
    marks = ("R" if "reward" in rankings else "") + ("A" if "update" in rankings else "")
    return marks or ("=" if (design, policy) in played.ties else "·")


def _worst(played: Played) -> list[Finding]:
    first: dict[str, Finding] = {}
    for finding in played.findings:
        first.setdefault(finding.design, finding)
    return list(first.values())


def _rows(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
