"""The arithmetic of a plan: from a configuration and unit costs to hours, cores and bytes, each with its formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegrep.config import Config
from codegrep.runtime.resources import request_of
from codegrep.submit.plan.costs import Costs
from codegrep.submit.plan.shapes import Shape

GIB = 2.0**30
# Limits that were met or set in this project's own code, not in hardware.
OBJECT_STORE_SHARE = 0.3  # Ray's default share of a node's memory
GIT_ADDS_PER_SECOND = 1 / 0.006  # `git worktree add --no-checkout`, one repository at a time under a lock


@dataclass(frozen=True)
class Size:
    """What the data set and the site are.

    Attributes:
        repositories: of training and held-out issues together.
        issues: of training and held-out together.
        held_out: issues.
        times: so many times the data and the rollouts of a step.
        nodes: of the cluster.
        cores: CPU cores of all nodes.
        gpus: GPUs of all nodes.
        memory_gib: of all nodes.
        disk_gib: of all nodes.
    """

    repositories: int = 1_800
    issues: int = 10_000
    held_out: int = 400
    times: float = 1.0
    nodes: int = 1
    cores: float = 128.0
    gpus: float = 8.0
    memory_gib: float = 2_000.0
    disk_gib: float = 8_000.0


@dataclass(frozen=True)
class Line:
    """One quantity: what, how much, and how it is computed."""

    what: str
    value: float
    unit: str
    formula: str


@dataclass(frozen=True)
class Limit:
    """Something that can run out. headroom below 1 breaks; the smallest breaks first."""

    what: str
    need: float
    have: float
    unit: str
    remedy: str

    @property
    def headroom(self) -> float:
        """Ratio of what there is to what is needed."""
        return float("inf") if self.need <= 0 else self.have / self.need


@dataclass(frozen=True)
class Plan:
    """stages: title -> lines. limits: smallest headroom first."""

    stages: dict[str, list[Line]]
    limits: list[Limit]


@dataclass(frozen=True)
class Step:
    """One optimiser step of GRPO: counts, and seconds of its parts.

    Attributes:
        calls: tool calls, at most (all turns full): tools and sandboxes are sized by them.
        context_tokens: prompt, sampled and tool tokens of all rollouts.
    """

    rollouts: float
    calls: float
    sampled_tokens: float
    context_tokens: float
    generation: float
    tools: float
    scoring: float
    update: float
    tool_cpu: float

    @property
    def seconds(self) -> float:
        """Wall time; of generation and tools, which overlap between rollouts, the longer counts."""
        return max(self.generation, self.tools) + self.scoring + self.update


def step_of(config: Config, shape: Shape, costs: Costs, size: Size) -> Step:
    """Return what one optimiser step costs."""
    grpo, agent, tools = config.train.grpo, config.agent, config.tools
    rollouts = grpo.prompts_per_step * grpo.group_size * size.times
    turns = agent.exploration_turns
    calls = rollouts * turns * tools.max_calls
    sampled = rollouts * agent.max_completion_tokens * costs.rollout_tokens.value
    used = min(float(turns), costs.turns_used.value)
    shown = min(float(tools.max_calls), costs.calls_used.value) * tools.max_chars * costs.observation_chars.value
    if tools.max_observation_chars:
        shown = min(shown, float(tools.max_observation_chars))
    heard = used * shown / costs.chars_per_token.value
    heard = min(heard, float(config.model.context))
    context = rollouts * (costs.prompt_tokens.value + heard) + sampled
    if config.train.use_gpu:
        flops = costs.gpu_flops.value * costs.train_mfu.value * max(1.0, size.gpus)
        bandwidth = costs.gpu_bandwidth.value * costs.decode_mbu.value * max(1.0, size.gpus)
        streams = costs.decode_streams.value
    else:
        flops, bandwidth = costs.core_flops.value * size.cores, costs.core_bandwidth.value * size.cores
        streams = float(min(config.engine.max_batch, agent.parallel_rollouts))
    # Decoding is bound by memory: the weights once for all streams of a GPU, and each stream's own cache.
    length = context / rollouts
    per_token = 2.0 * shape.parameters / streams + shape.kv_bytes() * length / 2
    generation = sampled * per_token / bandwidth
    generation += 2.0 * shape.parameters * (context - sampled) / flops  # prompts and tool texts are read, once
    scoring = 2.0 * shape.parameters * context / flops  # the reference: one forward pass
    passes = 6.0 if config.train.gradient_checkpointing else 4.0  # the base is frozen: no gradients of its weights
    update = (2.0 + passes) * shape.parameters * context / flops * grpo.updates_per_batch
    tool_cpu = calls * costs.call_cpu.value
    actors = max(1, config.sandbox.actors) * size.nodes
    busy = min(size.cores, float(tools.concurrency * actors))
    own = calls * costs.call_own_cpu.value / actors
    seconds = max(tool_cpu / busy, own, turns * costs.call_seconds.value)
    return Step(rollouts, calls, sampled, context, generation, seconds, scoring, update, tool_cpu)


def plan(config: Config, shape: Shape, costs: Costs, size: Size) -> Plan:
    """Return the whole plan."""
    step = step_of(config, shape, costs, size)
    stages = {
        "prepare": _prepare(config, costs, size),
        "train: one step": _one_step(step),
        "train: all steps": _training(config, shape, costs, size, step),
        "evaluate": _evaluation(config, costs, size, step),
    }
    return Plan(stages, sorted(_limits(config, shape, costs, size, step), key=lambda limit: limit.headroom))


def _prepare(config: Config, costs: Costs, size: Size) -> list[Line]:
    repositories, commits = size.repositories * size.times, _commits(costs, size)
    clones, trees = repositories * costs.clone_bytes.value, _tree_bytes(costs)
    kept = min(commits, float(config.sandbox.max_worktrees))
    files = costs.tree_files.value
    return [
        Line("bare clones, disk", clones / GIB, "GiB", "repositories x clone_bytes"),
        Line("bare clones, network", clones / GIB, "GiB", "each is fetched once"),
        Line("cloning, one after another", clones / costs.clone_rate.value / 3600, "h", "bytes / clone_rate"),
        Line("worktrees kept, disk", kept * trees / GIB, "GiB", "min(commits, sandbox.max_worktrees) x tree"),
        Line("worktrees if all were kept, disk", commits * trees / GIB, "GiB", "repositories x commits x tree"),
        Line("making every worktree once", commits * files * costs.tree_cpu.value / 3600, "core h", "files x tree_cpu"),
    ]


def _one_step(step: Step) -> list[Line]:
    return [
        Line("rollouts", step.rollouts, "", "prompts_per_step x group_size"),
        Line("tool calls, at most", step.calls, "", "rollouts x exploration_turns x max_calls"),
        Line("sampled tokens", step.sampled_tokens, "", "rollouts x max_completion_tokens x rollout_tokens"),
        Line("tokens of context", step.context_tokens, "", "prompt + sampled + tool texts"),
        Line("tool calls", step.tool_cpu, "CPU s", "calls x call_cpu"),
        Line("generation", step.generation, "s", "weights/streams + cache, by bandwidth; tool texts by FLOP/s"),
        Line("tools, beside generation", step.tools, "s", "the slowest of CPU, actors' own threads, turns"),
        Line("cores so that tools keep up", step.tool_cpu / max(step.generation, 1e-9), "cores", "CPU s / generation"),
        Line("reference log-probabilities", step.scoring, "s", "2 x parameters x tokens / FLOP/s"),
        Line("forward, backward", step.update, "s", "2 + 4 (6 with checkpointing) x parameters x tokens"),
        Line("the step", step.seconds, "s", "max(generation, tools) + reference + update"),
    ]


def _training(config: Config, shape: Shape, costs: Costs, size: Size, step: Step) -> list[Line]:
    steps = config.train.grpo.steps
    record = step.context_tokens * costs.record_token_bytes.value
    full = config.train.full_parameters
    trained = shape.parameters if full else shape.lora_parameters(config.train.lora.r)
    adapter = trained * costs.adapter_bytes.value
    return [
        Line("wall time", steps * step.seconds / 3600, "h", "steps x step"),
        Line("GPU time", steps * step.seconds * size.gpus / 3600, "GPU h", "wall time x GPUs"),
        Line("tool calls, CPU time", steps * step.tool_cpu / 3600, "core h", "steps x calls x call_cpu"),
        Line("rollout records, disk", steps * record / GIB, "GiB", "tokens x record_token_bytes"),
        Line("rollouts through the object store", record / GIB, "GiB / step", "the same tokens"),
        Line(
            "the trained weights", adapter / GIB, "GiB", f"{'parameters' if full else 'rank x widths'} x adapter_bytes"
        ),
        Line(
            "checkpoints kept, disk",
            config.train.grpo.keep * 3 * adapter / GIB,
            "GiB",
            "keep x (trained weights + Adam)",
        ),
        Line(
            "adapters to engines elsewhere",
            steps * adapter * (size.nodes - 1) / GIB,
            "GiB",
            "to other nodes",
        ),
    ]


def _evaluation(config: Config, costs: Costs, size: Size, step: Step) -> list[Line]:
    issues = size.held_out * size.times
    share = issues * len(config.evaluate.models) / max(step.rollouts, 1.0)
    gpus = min(size.gpus, float(config.evaluate.actors)) if config.train.use_gpu else 1.0
    seconds = max(step.generation * size.gpus / max(gpus, 1.0), step.tools) * share
    return [
        Line("rollouts", issues * len(config.evaluate.models), "", "held-out issues x models"),
        Line("wall time", seconds / 3600, "h", "as in training, on evaluate.actors GPUs"),
        Line("GPU time", seconds * gpus / 3600, "GPU h", "wall time x evaluate.actors"),
        Line("BM25, CPU time", issues * _bm25_cpu(costs) / 3600, "core h", "tokenising every tree once"),
    ]


def _limits(config: Config, shape: Shape, costs: Costs, size: Size, step: Step) -> list[Limit]:
    actors = max(1, config.sandbox.actors) * size.nodes
    request = request_of(config, share_nodes=True)
    commits = _commits(costs, size)
    prompts = config.train.grpo.prompts_per_step * size.times
    # Where all weights are trained: they, their gradients and Adam's two moments in float32.
    weights = (16.0 if config.train.full_parameters else 2.0) * shape.parameters
    cache = costs.decode_streams.value * (step.context_tokens / step.rollouts) * shape.kv_bytes()
    # One layer's activations and the logits of a micro-batch stay; the rest is computed again with checkpointing.
    group = config.train.grpo.prompts_per_microbatch * config.train.grpo.group_size / max(1, config.train.workers)
    made = [
        Limit(
            "time of an actor's one thread for its calls",
            step.calls * costs.call_own_cpu.value / actors,
            step.generation,
            "s / step",
            "raise sandbox.actors: a repository belongs to one actor, so not beyond the repositories of a step",
        ),
        Limit(
            "cores for tool calls",
            step.tool_cpu / max(step.generation, 1e-9),
            min(size.cores, float(config.tools.concurrency * actors)),
            "cores",
            "raise sandbox.actors and tools.concurrency, or add nodes without GPUs",
        ),
        Limit(
            "worktrees that a step needs at once",
            prompts,
            float(config.sandbox.max_worktrees),
            "trees",
            "raise sandbox.max_worktrees",
        ),
        Limit(
            "disk for clones, worktrees and records",
            (size.repositories * size.times * costs.clone_bytes.value
             + min(commits, float(config.sandbox.max_worktrees)) * _tree_bytes(costs)
             + config.train.grpo.steps * step.context_tokens * costs.record_token_bytes.value) / GIB,
            size.disk_gib,
            "GiB",
            "fewer worktrees, or records on the object store of the site",
        ),
        Limit(
            "new worktrees of a step, added to git one at a time",
            prompts / GIT_ADDS_PER_SECOND,
            step.generation,
            "s / step",
            "only where all issues of a step are of one repository",
        ),
        Limit(
            "object store for the rollouts of a step",
            step.context_tokens * costs.record_token_bytes.value / GIB,
            size.memory_gib * OBJECT_STORE_SHARE,
            "GiB",
            "more memory, or smaller steps",
        ),
    ]  # fmt: skip
    if config.train.use_gpu:
        made += [
            Limit(
                "GPUs",
                sum(bundle.gpus for bundle in request.bundles),
                size.gpus,
                "GPUs",
                "fewer train.workers or evaluate.actors, or more nodes",
            ),
            Limit(
                "GPU memory: weights, cache of the streams, logits of a micro-batch",
                (weights + cache + group * (step.context_tokens / step.rollouts) * 151_936 * 4) / 1e9,
                costs.gpu_bytes.value / 1e9,
                "GB / GPU",
                "shorter context, fewer streams; each worker holds the whole model, there is no sharding",
            ),
        ]
    return made


def scaled(size: Size, times: float) -> Size:
    """Return the same site with `times` the repositories, issues and rollouts of a step."""
    return replace(size, times=times)


def first_to_break(limits: Sequence[Limit]) -> Limit | None:
    """Return the limit that gives way first, None where all hold."""
    low = min(limits, key=lambda limit: limit.headroom)
    return low if low.headroom < 1.0 else None


def _commits(costs: Costs, size: Size) -> float:
    return min(size.repositories * costs.commits_per_repository.value, float(size.issues)) * size.times


def _tree_bytes(costs: Costs) -> float:
    return costs.tree_files.value * costs.tree_file_bytes.value


def _bm25_cpu(costs: Costs) -> float:
    return costs.tree_files.value * 0.004  # s: about 4 ms a file to tokenise and index
