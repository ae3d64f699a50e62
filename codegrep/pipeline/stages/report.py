"""Stage 5: tables, figures and the adapter in MLflow, a report folder, and the table in the terminal."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from codegrep.config import Config
from codegrep.pipeline.leaderboard import leaderboard, ranked
from codegrep.pipeline.policies.package import log_policy
from codegrep.pipeline.policies.policy_files import Policies
from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.results import FIRST_FILE, MINED, WHOLE, Pair, cautions, comparisons, evaluation_rows
from codegrep.pipeline.run_summary import column_notes, happened, key_figures, next_commands, telling_issues
from codegrep.pipeline.stages.evaluate import per_issue
from codegrep.rollout.store import read_rollouts
from codegrep.rollout.traced import trace_of
from codegrep.runtime.artifacts import Artifact, Places, write_json
from codegrep.runtime.progress import Progress
from codegrep.tracking import pages
from codegrep.tracking import rows as tracking_rows
from codegrep.tracking.figures import gain_by_issue, retriever_bars, training_curves
from codegrep.tracking.history import History, history
from codegrep.tracking.parameters import masked_text
from codegrep.tracking.rows import EvaluationRow
from codegrep.tracking.run import Tracker
from codegrep.tracking.terminal import evaluation_table, resampled
from codegrep.tracking.trace_page import html

CURVES = (
    *("reward/", "advantage/", "policy/", "completions/", "rollout/", "group/", "optim/", "errors/", "seconds/"),
    "warm_start/",
)


def inputs(evaluate: Artifact, run_folder: Path) -> dict[str, Any]:
    """Return the measured numbers and the run that they are reported in."""
    return {"evaluation": evaluate.fingerprint, "run": run_folder.name}


def run(
    config: Config,
    prepared: Prepared,
    policies: Policies,
    places: Places,
    evaluate: Artifact,
    artifact: Artifact,
    run_folder: Path,
    tracker: Tracker,
    progress: Progress,
) -> dict[str, Any]:
    """Write the report; made anew each time, since it costs seconds."""
    table = per_issue(evaluate)
    lines = evaluation_rows(table, config.evaluate.bootstrap)
    pairs = comparisons(table, config.evaluate.bootstrap)
    warned = cautions(lines, pairs)
    summary = happened(table, lines)
    for line in lines:
        tracker.metrics(line.metrics(), step=0)
    filled = _filled(lines)
    tracker.table(filled, "evaluation/retrievers.json")
    tracker.table([_flat_pair(pair) for pair in pairs], "evaluation/comparisons.json")
    tracker.table(_readable(table), "evaluation/per_issue.json")
    tracker.figure(retriever_bars(lines), "figures/retrievers.png")
    past = _curves(tracker, progress)
    if any("reward/total" in step for step in past):
        tracker.figure(training_curves([[s for s in past if "reward/total" in s]]), "figures/training.png")
    labels = {line.retriever for line in lines}
    if {"trained", "warm_start"} <= labels:
        gains = gain_by_issue(_gains(table, "warm_start", "trained"), "warm_start", "trained")
        tracker.figure(gains, "figures/gain.png")
    folder = run_folder / "report"
    folder.mkdir(parents=True, exist_ok=True)
    artifact.write_json("retrievers.json", filled)
    artifact.write_json("comparisons.json", [_flat_pair(pair) for pair in pairs])
    artifact.write_json("curves.json", past)
    for name in ("retrievers.json", "comparisons.json", "curves.json"):
        shutil.copyfile(artifact.folder / name, folder / name)
    write_json(folder / "per_issue.json", table)
    (folder / "results.md").write_text(_markdown(config, prepared, lines, pairs, warned, summary), encoding="utf-8")
    tracker.artifact(folder / "results.md", "evaluation")
    figures = key_figures(lines, past[-1] if past else {})
    tracker.tags({"mlflow.note.content": f"{summary}\n\n{figures}", "codegrep.reward": config.reward.name})
    _write_leaderboard(config, prepared, lines, pairs, folder, tracker)
    rollouts = {which: places.artifacts / name for which, name in evaluate.summary.get("rollouts", {}).items()}
    telling = telling_issues(table, list(rollouts))
    _write_traces(rollouts, telling, folder, tracker)
    has_policy = log_policy(config, prepared, policies, run_folder, tracker, progress, lines)
    progress.show(evaluation_table(lines, title="Held-out issues", width=progress.width))
    if pairs:
        progress.show(_pairs_table(pairs, progress.width))
    for sentence in (*column_notes(lines), *warned):
        progress.say(sentence, style="dim")
    if summary:
        progress.say(summary)
    progress.say(f"Report: {folder}")
    for which, place in rollouts.items():
        progress.say(f"Rollouts of {which}: {place}")
    progress.say(f"MLflow: run {tracker.run_id} in experiment '{config.tracking.experiment}'")
    for command, what in next_commands(
        run_folder.name, config.outputs, has_policy=has_policy, traces=list(rollouts.values())[-2:], issues=telling
    ):
        progress.say(f"  {command}   {what}")
    return {"retrievers": len(lines), "pairs": len(pairs)}


def _write_leaderboard(
    config: Config,
    prepared: Prepared,
    lines: Sequence[EvaluationRow],
    pairs: Sequence[Pair],
    folder: Path,
    tracker: Tracker,
) -> None:
    data = f"{lines[0].issues} held-out issues of {config.data.name} (fingerprint {prepared.fingerprint[:12]})"
    page = leaderboard(lines, pairs, f"Leaderboard of {config.name}, seed {config.seed}", data)
    pages.write(page, folder, markdown_name="leaderboard.md", html_name="leaderboard.html")
    write_json(folder / "leaderboard.json", _filled(ranked(lines)))
    for name in ("leaderboard.md", "leaderboard.html", "leaderboard.json"):
        tracker.artifact(folder / name, "evaluation")


def _write_traces(rollouts: Mapping[str, Path], issues: Sequence[str], folder: Path, tracker: Tracker) -> None:
    """Write pages of the last two models side by side, on a few issues."""
    last = dict(list(rollouts.items())[-2:])
    found = {which: {r.instance_id: r for r in read_rollouts(place / "rollouts")} for which, place in last.items()}
    (folder / "traces").mkdir(exist_ok=True)
    for issue in issues:
        traces = [trace_of(of_issue[issue], which) for which, of_issue in found.items() if issue in of_issue]
        if traces:
            page = folder / "traces" / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', issue)[:100]}.html"
            page.write_text(html(traces), encoding="utf-8")
            tracker.artifact(page, "evaluation/traces")


def _curves(tracker: Tracker, progress: Progress) -> History:
    """Return what MLflow has of the training; nothing when it cannot be read, since tracking never ends a run."""
    try:
        return history(tracker.handle, lambda name: name.startswith(CURVES))
    except Exception as error:  # whatever a client, a driver or a network can raise
        said = masked_text(str(error)).strip().splitlines() or [type(error).__name__]
        progress.say(
            f"MLflow cannot be read ({said[0][:160]}): no curves in this report; the same command makes it again"
        )
        return []


def _filled(lines: Sequence[EvaluationRow]) -> list[dict[str, Any]]:
    """Return the rows without the columns that none of them has a value in."""
    rows = [line.flat() for line in lines]
    return [{k: v for k, v in row.items() if any(other.get(k) is not None for other in rows)} for row in rows]


def _flat_pair(pair: Pair) -> dict[str, Any]:
    c = pair.comparison
    return {
        "a": pair.a,
        "b": pair.b,
        "on": pair.on,
        "issues": c.issues,
        "difference": c.difference.estimate,
        "low": c.difference.low,
        "high": c.difference.high,
        "p": c.p_value,
        "p_holm": pair.p_holm,
        "better": c.better,
        "equal": c.equal,
        "worse": c.worse,
    }


def _readable(table: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{k: ", ".join(v) if isinstance(v, list) else v for k, v in row.items()} for row in table]


def _gains(table: Sequence[Mapping[str, Any]], before: str, after: str) -> list[tracking_rows.PairedScore]:
    by = {(row["retriever"], row["instance_id"]): float(row["f05"]) for row in table}
    ids = [row["instance_id"] for row in table if row["retriever"] == after]
    return [tracking_rows.PairedScore(i, before=by[before, i], after=by[after, i]) for i in ids if (before, i) in by]


def _pairs_table(pairs: Sequence[Pair], width: int = 100) -> Table:
    """Differences; in a terminal that is too narrow the last columns go. Numbers are never cut."""
    shown = [p for p in pairs if p.on == WHOLE]
    columns = {
        "a − b": [f"{p.a} − {p.b}" for p in shown],
        "difference [95%]": [_interval(p) for p in shown],
        "p (Holm)": [f"{p.p_holm:.3f}" for p in shown],
        "+/=/−": [f"{p.comparison.better}/{p.comparison.equal}/{p.comparison.worse}" for p in shown],
    }
    for on, name in (
        (FIRST_FILE, "at equal length [95%]"),
        (MINED, "mined targets [95%]"),
    ):
        others = {(p.a, p.b): _interval(p) for p in pairs if p.on == on}
        if others:
            columns[name] = [others.get((p.a, p.b), "–") for p in shown]
    left_out: list[str] = []
    while sum(max(map(len, [name, *cells])) + 2 for name, cells in columns.items()) - 2 > width and len(columns) > 4:
        left_out.append(columns.popitem()[0])
    table = Table(title="Differences of mean F0.5, paired by issue", box=None, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.caption = "+/=/−: issues on which a is better, equal, worse" + (
        f"; no room for {', '.join(left_out)}" if left_out else ""
    )
    for name in columns:
        first = name == "a − b"
        table.add_column(name, justify="left" if first else "right", no_wrap=not first, overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(cell) for cell in row))
    return table


def _interval(pair: Pair) -> str:
    d = pair.comparison.difference
    return f"{d.estimate:+.3f} [{d.low:+.3f}, {d.high:+.3f}]"


def _markdown(
    config: Config,
    prepared: Prepared,
    lines: Sequence[EvaluationRow],
    pairs: Sequence[Pair],
    warned: Sequence[str],
    summary: str,
) -> str:
    return pages.render(
        "run_report.md",
        name=config.name,
        seed=config.seed,
        data=config.data.name,
        fingerprint=prepared.fingerprint[:12],
        scale=config.scale.name,
        model=config.model.path,
        retrievers=_retrievers_table(lines),
        differences=_differences_table(pairs),
        happened=summary,
        notes=[f"Intervals and p-values: resampling {resampled(lines)}.", *column_notes(lines), *warned],
    )


def _differences_table(pairs: Sequence[Pair]) -> pages.Table:
    header = ("a − b", "on", "difference [95 %]", "p (Holm)", "better/equal/worse")
    counts = [f"{p.comparison.better}/{p.comparison.equal}/{p.comparison.worse}" for p in pairs]
    rows: dict[tuple[str, ...], list[str]] = {}  # one row for what is the same on both
    for p, count in zip(pairs, counts, strict=True):
        rows.setdefault((f"{p.a} − {p.b}", _interval(p), f"{p.p_holm:.3f}", count), []).append(p.on)
    cells = tuple((name, ", ".join(on), *numbers) for (name, *numbers), on in rows.items())
    return pages.Table(header, cells, left=2)


def _retrievers_table(lines: Sequence[EvaluationRow]) -> pages.Table:
    columns = {
        "retriever": [r.retriever for r in lines],
        "F0.5 [95 %]": [_with_interval(r.f05_mean, r.f05_low, r.f05_high) for r in lines],
        "median": [_cell(r.f05_median, 3) for r in lines],
        "P": [_cell(r.precision, 3) for r in lines],
        "R": [_cell(r.recall, 3) for r in lines],
        "≥ 0.8": [f"{100 * (r.share_08 or 0.0):.1f} %" for r in lines],
        "files": [_cell(r.files, 2) for r in lines],
        "turns": [_cell(r.turns, 1) for r in lines],
        "calls": [_cell(r.calls, 1) for r in lines],
        "tokens": [_cell(r.tokens, 0) for r in lines],
        "s/issue": [_cell(r.seconds_per_issue, 2) for r in lines],
        "s alone": [_cell(r.latency_seconds, 2) for r in lines],
        "mined [95 %]": [_with_interval(r.f05_mined, r.f05_mined_low, r.f05_mined_high) for r in lines],
        "lines": [_cell(r.line_f05, 3) for r in lines],
        "class": [_cell(r.class_f1, 3) for r in lines],
        "function": [_cell(r.function_f1, 3) for r in lines],
    }
    filled = {name: cells for name, cells in columns.items() if any(cell != "–" for cell in cells)}
    return pages.Table(tuple(filled), tuple(zip(*filled.values(), strict=True)))


def _with_interval(mean: float | None, low: float | None, high: float | None) -> str:
    return "–" if mean is None or low is None or high is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def _cell(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
