"""Every metric that the project logs: its name, unit, meaning and where it comes from. Pure; the one place for names.

Names are paths, `<room>/<what>`, so that MLflow groups them into one section a room. A part in angle brackets stands
for any name that a user gives (a reward part, a retriever).

Of a GRPO step, reward/, rollout/, group/, completions/ and errors/ describe every rollout that was drawn. Where dropped
groups are refilled, kept/ describes those that the step trains on in the same way. advantage/, masked/, turn_scores/
and policy/ are about what it trains on. A rollout is lost when the machine failed it or its prompt exceeds the context.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_NAME = 250  # MLflow's limit for a metric name, characters


@dataclass(frozen=True)
class Metric:
    """One entry of the catalogue.

    Attributes:
        name: as logged; `<x>` stands for a name that is only known in a run.
        unit: what the numbers are measured in; "1" for a share or a score in [0, 1].
        meaning: one sentence.
        trl: the key of the trainer's logs that it is taken from; "" where the project computes it.
    """

    name: str
    unit: str
    meaning: str
    trl: str = ""


CATALOGUE: tuple[Metric, ...] = (
    Metric("reward/total", "reward", "mean reward of the rollouts that have one"),
    Metric("reward/<part>", "reward", "mean of one part of the reward (file or line score); lost rollouts left out"),
    Metric("kept/<room>/<measure>", "", "the same of the groups trained on; with train.grpo.refill_rounds"),
    Metric("advantage/factor", "1", "mean factor s of the advantages (CodeGrep eq 6 and 8) of rollouts with a reward"),
    Metric("advantage/mean_abs", "advantage", "mean absolute advantage after the factor, of rollouts with a reward"),
    Metric("advantage/positive_rate", "1", "share of rollouts with a reward whose advantage is positive"),
    Metric(
        "advantage/mass",
        "advantage",
        "effective update mass: |advantage| times turn weight, over sampled tokens; masked tokens have 0",
    ),
    Metric(
        "masked/<cause>", "rollouts", "rollouts that governance masked for this cause, whole or in part, in the step"
    ),
    Metric("masked/dead_group", "rollouts", "rollouts left out of the loss since their group has no spread"),
    Metric("masked/tokens", "1", "share of sampled tokens that are not in the loss"),
    Metric("turn_scores/weighted", "1", "share of rollouts whose turns were scored and weighted (arXiv 2605.07276)"),
    Metric("turn_scores/invalid", "rollouts", "rollouts whose turn scores could not be used, in the step"),
    Metric("turn_scores/score", "1", "turn score, mean over scored tokens"),
    Metric("turn_scores/weight_max", "1", "largest turn weight of a scored rollout, mean"),
    Metric("judge/rollouts", "rollouts", "rollouts whose reward needed a judge, in the step"),
    Metric("judge/consistent", "1", "share of the judgements that found an answer consistent with the reference"),
    Metric("judge/cache_hits", "1", "share of those rollouts whose answer had been judged before"),
    Metric("judge/failed", "rollouts", "rollouts that needed a judgement and got none, in the step"),
    Metric("judge/failed_share", "1", "their share of the rollouts that needed one"),
    Metric("judge/requests", "requests", "requests to the judge, tries again included, in the step"),
    Metric("judge/tokens", "tokens", "tokens of the judge's questions and answers, as its server counts, in the step"),
    Metric("judge/seconds", "s", "wall time of asking the judge in the step, mean over training workers"),
    Metric("group/scored", "rollouts", "rollouts of a group that have a reward, mean"),
    Metric(
        "group/drawn", "groups", "groups that were sampled in the step, those in the place of dropped ones included"
    ),
    Metric("group/refilled", "groups", "dropped groups whose place a living group of another issue took, in the step"),
    Metric("group/reward_range", "reward", "largest minus smallest reward of a group, mean"),
    Metric("group/dead_rate", "1", "share of groups without two different rewards: no signal"),
    Metric("group/reward_std", "reward", "standard deviation (n - 1) within a group, mean over groups"),
    Metric("group/best", "1", "best F0.5 of the rollouts of a group that have a reward, mean over groups"),
    Metric("policy/kl", "nats/token", "k3 estimate of KL(policy || reference), mean over the tokens in the loss"),
    Metric("policy/entropy", "nats/token", "entropy of the policy, mean over the tokens in the loss"),
    Metric("policy/clip_ratio_low", "1", "share of the tokens in the loss clipped below (PPO region)"),
    Metric("policy/clip_ratio_high", "1", "share of the tokens in the loss clipped above (PPO region)"),
    Metric("policy/clip_ratio_region", "1", "share of the tokens in the loss clipped at all (PPO region)"),
    Metric(
        "policy/logprob_gap",
        "nats/token",
        "mean |log-probability at sampling - at training|; far from 0 when the engine's weights are stale",
    ),
    Metric("policy/logprob_gap_max", "nats/token", "largest such gap of the step"),
    Metric(
        "policy/ess",
        "1",
        "effective sample size of the ratios of trainer to engine, as a share of the tokens; 1 when they agree",
    ),
    Metric("policy/importance_ratio", "1", "mean ratio of trainer to engine of a token"),
    Metric("policy/sequence_ratio", "1", "ratio of trainer to sampler over a whole rollout, mean (SWE-grep)"),
    Metric("policy/sequence_masked", "1", "share of rollouts without policy term, their ratio being extreme"),
    Metric("guard/<rail>", "1", "1 while the guard rail's limit is passed, else 0"),
    Metric("completions/mean_length", "tokens", "mean completion, tool text included; lost rollouts left out"),
    Metric("completions/generated", "tokens", "sampled tokens of a rollout, tool text left out, mean; lost ones out"),
    Metric("completions/sampled", "tokens", "sampled tokens of the step, of lost rollouts too"),
    Metric(
        "completions/clipped_ratio",
        "1",
        "share of rollouts, lost ones left out, that ran out of tokens or context (the paper's 'clipping ratio'; not "
        "PPO's)",
    ),
    Metric("optim/loss", "loss", "loss of the step", "loss"),
    Metric("optim/grad_norm", "norm", "gradient norm before clipping", "grad_norm"),
    Metric("optim/learning_rate", "1/step", "learning rate of the step", "learning_rate"),
    Metric("optim/epoch", "epochs", "scheduled issues so far by training issues; refilled ones are not counted"),
    Metric("optim/tokens", "tokens", "prompt and completion tokens, tool text too, that the step was trained on"),
    Metric("rollout/turns", "turns", "assistant messages of a rollout, mean"),
    Metric("rollout/tool_turns", "turns", "turns with at least one executed call, mean"),
    Metric("rollout/calls_per_turn", "calls/turn", "executed calls by turns that issued one, mean over rollouts"),
    Metric("rollout/calls", "calls", "executed calls of a rollout, mean"),
    Metric("rollout/duplicate_calls", "1", "share of calls that repeat an earlier call of the same rollout"),
    Metric("rollout/f05", "1", "file F0.5 of the answers, mean"),
    Metric("rollout/precision", "1", "file precision of the answers, mean"),
    Metric("rollout/recall", "1", "file recall of the answers, mean"),
    Metric("rollout/files", "files", "files of an answer, mean"),
    Metric("rollout/answered", "1", "share of rollouts with a readable answer"),
    Metric("rollout/exit_<cause>", "1", "share of rollouts that ended for this cause"),
    Metric("errors/parse", "1", "malformed calls by all calls"),
    Metric("errors/infrastructure", "rollouts", "rollouts lost by the machine's fault in the step"),
    Metric("errors/refused_calls", "calls", "calls beyond the cap of a turn, in the step"),
    Metric("sandbox/calls", "calls", "tool calls answered in the step, from the cache too, refused ones left out"),
    Metric("sandbox/p50", "s", "median latency of a call, waiting included (within 20 %)"),
    Metric("sandbox/p95", "s", "95th percentile of the latency of a call"),
    Metric("sandbox/p99", "s", "99th percentile of the latency of a call"),
    Metric("sandbox/queue", "s", "mean time that a call waited for one of the places (tools.concurrency)"),
    Metric("sandbox/timeouts", "calls", "calls that met their deadline in the step"),
    Metric("sandbox/faults", "calls", "calls that the machine failed in the step"),
    Metric("sandbox/cache_hits", "1", "share of calls whose answer was known or being computed"),
    Metric("sandbox/bytes", "B", "text of all results in the step"),
    Metric("sandbox/worktrees_made", "worktrees", "worktrees added in the step"),
    Metric("errors/tokens_<kind>", "turns", "turns whose tokens are odd in this way, in the step"),
    Metric("engine/weights_version", "step", "optimiser step whose weights the step's rollouts were sampled with"),
    Metric("engine/staleness", "steps", "how many updates these weights were behind"),
    Metric("engine/sync_seconds", "s", "wall time of sending the adapter to every replica and comparing checksums"),
    Metric("engine/retries", "requests", "requests that were asked again since the start of this worker"),
    Metric("engine/restarts", "replicas", "replicas that were restarted since the start of this worker"),
    Metric("seconds/generation", "s", "wall time of token generation in the step"),
    Metric("seconds/rollouts", "s", "wall time of the step's rollouts, generation and tools"),
    Metric("seconds/tools", "s", "wall time of tool calls in the step"),
    Metric("seconds/scoring", "s", "wall time of rewards, judgements and turn scores in the step"),
    Metric("seconds/reference", "s", "wall time of reference log-probabilities in the step"),
    Metric("seconds/update", "s", "wall time of forward, backward and optimiser in the step"),
    Metric("seconds/step", "s", "wall time of the whole step", "step_time"),
    Metric("seconds/cpu", "CPU s", "CPU time of the training worker (rank 0, all its threads) in the step"),
    Metric("seconds/stage_<stage>", "s", "wall time of one stage of the experiment"),
    Metric("seconds/run", "s", "wall time of this process's part of the run"),
    Metric("seconds/train", "s", "wall time of the whole training", "train_runtime"),
    Metric("checkpoint/f05", "1", "mean file F0.5 of a checkpoint on the issues that choose the best one"),
    Metric("system/<measure>", "", "use of the driver's machine; in the unit that ends its name"),
    Metric("system/<node>/<measure>", "", "use of another machine of the run; in the unit that ends its name"),
    Metric("warm_start/loss", "nats/token", "weighted cross-entropy on sampled tokens (colgrep, arXiv 2610.05099)"),
    Metric("warm_start/grad_norm", "norm", "gradient norm before clipping"),
    Metric("warm_start/learning_rate", "1/step", "learning rate of the step"),
    Metric("warm_start/tokens_per_second", "tokens/s", "training throughput, padding left out"),
    Metric("warm_start/weight_mean", "1", "mean turn weight of the step's tokens (colgrep, arXiv 2610.05099)"),
    Metric("warm_start/epoch", "epochs", "passes over the trajectories"),
    Metric("data/<count>", "issues", "how many issues, repositories, dropped rows or demonstrations there are"),
    Metric("label/trajectories", "trajectories", "agent trajectories that were looked at"),
    Metric("label/excluded", "trajectories", "left out before mining: held-out repositories and issues, no id"),
    Metric("label/reads", "calls", "file reads that showed a file of the repository"),
    Metric("label/reads_dropped", "calls", "file reads left out, for all reasons together"),
    Metric("label/odd_arguments", "calls", "odd arguments of read calls; the reads stay"),
    Metric("label/candidates", "files", "files read, counted once a trajectory"),
    Metric("label/files_<filter>", "files", "candidates that ended at this filter, or survived all"),
    Metric("label/samples", "samples", "training samples"),
    Metric("label/issues", "issues", "issues with at least one sample"),
    Metric("label/retention", "1", "samples by trajectories that were mined (CodeGrep: 0.477)"),
    Metric("label/beta", "tokens", "median length of post-reasoning: the half-life of the weights"),
    Metric("label/mean_raw_weight", "1", "mean weight before normalising"),
    Metric("label/target_files", "files", "files of a target set, mean"),
    Metric("label/mined_files", "files", "files of a target set that the gold patch does not have, mean"),
    Metric("label/quarantined", "rows", "rows and shards that could not be used"),
    Metric("label/judge_<measure>", "", "requests, retries, cached answers, tokens, errors; agreement of two judges"),
    Metric("eval/<retriever>/f05_mean", "1", "mean file F0.5 on held-out issues"),
    Metric("eval/<retriever>/f05_low", "1", "lower end of its 95% bootstrap interval over repositories and issues"),
    Metric("eval/<retriever>/f05_high", "1", "upper end of its 95% bootstrap interval over repositories and issues"),
    Metric("eval/<retriever>/f05_median", "1", "median file F0.5"),
    Metric("eval/<retriever>/f05_top1", "1", "mean file F0.5 of the first file alone"),
    Metric("eval/<retriever>/f1", "1", "mean file F1"),
    Metric("eval/<retriever>/precision", "1", "mean file precision"),
    Metric("eval/<retriever>/recall", "1", "mean file recall"),
    Metric("eval/<retriever>/hit", "1", "share of issues with at least one gold file in the answer"),
    Metric("eval/<retriever>/hit_at_<k>", "1", "share of issues with a gold file among the first k of the ranking"),
    Metric("eval/<retriever>/recall_at_<k>", "1", "mean share of the gold files among the first k of the ranking"),
    Metric("eval/<retriever>/precision_at_<k>", "1", "mean of the gold files among the first k of the ranking, by k"),
    Metric("eval/<retriever>/share_08", "1", "share of issues with F0.5 >= 0.8"),
    Metric("eval/<retriever>/files", "files", "mean number of files answered"),
    Metric("eval/<retriever>/turns", "turns", "mean turns"),
    Metric("eval/<retriever>/calls", "calls", "mean executed calls"),
    Metric("eval/<retriever>/tokens", "tokens", "mean generated tokens"),
    Metric("eval/<retriever>/seconds_per_issue", "s", "wall time of the evaluation's blocks by issues: throughput"),
    Metric("eval/<retriever>/latency_seconds", "s", "mean latency of an issue that is answered alone"),
    Metric("eval/<retriever>/latency_issues", "issues", "issues that the latency was measured on"),
    Metric("eval/<retriever>/query_seconds_p50", "s", "median time of one query of a ranking, its index being there"),
    Metric("eval/<retriever>/query_seconds_p95", "s", "95th percentile of it"),
    Metric("eval/<retriever>/index_seconds", "s", "mean wall time of building the index of a tree"),
    Metric("eval/<retriever>/index_bytes", "B", "mean size of a tree's index in memory"),
    Metric("eval/<retriever>/f05_mined", "1", "mean file F0.5 against mined target sets"),
    Metric("eval/<retriever>/f05_mined_low", "1", "lower end of its 95% interval, as f05_low"),
    Metric("eval/<retriever>/f05_mined_high", "1", "upper end of its 95% interval, as f05_high"),
    Metric("eval/<retriever>/mined_issues", "issues", "held-out issues that have a mined target set"),
    Metric("eval/<retriever>/line_f05", "1", "mean line-range F0.5, where the prompt asks for lines and gold has some"),
    Metric("eval/<retriever>/line_issues", "issues", "issues whose gold has lines"),
    Metric("eval/<retriever>/class_f1", "1", "mean F1 of classes, where the prompt asks for them and gold has some"),
    Metric("eval/<retriever>/class_issues", "issues", "issues whose gold has classes"),
    Metric("eval/<retriever>/function_f1", "1", "mean F1 of functions, as for classes"),
    Metric("eval/<retriever>/function_issues", "issues", "issues whose gold has functions"),
    Metric("eval/<retriever>/issues", "issues", "held-out issues measured"),
    Metric("eval/<retriever>/repositories", "repositories", "repositories that these issues come from"),
    Metric("replay/<design>/<measure>", "", "one measure of a reward design on stored rollouts (codegrep.lab)"),
)

_ALLOWED = re.compile(r"[/\w.\- ]+", re.ASCII)  # what MLflow allows on every system (it adds ':' on some)


def is_allowed(name: str) -> bool:
    """Whether MLflow takes `name` as a metric, parameter or tag name on every system it runs on."""
    if not name or len(name) > MAX_NAME or not _ALLOWED.fullmatch(name):
        return False
    path = posixpath.normpath(name)
    return path == name and path != "." and not path.startswith(("..", "/"))


def segment(text: str) -> str:
    """`text` as one part of a metric name: 'BM25 top-1 (no tests)' becomes 'bm25_top-1_no_tests'.

    Different texts may meet in one name; callers choose labels that stay apart.
    """
    words = re.sub(r"[^0-9a-zA-Z.\-]+", "_", text).strip("_.-").lower()
    return words[:100].strip("_.-") or "unnamed"


def reward_part(part: str) -> str:
    """Name of one part of the reward. 'total' is taken, and gets an underscore."""
    name = segment(part)
    return f"reward/{name}_" if name == "total" else f"reward/{name}"


def evaluation(retriever: str, measure: str) -> str:
    """Name of one measure of one retriever on held-out issues."""
    return f"eval/{segment(retriever)}/{segment(measure)}"


def replayed(design: str, measure: str) -> str:
    """Name of one measure of one reward design on stored rollouts."""
    return f"replay/{segment(design)}/{segment(measure)}"


def describe(name: str) -> Metric | None:
    """Return the catalogue's entry for a logged name: the exact one if there is one, else the pattern that it fits."""
    return _EXACT.get(name) or next((metric for pattern, metric in _PATTERNS if pattern.fullmatch(name)), None)


def from_trl(logs: Mapping[str, float | None]) -> dict[str, float]:
    """Return the trainer's logs under the project's names.

    Args:
        logs: what a TrainerCallback receives in on_log.

    Returns:
        The same numbers. A key that the catalogue does not know goes under `trl/`. What is no number is left out; NaN
        and infinities become NaN, and are dropped and counted by the tracker.
    """
    renamed: dict[str, float] = {}
    for key, value in logs.items():
        if not isinstance(value, bool | int | float) or value is None:
            continue
        renamed[_rename(key)] = float(value) if math.isfinite(value) else math.nan
    return renamed


def _rename(key: str) -> str:
    if name := _TRL.get(key):
        return name
    if is_allowed(key) and describe(key):  # the project's own, logged through TRL
        return key
    pieces = [segment(piece) for piece in key.split("/") if piece] or [segment(key)]
    return "/".join(["trl", *pieces])[:MAX_NAME].rstrip("/")


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(re.escape(piece) for piece in re.split(r"<\w+>", name)))


_EXACT = {metric.name: metric for metric in CATALOGUE if "<" not in metric.name}
_PATTERNS = [(_pattern(metric.name), metric) for metric in CATALOGUE if "<" in metric.name]
_TRL = {metric.trl: metric.name for metric in CATALOGUE if metric.trl and "<" not in metric.trl}
