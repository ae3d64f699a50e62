"""What stands on the page of a comparison, from top to bottom: the answer first, then what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from codegrep.compare import figures
from codegrep.compare.analysis import Analysis, Contrast, Retriever
from codegrep.compare.cost import cost_rows
from codegrep.compare.designs import ComparedDesign, shorten
from codegrep.compare.events import EventRow, alarms, event_rows
from codegrep.compare.measures import MEASURES, PRIMARY, Measure, measure
from codegrep.compare.runs import LeftOut
from codegrep.compare.verdict import PairVerdict, Verdict
from codegrep.metrics.runs import few_repositories
from codegrep.tracking.pages import Block, Bullets, Heading, Page, Paragraph, Picture, Table

_MOST_SETTINGS = 40  # rows of the table of settings


@dataclass(frozen=True)
class Comparison:
    """Everything the page is made from."""

    name: str
    designs: tuple[ComparedDesign, ...]
    analysis: Analysis
    verdict: Verdict
    left_out: tuple[LeftOut, ...]
    margin: float
    resamples: int


def page_of(comparison: Comparison) -> Page:
    """Return the page."""
    designs, analysis = comparison.designs, comparison.analysis
    runs = sum(len(design.runs) for design in designs)
    repositories = len(set(analysis.repositories))
    subtitle = (
        f"{_count(len(designs), 'design')}, {_count(runs, 'run')}, {len(analysis.issues)} held-out issues "
        f"of {_count(repositories, 'repository', 'repositories')}"
    )
    blocks: list[Block] = [
        *_answer(comparison),
        *_retrieval(analysis),
        *_between(comparison),
        *_training(designs),
        *_cost(designs),
        *_events(designs),
        *_designs(comparison),
        *_method(comparison),
    ]
    return Page(f"Comparison: {comparison.name}", subtitle, tuple(blocks))


def _count(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def _answer(comparison: Comparison) -> list[Block]:
    verdict = comparison.verdict
    blocks: list[Block] = [Heading("Verdict"), Paragraph(verdict.headline, strong=True)]
    advice = Counter(pair.settle for pair in verdict.pairs if pair.settle)
    shared = [settle for settle, count in advice.items() if count > 1]
    for pair in verdict.pairs:
        blocks.append(Heading(f"{pair.a} and {pair.b}", 3))
        blocks.append(Paragraph(pair.what))
        if pair.also:
            blocks.append(Bullets(tuple(f"Also sure: {line}." for line in pair.also)))
        if pair.settle and pair.settle not in shared:
            blocks.append(Paragraph(f"What would settle it: {pair.settle}"))
    for settle in shared:
        which = "the pairs" if advice[settle] == len(verdict.pairs) else _list_of_pairs(verdict.pairs, settle)
        blocks.append(Paragraph(f"What would settle {which}: {settle}"))
    if verdict.against:
        blocks += [Heading("Against what needs no reinforcement learning", 3), Bullets(verdict.against)]
    warnings = _warnings(comparison)
    if warnings:
        blocks += [Heading("Read this first", 3), Bullets(tuple(warnings))]
    return blocks


def _list_of_pairs(pairs: Sequence[PairVerdict], settle: str) -> str:
    return "; ".join(f"{pair.a} and {pair.b}" for pair in pairs if pair.settle == settle)


def _warnings(comparison: Comparison) -> list[str]:
    designs, analysis = comparison.designs, comparison.analysis
    said = []
    single = [design.label for design in designs if len(design.runs) == 1]
    if single:
        said.append(f"One training run only: {', '.join(single)}. Its numbers are of one adapter, not of the design.")
    if analysis.dropped:
        said.append(f"{analysis.dropped} issues that some run has no result for are left out for all.")
    if analysis.subject != "trained":
        said.append(f"No run was trained with GRPO: the results are those of {analysis.subject}.")
    commits = {run.tags.get("environment.git.commit", "")[:12] for design in designs for run in design.runs} - {""}
    if len(commits) > 1:
        said.append(f"The runs were made with {len(commits)} versions of the code: {', '.join(sorted(commits))}.")
    repositories = len(set(analysis.repositories))
    if repositories > 1:  # the verdict speaks of a single one
        said += few_repositories(repositories, len(analysis.primary))
    said += alarms(designs)
    said += [f"Left out: {run.name} ({run.run_id[:8]}): {run.reason}." for run in comparison.left_out]
    return said


def _retrieval(analysis: Analysis) -> list[Block]:
    shown = [m for m in MEASURES if any(m.column in line.scores for line in analysis.retrievers)]
    header = (
        "retriever", "runs", "F0.5 [95 %]", "median", *(_head(m, analysis) for m in shown if m is not PRIMARY)
    )  # fmt: skip
    rows = tuple(_retrieval_row(line, [m.column for m in shown if m is not PRIMARY]) for line in analysis.retrievers)
    blocks: list[Block] = [
        Heading("Held-out retrieval"),
        Picture("held_out", figures.held_out_figure(analysis), "Held-out F0.5 of every retriever with its interval"),
        Table(header, rows),
    ]
    spread = [line for line in analysis.designs if line.runs > 1]
    if spread:
        each = tuple(
            f"{line.label}: {', '.join(f'{value:.3f}' for value in line.scores['f05'].run_means)}" for line in spread
        )
        blocks += [Paragraph("F0.5 of each run:"), Bullets(each)]
    return blocks


def _head(one: Measure, analysis: Analysis) -> str:
    """Return a measure's label, with how many issues it is a mean of where these are not all."""
    issues = next(line.scores[one.column].values.shape[1] for line in analysis.retrievers if one.column in line.scores)
    return one.label if issues == len(analysis.issues) else f"{one.label} ({_count(issues, 'issue')})"


def _retrieval_row(line: Retriever, columns: Sequence[str]) -> tuple[str, ...]:
    label = f"{line.label} *" if line.oracle else line.label
    d = line.interval
    return (
        label,
        "–" if line.fixed else str(line.runs),
        f"{d.estimate:.3f} [{d.low:.3f}, {d.high:.3f}]",
        f"{line.f05_median:.3f}",
        *(measure(column).text(line.mean(column)) for column in columns),
    )


def _between(comparison: Comparison) -> list[Block]:
    analysis = comparison.analysis
    blocks: list[Block] = []
    if analysis.between:
        figure = figures.difference_figure(analysis, comparison.margin)
        blocks.append(Heading("Differences between designs"))
        if figure is not None:
            blocks.append(
                Picture("differences", figure, "Differences of held-out F0.5 between designs, with intervals")
            )
        rows = tuple(_contrast_row(contrast) for contrast in analysis.primary)
        blocks.append(Table(("a − b", "measure", *_CONTRAST), rows, left=2))
        others = [c for c in analysis.between if c.column != PRIMARY.column and c.result.better + c.result.worse]
        if others:
            others.sort(key=lambda contrast: (contrast.a, contrast.b))
            blocks += [
                Paragraph("On other measures; those that are equal on every issue are left out:"),
                Table(("a − b", "measure", *_CONTRAST), tuple(_contrast_row(contrast) for contrast in others), left=2),
            ]
    if analysis.against:
        rows = tuple(_contrast_row(contrast) for contrast in analysis.against)
        blocks += [
            Heading("Designs against what needs no reinforcement learning"),
            Table(("a − b", "measure", *_CONTRAST), rows, left=2),
        ]
    return blocks


_CONTRAST = (
    "difference [95 %]",
    "p (Holm)",
    "p over repositories",
    "p over runs",
    "exact over runs (floor)",
    "better/equal/worse",
)


def _contrast_row(contrast: Contrast) -> tuple[str, ...]:
    r, text = contrast.result, measure(contrast.column).text
    d = r.difference
    exact = "–" if r.p_runs_exact is None else f"{r.p_runs_exact:.3f} ({r.p_runs_floor:.3f})"
    return (
        f"{contrast.a} − {contrast.b}",
        measure(contrast.column).label,
        f"{text(d.estimate, True)} [{text(d.low, True)}, {text(d.high, True)}]",
        "no claim" if contrast.p_holm is None else _p(contrast.p_holm),
        _p(r.p_issues),
        "one run" if r.p_runs is None else ("–" if r.p_runs_exact is None and r.p_runs == 0 else _p(r.p_runs)),
        exact,
        f"{r.better}/{r.equal}/{r.worse}",
    )


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _training(designs: Sequence[ComparedDesign]) -> list[Block]:
    figure = figures.curves_figure(designs)
    if figure is None:
        return [Heading("Training"), Paragraph("No run has training curves: GRPO was off.")]
    blocks: list[Block] = [
        Heading("Training"),
        Picture("curves", figure, "Training curves: reward, F0.5, KL, tool turns, length, gradient norm, truncation"),
    ]
    if len({design.reward for design in designs}) > 1:
        blocks.append(
            Paragraph(
                "Rewards are defined differently here, so each definition has its own axis and their heights say "
                "nothing about each other. F0.5 of the training rollouts is the same measure for all designs; the "
                "held-out F0.5 above is what the verdict rests on."
            )
        )
    elsewhere = [(d.label, run) for d in designs for run in d.runs if run.curves_from]
    if elsewhere:
        listed = ", ".join(f"{label} seed {run.seed} ({run.curves_from[:8]})" for label, run in elsewhere)
        blocks.append(Paragraph(f"Trained in another run with the same settings, whose curves are shown: {listed}."))
    return blocks


def _cost(designs: Sequence[ComparedDesign]) -> list[Block]:
    rows = cost_rows(designs)
    if not rows or not any(run.curves for design in designs for run in design.runs):
        return []
    body = tuple(
        (row.label, row.unit, *("–" if value is None else f"{value:,.0f}" for value in row.values)) for row in rows
    )
    return [
        Heading("Cost of one training"),
        Table(("", "unit", *(design.label for design in designs)), body, left=2),
        Paragraph(
            "Means over runs. Reserved is what the training workers asked the cluster for, times wall time; the warm "
            "start, which runs share, and the evaluation are not in it."
        ),
    ]


def _events(designs: Sequence[ComparedDesign]) -> list[Block]:
    rows = event_rows(designs)
    if not rows:
        return []
    body = tuple((row.label, row.unit, *(_event_cell(row, n) for n in range(len(designs)))) for row in rows)
    return [
        Heading("Guard rails, masked rollouts and failures in training"),
        Table(("", "unit", *(design.label for design in designs)), body, left=2),
        Paragraph("Means over runs, in parentheses the worst run where it differs."),
    ]


def _event_cell(row: EventRow, number: int) -> str:
    value, worst = row.values[number], row.worst[number]
    if value is None or worst is None:
        return "–"
    text, other = (f"{100 * v:.1f} %" if row.share else f"{v:,.1f}".removesuffix(".0") for v in (value, worst))
    return text if text == other else f"{text} ({other})"


def _designs(comparison: Comparison) -> list[Block]:
    designs = comparison.designs
    keys = [key for key in designs[0].settings if len({design.settings[key] for design in designs}) > 1]
    body = tuple((key, *(shorten(design.settings[key]) or "–" for design in designs)) for key in keys[:_MOST_SETTINGS])
    runs = tuple(
        (design.label, run.seed, run.run_id, run.tags.get("environment.git.commit", "")[:12] or "–")
        for design in designs
        for run in design.runs
    )
    blocks: list[Block] = [Heading("Designs and runs")]
    if len(designs) > 1:
        blocks.append(Table(("setting", *(design.label for design in designs)), body, left=1 + len(designs)))
        if len(keys) > _MOST_SETTINGS:
            blocks.append(Paragraph(f"… and {len(keys) - _MOST_SETTINGS} more settings."))
        if len(keys) > 1:
            blocks.append(
                Paragraph(
                    "Where two designs differ in several settings, a difference between them is the effect of all of "
                    "these together."
                )
            )
    return [*blocks, Table(("design", "seed", "MLflow run", "commit"), runs, left=4)]


def _method(comparison: Comparison) -> list[Block]:
    return [
        Heading("How this was computed"),
        Bullets(
            (
                "A design's score on an issue is the mean over its runs; comparisons are paired by issue, means are "
                "over issues.",
                f"Intervals: percentile bootstrap, {comparison.resamples:,} draws, of runs (each design for itself, "
                "spread corrected for their small number), of repositories, and of issues within them.",
                "p over repositories: paired permutation test that flips the signs of a repository's differences "
                "together. It asks whether these adapters would differ on other repositories.",
                "p over runs: Welch's t test between the means of runs (a t test against what has no seeds). It asks "
                "whether other seeds would differ. Beside it the exact permutation test of runs, which with three runs "
                "a design cannot get below 0.1.",
                "A claim needs both, so its p-value is the larger of the two, corrected by Holm over all pairs on that "
                "measure; and the interval must not hold 0. From one run nothing is claimed about a design.",
                f"Alike means: the whole interval is within ±{comparison.margin:g}.",
                "What would settle it: normal approximation, 5 % two-sided, power 80 %, variances as measured.",
                "Throughput is the wall time of the blocks that issues were answered in, by issues; nothing is claimed "
                "about it. Latency is measured on a sample of issues that were answered alone, and compared on those "
                "that all runs measured. Both depend on the machine.",
                "* has seen the gold files: a ceiling, no rival.",
            )
        ),
    ]
