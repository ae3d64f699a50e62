"""Every entry of the catalogue is logged by the code that a run goes through, with a value worked out by hand.

Each room below makes the project's own code log and gives what it should have logged. An entry that no room logs fails
the last test; so does a metric that is logged and is in no entry.
"""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from codegrep.config import GuardRailsConfig, RailConfig
from codegrep.engines.weight_sync import FollowingReplicas, SharedModelEngine
from codegrep.issues.issue import Issue
from codegrep.judges.answer_judging import JudgedBatch
from codegrep.judges.answers import Judgement
from codegrep.lab import record
from codegrep.lab.measures import Component, DesignMeasures
from codegrep.labels import stage_report
from codegrep.metrics.retrieval import at_cuts
from codegrep.pipeline import checkpoint_selection, run
from codegrep.pipeline.collect import OpenPolicyCollector, OpenTrackedLog, PolicyCollector
from codegrep.pipeline.results import evaluation_rows
from codegrep.pipeline.stages import Stage, prepare, warm_start
from codegrep.pipeline.workers import AgentSettings
from codegrep.rewards.governance import MaskDecision
from codegrep.rewards.outcome import Outcome, RewardParts
from codegrep.rewards.signal import RolloutScore
from codegrep.runtime.artifacts import Places
from codegrep.runtime.progress import Progress
from codegrep.sandbox.measure import CallCounters, CallMeasure, summary
from codegrep.tracking import names
from codegrep.tracking.names import CATALOGUE, describe
from codegrep.tracking.system import SystemMetrics
from codegrep.training.callbacks import TimeLimit
from codegrep.training.guard_rails import GuardRails
from codegrep.training.score_batch import ScoredRollout
from codegrep.training.signal_metrics import judge_sums, signal_sums
from codegrep.training.step_metrics import add_up
from codegrep.training.warm_start import warm_start_names
from tests.chat_tokenizers import tiny_tokenizer
from tests.rollout.fakes import AGENT, ISSUE, TOOLS, MemorySandbox, SayingEngine
from tests.training.hand_made import first_group
from tests.training.made_rollouts import GRPO
from tests.training.metric_values import BY_THE_MODEL, REFILLED, SECONDS, STEP

Numbers = Mapping[str, float]


class Logged:
    """What a Tracker is asked to log, and nothing else of it."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.handle = SimpleNamespace(open=lambda: self, machine="", started=0.0)

    def metrics(self, values: Numbers, step: int) -> None:
        self.numbers.update(values)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def grpo(folder: Path) -> tuple[Numbers, Numbers]:
    """Compared in tests/training/test_metric_values.py, where the same tables are what a real step has to log."""
    made = {**STEP, **REFILLED, **dict.fromkeys((*BY_THE_MODEL, *SECONDS), 0.0)}
    return made, made


def turn_scores(folder: Path) -> tuple[Numbers, Numbers]:
    """Scores 1 and 0 of turns with 5 and 3 tokens, at A = 2: the mean is 5/8, the weights are 8/5 and 0."""
    issue = Issue("o__r-0", "o/r", "0" * 40, "", gold_files=("a.py", "b.py"))
    first, second = first_group(issue)[:2]

    def scored(rollout: Any, turn_scores: Any, status: Any) -> ScoredRollout:
        score = RolloutScore(MaskDecision("answer", "normal", (True, True), "own"), RewardParts(1.0), 1.0)
        outcome = Outcome(("a.py",), frozenset({"a.py"}))
        return ScoredRollout(rollout, outcome, score, True, tuple(rollout.loss_mask), turn_scores, status)

    both = [scored(first, (1.0, 0.0), "weighted"), scored(second, None, "invalid")]
    numbers = add_up([signal_sums(both, [2.0, -1.0], 0.1)])
    wanted = {
        "turn_scores/weighted": 1 / 2,
        "turn_scores/invalid": 1,
        "turn_scores/score": 5 / 8,
        "turn_scores/weight_max": 8 / 5,
    }
    assert numbers["advantage/mass"] == pytest.approx((2 * 8 + 1 * 7) / 15)
    return {name: value for name, value in numbers.items() if name.startswith("turn_scores/")}, wanted


def judge(folder: Path) -> tuple[Numbers, Numbers]:
    """Four rollouts: one not asked about, one found consistent from the cache, one not, one without an answer."""
    judgements = (None, Judgement(True, cached=True), Judgement(False), Judgement(None, "no answer"))
    numbers = add_up([judge_sums(JudgedBatch(judgements, 1.5, requests=5, tokens=70))])
    return numbers, {
        "judge/rollouts": 3,
        "judge/consistent": 1 / 2,
        "judge/cache_hits": 1 / 3,
        "judge/failed": 1,
        "judge/failed_share": 1 / 3,
        "judge/requests": 5,
        "judge/tokens": 70,
    }


def guard(folder: Path) -> tuple[Numbers, Numbers]:
    rails = {"kl": RailConfig("policy/kl", above=0.3), "length": RailConfig("completions/generated", above=9.0)}
    made = GuardRails(GuardRailsConfig(1, rails), dict, TimeLimit(0), lambda alarm: None)
    state: Any = SimpleNamespace(global_step=1, is_world_process_zero=True)
    made.on_log(None, state, None, {"loss": 0.0, "policy/kl": 0.31, "completions/generated": 9.0})  # type: ignore[arg-type]
    return made.metrics(), {"guard/kl": 1, "guard/length": 0}


class Remote:
    """Replicas whose weights are those of the step that was sent last."""

    weights_version, counts = 2, {"retries": 4, "restarts": 1}

    async def wake(self) -> None:
        pass

    async def sync(self, package: int) -> None:
        self.weights_version = package


def engine(folder: Path) -> tuple[Numbers, Numbers]:
    """Sent at step 3; two steps later these weights are two updates behind, which is allowed here."""
    sync: Any = SimpleNamespace(max_staleness=2)
    replicas = FollowingReplicas(Remote(), lambda step: step, sync)  # type: ignore[arg-type, return-value]
    assert 0 < asyncio.run(replicas.follow(3))["engine/sync_seconds"] < 1
    assert asyncio.run(SharedModelEngine(SimpleNamespace()).follow(3)) == {  # type: ignore[arg-type]
        "engine/weights_version": 3,
        "engine/staleness": 0,
    }
    return asyncio.run(replicas.follow(5)), {
        "engine/weights_version": 3,
        "engine/staleness": 2,
        "engine/sync_seconds": 0,
        "engine/retries": 4,
        "engine/restarts": 1,
    }


def odd_tokens(folder: Path) -> tuple[Numbers, Numbers]:
    """Two rollouts of one turn each, which say that they stopped and hold no token that ends a turn."""

    class Open(SayingEngine):
        async def follow(self, step: int) -> dict[str, float]:
            return {}

        async def rest(self) -> None:
            pass

        async def generate(self, request: Any) -> Any:
            return replace(await super().generate(request), finish_reason="stop")

    tokenizer = tiny_tokenizer()
    handle: Any = SimpleNamespace(follow=lambda policy: Open(policy.chat, lambda turn: "what a file", stop=False))
    settings = AgentSettings(replace(AGENT, exploration_turns=1), TOOLS, 4000)
    from codegrep.protocol.chat import ChatFormat

    policy: Any = SimpleNamespace(tokenizer=tokenizer, rank=0, chat=ChatFormat(tokenizer))
    options = OpenPolicyCollector(settings, handle, GRPO, MemorySandbox(), str(folder), 0)  # type: ignore[arg-type]
    collector = PolicyCollector(policy, options)
    collector.collect([ISSUE], 2, 0)
    numbers = collector.metrics()
    collector.close()
    kinds = ("stop_inside", "not_closed", "control_inside", "retokenised")
    return numbers, {f"errors/tokens_{kind}": 2.0 * (kind == "not_closed") for kind in kinds}


def sandbox(folder: Path) -> tuple[Numbers, Numbers]:
    """Four calls; latencies are buckets of a fifth, so 0.01 s and 2 s are read as the middle of theirs."""

    def bucket(seconds: float) -> float:
        return 1e-5 * 1.2 ** (int(log(seconds / 1e-5) / log(1.2)) + 0.5)

    counters = CallCounters()
    for seconds, status, timed_out in ((0.01, "ok", False),) * 3 + ((2.0, "infrastructure", True),):
        counters.add(CallMeasure("grep", status, seconds, 0.5, "run", timed_out, 100))
    cache = {"cache/hits": 1, "cache/shared": 1, "cache/misses": 3}
    others = {"worktrees/adds": 2}
    return summary(counters.totals() | cache | others), {
        "sandbox/calls": 4,
        "sandbox/p50": bucket(0.01),
        "sandbox/p95": bucket(2.0),
        "sandbox/p99": bucket(2.0),
        "sandbox/queue": 0.5,
        "sandbox/timeouts": 1,
        "sandbox/faults": 1,
        "sandbox/bytes": 400,
        "sandbox/worktrees_made": 2,
        "sandbox/cache_hits": 2 / 5,
    }


def of_the_trainer(folder: Path) -> tuple[Numbers, Numbers]:
    return names.from_trl({"train_runtime": 2.5, "step_time": 1.5}), {"seconds/train": 2.5, "seconds/step": 1.5}


def cpu(folder: Path) -> tuple[Numbers, Numbers]:
    """The clock of the process is at 10 s when the log is opened and at 13 s after the first step."""
    logged, clock = Logged(), iter([10.0, 13.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "process_time", lambda: next(clock))
        OpenTrackedLog(logged.handle, str(folder / "step"))()(1, {})  # type: ignore[arg-type]
    return logged.numbers, {"seconds/cpu": 3.0}


def stages(folder: Path) -> tuple[Numbers, Numbers]:
    """One stage that takes 2 s by the clock."""
    logged, clock = Logged(), iter([1.0, 3.0])
    stage: Any = SimpleNamespace(inputs=lambda: {}, run=lambda artifact: {})
    artifact: Any = SimpleNamespace(complete=False, finish=lambda made: None, fingerprint="f" * 12)
    store: Any = SimpleNamespace(open=lambda name, inputs: artifact)
    config: Any = SimpleNamespace(stages=["prepare"])
    one = run.Run(config, Places(folder), folder, store, logged, Progress(Console(file=io.StringIO())))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as cluster:
        patch.setitem(sys.modules, "one_stage", stage)
        patch.setattr(run, "STAGES", {"prepare": Stage("one_stage")})
        patch.setattr(time, "monotonic", lambda: next(clock))
        run._run_stages(one, cluster)
    return logged.numbers, {"seconds/stage_prepare": 2.0}


def whole_run(folder: Path) -> tuple[Numbers, Numbers]:
    """A block of 4 s by the clock."""
    from tests.sweeps.composed import composed

    logged, clock = Logged(), iter([1.0, 5.0])
    places: Any = SimpleNamespace(outputs=folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.Tracker, "start", lambda **kwargs: logged)
        patch.setattr(run, "SystemMetrics", lambda *args, **kwargs: ExitStack())
        patch.setattr(run.time, "monotonic", lambda: next(clock))
        with run._recorded(composed(), "v3", places, folder):
            pass
    return logged.numbers, {"seconds/run": 4.0}


def checkpoints(folder: Path) -> tuple[Numbers, Numbers]:
    """A training of two steps, measured after the second."""
    logged = Logged()
    train = SimpleNamespace(grpo=SimpleNamespace(steps=2), checkpoint_selection=SimpleNamespace(every=2))
    one = checkpoint_selection.MeasuredCheckpoint(2, 0.375, 8, 0, "a")
    nothing: Any = None
    selection = checkpoint_selection.CheckpointSelection(
        config=SimpleNamespace(train=train),  # type: ignore[arg-type]
        prepared=nothing,
        model=folder,
        artifact=SimpleNamespace(folder=folder),  # type: ignore[arg-type]
        run_folder=folder,
        tracker=logged,  # type: ignore[arg-type]
        progress=Progress(Console(file=io.StringIO())),
        sandboxes=nothing,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_selection, "selection_issues", lambda config, prepared: [])
        patch.setattr(checkpoint_selection.CheckpointSelection, "_measure", lambda *args: one)
        last: Any = SimpleNamespace(step=2, adapter=folder, stopped="")
        selection.train(lambda step: last)
    return logged.numbers, {"checkpoint/f05": 0.375}


def system(folder: Path) -> tuple[Numbers, Numbers]:
    """A monitor that reads 7, here and on another machine."""
    monitor = SimpleNamespace(
        collect_metrics=lambda: None, aggregate_metrics=lambda: {"gauge": 7}, clear_metrics=lambda: None
    )
    logged = Logged()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codegrep.tracking.system._monitors", lambda: [monitor])
        for node in ("", "node_1a2b"):
            with SystemMetrics(logged, 0.01, node=node):  # type: ignore[arg-type]
                limit = time.monotonic() + 30
                while not any(node in name for name in logged.numbers) and time.monotonic() < limit:
                    time.sleep(0.01)
    return logged.numbers, {"system/gauge": 7, "system/node_1a2b/gauge": 7}


def sft(folder: Path) -> tuple[Numbers, Numbers]:
    """Their values are compared in tests/training/test_warm_start.py."""
    logs = {"loss": 2.0, "grad_norm": 0.5, "learning_rate": 1e-3, "epoch": 0.25, "passes": 1.5}
    made = warm_start_names(logs | {"tokens_per_second": 100.0, "weight_mean": 0.7})
    values = {"loss": 2.0, "grad_norm": 0.5, "learning_rate": 1e-3, "epoch": 1.5}
    values |= {"tokens_per_second": 100.0, "weight_mean": 0.7}
    return made, {f"warm_start/{name}": value for name, value in values.items()}


def data(folder: Path) -> tuple[Numbers, Numbers]:
    logged = Logged()
    tracker: Any = logged
    artifact: Any = SimpleNamespace(
        fingerprint="f" * 12, folder=folder, complete=True, summary={"rollouts": 9, "found_gold": 4}
    )
    counts = {"train": 30, "held_out": 10, "repositories": 5, "dropped": 2}
    prepare._log(tracker, {**counts, "split": "s"}, artifact)
    warm_start._log_demonstrations(tracker, artifact)
    wanted = {f"data/{name}": count for name, count in counts.items()}
    return logged.numbers, {**wanted, "data/demonstrations": 9, "data/demonstrations_with_gold": 4}


def labels(folder: Path) -> tuple[Numbers, Numbers]:
    made = {
        "trajectories": 20,
        "excluded": {"held_out": 3, "no_id": 1},
        "reads": 50,
        "dropped": {"outside": 4, "failed": 2},
        "odd_arguments": {"no_path": 1, "two_paths": 2},
        "candidates": 40,
        "files": {"kept": 12, "short": 28},
        "samples": 8,
        "issues": 6,
        "retention": 8 / 16,
        "beta": 25,
        "mean_raw_weight": 0.5,
        "target_files": 1.5,
        "mined_files": 0.25,
        "quarantined": 1,
        "judge_usage": {"requests": 11, "cached": 5},
        "judge_errors": {"timeout": 1, "unreadable": 1},
        "agreement": {"kappa": 0.6},
        "judge": "rules",
    }
    logged = Logged()
    artifact: Any = SimpleNamespace(read_json=lambda name: made, fingerprint="f" * 12, folder=folder)
    tracker: Any = logged
    stage_report.log(tracker, artifact)
    same = ("trajectories", "reads", "candidates", "samples", "issues", "retention", "beta", "mean_raw_weight")
    wanted = {f"label/{name}": made[name] for name in (*same, "target_files", "mined_files", "quarantined")}
    return logged.numbers, {
        **wanted,  # type: ignore[dict-item]
        "label/excluded": 4,
        "label/reads_dropped": 6,
        "label/odd_arguments": 3,
        "label/files_kept": 12,
        "label/files_short": 28,
        "label/judge_requests": 11,
        "label/judge_cached": 5,
        "label/judge_errors": 2,
        "label/judge_kappa": 0.6,
    }


def held_out(folder: Path) -> tuple[Numbers, Numbers]:
    """Three issues with F0.5 of 1, 1 and 0.25; resampling with one draw gives some interval around the mean."""

    def row(number: int, f05: float) -> dict[str, Any]:
        return {
            "retriever": "BM25 top-1",
            "instance_id": f"i{number}",
            "repo": "o/r",
            "f05": f05,
            "f1": f05 / 2,
            "f05_top1": f05 / 4,
            "precision": f05,
            "recall": 0.5,
            "hit": 1.0,
            "good": float(f05 >= 0.8),
            "files": 1 + number,
            "turns": 2,
            "calls": number,
            "generated_tokens": 100 * number,
            "seconds_per_issue": 0.5,
            "latency_seconds": 3.0 if number == 0 else None,
            "query_seconds": (0.1, 0.2, 0.3)[number],
            "index_seconds": 2.0,
            "index_bytes": 1000,
            **at_cuts(["a.py", "b.py"], {"b.py"}),
            "f05_mined": f05 if number else None,
            "line_f05": f05 if number else None,
            "class_f1": 0.5 if number == 1 else None,
            "function_f1": 0.25,
        }

    (line,) = evaluation_rows([row(0, 1.0), row(1, 1.0), row(2, 0.25)], 50)
    wanted = {
        "issues": 3,
        "f05_mean": 0.75,
        "f05_low": line.f05_low,  # tests/metrics/test_bootstrap.py
        "f05_high": line.f05_high,
        "f05_median": 1.0,
        "f1": 0.375,
        "f05_top1": 0.1875,
        "hit": 1.0,
        "precision": 0.75,
        "recall": 0.5,
        "share_08": 2 / 3,
        "files": 2,
        "turns": 2,
        "calls": 1,
        "tokens": 100,
        "seconds_per_issue": 0.5,
        "repositories": 1,
        "latency_seconds": 3.0,
        "latency_issues": 1,
        "query_seconds_p50": 0.2,
        "query_seconds_p95": 0.29,
        "index_seconds": 2.0,
        "index_bytes": 1000,
        **{f"hit_at_{k}": float(k > 1) for k in (1, 5, 10, 20)},
        **{f"recall_at_{k}": float(k > 1) for k in (1, 5, 10, 20)},
        **{f"precision_at_{k}": float(k > 1) / k for k in (1, 5, 10, 20)},
        "f05_mined": 0.625,
        "f05_mined_low": line.f05_mined_low,
        "f05_mined_high": line.f05_mined_high,
        "mined_issues": 2,
        "line_f05": 0.625,
        "line_issues": 2,
        "class_f1": 0.5,
        "class_issues": 1,
        "function_f1": 0.25,
        "function_issues": 3,
    }
    assert line.f05_low is not None and line.f05_high is not None and line.f05_low <= 0.75 <= line.f05_high
    return line.metrics(), {f"eval/bm25_top-1/{name}": value for name, value in wanted.items()}  # type: ignore[misc]


def replayed(folder: Path) -> tuple[Numbers, Numbers]:
    """What is not a number is not logged."""
    values = (0.5, 0.25, 0.125, 0.0, 1.0, 0.75, 0.5, 0.9, -0.1)
    keys = dict(zip(record._NUMBERS, values, strict=True))
    keys["bias"] = float("nan")
    measures = DesignMeasures(
        "v3", "file F", 8, 8, 0, groups=2, components=(Component("file_f", 0.5, 0.8, 0.1),), pushes={"tokens": -0.5},
        **keys,
    )  # fmt: skip
    logged = Logged()
    replay: Any = SimpleNamespace(designs=[measures], agreements=[])
    drawn: Any = SimpleNamespace(distributions=None, pushes=None, update_mass=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record.Tracker, "start", lambda *args: logged)
        for name in vars(drawn):
            patch.setattr(f"codegrep.lab.figures.{name}", lambda replay: None)
        record.log_replay(replay, [], "", [], "", folder / "id", "")
    wanted = {f"replay/v3/{name}": value for name, value in keys.items() if name != "bias"}
    return logged.numbers, {**wanted, "replay/v3/push_tokens": -0.5, "replay/v3/share_file_f": 0.8}


ROOMS = (
    grpo, turn_scores, judge, guard, engine, odd_tokens, sandbox, of_the_trainer, cpu, stages, whole_run, checkpoints,
    system,
    sft, data, labels, held_out, replayed,
)  # fmt: skip


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_what_is_logged_is_what_was_worked_out_and_has_an_entry(
    room: Callable[[Path], tuple[Numbers, Numbers]], tmp_path: Path
) -> None:
    logged, wanted = room(tmp_path)
    assert logged == pytest.approx(wanted)
    assert not [name for name in wanted if describe(name) is None]


def test_every_entry_is_logged_by_something(tmp_path: Path) -> None:
    every = {name for room in ROOMS for name in room(tmp_path)[1]}
    found = {entry.name for name in every if (entry := describe(name)) is not None}
    assert {metric.name for metric in CATALOGUE} - found == set()


def test_every_entry_has_a_unit_or_is_of_several() -> None:
    several = {name for name in (metric.name for metric in CATALOGUE if not metric.unit) if "<" not in name}
    assert several == set()
