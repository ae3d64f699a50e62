"""The data card of a label set, as Markdown with pictures beside it and as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from codegrep.runtime.artifacts import write_json
from codegrep.tracking import label_figures, pages
from codegrep.tracking.pages import Block, Heading, Page, Paragraph, Picture, Table

MARKDOWN, HTML, SUMMARY = "data_card.md", "data_card.html", "summary.json"
_PAPER_RETENTION = "47.7 %"


def write(folder: Path, summary: Mapping[str, Any]) -> None:
    """Write the card, its pictures and the summary it is made from."""
    write_json(folder / SUMMARY, dict(summary))
    page = Page("Data card: mined target files", "", tuple(_blocks(summary)))
    pages.write(page, folder, markdown_name=MARKDOWN, html_name=HTML)


def funnel(s: Mapping[str, Any]) -> list[tuple[str, int]]:
    """From trajectories and read calls to samples, in order."""
    files = s["files"]
    long_enough = s["candidates"] - files.get("too_short", 0)
    judged = long_enough - files.get("not_relevant", 0) - files.get("judge_error", 0)
    return [
        ("trajectories", s["trajectories"]),
        ("trajectories that were mined", s["trajectories"] - sum(s["excluded"].values())),
        ("function calls", s["calls"]),
        ("read calls", s["read_calls"]),
        ("reads that showed a possible target", s["reads"]),
        ("candidates: files, once a trajectory", s["candidates"]),
        (f"candidates with at least {s['min_tokens']} tokens", long_enough),
        ("candidates called relevant", judged),
        (f"candidates with a weight of at least {s['min_weight']}", files.get("surviving", 0)),
        ("samples", s["samples"]),
    ]


def _blocks(s: Mapping[str, Any]) -> list[Block]:
    files = s["files"]
    steps = funnel(s)
    mined = steps[1][1]
    judge = f"{s['judge']} ({s['judge_kind']})"
    rules = " No model has judged: verdicts are phrases found by rules." if s["judge"] == "rules" else ""
    sections = [
        _section(
            "What it is",
            [
                f"{s['samples']:,} samples of {s['issues']:,} issues from {s['trajectories']:,} trajectories. "
                "A sample's target set is the gold patch's files and those that the agent read and found relevant; "
                f"one sample for each {s['granularity']}.",
                f"Judge: {judge}.{rules} Tokenizer: {s['tokenizer']}. Post-reasoning: {s['reasoning']}.",
                f"Retention: {_share(s['retention'])} of the mined trajectories became samples (CodeGrep: "
                f"{_PAPER_RETENTION}).",
            ],
        ),
        _section(
            "Funnel",
            table=[("step", "left"), *((name, f"{count:,}") for name, count in steps)],
            picture=("funnel", label_figures.funnel(steps[4:9], "Reads and candidates")),
        ),
        _section(
            "Trajectories",
            [f"{mined:,} were mined, {s['trajectories_with_candidates']:,} of them have a candidate."],
            table=[
                ("trajectories", "count"),
                *_counted({f"left out: {k}": v for k, v in s["excluded"].items()}),
                *_counted({_words(k): v for k, v in s["sample_filters"].items()}),
                ("without a message", f"{s['empty']:,}"),
                ("rows and shards in quarantine", f"{s['quarantined']:,}"),
                ("gold patches at hand", f"{s['gold']:,}"),
                *_counted({f"gold patches not usable: {k}": v for k, v in s["gold_skipped"].items()}),
            ],
        ),
        _section(
            "Reads left out, and odd arguments",
            ["Reads with odd arguments stay, where a path could be read from them."],
            table=[
                ("read calls", "count"),
                *_counted({f"left out: {k}": v for k, v in s["dropped"].items()}),
                *_counted({f"odd arguments: {k}": v for k, v in s["odd_arguments"].items()}),
            ],
        ),
        _reasoning(s),
        _weights(s),
        _section(
            "Files by filter",
            ["Each candidate is counted at the first filter that it fails, in this order."],
            table=[
                ("filter", "candidates"),
                *(
                    (_words(name), f"{files.get(name, 0):,}")
                    for name in ("too_short", "judge_error", "not_relevant", "low_weight", "surviving")
                ),
            ],
            picture=(
                "filters",
                label_figures.bars(
                    [(_words(k), files.get(k, 0)) for k in ("too_short", "not_relevant", "low_weight", "surviving")],
                    "Candidates by the filter that ends them",
                    "",
                    "candidates",
                ),
            ),
        ),
        _section(
            "Target sets",
            [
                f"{s['target_files']:.2f} files on average, {s['mined_files']:.2f} of them not in the gold patch.",
            ],
            picture=(
                "target_sizes",
                label_figures.bars(s["sizes"], "Target sets by number of files", "files", "samples"),
            ),
        ),
        _section(
            "Mined files that the patch does not have",
            picture=("added", label_figures.bars(s["added"], "Samples by mined files", "files", "samples")),
        ),
        _section(
            "Reads by turn",
            picture=("turns", label_figures.bars(s["turns"], "Reads by turn", "turn of the trajectory", "reads")),
        ),
        _judging(s),
    ]
    if s["training"].get("issues"):
        t = s["training"]
        sections.append(
            _section(
                "Use in this experiment",
                [
                    f"{t['issues']:,} training issues have {t['samples']:,} samples; {t['files_not_at_base']:,} files "
                    "that their base commit does not have are left out of the targets."
                ],
            )
        )
    return [block for section in sections for block in section]


def _section(
    title: str,
    text: Sequence[str] = (),
    table: Sequence[Sequence[str]] = (),
    picture: tuple[str, Figure] | None = None,
) -> list[Block]:
    """Return a heading and what stands below it. table: header, then rows. picture: name and figure."""
    blocks: list[Block] = [Heading(title), *map(Paragraph, text)]
    if table:
        blocks.append(Table(table[0], table[1:]))
    if picture:
        blocks.append(Picture(*picture, alt=title))
    return blocks


def _reasoning(s: Mapping[str, Any]) -> list[Block]:
    reads = max(1, s["reads"])
    rows = [("text", "empty", f"below {s['min_tokens']} tokens")]
    for label in ("content", "content and thought"):
        empty, short = s["reads_without_text"].get(label, 0), s["reads_short"].get(label, 0)
        rows.append((label, f"{empty:,} ({_share(empty / reads)})", f"{short:,} ({_share(short / reads)})"))
    return _section(
        "Post-reasoning",
        [
            "The paper takes the next message's content. OpenHands has a tool to think with, whose argument is no "
            f"content: {s['reads_with_thought']:,} of {s['reads']:,} reads are followed by such a call. Both readings:"
        ],
        table=rows,
    )


def _weights(s: Mapping[str, Any]) -> list[Block]:
    low = s["files"].get("low_weight", 0)
    shortest = s["shortest_by_weight"]
    did = (
        f"The weight filter removed {low:,} candidates that had passed everything before it."
        if low
        else "The weight filter removed nothing that the other filters had left."
    )
    lengths = {int(k): v for k, v in s["lengths"].items()}
    return _section(
        "Lengths and weights",
        [
            f"β = {s['beta']:g} tokens, mean raw weight {s['mean_raw_weight']:.4f}, over the whole set. A weight of "
            f"{s['min_weight']} is reached at {shortest:.1f} tokens; the least length is {s['min_tokens']} tokens, so "
            f"the weight filter {'can' if shortest > s['min_tokens'] else 'cannot'} bite. {did} Alone it would remove "
            f"{s['low_weight_alone']:,} of {s['candidates']:,}, those without any text included.",
        ],
        picture=(
            "lengths",
            label_figures.lengths(lengths, s["beta"], s["min_tokens"], shortest),
        ),
    )


def _judging(s: Mapping[str, Any]) -> list[Block]:
    usage = s["judge_usage"]
    table = [
        ("verdicts", "count"),
        ("asked about", f"{s['judged']:,}"),
        ("relevant", f"{s['relevant']:,}"),
        ("of them ambiguous, and so relevant", f"{s['ambiguous']:,}"),
        ("not relevant", f"{s['not_relevant']:,}"),
        *_counted({f"no verdict: {k}": v for k, v in s["judge_errors"].items()}),
        *_counted({_words(k): v for k, v in usage.items()}),
    ]
    text = []
    if a := s["agreement"]:
        text.append(
            f"Agreement with {a['judge']} on {a['items']} candidates: {_share(a['observed'])}, Cohen's kappa "
            f"{a['kappa']:.2f} [{a['kappa_low']:.2f}, {a['kappa_high']:.2f}] (both relevant {a['both_relevant']}, only "
            f"the first {a['first_only']}, only the second {a['second_only']}, neither {a['neither']})."
        )
    return _section(
        "Judge",
        text,
        table,
        ("weights", label_figures.bars(s["weights"], "Candidates by weight", "weight (lower end)", "candidates")),
    )


def _counted(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(name, f"{count:,}") for name, count in sorted(counts.items(), key=lambda item: -item[1]) if count]


def _words(name: str) -> str:
    return name.replace("_", " ")


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
