"""Stage 4: what the retrievers find on the held-out issues: the models of the run beside the baselines, in one run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from codegrep.config import MODELS
from codegrep.engines.models import PolicyFiles
from codegrep.errors import InfrastructureError
from codegrep.issues import Issue
from codegrep.metrics.retrieval import score_issue
from codegrep.metrics.scores import f_beta
from codegrep.pipeline import checkpoint_selection, mined_targets, timing
from codegrep.pipeline.context import Context
from codegrep.pipeline.policies.engines import EngineHandle, backend_of
from codegrep.pipeline.policies.fetch import fetched
from codegrep.pipeline.policies.policy_files import base_model, policy_files
from codegrep.pipeline.sandboxes import sandbox_for
from codegrep.pipeline.stages import prepare
from codegrep.pipeline.workers import AgentSettings, AgentWorker, BM25Worker, TeacherWorker
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rollout.outcome import outcome_for, place_scores
from codegrep.rollout.record import Rollout, from_row
from codegrep.rollout.store import RolloutWriter, read_rollouts
from codegrep.runtime.artifacts import Artifact
from codegrep.runtime.map_batches import through_ray_data
from codegrep.runtime.placement import Demand

BM25 = ("bm25", "bm25_no_tests")
SCRIPTED = ("first_row", "oracle", "oracle_met")
_ASKED_FOR = {"detailed": ("line_f05",), "entities": ("class_f1", "function_f1")}  # by agent.prompt
_PLACE_COLUMNS = [name for names in _ASKED_FOR.values() for name in names]
_OPTIONAL = ("f05_mined", "mined", "latency_seconds", *_PLACE_COLUMNS)
Row = dict[str, Any]
Ask = Callable[[Sequence[Issue], int, int], Iterator[list[Row]]]  # issues, issues of a block, actors


def inputs(context: Context) -> dict[str, Any]:
    """What decides the measured numbers: those of every retriever that is asked for."""
    evaluation = context.config.evaluate
    made: dict[str, Any] = {
        "baselines": sorted(evaluation.baselines),
        "latency_issues": evaluation.latency_issues,
        "targets": mined_targets.identity(context) if evaluation.targets else None,
    }
    if context.config.train.ladder.every:  # its selection issues are left out
        made["ladder"] = context.config.train.ladder
    if set(evaluation.baselines) & set(BM25):
        made["bm25"] = _bm25_inputs(context)
    if set(evaluation.baselines) & set(SCRIPTED):
        made["scripted"] = _scripted_inputs(context)
    return {**made, **{which: _agent_inputs(context, which) for which in MODELS if which in evaluation.models}}


def _bm25_inputs(context: Context) -> dict[str, Any]:
    return {"issues": context.need("prepare").fingerprint, "top_k": 2}


def _scripted_inputs(context: Context) -> dict[str, Any]:
    config = context.config
    return {
        "issues": context.need("prepare").fingerprint,
        "agent": config.agent,
        "tools": config.tools,
        "teacher": config.train.warm_start.teacher,
        "tokenizer": [config.model.path, config.model.revision, config.model.context],
    }


def _agent_inputs(context: Context, which: str) -> dict[str, Any]:
    """A model is measured once for all runs that have it in common: seeds and designs share base and warm start."""
    config = context.config
    sampled = {"temperature": config.evaluate.temperature, "seed": config.seed if config.evaluate.temperature else None}
    stage = {"warm_start": "warm_start", "trained": "train"}.get(which)
    trained: Any = context.need(stage).fingerprint if stage else None
    if which == "loaded":
        trained = fetched(context).digest
    return {
        "issues": context.need("prepare").fingerprint,
        "model": [config.model.path, config.model.revision, config.model.dtype, config.model.context],
        "trained": trained,
        "agent": config.agent,
        "tools": config.tools,
        "sampling": sampled,
        # A model behind an endpoint is another one than that of model.path.
        **({"endpoint": [config.engine.openai.url, config.engine.openai.model]} if config.engine.openai else {}),
    }


def run(context: Context, artifact: Artifact) -> dict[str, Any]:
    """Measure what is not measured yet; each retriever's rows are kept as they come."""
    config = context.config
    held_out = checkpoint_selection.reported(config, prepare.load(context.need("prepare")))
    rows: list[Row] = []
    wanted = set(config.evaluate.baselines)
    if wanted & set(BM25):
        rows += _bm25_rows(context, held_out)
    if wanted & set(SCRIPTED):
        scripted = _scripted_rows(context, held_out)
        times = timing.read(context.store.open("measured-scripted", _scripted_inputs(context)).folder)
        rows += [{**row, **times.of(row["instance_id"])} for row in scripted]
    for which in MODELS:
        if which in config.evaluate.models:
            rows += _agent_rows(context, held_out, which)
    kept = [row for row in rows if row["retriever"] in MODELS or _family(row["retriever"]) in wanted]
    retrievers = list(dict.fromkeys(row["retriever"] for row in kept))
    lost = {(row["retriever"], row["instance_id"]): row["error"] for row in kept if row.get("error")}
    # An issue that the machine lost for one retriever is left out for all, so that every comparison stays paired; it is
    # never a score of 0.
    gone = {instance_id for _, instance_id in lost}
    targets = mined_targets.load(context, held_out) if config.evaluate.targets else {}
    table = [
        _scored(row, issue, targets.get(issue.instance_id))
        for row, issue in _with_issues(kept, held_out)
        if issue.instance_id not in gone
    ]
    table = _without_empty(table)
    if not table:
        raise InfrastructureError(f"every held-out issue was lost ({next(iter(lost.values()), 'none was measured')})")
    artifact.write_json("per_issue.json", table)
    artifact.write_json("lost.json", [{"retriever": r, "instance_id": i, "error": e} for (r, i), e in lost.items()])
    for (retriever, instance_id), error in list(lost.items())[:3]:
        context.say(f"  left out, the machine's fault: {instance_id} by {retriever}: {error}")
    too_long = Counter(r["retriever"] for r in kept if r.get("exit_cause") == ExitCause.PROMPT_TOO_LONG)
    for retriever, count in too_long.items():
        context.say(f"  {count} issues are longer than the context of {retriever}: they count as not answered")
    return {"held_out": len(held_out), "measured": len(held_out) - len(gone), "retrievers": retrievers}


def already(context: Context, artifact: Artifact) -> None:
    """Nothing to log here: the report logs the tables."""


def per_issue(artifact: Artifact) -> list[Row]:
    """One row an issue and retriever: files, scores, turns, calls, tokens, times, exit cause."""
    return list(artifact.read_json("per_issue.json"))


def _bm25_rows(context: Context, issues: Sequence[Issue]) -> list[Row]:
    config = context.config
    arguments = {
        "root": str(context.places.sandbox),
        "locations": prepare.locations(context.need("prepare")),
        "min_free_gib": config.sandbox.min_free_gib,
        "max_worktrees": config.sandbox.max_worktrees,
        "clone_timeout": config.sandbox.clone_timeout,
    }
    measured = context.store.open("measured-bm25", _bm25_inputs(context))
    found = _kept_rows(context, measured, "bm25", issues, BM25Worker, arguments)
    times = timing.read(measured.folder)
    rows = []
    for row in found:
        for k in (1, 2):
            own = times.of(row["instance_id"], row["retriever"])
            rows.append({**row, **own, "retriever": f"{row['retriever']}_top{k}", "files": row["files"][:k]})
    return rows


def _scripted_rows(context: Context, issues: Sequence[Issue]) -> list[Row]:
    config = context.config
    arguments = {
        "model": str(base_model(context)),
        "settings": AgentSettings(config.agent, config.tools, config.model.context),
        "teacher": config.train.warm_start.teacher,
        "sandbox": sandbox_for(context),
    }
    measured = context.store.open("measured-scripted", _scripted_inputs(context))
    found = _kept_rows(context, measured, "scripted search", issues, TeacherWorker, arguments)
    rows = []
    for row in found:
        rollout = from_row(row["rollout"])
        answers = {"first_row": row["first_row"], "oracle": rollout.answer, "oracle_met": row["gold_met"]}
        for retriever, files in answers.items():
            rows.append({**_rollout_row(rollout), "retriever": retriever, "files": files, "generated_tokens": 0})
    return rows


def _agent_rows(context: Context, issues: Sequence[Issue], which: str) -> list[Row]:
    files = policy_files(context, which)
    measured = context.store.open(f"measured-{which}", _agent_inputs(context, which))
    folder = measured.folder / "rollouts"
    # What the machine lost is asked again.
    done = {r.instance_id for r in read_rollouts(folder) if not r.error} if folder.is_dir() else set()
    todo = [issue for issue in issues if issue.instance_id not in done]
    with _agents(context, files, which) as ask:
        _measure_alone(context, measured.folder, f"agent, {which}", issues, ask)
        with RolloutWriter(folder) as writer, context.progress(f"agent, {which}", len(issues)) as advance:
            advance(len(issues) - len(todo))
            for rows in ask(todo, context.config.evaluate.batch, context.config.evaluate.actors):
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
    by_id = {issue.instance_id: issue for issue in issues}
    return [
        {
            **_rollout_row(r),
            **times.of(r.instance_id),
            **_places_in(r, by_id[r.instance_id], context.config.agent.prompt),
            "retriever": which,
        }
        for r in latest.values()
        if r.instance_id in by_id
    ]


def _places_in(rollout: Rollout, issue: Issue, prompt: str) -> Row:
    """Scores of the lines, classes and functions of an answer, as far as the prompt asks for them."""
    scores = place_scores(outcome_for(rollout, issue))
    return {name: scores[name] for name in _ASKED_FOR.get(prompt, ())}


def _kept_rows(
    context: Context, measured: Artifact, label: str, issues: Sequence[Issue], worker: type, arguments: Row
) -> list[Row]:
    """Rows of a worker, appended to a file a block at a time; issues in the file are not asked again, but for those
    that the machine lost.
    """
    path = measured.folder / "rows.jsonl"
    rows = [row for row in timing.read_lines(path) if not _error(row)]
    done = {_instance(row) for row in rows}
    todo = [issue for issue in issues if issue.instance_id not in done]

    def ask(some: Sequence[Issue], batch: int, actors: int = 1) -> Iterator[list[Row]]:
        return through_ray_data(some, worker, arguments, batch=batch, actors=actors, num_cpus=0.5)

    _measure_alone(context, measured.folder, label, issues, ask)
    with context.progress(label, len(issues)) as advance, path.open("a", encoding="utf-8") as out:
        advance(len(issues) - len(todo))
        for block in ask(todo, context.config.evaluate.batch):
            out.writelines(json.dumps(row) + "\n" for row in block)
            out.flush()
            timing.note(measured.folder, block, alone=False, of=[_instance(row) for row in block])
            rows.extend(block)
            advance(len({_instance(row) for row in block}))
    measured.finish({"rows": len(rows), "lost": sum(1 for row in rows if _error(row))})
    return rows


def _measure_alone(context: Context, folder: Path, label: str, issues: Sequence[Issue], ask: Ask) -> None:
    """Note the latency of the sample's issues that have none yet."""
    wanted = timing.sample(issues, context.config.evaluate.latency_issues)
    known = {instance_id for instance_id, _ in timing.read(folder).alone}
    wanted = [issue for issue in wanted if issue.instance_id not in known]
    if not wanted:
        return
    of = {issue.instance_id for issue in wanted}
    asked = timing.with_warm_up(wanted, issues)
    with context.progress(f"{label}, one at a time", len(asked)) as advance:
        for rows in ask(asked, 1, 1):
            timing.note(folder, rows, alone=True, of=of)
            advance(1)


@contextmanager
def _agents(context: Context, files: PolicyFiles, which: str) -> Iterator[Ask]:
    """Asks agents, block by block. The engine starts with the first question and ends with the context."""
    config, evaluation = context.config, context.config.evaluate
    cpus, gpus = config.train.cpus_per_worker, 1.0 if config.train.use_gpu and not config.engine.vllm else 0.0
    workers = Demand("agent workers", "evaluate.actors or train.cpus_per_worker", cpus, gpus, evaluation.actors)
    engine: EngineHandle | None = None

    def ask(some: Sequence[Issue], batch: int, actors: int) -> Iterator[list[Row]]:
        nonlocal engine
        if not some:
            return iter(())
        if engine is None:
            engine = backend_of(config.engine).open(config, files, lora_rank=0, beside=[workers])
        given = {**arguments, "engine": engine}
        return through_ray_data(some, AgentWorker, given, batch=batch, actors=actors, num_cpus=cpus, num_gpus=gpus)

    arguments = {
        "settings": AgentSettings(config.agent, config.tools, config.model.context),
        "sandbox": sandbox_for(context),
        "temperature": evaluation.temperature,
        "seed": config.seed,
        "label": which,
    }
    try:
        yield ask
    finally:
        if engine is not None:
            engine.end()


def _instance(row: Row) -> str:
    return str(row["instance_id"] if "instance_id" in row else row["rollout"]["instance_id"])


def _error(row: Row) -> str:
    return str(row.get("error") or row.get("rollout", {}).get("error") or "")


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
        **whole,
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
        "latency_seconds": row.get("latency_seconds"),
        "exit_cause": row.get("exit_cause", ""),
    }


def _without_empty(table: Sequence[Row]) -> list[Row]:
    """The rows without the columns of other targets, places and latency that none of them has a value in."""
    empty = [name for name in _OPTIONAL if all(row[name] is None for row in table)]
    return [{name: value for name, value in row.items() if name not in empty} for row in table]


def _family(retriever: str) -> str:
    return retriever.removesuffix("_top1").removesuffix("_top2")
