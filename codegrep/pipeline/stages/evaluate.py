"""Stage evaluate: what the retrievers find on the held-out issues, the run's models beside other retrievers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codegrep.config import MODELS, SCRIPTED, Config
from codegrep.engines.models import PolicyFiles
from codegrep.errors import InfrastructureError
from codegrep.issues import Issue
from codegrep.metrics.retrieval import at_cuts, score_issue
from codegrep.metrics.scores import f_beta
from codegrep.pipeline import retrieval, timing
from codegrep.pipeline.checkpoint_selection import reported
from codegrep.pipeline.mined_targets import held_out_targets, targets_file
from codegrep.pipeline.policies.engines import EngineHandle, backend_of
from codegrep.pipeline.policies.policy_files import Policies, base_model
from codegrep.pipeline.prepared import Prepared
from codegrep.pipeline.results import KINDS
from codegrep.pipeline.retrieval import Retrieval
from codegrep.pipeline.sandboxes import Sandboxes, tools_inputs
from codegrep.pipeline.workers import AgentSettings, AgentWorker, TeacherWorker
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rollout.outcome import outcome_for, place_scores
from codegrep.rollout.record import Rollout, from_row
from codegrep.rollout.store import RolloutWriter, read_rollouts
from codegrep.runtime.artifacts import Artifact, ArtifactStore, Places, file_content
from codegrep.runtime.map_batches import map_batches
from codegrep.runtime.progress import Progress
from codegrep.runtime.resources import Bundle, Demand
from codegrep.sandbox.repositories import Repositories

_ASKED_FOR = {"detailed": ("line_f05",), "entities": ("class_f1", "function_f1")}  # by agent.prompt
_PLACE_COLUMNS = [name for names in _ASKED_FOR.values() for name in names]
_TIMES = ("latency_seconds", "query_seconds", "index_seconds", "index_bytes")
_OPTIONAL = ("f05_mined", "mined", *_TIMES, *_PLACE_COLUMNS)
Row = dict[str, Any]
Ask = Callable[[Sequence[Issue], int, int], Iterator[list[Row]]]  # issues, issues of a block, actors


def inputs(config: Config, prepared: Prepared, policies: Policies, places: Places) -> dict[str, Any]:
    """Return what decides the measured numbers: those of every retriever that is asked for."""
    evaluation = config.evaluate
    deciding: dict[str, Any] = {
        "retrievers": sorted(evaluation.retrievers),
        "latency_issues": evaluation.latency_issues,
        "targets": file_content(targets_file(evaluation.targets)) if evaluation.targets else None,
    }
    if config.train.checkpoint_selection.every:  # its selection issues are left out
        deciding["checkpoint_selection"] = config.train.checkpoint_selection
    for name, settings in config.retrievers.items():
        deciding[f"retriever {name}"] = [retrieval.inputs(config, settings, prepared, places), settings.tops]
    if set(evaluation.retrievers) & set(SCRIPTED):
        deciding["scripted"] = _scripted_inputs(config, prepared)
    models: dict[str, Any] = {
        which: _agent_inputs(config, prepared, policies, which) for which in MODELS if which in evaluation.models
    }
    return {**deciding, **models}


def _scripted_inputs(config: Config, prepared: Prepared) -> dict[str, Any]:
    return {
        "issues": prepared.fingerprint,
        "agent": config.agent,
        **tools_inputs(config.tools),
        "teacher": config.train.warm_start.teacher,
        "tokenizer": [config.model.path, config.model.revision, config.model.context],
    }


def _agent_inputs(config: Config, prepared: Prepared, policies: Policies, which: str) -> dict[str, Any]:
    """Name a model so that it is measured once for all runs that have it in common: seeds, designs, warm starts."""
    sampled = {"temperature": config.evaluate.temperature, "seed": config.seed if config.evaluate.temperature else None}
    return {
        "issues": prepared.fingerprint,
        "model": [config.model.path, config.model.revision, config.model.dtype, config.model.context],
        "trained": policies.identity(which),
        "agent": config.agent,
        **tools_inputs(config.tools),
        "sampling": sampled,
        # A model behind an endpoint is another one than that of model.path.
        **({"endpoint": [config.engine.openai.url, config.engine.openai.model]} if config.engine.openai else {}),
    }


def run(
    config: Config,
    prepared: Prepared,
    policies: Policies,
    places: Places,
    store: ArtifactStore,
    artifact: Artifact,
    progress: Progress,
    sandboxes: Sandboxes,
) -> dict[str, Any]:
    """Measure what is not measured yet; each retriever's rows are kept as they come."""
    held_out = reported(config, prepared)
    measure = _Measurements(config, prepared, policies, places, store, progress, sandboxes, held_out)
    rows: list[Row] = []
    if config.retrievers:
        rows += Retrieval(config, prepared, places, store, progress, held_out).rows()
    scripted = set(config.evaluate.retrievers) & set(SCRIPTED)
    if scripted:
        rows += [row for row in measure.scripted() if row["retriever"] in scripted]
    for which in MODELS:
        if which in config.evaluate.models:
            rows += measure.agent(which)
    retrievers = list(dict.fromkeys(row["retriever"] for row in rows))
    lost = {(row["retriever"], row["instance_id"]): row["error"] for row in rows if row.get("error")}
    # An issue that the machine lost for one retriever is left out for all, so that every comparison stays paired; it is
    # never a score of 0.
    gone = {instance_id for _, instance_id in lost}
    targets: dict[str, tuple[str, ...]] = {}
    if config.evaluate.targets:
        repositories = Repositories(places.clones, clone_timeout=config.sandbox.clone_timeout)
        path = targets_file(config.evaluate.targets)
        targets = held_out_targets(path, held_out, prepared.locations, repositories)
    table = [
        _scored(row, issue, targets.get(issue.instance_id))
        for row, issue in _with_issues(rows, held_out)
        if issue.instance_id not in gone
    ]
    table = _without_empty(table)
    if not table:
        raise InfrastructureError(f"every held-out issue was lost ({next(iter(lost.values()), 'none was measured')})")
    artifact.write_json("per_issue.json", table)
    artifact.write_json("lost.json", [{"retriever": r, "instance_id": i, "error": e} for (r, i), e in lost.items()])
    for (retriever, instance_id), error in list(lost.items())[:3]:
        progress.say(f"  left out, the machine's fault: {instance_id} by {retriever}: {error}")
    for retriever, count in Counter(
        r["retriever"] for r in rows if r.get("exit_cause") == ExitCause.PROMPT_TOO_LONG
    ).items():
        progress.say(f"  {count} issues are longer than the context of {retriever}: they count as not answered")
    return {
        "held_out": len(held_out),
        "measured": len(held_out) - len(gone),
        "retrievers": retrievers,
        "rollouts": {which: measure.of(which).folder.name for which in MODELS if which in config.evaluate.models},
    }


def per_issue(artifact: Artifact) -> list[Row]:
    """Return one row an issue and retriever: files, scores, turns, calls, tokens, times, exit cause."""
    return list(artifact.read_json("per_issue.json"))


@dataclass(frozen=True)
class _Measurements:
    """Answers of each kind of retriever to the issues, kept as artifacts of their own that runs share."""

    config: Config
    prepared: Prepared
    policies: Policies
    places: Places
    store: ArtifactStore
    progress: Progress
    sandboxes: Sandboxes
    issues: Sequence[Issue]

    def scripted(self) -> list[Row]:
        config = self.config
        arguments = {
            "model": str(base_model(config.model)),
            "settings": AgentSettings(config.agent, config.tools, config.model.context),
            "teacher": config.train.warm_start.teacher,
            "sandbox": self.sandboxes.start(),
        }
        measured = self.store.open("measured-scripted", _scripted_inputs(config, self.prepared))
        answers = self._answers(measured, "scripted search", TeacherWorker, arguments)
        times = timing.read(measured.folder)
        rows = []
        for row in answers:
            rollout = from_row(row["rollout"])
            lists = {"first_row": row["first_row"], "oracle": rollout.answer, "oracle_met": row["gold_met"]}
            whole = {**_rollout_row(rollout), **times.of(rollout.instance_id), "generated_tokens": 0}
            rows += [{**whole, "retriever": retriever, "files": files} for retriever, files in lists.items()]
        return rows

    def of(self, which: str) -> Artifact:
        """Return the artifact that keeps a model's rollouts."""
        return self.store.open(f"measured-{which}", _agent_inputs(self.config, self.prepared, self.policies, which))

    def agent(self, which: str) -> list[Row]:
        files = self.policies.files(which)
        measured = self.of(which)
        folder = measured.folder / "rollouts"
        # What the machine lost is asked again.
        done = {r.instance_id for r in read_rollouts(folder) if not r.error} if folder.is_dir() else set()
        todo = [issue for issue in self.issues if issue.instance_id not in done]
        total, label = len(self.issues), f"agent, {which}"
        with self._agents(files, which) as ask:
            self._time_single_issues(measured.folder, label, ask)
            with RolloutWriter(folder) as writer, self.progress.bar(label, total, total - len(todo)) as advance:
                for rows in ask(todo, self.config.evaluate.batch, self.config.evaluate.actors):
                    for row in rows:
                        writer.add(from_row(row["rollout"]))
                    writer.flush()
                    timing.note(measured.folder, rows, alone=False, of=[_instance(row) for row in rows])
                    advance(len(rows))
        latest: dict[str, Rollout] = {}
        for rollout in read_rollouts(folder):
            if rollout.instance_id not in latest or latest[rollout.instance_id].error:
                latest[rollout.instance_id] = rollout
        measured.finish({"issues": len(latest), "lost": sum(1 for r in latest.values() if r.error)})
        times = timing.read(measured.folder)
        by_id = {issue.instance_id: issue for issue in self.issues}
        return [
            {
                **_rollout_row(r),
                **times.of(r.instance_id),
                **_places_in(r, by_id[r.instance_id], self.config.agent.prompt),
                "retriever": which,
            }
            for r in latest.values()
            if r.instance_id in by_id
        ]

    def _answers(self, measured: Artifact, label: str, worker: type, arguments: Row) -> list[Row]:
        """Return the rows of a worker, appended to a file a block at a time.

        Issues in the file are not asked again, but for those that the machine lost.
        """
        path = measured.folder / "rows.jsonl"
        rows = [row for row in timing.read_lines(path) if not _error(row)]
        done = {_instance(row) for row in rows}
        todo = [issue for issue in self.issues if issue.instance_id not in done]
        total = len(self.issues)

        def ask(some: Sequence[Issue], batch: int, actors: int) -> Iterator[list[Row]]:
            return map_batches(some, worker, arguments, batch=batch, actors=actors, num_cpus=0.5)

        self._time_single_issues(measured.folder, label, ask)
        with self.progress.bar(label, total, total - len(todo)) as advance, path.open("a", encoding="utf-8") as out:
            for block in ask(todo, self.config.evaluate.batch, 1):
                out.writelines(json.dumps(row) + "\n" for row in block)
                out.flush()
                timing.note(measured.folder, block, alone=False, of=[_instance(row) for row in block])
                rows.extend(block)
                advance(len({_instance(row) for row in block}))
        measured.finish({"rows": len(rows), "lost": sum(1 for row in rows if _error(row))})
        return rows

    def _time_single_issues(self, folder: Path, label: str, ask: Ask) -> None:
        """Note the latency of the sample's issues that have none yet."""
        known = timing.read(folder).alone
        sample = timing.sample(self.issues, self.config.evaluate.latency_issues)
        todo = [issue for issue in sample if issue.instance_id not in known]
        if not todo:
            return
        of = {issue.instance_id for issue in todo}
        asked = timing.with_warm_up(todo, self.issues)
        with self.progress.bar(f"{label}, one at a time", len(asked)) as advance:
            for rows in ask(asked, 1, 1):
                timing.note(folder, rows, alone=True, of=of)
                advance()

    @contextmanager
    def _agents(self, files: PolicyFiles, which: str) -> Iterator[Ask]:
        """Yield what asks agents. The engine starts with the first question and ends with the block."""
        config, evaluation = self.config, self.config.evaluate
        cpus, gpus = config.train.cpus_per_worker, 1.0 if config.train.use_gpu and not config.engine.vllm else 0.0
        keys = "evaluate.actors or train.cpus_per_worker"
        workers = Demand("agent workers", keys, Bundle(gpus, cpus), evaluation.actors)
        engine: EngineHandle | None = None

        def ask(some: Sequence[Issue], batch: int, actors: int) -> Iterator[list[Row]]:
            nonlocal engine
            if not some:
                return iter(())
            if engine is None:
                engine = backend_of(config.engine).open(config, files, lora_rank=0, beside=[workers])
            arguments = {
                "engine": engine,
                "settings": AgentSettings(config.agent, config.tools, config.model.context),
                "sandbox": self.sandboxes.start(),
                "temperature": evaluation.temperature,
                "seed": config.seed,
                "label": which,
            }
            return map_batches(some, AgentWorker, arguments, batch=batch, actors=actors, num_cpus=cpus, num_gpus=gpus)

        try:
            yield ask
        finally:
            if engine is not None:
                engine.end()


def _places_in(rollout: Rollout, issue: Issue, prompt: str) -> Row:
    """Score the lines, classes and functions of an answer, as far as the prompt asks for them."""
    scores = place_scores(outcome_for(rollout, issue))
    return {name: scores[name] for name in _ASKED_FOR.get(prompt, ())}


def _instance(row: Row) -> str:
    return str(row["rollout"]["instance_id"])


def _error(row: Row) -> str:
    return str(row["rollout"]["error"] or "")


def _rollout_row(rollout: Rollout) -> Row:
    return {
        "instance_id": rollout.instance_id,
        "files": list(rollout.answer),
        "turns": len(rollout.turns),
        "calls": sum(rollout.calls_per_turn),
        "generated_tokens": rollout.generated_tokens,
        "exit_cause": rollout.exit_cause,
        "error": rollout.error,
    }


def _with_issues(rows: Iterable[Row], issues: Sequence[Issue]) -> Iterable[tuple[Row, Issue]]:
    by_id = {issue.instance_id: issue for issue in issues}
    for row in rows:
        if row["instance_id"] in by_id:
            yield row, by_id[row["instance_id"]]


def _scored(row: Row, issue: Issue, targets: Sequence[str] | None) -> Row:
    score: Callable[..., Any] = score_issue
    whole = asdict(score(issue.instance_id, issue.repo, row["files"], issue.gold_files))
    first = score(issue.instance_id, issue.repo, row["files"], issue.gold_files, k=1)
    return {
        "retriever": row["retriever"],
        "kind": row.get("kind") or KINDS[row["retriever"]],
        **whole,
        **at_cuts(row.get("ranking") or row["files"], issue.gold_files),
        "f05_top1": first.f05,
        "f05_mined": None if targets is None else f_beta(row["files"], targets),
        **{name: row.get(name) for name in _PLACE_COLUMNS},
        "answer": list(row["files"]),
        "gold": list(issue.gold_files),
        "mined": None if targets is None else list(targets),
        "turns": row.get("turns"),
        "calls": row.get("calls"),
        "generated_tokens": row.get("generated_tokens"),
        "seconds_per_issue": row.get("seconds_per_issue"),
        **{name: row.get(name) for name in _TIMES},
        "exit_cause": row.get("exit_cause", ""),
    }


def _without_empty(table: Sequence[Row]) -> list[Row]:
    """Leave out the columns of other targets, places and latency that no row has a value in."""
    empty = [name for name in _OPTIONAL if all(row[name] is None for row in table)]
    return [{name: value for name, value in row.items() if name not in empty} for row in table]
