"""Answers of the retrievers of conf/retriever to the held-out issues, an artifact a retriever that runs share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codegrep.config import Config, RetrieverConfig
from codegrep.issues import Issue
from codegrep.pipeline import timing
from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.workers import TreeWorker
from codegrep.retrievers.registry import identity, open_retriever, runs_a_model, uses_gold
from codegrep.runtime.artifacts import ArtifactStore, Places, from_outputs
from codegrep.runtime.map_batches import map_batches
from codegrep.runtime.progress import Progress

Row = dict[str, Any]
_FILE = "rows.jsonl"


def inputs(config: Config, settings: RetrieverConfig, prepared: Prepared, places: Places) -> dict[str, Any]:
    """Return what decides a retriever's answers.

    Raises:
        CodegrepError: a wrong argument, or a model or file that is not there.
    """
    retriever = open_retriever(settings, places.index, evaluation=True)
    return {
        "issues": prepared.fingerprint,
        "kind": settings.kind,
        "args": from_outputs(settings.args, config.outputs),
        "identity": identity(retriever),
    }


def check(config: Config, places: Places) -> None:
    """Refuse, before anything is trained, retrievers whose arguments, models or files will not do.

    Raises:
        CodegrepError: one line.
    """
    for settings in config.retrievers.values():
        identity(open_retriever(settings, places.index, evaluation=True))


@dataclass(frozen=True)
class Retrieval:
    """Asks retrievers and reads what they answered.

    Attributes:
        issues: held-out issues.
    """

    config: Config
    prepared: Prepared
    places: Places
    store: ArtifactStore
    progress: Progress
    issues: Sequence[Issue]

    def rows(self) -> list[Row]:
        """Return a row an issue and length of list, retriever after retriever; what is there already is not asked."""
        kept = self._answers()
        sample = {issue.instance_id for issue in timing.sample(self.issues, self.config.evaluate.latency_issues)}
        rows: list[Row] = []
        for name, settings in self.config.retrievers.items():
            kind = "oracle" if uses_gold(settings) else "baseline"
            unanswered = sum(bool(row.get("unanswered")) for row in kept[name])
            if unanswered:
                self.progress.say(f"  {unanswered} issues have no answer of {name}: they count as not answered")
            for row in kept[name]:
                seconds = row.get("seconds")
                shared = {
                    "instance_id": row["instance_id"],
                    "kind": kind,
                    "ranking": row["files"],
                    "error": row.get("error", ""),
                    "seconds_per_issue": row.get("elapsed"),
                    "latency_seconds": seconds if row["instance_id"] in sample else None,
                    "query_seconds": seconds,
                    "index_seconds": row.get("index_seconds"),
                    "index_bytes": row.get("index_bytes"),
                }
                rows += [{**shared, "retriever": f"{name}_top{k}", "files": row["files"][:k]} for k in settings.tops]
        return rows

    def _answers(self) -> dict[str, list[Row]]:
        """Return each retriever's rows, appended to its file a block at a time. Lost issues are asked again."""
        opened = {
            name: self.store.open(f"measured-{name}", inputs(self.config, settings, self.prepared, self.places))
            for name, settings in self.config.retrievers.items()
        }
        kept = {
            name: [row for row in timing.read_lines(measured.folder / _FILE) if not row.get("error")]
            for name, measured in opened.items()
        }
        done = {name: {str(row["instance_id"]) for row in rows} for name, rows in kept.items()}
        todo = [issue for issue in self.issues if any(issue.instance_id not in ids for ids in done.values())]
        total = len(self.issues)
        with self.progress.bar("retrievers", total, total - len(todo)) as advance:
            for block in self._ask(todo, done):
                for name, measured in opened.items():
                    own = [row for row in block if row["retriever"] == name]
                    with (measured.folder / _FILE).open("a", encoding="utf-8") as out:
                        out.writelines(json.dumps(row) + "\n" for row in own)
                    kept[name] += own
                advance(len({row["instance_id"] for row in block}))
        for name, measured in opened.items():
            lost = sum(bool(row.get("error")) for row in kept[name])
            measured.finish({"issues": len(kept[name]), "lost": lost})
        return kept

    def _ask(self, todo: Sequence[Issue], done: Mapping[str, set[str]]) -> Any:
        config = self.config
        retrievers = list(config.retrievers.values())
        model = any(runs_a_model(settings) for settings in retrievers)
        arguments = {
            "root": str(self.places.sandbox),
            "locations": self.prepared.locations,
            "min_free_gib": config.sandbox.min_free_gib,
            "max_worktrees": config.sandbox.max_worktrees,
            "clone_timeout": config.sandbox.clone_timeout,
            "retrievers": retrievers,
            "index": str(self.places.index),
            "done": done,
        }
        cpus, gpus = config.train.cpus_per_worker if model else 0.5, float(model and config.train.use_gpu)
        batch = config.evaluate.batch
        return map_batches(todo, TreeWorker, arguments, batch=batch, actors=1, num_cpus=cpus, num_gpus=gpus)
