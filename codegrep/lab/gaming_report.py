"""The gaming suite's result: a table for the terminal, Markdown for the documentation."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from codegrep.lab.gaming import Finding, Played
from codegrep.lab.policies import GAMING, HONEST
from codegrep.lab.tables import markdown_table, terminal_table

LEGEND = (
    "R: its reward is above that of an honest policy that it must not beat, on some issue (most_edited and echo: in "
    "the mean). A: its final advantage is, in a group of one rollout a policy. =: it earns exactly as much as an "
    "honest policy with a good answer. ·: below."
)


def gaming_table(played: Played) -> RenderableType:
    """Return designs by policies, then the worst example of every design."""
    rows = [[policy.name, *(_cell(played, design, policy.name) for design in played.designs)] for policy in GAMING]
    worst: dict[str, Finding] = {}  # of each design
    for finding in played.findings:
        worst.setdefault(finding.design, finding)
    return Group(
        terminal_table(f"gaming suite, {played.worlds} issues", ("policy", *played.designs), rows),
        Text(LEGEND, style="dim italic"),
        *(Text(f"{finding.design}: {sentence(finding)}") for finding in worst.values()),
    )


def gaming_markdown(played: Played) -> str:
    """Return the same with every policy, every design's findings and all rewards."""
    designs = [f"`{design}`" for design in played.designs]
    marks = [[f"`{p.name}`: {p.what}", *(_cell(played, d, p.name) for d in played.designs)] for p in GAMING]
    rewards = [
        [f"`{p.name}`", *(f"{played.rewards[d][p.name]:.3f}" for d in played.designs)] for p in (*HONEST, *GAMING)
    ]
    findings = []
    for design in played.designs:
        worst: dict[str, Finding] = {}  # of each policy
        for finding in played.findings:
            if finding.design == design:
                worst.setdefault(finding.policy, finding)
        findings += [f"- `{design}`: {sentence(finding)}" for finding in worst.values()] or [f"- `{design}`: nothing."]
    parts = [
        f"{played.worlds} issues, one rollout of every policy each. {LEGEND}",
        markdown_table(["gaming policy", *designs], marks),
        "What was found, the worst example of each policy:",
        "\n".join(findings),
        "Mean rewards:",
        markdown_table(["policy", *designs], rewards),
    ]
    return "\n\n".join(parts) + "\n"


def sentence(finding: Finding) -> str:
    """Return one finding with its example."""
    what = "reward" if finding.ranking == "reward" else "final advantage"
    return (
        f"{finding.policy} has {what} {finding.gaming_there:+.3f}, the honest {finding.rival} "
        f'{finding.honest_there:+.3f}, on the issue "{finding.world}" (means {finding.gaming:+.3f}, '
        f"{finding.honest:+.3f})"
    )


def _cell(played: Played, design: str, policy: str) -> str:
    rankings = {f.ranking for f in played.findings if (f.design, f.policy) == (design, policy)}
    marks = ("R" if "reward" in rankings else "") + ("A" if "update" in rankings else "")
    return marks or ("=" if (design, policy) in played.ties else "·")
