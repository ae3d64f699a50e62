"""What the stage `label` leaves for people: the data card, the sheet for checking by hand, metrics."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyarrow import parquet

from codegrep.config import Config
from codegrep.judges.files import RELEVANT, Question
from codegrep.labels import data_card
from codegrep.labels.agreement import agreement
from codegrep.labels.gold import GoldPatches
from codegrep.labels.ray_data import JudgeChoice, ShardFiles
from codegrep.labels.shard_work import ShardRecord
from codegrep.labels.shards import Shard
from codegrep.labels.target_sets import Targets
from codegrep.pipeline.prepared import Prepared
from codegrep.runtime.artifacts import Artifact, Places
from codegrep.tracking.run import Tracker

SHEET = "spot_check.csv"
SHEET_COLUMNS = (
    *("drawn", "trajectory_id", "instance_id", "path", "message", "reasoning_message", "tokens", "judge", "verdict"),
    *("reason", "evidence", "human", "note"),
)
PAPER_RETENTION = 0.477


def write(
    config: Config,
    places: Places,
    prepared: Prepared | None,
    artifact: Artifact,
    shards: Sequence[Shard],
    files: ShardFiles,
    record: ShardRecord,
    targets: Targets,
    gold: GoldPatches,
    quarantined: int,
    usable: Mapping[str, int],
) -> dict[str, Any]:
    """All files of the report into the artifact's folder; the summary that names every count."""
    labels = config.labels
    mined = record.rows - sum(record.excluded.values())
    filters = targets.filters
    counted = sum(size * n for size, n in filters.sizes.items())
    added = sum(size * n for size, n in filters.added.items())
    summary: dict[str, Any] = {
        "trajectories": record.rows,
        "excluded": dict(record.excluded),
        "empty": record.empty,
        "calls": record.calls,
        "read_calls": record.read_calls,
        "dropped": dict(record.dropped),
        "odd_arguments": dict(record.ledger),
        "reads": record.reads,
        "reads_with_thought": record.thoughts,
        "reads_without_text": dict(record.no_text),
        "reads_short": dict(record.short),
        "candidates": record.files,
        "trajectories_with_candidates": record.with_files,
        "judged": record.judged,
        "relevant": record.relevant,
        "not_relevant": record.not_relevant,
        "ambiguous": record.ambiguous,
        "judge_errors": dict(record.errors),
        "judge_usage": dict(record.usage),
        "files": dict(filters.files),
        "low_weight_alone": filters.low_weight_alone,
        "sample_filters": dict(filters.trajectories),
        "beta": targets.weighting.beta,
        "mean_raw_weight": targets.weighting.mean,
        "shortest_by_weight": targets.weighting.shortest(labels.min_weight),
        "samples": targets.samples,
        "issues": targets.issues,
        "retention": filters.trajectories["samples"] / mined if mined else 0.0,
        "target_files": counted / targets.samples,
        "mined_files": added / targets.samples,
        "sizes": {str(k): v for k, v in sorted(filters.sizes.items())},
        "added": {str(k): v for k, v in sorted(filters.added.items())},
        "weights": dict(sorted(filters.weights.items(), key=lambda item: float(item[0]))),
        "turns": dict(sorted(record.turns.items(), key=lambda item: int(item[0]))),
        "lengths": {str(k): v for k, v in targets.histogram.items()},
        "gold": len(gold.by_instance),
        "gold_skipped": dict(gold.skipped),
        "quarantined": quarantined,
        "training": dict(usable),
        "judge": config.judge.name,
        "judge_kind": config.judge.kind,
        "tokenizer": labels.tokenizer or config.model.path,
        "min_tokens": labels.min_tokens,
        "min_weight": labels.min_weight,
        "granularity": labels.granularity,
        "reasoning": "content and thought" if labels.with_thought else "content",
        "agreement": _second_judge(config, places, prepared, shards, files),
    }
    _write_sheet(artifact.folder / SHEET, shards, files, labels.spot_check, config.data.split.seed)
    data_card.write(artifact.folder, summary)
    return summary


def log(tracker: Tracker, artifact: Artifact) -> None:
    """Metrics and files of the stage into the run's record."""
    summary = artifact.read_json(data_card.SUMMARY)
    values: dict[str, float] = {
        name: float(summary[name])
        for name in ("trajectories", "reads", "candidates", "samples", "issues", "retention", "beta", "quarantined")
    }
    values["mean_raw_weight"] = float(summary["mean_raw_weight"])
    values["target_files"], values["mined_files"] = float(summary["target_files"]), float(summary["mined_files"])
    values["excluded"] = float(sum(summary["excluded"].values()))
    values["reads_dropped"] = float(sum(summary["dropped"].values()))
    values["odd_arguments"] = float(sum(summary["odd_arguments"].values()))
    values |= {f"files_{name}": float(n) for name, n in summary["files"].items()}
    values |= {f"judge_{name}": float(n) for name, n in summary["judge_usage"].items()}
    values["judge_errors"] = float(sum(summary["judge_errors"].values()))
    if summary["agreement"]:
        values["judge_kappa"] = float(summary["agreement"]["kappa"])
    tracker.metrics({f"label/{name}": value for name, value in values.items()}, step=0)
    tracker.tags({"label.artifact": artifact.fingerprint[:12], "label.judge": summary["judge"]})
    for name in (data_card.MARKDOWN, data_card.HTML, data_card.SUMMARY, SHEET, "quarantine.json"):
        tracker.artifact(artifact.folder / name, "labels")


def judged_candidates(shards: Sequence[Shard], files: ShardFiles) -> Iterator[dict[str, Any]]:
    """All candidates with a verdict, shard by shard."""
    for shard in shards:
        if files.read(shard) is not None:
            for row in parquet.read_table(files.candidates(shard)).to_pylist():
                if row["verdict"]:
                    yield row


def _rank(row: Mapping[str, Any], seed: int) -> str:
    """Return a place in an order that depends on nothing but the candidate and a seed."""
    return hashlib.sha256(f"{seed} {row['trajectory_id']} {row['path']}".encode()).hexdigest()


def _drawn(rows: Iterator[dict[str, Any]], count: int, seed: int) -> list[dict[str, Any]]:
    """Return the first `count` rows in that order; few rows are held at a time."""
    best: list[tuple[str, int, dict[str, Any]]] = []
    for number, row in enumerate(rows):
        best.append((_rank(row, seed), number, row))
        if len(best) > 50 * max(20, count):
            best = sorted(best)[:count]
    return [row for _, _, row in sorted(best)[:count]]


def _write_sheet(path: Path, shards: Sequence[Shard], files: ShardFiles, count: int, seed: int) -> None:
    """Return a uniform draw, and a third as many of those that the judge rejected, which are few."""
    uniform = _drawn(judged_candidates(shards, files), count, seed)
    held = {(row["trajectory_id"], row["path"]) for row in uniform}
    rejected = (
        row
        for row in judged_candidates(shards, files)
        if row["verdict"] != RELEVANT and (row["trajectory_id"], row["path"]) not in held
    )
    extra = _drawn(rejected, count // 3, seed)
    with path.open("w", encoding="utf-8", newline="") as out:
        sheet = csv.DictWriter(out, SHEET_COLUMNS, extrasaction="ignore")
        sheet.writeheader()
        for drawn, rows in (("uniform", uniform), ("rejected", extra)):
            sheet.writerows({"human": "", "note": "", **row, "drawn": drawn} for row in rows)


def _second_judge(
    config: Config, places: Places, prepared: Prepared | None, shards: Sequence[Shard], files: ShardFiles
) -> dict[str, Any]:
    """Agreement with judge.second on a sample; {} where there is none."""
    second = config.judge.second
    if not second:
        return {}
    sample = _drawn(judged_candidates(shards, files), int(second.get("sample", 400)), config.data.split.seed)
    tasks = {issue.instance_id: issue.problem_statement for issue in prepared.train} if prepared else {}
    cache = str(places.outputs / "judge_answers")
    judge = JudgeChoice(str(second["kind"]), dict(second.get("params") or {}), "driver", 1, cache).open()
    verdicts = judge.judge(
        [Question(row["path"], row["evidence"], tasks.get(row["instance_id"], "")) for row in sample]
    )
    pairs = [
        (row["verdict"] == RELEVANT, verdict.label == RELEVANT)
        for row, verdict in zip(sample, verdicts, strict=True)
        if verdict.label
    ]
    if not pairs:
        return {}
    found = agreement([a for a, _ in pairs], [b for _, b in pairs])
    kappa = found.kappa
    return {
        "judge": judge.label,
        "items": found.items,
        "unanswered": len(sample) - len(pairs),
        "observed": found.observed.estimate,
        "kappa": kappa.estimate,
        "kappa_low": kappa.low,
        "kappa_high": kappa.high,
        "both_relevant": found.both,
        "first_only": found.first_only,
        "second_only": found.second_only,
        "neither": found.neither,
    }
