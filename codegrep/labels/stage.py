"""Stage 2, where an experiment asks for it: target files mined from agent trajectories (CATM, CodeGrep 3.4)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.config import Config, LabelsConfig
from codegrep.errors import CodegrepError, DataError, InfrastructureError
from codegrep.issues import Issue
from codegrep.issues.roles import EVALUATION, known_roles
from codegrep.judges.endpoint import PATIENCE
from codegrep.labels import stage_report
from codegrep.labels.gold import GoldPatches, from_file, from_issues
from codegrep.labels.importing import imported, trajectory_files
from codegrep.labels.ray_data import JudgeChoice, ShardFiles, judged_by_driver, mine_shards
from codegrep.labels.requests import ReadRules
from codegrep.labels.shard_work import MINING_VERSION, MiningSettings, ShardRecord
from codegrep.labels.shards import Shard, shards_of
from codegrep.labels.target_sets import Targets, make_targets
from codegrep.labels.tokens import open_counter
from codegrep.labels.workspace_paths import PathRules
from codegrep.pipeline.mined_targets import TRAINING_TARGETS
from codegrep.pipeline.policies.policy_files import base_model
from codegrep.pipeline.prepared import Prepared, existing
from codegrep.runtime.artifacts import Artifact, Places, file_content
from codegrep.runtime.progress import Advance, Progress
from codegrep.sandbox.repositories import Repositories
from codegrep.tracking.run import Tracker

SAMPLES = "samples.parquet"
# What does not change a label.
_NOT_INPUTS = ("workers", "spot_check", "keep_unlabelled", "trajectories", "instances")


def inputs(config: Config, places: Places, prepared: Prepared | None = None) -> dict[str, Any]:
    """Return what decides the labels: the trajectories' and instances' content, the rules, the judge, what is held out.

    Raises:
        CodegrepError: the experiment has no labels, and does not ask for the stage.
    """
    if not config.labels.enabled:
        if "label" not in config.stages:
            raise CodegrepError("this experiment has no mined labels", "Add labels=catm and the stage label")
        return {"enabled": False}
    labels = {k: v for k, v in vars(config.labels).items() if k not in _NOT_INPUTS}
    files = trajectory_files(config.labels.trajectories)
    judge = {
        "kind": config.judge.kind,
        "params": _judge_identity(config.judge.params),
        "version": _judge(config, places).open().version,
        "second": config.judge.second,
    }
    return {
        "labels": labels,
        "mining": MINING_VERSION,
        "judge": judge,
        "tokenizer": _tokenizer_identity(config),
        "trajectories": [file_content(path) for path in files],
        "instances": [
            file_content(Path(path).expanduser()) for path in config.labels.instances if Path(path).is_file()
        ],
        "issues": prepared.fingerprint if prepared else "",
        "excluded": [sorted(excluded) for excluded in _excluded(config, prepared)],
    }


def run(
    config: Config,
    places: Places,
    artifact: Artifact,
    tracker: Tracker,
    progress: Progress,
    prepared: Prepared | None = None,
) -> dict[str, Any]:
    """Import, mine and judge shard by shard, then weights, targets, and the data card."""
    if not config.labels.enabled:
        progress.say("  off: gold files are those of the patches")
        return {"enabled": False}
    started = time.monotonic()
    gold = _gold(config.labels, prepared)
    shards, quarantine = _shards(config.labels, places, progress)
    files = ShardFiles(str(artifact.folder / "shards"))
    repositories, instances = _excluded(config, prepared)
    settings = mining_settings(config.labels, repositories, instances)
    quarantine += _mine(config, places, progress, shards, settings, files)
    record = _total(shards, files)
    quarantine += record.quarantine
    artifact.write_json("quarantine.json", quarantine)
    lost, share = sum(record.errors.values()), config.judge.max_error_share
    if lost > share * max(1, record.judged):
        first = record.errors.most_common(1)[0][0]
        raise InfrastructureError(
            f"the judge gave no verdict on {lost} of {record.judged} files ({first})",
            "The same command asks again only for those; judge.max_error_share is the share that is let pass",
        )
    progress.say("  weights and targets")
    targets = make_targets(
        shards,
        files,
        gold.by_instance,
        artifact.folder / SAMPLES,
        min_tokens=config.labels.min_tokens,
        min_weight=config.labels.min_weight,
        weights_over=config.labels.weights_over,
        count_empty=config.labels.count_empty,
        granularity=config.labels.granularity,
    )
    if not targets.samples:
        raise DataError(
            f"no sample is left of {record.rows} trajectories ({dict(targets.filters.trajectories)})",
            "Check labels.instances, and the funnel in the artifact's quarantine.json and shards",
        )
    usable = _training_targets(config, places, prepared, artifact, targets)
    report = stage_report.write(
        config, places, prepared, artifact, shards, files, record, targets, gold, len(quarantine), usable
    )
    stage_report.log(tracker, artifact)
    progress.say(f"  {report['samples']} samples of {report['issues']} issues in {time.monotonic() - started:.0f} s")
    progress.say(f"  Samples, card and spot check: {artifact.folder}")
    return report


def already(config: Config, artifact: Artifact, tracker: Tracker) -> None:
    """Log again what a finished stage found."""
    if config.labels.enabled:
        stage_report.log(tracker, artifact)


def mining_settings(
    labels: LabelsConfig, repositories: frozenset[str] = frozenset(), instances: frozenset[str] = frozenset()
) -> MiningSettings:
    """Return the configuration as the miner takes it."""
    paths = PathRules(tuple(labels.workspaces), tuple(labels.documents), tuple(labels.suffixes), labels.tests)
    rules = ReadRules(
        editors=tuple(labels.editors),
        shells=tuple(labels.shells),
        shell_readers=tuple(labels.shell_readers),
        drop_created=labels.drop_created,
        think=labels.think_tool,
        paths=paths,
    )
    return MiningSettings(
        rules=rules,
        with_thought=labels.with_thought,
        min_tokens=labels.min_tokens,
        exclude_repositories=repositories,
        exclude_instances=instances,
        only_resolved=labels.only_resolved,
    )


def _judge(config: Config, places: Places) -> JudgeChoice:
    """Return the configured judge; its answers are cached under outputs, for all runs."""
    judge = config.judge
    cache = str(places.outputs / "judge_answers")
    return JudgeChoice(judge.kind, judge.params, judge.where, max(1, judge.actors), cache)


def _excluded(config: Config, prepared: Prepared | None) -> tuple[frozenset[str], frozenset[str]]:
    """Repositories (lower case) and instances that no label may come from: what the experiment is evaluated on."""
    split = config.data.split
    roles = [name for name in split.held_out if "/" not in name]
    repositories = known_roles().named([*roles, *(EVALUATION if split.enforce_roles else ())])
    repositories |= {repo.lower() for repo in (*config.labels.exclude_repositories, *split.held_out)}
    instances: set[str] = set()
    if prepared is not None:
        instances = {issue.instance_id for issue in prepared.held_out}
        if split.by == "repository":
            repositories |= {issue.repo.lower() for issue in prepared.held_out}
        if split.enforce_roles:  # forks and renamed copies among them
            repositories |= {repo.lower() for repo, role in prepared.roles.items() if role in EVALUATION}
    return repositories, frozenset(instances)


def _gold(labels: LabelsConfig, prepared: Prepared | None) -> GoldPatches:
    if labels.instances:
        return from_file(labels.instances, suffixes=labels.gold_suffixes, tests=labels.gold_tests)
    if prepared is None:
        raise DataError("labels.instances is empty and no issues are prepared", "Add prepare to stages=[…]")
    return from_issues(prepared.train)


def _shards(labels: LabelsConfig, places: Places, progress: Progress) -> tuple[list[Shard], list[dict[str, str]]]:
    """Shards of all files; files of other forms are imported first. A file that cannot be read is quarantined."""
    folder = places.outputs / "imported_trajectories"
    shards: list[Shard] = []
    quarantine: list[dict[str, str]] = []
    paths = trajectory_files(labels.trajectories)
    with progress.bar("files", len(paths)) as advance:
        for path in paths:

            def told(row: int, name: str = path.name, advance: Advance = advance) -> None:
                advance(0, f"{name} row {row}")

            try:
                made, bad = imported(path, file_content(path), folder, labels.format, told)
                quarantine += bad
                shards += shards_of(made, len(shards))
            except Exception as error:
                if not _unreadable(error):
                    raise
                quarantine.append({"where": path.name, "reason": str(error)[:300]})
            advance(1)
    if not shards:
        first = f": {quarantine[0]['where']}: {quarantine[0]['reason']}" if quarantine else ""
        raise DataError(f"no trajectory can be read{first}", "Check labels.trajectories and labels.format")
    return shards, quarantine


def _unreadable(error: Exception) -> bool:
    import pyarrow as pa

    if isinstance(error, DataError):
        return "labels.format" not in error.what
    return isinstance(error, pa.ArrowException)


def _mine(
    config: Config,
    places: Places,
    progress: Progress,
    shards: Sequence[Shard],
    settings: MiningSettings,
    files: ShardFiles,
) -> list[dict[str, str]]:
    judge = _judge(config, places)
    opened = judge.open()  # a wrong parameter or tokenizer shows here, and not in a worker
    open_counter(_tokenizer(config))
    todo = [shard for shard in shards if not files.done(shard)]
    total, done = sum(shard.rows for shard in shards), sum(s.rows for s in shards) - sum(s.rows for s in todo)
    quarantine: list[dict[str, str]] = []
    with progress.bar("trajectories", total, done) as advance:
        ended = mine_shards(todo, settings, _tokenizer(config), files, judge, config.labels.workers)
        for shard, reason in ended:
            if reason:
                quarantine.append({"where": shard.where, "reason": reason})
                progress.say(f"  quarantined {shard.where}: {reason}")
            advance(shard.rows)
        if judge.where == "driver":
            for _ in judged_by_driver(todo, files, opened, settings.min_tokens):
                advance(0)
    return quarantine


def _total(shards: Sequence[Shard], files: ShardFiles) -> ShardRecord:
    total = ShardRecord()
    for shard in shards:
        if (record := files.read(shard)) is not None:
            total.add(record)
    return total


def _training_targets(
    config: Config, places: Places, prepared: Prepared | None, artifact: Artifact, targets: Targets
) -> dict[str, int]:
    """Targets of this experiment's training issues, without files that their base commit does not have."""
    counts = {"issues": 0, "samples": 0, "files_not_at_base": 0}
    kept: dict[str, list[list[str]]] = {}
    if prepared is not None:
        repositories = Repositories(places.clones, clone_timeout=config.sandbox.clone_timeout)
        by_repo: dict[str, list[Issue]] = {}
        for issue in prepared.train:
            if issue.instance_id in targets.by_issue:
                by_repo.setdefault(issue.repo, []).append(issue)
        for repo, issues in sorted(by_repo.items()):
            clone = repositories.ensure(repo, prepared.locations.get(repo))
            asked = {
                f"{issue.base_commit}:{path}"
                for issue in issues
                for files in targets.by_issue[issue.instance_id]
                for path in files
            }
            there = existing(clone, asked)
            for issue in issues:
                sets = []
                for files in targets.by_issue[issue.instance_id]:
                    found = [path for path in files if f"{issue.base_commit}:{path}" in there]
                    counts["files_not_at_base"] += len(files) - len(found)
                    # Gold files were at the base commit when the issue was prepared.
                    sets.append(sorted({*found, *issue.gold_files}))
                kept[issue.instance_id] = sets
                counts["samples"] += len(sets)
        counts["issues"] = len(kept)
    (artifact.folder / TRAINING_TARGETS).write_text(json.dumps(kept, sort_keys=True), encoding="utf-8")
    return counts


def _tokenizer(config: Config) -> str:
    return config.labels.tokenizer or str(base_model(config.model))


def _tokenizer_identity(config: Config) -> Any:
    model = config.model
    return config.labels.tokenizer or [model.path, model.revision]


def _judge_identity(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that change answers; addresses, keys and patience do not."""
    return {k: v for k, v in params.items() if k not in (*PATIENCE, "engines", "batch", "engine")}
