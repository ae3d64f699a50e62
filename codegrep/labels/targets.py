"""Target sets: G(x) = files of the gold patch ∪ surviving files (CodeGrep 3.4), one sample a trajectory or an issue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from codegrep.judges.files import NOT_RELEVANT, RELEVANT
from codegrep.labels.gold import Gold
from codegrep.labels.weights import Weighting

_LABEL = (
    *(("path", pa.string()), ("weight", pa.float64()), ("tokens", pa.int32()), ("trajectory_id", pa.string())),
    *(("message", pa.int32()), ("call", pa.int32()), ("call_id", pa.string()), ("tool", pa.string())),
    *(("turn", pa.int32()), ("reads", pa.int32()), ("reasoning_message", pa.int32()), ("evidence", pa.string())),
    *(("judge", pa.string()), ("verdict", pa.string()), ("reason", pa.string())),
    *(("votes_relevant", pa.int32()), ("votes_not_relevant", pa.int32())),
)
#: Training samples: the files of the patch, the mined files with weight and provenance, and their union.
SCHEMA = pa.schema(
    [
        ("sample_id", pa.string()),
        ("instance_id", pa.string()),
        ("trajectory_ids", pa.list_(pa.string())),
        ("repo", pa.string()),
        ("base_commit", pa.string()),
        ("resolved", pa.int64()),
        ("gold_files", pa.list_(pa.string())),
        ("mined", pa.list_(pa.struct(_LABEL))),
        ("target_files", pa.list_(pa.string())),
    ]
)
Row = dict[str, Any]


@dataclass
class Filters:
    """What became of candidates and trajectories. Each candidate is counted at the first filter that it fails.

    Attributes:
        files: too_short, judge_error, not_relevant, low_weight, surviving.
        trajectories: judge_error, no_surviving_file, no_gold, samples.
        low_weight_alone: candidates of any length that the weight filter would remove if it were the only filter.
        sizes: samples by number of target files. added: samples by number of files that the patch does not have.
        weights: surviving and removed candidates by weight in steps of 0.05 (the lower end, as text).
    """

    files: Counter[str] = field(default_factory=Counter)
    trajectories: Counter[str] = field(default_factory=Counter)
    low_weight_alone: int = 0
    sizes: Counter[int] = field(default_factory=Counter)
    added: Counter[int] = field(default_factory=Counter)
    weights: Counter[str] = field(default_factory=Counter)


def samples(
    candidates: pa.Table,
    weighting: Weighting,
    gold: Mapping[str, Gold],
    *,
    min_tokens: int,
    min_weight: float,
    filters: Filters,
    leave_out: Iterable[str] = (),
) -> list[Row]:
    """Return the samples of one shard's judged candidates, one a trajectory, in the order of the shard.

    A trajectory of which a file has no verdict, because the judge could not be reached, is no sample: its target set
    would be a guess.

    Args:
        candidates: table of candidates.SCHEMA.
        min_weight: w(f) below it is discarded (0.15).
        filters: is added to.
        leave_out: trajectory ids that have been seen before.
    """
    seen = set(leave_out)
    made: list[Row] = []
    group: list[Row] = []
    for row in candidates.to_pylist():
        if group and row["row"] != group[0]["row"]:
            made += _sample(group, weighting, gold, min_tokens, min_weight, filters, seen)
            seen.add(group[0]["trajectory_id"])
            group = []
        group.append(row)
    if group:
        made += _sample(group, weighting, gold, min_tokens, min_weight, filters, seen)
    return made


def _sample(
    group: list[Row],
    weighting: Weighting,
    gold: Mapping[str, Gold],
    min_tokens: int,
    min_weight: float,
    filters: Filters,
    seen: set[str],
) -> list[Row]:
    first = group[0]
    if first["trajectory_id"] in seen:
        filters.trajectories["duplicate_id"] += 1
        return []
    labels = []
    lost = False
    for row in group:
        weight = weighting.weight(row["tokens"])
        filters.weights[f"{int(weight * 20) / 20:.2f}"] += 1
        filters.low_weight_alone += weight < min_weight
        outcome = _outcome(row, weight, min_tokens, min_weight)
        filters.files[outcome] += 1
        lost = lost or outcome == "judge_error"
        if outcome == "surviving":
            labels.append({**{name: row.get(name) for name, _ in _LABEL}, "weight": weight})
    joined = gold.get(first["instance_id"])
    if lost:
        filters.trajectories["judge_error"] += 1
    elif not labels:
        filters.trajectories["no_surviving_file"] += 1
    elif joined is None:
        filters.trajectories["no_gold"] += 1
    else:
        filters.trajectories["samples"] += 1
        labels.sort(key=lambda label: str(label["path"]))
        return [_made(first["trajectory_id"], first["instance_id"], joined, [first], labels, filters)]
    return []


def _outcome(row: Row, weight: float, min_tokens: int, min_weight: float) -> str:
    if row["tokens"] < min_tokens:
        return "too_short"
    if row["verdict"] == NOT_RELEVANT:
        return "not_relevant"
    if row["verdict"] != RELEVANT:
        return "judge_error"
    return "surviving" if weight >= min_weight else "low_weight"


def _made(
    sample_id: str, instance_id: str, joined: Gold, trajectories: list[Row], labels: list[Row], filters: Filters
) -> Row:
    targets = sorted(set(joined.files) | {str(label["path"]) for label in labels})
    filters.sizes[len(targets)] += 1
    filters.added[len(targets) - len(joined.files)] += 1
    outcomes = [row["resolved"] for row in trajectories if row["resolved"] is not None]
    return {
        "sample_id": sample_id,
        "instance_id": instance_id,
        "trajectory_ids": sorted(str(row["trajectory_id"]) for row in trajectories),
        "repo": joined.repo,
        "base_commit": joined.base_commit,
        "resolved": max(outcomes) if outcomes else None,
        "gold_files": list(joined.files),
        "mined": labels,
        "target_files": targets,
    }


def united(rows: Iterable[Row], gold: Mapping[str, Gold], filters: Filters) -> list[Row]:
    """One sample an issue: the union over its attempts, each file with the label of its greatest weight.

    Sizes in `filters` are counted anew.
    """
    filters.sizes.clear()
    filters.added.clear()
    by_issue: dict[str, list[Row]] = {}
    for row in rows:
        by_issue.setdefault(row["instance_id"], []).append(row)
    made = []
    for instance_id, attempts in sorted(by_issue.items()):
        best: dict[str, Row] = {}
        for label in (label for attempt in attempts for label in attempt["mined"]):
            held = best.get(label["path"])
            rank = (-label["weight"], label["trajectory_id"])
            if held is None or rank < (-held["weight"], held["trajectory_id"]):
                best[label["path"]] = label
        outcomes = [{"trajectory_id": t, "resolved": a["resolved"]} for a in attempts for t in a["trajectory_ids"]]
        labels = [best[path] for path in sorted(best)]
        made.append(_made(instance_id, instance_id, gold[instance_id], outcomes, labels, filters))
    return made
