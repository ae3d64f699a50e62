"""The end of a run in words: what happened, what the columns mean, what to type next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.overrides import outputs_option, typed_command
from codegrep.tracking.rows import EvaluationRow
from codegrep.tracking.terminal import on_parts

# Column, the field of its values, what it means.
_COLUMNS = (
    ("F0.5", "f05_mean", "mean over issues; precision counts twice as much as recall"),
    ("P, R", "precision", "mean precision and recall of the answered files"),
    ("≥0.8", "share_08", "share of the issues with F0.5 of at least 0.8"),
    (
        "s/issue",
        "seconds_per_issue",
        "wall time of the blocks that issues were answered in, by issues: throughput, not one issue's time",
    ),
    (
        "s alone",
        "latency_seconds",
        "generation and tools of an issue that was answered with nothing beside it (retrievers: the query)",
    ),
    ("mined", "f05_mined", "F0.5 against the mined target sets"),
    ("lines", "line_f05", "F0.5 of line ranges"),
    ("class", "class_f1", "F1 of classes"),
    ("function", "function_f1", "F1 of functions"),
)
_RETRIEVERS = {
    "first_row": "first file that the scripted search shows, without a model",
    "oracle": "gold files that the scripted search shows: a ceiling",
    "oracle_met": "gold files that the scripted search matches, shown or not: a ceiling",
}
_MODELS = ("trained", "warm_start", "base", "loaded")


def happened(table: Sequence[Mapping[str, Any]], lines: Sequence[EvaluationRow]) -> str:
    """Return what training changed, and how the model stands beside the best retriever, in a sentence each.

    Args:
        table: rows of per_issue.json.
        lines: one a retriever, of the same rows.
    """
    by_name = {line.retriever: line for line in lines}
    sentences = []
    before = next((name for name in ("warm_start", "base") if name in by_name), None)
    if "trained" in by_name and before:
        sentences.append(_change(table, before))
    model = next((name for name in _MODELS if name in by_name), None)
    others = [line for line in lines if line.kind in ("baseline", "scripted")]
    if model and others:
        best = max(others, key=lambda line: line.f05_mean)
        own = by_name[model].f05_mean
        verb = "finds more than" if own > best.f05_mean else "finds as much as" if own == best.f05_mean else "trails"
        sentences.append(
            f"{model} (F0.5 {own:.3f}) {verb} {best.retriever} ({best.f05_mean:.3f}), the best without training."
        )
    return " ".join(sentences)


def key_figures(lines: Sequence[EvaluationRow], last: Mapping[str, float]) -> str:
    """Return the few numbers that matter first, on one line.

    Args:
        lines: one a retriever.
        last: metrics of the last training step; empty where there was none.
    """
    model = next((line for name in _MODELS for line in lines if line.retriever == name), None)
    parts = [] if model is None else [f"held-out F0.5 {model.f05_mean:.3f}"]
    for name, words in (
        ("reward/total", "reward {:.3f}"),
        ("policy/kl", "KL {:.4f}"),
        ("rollout/calls_per_turn", "{:.1f} calls a turn"),
        ("completions/clipped_ratio", "{:.0%} cut by the budget"),
    ):
        if name in last:
            parts.append(words.format(last[name]))
    return " · ".join(parts)


def _change(table: Sequence[Mapping[str, Any]], before: str) -> str:
    rows = {(row["retriever"], row["instance_id"]): row for row in table}
    pairs = [(rows[before, i], row) for (name, i), row in rows.items() if name == "trained" and (before, i) in rows]
    changed = sum(old["answer"] != new["answer"] for old, new in pairs)
    said = f"GRPO changed the answer on {changed} of {len(pairs)} issues"
    if not changed:
        return f"{said}: trained answers what {before} answers."
    better = sum(new["f05"] > old["f05"] for old, new in pairs)
    worse = sum(new["f05"] < old["f05"] for old, new in pairs)
    return f"{said}: {better} better, {worse} worse, {changed - better - worse} of the same score."


def telling_issues(table: Sequence[Mapping[str, Any]], models: Sequence[str], most: int = 3) -> list[str]:
    """Return the issues whose traces say most: where the last model differs most from the one before it.

    Args:
        table: rows of per_issue.json.
        models: measured, in the order of training.
        most: issues.
    """
    if not models:
        return []
    f05 = {(row["retriever"], row["instance_id"]): float(row["f05"]) for row in table}
    last, before = models[-1], models[-2] if len(models) > 1 else models[-1]
    issues = [issue for name, issue in f05 if name == last and (before, issue) in f05]
    return sorted(issues, key=lambda issue: (-abs(f05[last, issue] - f05[before, issue]), issue))[:most]


def column_notes(lines: Sequence[EvaluationRow]) -> list[str]:
    """Return what the filled columns and the rows that are no retriever mean, one line each."""
    filled = [column for column in _COLUMNS if any(getattr(line, column[1]) is not None for line in lines)]
    counts = on_parts(lines, [name for name, _, _ in filled])
    notes = [f"{name}: {text}{f'; {counts[name]}' if name in counts else ''}." for name, _, text in filled]
    there = {line.retriever for line in lines}
    return notes + [f"{name}: {text}." for name, text in _RETRIEVERS.items() if name in there]


def next_commands(
    run: str, outputs: str, *, has_policy: bool, traces: Sequence[Path] = (), issues: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return commands that go on from here, each with what it does.

    Args:
        run: name of the run's folder.
        outputs: as configured.
        has_policy: a policy was logged that can be registered.
        traces: folders with rollouts of the last two models.
        issues: whose traces say most.
    """
    where = outputs_option(outputs)
    commands = []
    if traces and issues:
        places = [str(place.relative_to(Path.cwd()) if place.is_relative_to(Path.cwd()) else place) for place in traces]
        commands.append((typed_command(["trace", *places, "--issue", issues[0]]), "shows an issue turn by turn"))
    commands += [(typed_command(["compare", *where]), "lists what this run can be compared with")]
    if has_policy:
        commands.append((typed_command(["register", run, "codegrep", *where]), "names its policy in MLflow"))
    commands.append((typed_command(["search", "TEXT", "--repo", "FOLDER"]), "searches a repository without a model"))
    return commands
