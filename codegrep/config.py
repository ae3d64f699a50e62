"""The configuration, one dataclass a group of conf/. Pure: importing it loads neither torch nor ray nor mlflow.

Defaults live in conf/; a field without a default here must be given there. Unknown keys and wrong types are refused by
`load` before anything is started, in one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STAGES = ("prepare", "label", "warm_start", "train", "evaluate", "report")
MODELS = ("base", "warm_start", "trained", "loaded")
PROMPTS = ("short", "detailed", "entities")
RAIL_ACTIONS = ("off", "warn", "tag", "stop")
BASELINES = ("bm25", "bm25_no_tests", "first_row", "oracle")


@dataclass
class SourceConfig:
    """One source of issues (conf/data).

    Attributes:
        kind: dotted name of the source's class.
        args: its keyword arguments, checked by the class.
        use: "split" takes part in the split, "train" is training material only (its repositories may not be held out).
        limit: at most so many issues, drawn from the seed; 0 means all.
    """

    kind: str
    args: dict[str, Any] = field(default_factory=dict)
    use: str = "split"
    limit: int = 0


@dataclass
class SplitConfig:
    """How issues are divided, once, from the seed.

    Attributes:
        by: "repository", or "instance" for one-repository data.
        held_out: repositories that are held out by name; empty means a share drawn from the seed.
        held_out_share: share of the units (repositories or instances) held out when none is named.
        seed: own seed, so that training seeds share one split.
        max_train, max_held_out: cut after the split, drawn from the seed; 0 means all.
    """

    by: str = "repository"
    held_out: list[str] = field(default_factory=list)
    held_out_share: float = 0.25
    seed: int = 0
    max_train: int = 0
    max_held_out: int = 0


@dataclass
class DataConfig:
    """conf/data: where issues come from and how they are split.

    Attributes:
        gold_entities: look up the classes and functions that the gold patches touch, for rewards that score them; needs
            gold line ranges, Python files, and some seconds for each thousand issues.
    """

    name: str
    sources: dict[str, SourceConfig]
    split: SplitConfig
    gold_entities: bool = False


@dataclass
class LabelsConfig:
    """conf/labels: what the training issues' gold files are: those of the patch, or those and mined ones (SPEC 1.3).

    Attributes:
        enabled: False leaves gold to the patches, and the stage `label` with nothing to do.
        trajectories: files or folders of agent trajectories. format: one of codegrep.labels.adapters, or "auto".
        instances: SWE-bench-like files with base commit and gold patch, joined by instance_id; empty takes the
            experiment's own issues.
        gold_suffixes, gold_tests: which files of those patches are gold; no suffix takes all.
        editors: tools whose `view` reads a file. shells: tools that run a command.
        shell_readers: commands that count as reads too; empty as in the paper.
        think_tool: tool whose argument holds reasoning.
        with_thought: its text counts as post-reasoning; False as in the paper.
        workspaces: regular expressions of the folder that holds the repository.
        documents: endings of prose, never a target. suffixes: endings of targets; empty takes all.
        tests: test files can be targets.
        drop_created: leave out files that the agent had made itself.
        only_resolved: only attempts that passed.
        tokenizer: for l(f): None is the policy's, "words" needs no model, or a folder with tokenizer.json.
        min_tokens: shortest post-reasoning (30). min_weight: smallest weight (0.15).
        weights_over: candidates that β and μ are taken from: "mined" (all), or "judged" (long enough and relevant).
        granularity: "trajectory" (one sample each) or "issue" (union over its attempts).
        exclude_repositories: never mined, besides the repositories that are held out for evaluation.
        keep_unlabelled: training issues without a sample keep the gold of their patch; False leaves them out.
        spot_check: candidates on the sheet for checking by hand.
        workers: shards at once; None takes the cluster's CPUs.
    """

    name: str
    enabled: bool
    trajectories: list[str]
    format: str
    instances: list[str]
    gold_suffixes: list[str]
    gold_tests: bool
    editors: list[str]
    shells: list[str]
    shell_readers: list[str]
    think_tool: str
    with_thought: bool
    workspaces: list[str]
    documents: list[str]
    suffixes: list[str]
    tests: bool
    drop_created: bool
    only_resolved: bool
    tokenizer: str | None
    min_tokens: int
    min_weight: float
    weights_over: str
    granularity: str
    exclude_repositories: list[str]
    keep_unlabelled: bool
    spot_check: int
    workers: int | None


@dataclass
class JudgeConfig:
    """conf/judge: who decides whether a read file is relevant.

    Attributes:
        kind: dotted name of the judge's class. params: its keyword arguments, checked by the class.
        where: "miners" judges in the workers that mine, "actors" in actors of their own (a judge that waits for a
            server), "driver" with one Ray Data pipeline over all candidates (a judge that is such a pipeline).
        actors: of where=actors.
        max_error_share: candidates without a verdict, beyond which the stage stops; the same command asks again.
        second: a second judge on a sample, for agreement; None is none. Keys kind, params, sample.
    """

    name: str
    kind: str
    params: dict[str, Any]
    where: str
    actors: int
    max_error_share: float
    second: dict[str, Any] | None = None


@dataclass
class ModelConfig:
    """conf/model.

    Attributes:
        path: local folder or hub id; "provided:smollm2-135m-instruct" and "provided:nano" are made on this machine.
        dtype: "bfloat16" or "float32": the dtype of the frozen base weights.
        revision: hub revision, or None.
        context: longest prompt + completion, tokens.
    """

    path: str
    dtype: str
    context: int
    revision: str | None = None


@dataclass
class SyncConfig:
    """engine.sync: how an engine with weights of its own keeps in step with the trainer.

    Attributes:
        max_staleness: optimiser updates that the engine's weights may be behind; 0 is on-policy. Above 0 the adapter is
            sent every max_staleness + 1 updates, and rollouts count by a truncated importance ratio.
        importance_cap: largest such ratio pi_trainer / pi_engine of a token (TRL's default for it: 3).
        max_logprob_gap: training stops when the mean |log-probability at sampling - at training| of a step exceeds it,
            nats a token; 0 only measures. Looked at where the engine is not behind.
        min_ess: training stops when the effective sample size of those ratios is a smaller share than this; 0 only
            measures.
    """

    max_staleness: int = 0
    importance_cap: float = 3.0
    max_logprob_gap: float = 0.0
    min_ess: float = 0.0


@dataclass
class VLLMConfig:
    """engine.vllm: vLLM in Ray actors.

    Attributes:
        device: "cpu" or "cuda".
        replicas: engines side by side.
        placement: "own" sets GPUs aside for each replica; "shared" takes the trainer's (the paper's way: memory is
            divided by memory_share, and the engine sleeps while the trainer works).
        tensor_parallel: GPUs of one replica, all of one node.
        pipeline_parallel: stages of one replica; a stage is tensor_parallel GPUs.
        memory_share: of each GPU's memory.
        cpus: Ray CPUs set aside for a replica.
        threads: threads of a replica on a CPU; 0 takes the node's cores, divided among replicas.
        kv_cache_gib: keys and values of a replica on a CPU; on a GPU memory_share decides.
        prefix_caching: keep keys and values of known beginnings.
        eager: no compilation: starts at once, slower on GPUs.
        max_batched_tokens: tokens of one engine step; 0 leaves it to vLLM.
        sleep: give the GPU's memory back between collecting and training (placement: shared only).
        start_seconds: longest start, or restart, of a replica.
        request_seconds: a request without an answer for so long means that the replica hangs; it is restarted.
        attempts: of one request, each on another replica where there is one.
        extra: further arguments of vllm.AsyncEngineArgs, checked by it.
    """

    device: str
    replicas: int
    placement: str
    tensor_parallel: int
    pipeline_parallel: int
    memory_share: float
    cpus: float
    threads: int
    kv_cache_gib: float
    prefix_caching: bool
    eager: bool
    max_batched_tokens: int
    sleep: bool
    start_seconds: float
    request_seconds: float
    attempts: int
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class OpenAIConfig:
    """engine.openai: any endpoint that speaks the chat-completions protocol. Text in, text out.

    Attributes:
        url: base URL, up to and with /v1. model: its name there.
        key_variable: environment variable that holds the key, "" for none. The key itself is never a value here.
        seconds: longest answer. attempts: of one request. parallel: requests at once.
    """

    url: str
    model: str
    key_variable: str = ""
    seconds: float = 120.0
    attempts: int = 4
    parallel: int = 8


@dataclass
class EngineConfig:
    """conf/engine: what generates tokens.

    Attributes:
        name: label.
        max_batch: sequences generated together.
        max_wait_ms: transformers: how long a first request waits for others.
        backend: dotted name of the class that opens it (codegrep.pipeline.engines.Backend).
        sync, vllm, openai: see there; the last two only where the backend needs them.
    """

    name: str
    max_batch: int
    max_wait_ms: float = 5.0
    backend: str = "codegrep.pipeline.engines.InProcess"
    sync: SyncConfig = field(default_factory=SyncConfig)
    vllm: VLLMConfig | None = None
    openai: OpenAIConfig | None = None


@dataclass
class ToolsConfig:
    """conf/tools: the three tools, their caps (SPEC 1.2) and how results are shown.

    Attributes:
        names: tools offered to the model.
        max_calls: calls of one turn that are executed (8).
        max_matches: matches of one grep (50). max_paths: paths of one glob (100). max_lines: lines of one read (200).
        max_chars: characters of one result (4,096).
        max_observation_chars: characters of all results of a turn together; 0 means no such cap (the paper's).
        max_line_chars: a longer line is shown as a preview.
        grep_timeout, glob_timeout, read_timeout: seconds (10, 10, 5).
        concurrency: calls at once in one sandbox (64).
        observation: "results" shows each result by itself (the paper's form); "table" merges the greps of a turn into
        one
            table of files.
        table_rows: files of the table.
        table_order: "score" (the tool's own ranking), "path", or "shuffled" (by a hash of issue and path: gives
        nothing away).
        grep_include: glob that grep is limited to when the call names none ("*.py" in the paper).
        exclude_tests: leave test files out of grep and glob (never of read).
    """

    names: list[str]
    max_calls: int
    max_matches: int
    max_paths: int
    max_lines: int
    max_chars: int
    max_observation_chars: int
    max_line_chars: int
    grep_timeout: float
    glob_timeout: float
    read_timeout: float
    concurrency: int
    observation: str
    table_rows: int
    table_order: str
    grep_include: str
    exclude_tests: bool


@dataclass
class AgentConfig:
    """conf/agent: the protocol of SPEC 1.1.

    Attributes:
        exploration_turns: turns with tools (3); one answer turn follows.
        max_issue_chars: longer statements are cut, with a note.
        max_turn_tokens: most sampled tokens of one turn.
        max_completion_tokens: most sampled tokens of one rollout (4,096).
        max_answer_files: files asked for in the system prompt; 0 leaves the number open.
        parallel_rollouts: rollouts in flight at once.
        max_seconds: a rollout that takes longer is given up, as the machine's fault; 0 sets no limit.
        strict_tokens: a turn whose tokens are not what the chat format expects stops the run; else it is counted.
        prompt: "short" for small models and asks for files; "detailed" gives tool schemas and advice and asks for line
            ranges; "entities" is as "detailed" and asks for classes and functions instead.
    """

    exploration_turns: int
    max_issue_chars: int
    max_turn_tokens: int
    max_completion_tokens: int
    max_answer_files: int
    parallel_rollouts: int
    max_seconds: float = 0.0
    strict_tokens: bool = False
    prompt: str = "short"


@dataclass
class FunctionConfig:
    """conf/reward, and the factor of conf/advantage: dotted name of a pure function and its parameters."""

    name: str
    function: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass
class GovernanceConfig:
    """conf/governance: what the cause of a rollout's end does to its reward and its mask (SPEC 4.4).

    Attributes:
        handling: cause -> normal, last_turn or full_mask; a cause that is not named is normal. Causes are the exit
            causes of a rollout, and excessive_calls, repetition and judge_failed (no verdict where the reward needs
            one; full_mask where it is not named, never a reward of 0; normal keeps what the reward is without it).
        masked_in_group: fully masked rollouts stay in mean and deviation of their group, with reward 0.
        infrastructure_in_group: so do those that the machine lost; False leaves them out.
        max_calls: more calls in one turn are excessive_calls (5); 0 never.
        repetition_tokens, repetition_times: an n-gram of so many tokens, found more than so many times in one turn, is
            a repetition (15, 30); 0 times: never.
    """

    name: str
    handling: dict[str, str]
    masked_in_group: bool
    infrastructure_in_group: bool
    max_calls: int
    repetition_tokens: int
    repetition_times: int


@dataclass
class ProcessConfig:
    """conf/process: scores of turns that become weights of tokens (SPEC 4.2).

    Attributes:
        function: dotted name of a turn scorer, or None for equal weights. params: its keyword arguments.
        only_answered: rollouts without an answer keep equal weights.
        floor: smallest weight of a turn in a negative rollout, before rescaling (0.1).
        concurrency: rollouts scored at once; more than 1 only helps a scorer that asks a model.
    """

    name: str
    function: str | None
    params: dict[str, Any]
    only_answered: bool
    floor: float
    concurrency: int = 1


@dataclass
class VerdictConfig:
    """conf/verdict: who is asked, while training, whether an answer means the same as the reference (SPEC 4.1).

    Attributes:
        judge: dotted name of a class (codegrep.rewards.answer_judge.AnswerJudge), or None: nobody is asked. params: its
            keyword arguments, checked by the class.
        max_failed_share: of the answers that a step asks about; with more of them without a verdict training stops, and
            goes on from its last checkpoint when it is started again. 1 never stops. governance.handling.judge_failed
            says what becomes of each.
    """

    name: str = "none"
    judge: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    max_failed_share: float = 0.5


@dataclass
class AdvantageConfig(FunctionConfig):
    """conf/advantage: from the rewards of a group to advantages; `function` is the factor they are multiplied with.

    Attributes:
        baseline: "mean" of the group (GRPO), or "loo", the mean of the others (RLOO).
        scale: "group" divides by the group's standard deviation (GRPO), "batch" by the batch's, "none" by nothing
            (Dr. GRPO). train.grpo.scale_rewards follows it.
    """

    baseline: str = "mean"
    scale: str = "group"


@dataclass
class LoraSettings:
    """LoRA over all linear projections (paper: r=32, alpha=64)."""

    r: int
    alpha: int
    dropout: float


@dataclass
class TeacherConfig:
    """train.warm_start.teacher: the scripted search that a small model is shown first.

    Attributes:
        greps, globs: most calls of each kind in its first turn. reads: candidates it reads. read_lines: lines of each.
        read_margin: it reads only when the second candidate scores at least this share of the first; 0 reads always.
        max_answer_files: most gold files of an answer.
    """

    greps: int
    globs: int
    reads: int
    read_lines: int
    read_margin: float
    max_answer_files: int


@dataclass
class WarmStartConfig:
    """train.warm_start: weighted SFT (SPEC 3.3) on the scripted teacher's trajectories.

    Attributes:
        enabled: False starts GRPO from the base model.
        epochs, learning_rate, warmup_share, weight_decay, max_grad_norm: the usual (colgrep: 1, 2e-5, 0.03, 0, 1.0).
        tokens_per_step: sequences are packed into a step up to so many tokens (padding included).
        max_tokens: longer trajectories are left out and counted.
        credit_*: turn weights of SPEC 3.3.
        save_every: optimiser steps between checkpoints.
        max_minutes: stop after so long (the schedule is cut, said in the log); 0 means no limit.
        seed: of the warm start alone, so that several training seeds can share one; None takes the run's.
        teacher: see TeacherConfig.
    """

    enabled: bool
    teacher: TeacherConfig
    epochs: float
    learning_rate: float
    warmup_share: float
    weight_decay: float
    max_grad_norm: float
    tokens_per_step: int
    max_tokens: int
    credit_new_gold: float
    credit_seen_gold: float
    credit_no_gold: float
    credit_empty: float
    save_every: int
    max_minutes: float
    seed: int | None = None


@dataclass
class GRPOSettings:
    """train.grpo (SPEC 1.6). Passed to TRL where TRL has it.

    Attributes:
        enabled: False ends training after the warm start.
        steps: optimiser steps. prompts_per_step: issues a step (64). group_size: rollouts an issue (8).
        prompts_per_microbatch: issues whose rollouts go through forward and backward together.
        learning_rate, warmup_share, scheduler: 5e-6, 0.05, cosine.
        kl: coefficient of KL against the adapter-off reference (0.02).
        measure_kl: score the reference also where kl is 0, so that policy/kl can be compared and guarded.
        kl_estimator: k3; k3_corrected multiplies it by the importance ratio; k2 has the gradient of the reverse KL.
        temperature, top_p, top_k: 1.0, 0.9, 50.
        clip_low, clip_high, loss_type, scale_rewards: not stated by the paper; TRL's names.
        importance: ratio of the policy to that of the batch's first update, for each "token" or "sequence" (GSPO).
        mask_truncated: completions whose last token is no end of text are masked (TRL); for causes see governance.
        denominator: "all" rollouts, or those "in_loss"; of the loss types that divide by rollouts (grpo, dr_grpo).
        dead_groups: groups without two different rewards: "keep" (advantage 0, KL acts) or "drop" (out of the loss).
        refill_rounds: how often groups that are dropped are replaced by groups of other issues in a step; 0 leaves the
            step smaller.
        sampling_correction: "none", or "sequence": advantages times the ratio of trainer to sampler over a rollout.
        sampling_low, sampling_high: rollouts with a ratio outside lose their policy term; None is no limit.
        updates_per_batch: inner updates a batch of rollouts (not stated; 1).
        max_grad_norm: gradient clipping.
        save_every: optimiser steps between checkpoints. keep: checkpoints kept.
        max_minutes: stop after so long; 0 means no limit.
    """

    enabled: bool
    steps: int
    prompts_per_step: int
    group_size: int
    prompts_per_microbatch: int
    learning_rate: float
    warmup_share: float
    scheduler: str
    kl: float
    temperature: float
    top_p: float
    top_k: int
    clip_low: float
    clip_high: float
    loss_type: str
    scale_rewards: str
    measure_kl: bool
    kl_estimator: str
    importance: str
    mask_truncated: bool
    denominator: str
    dead_groups: str
    refill_rounds: int
    sampling_correction: str
    sampling_low: float
    sampling_high: float | None
    updates_per_batch: int
    max_grad_norm: float
    save_every: int
    keep: int
    max_minutes: float


@dataclass
class EarlyStopConfig:
    """train.early_stop: GRPO ends when the reward no longer rises and KL is in bounds (training.convergence).

    Attributes:
        enabled: False trains to the last step.
        window: optimiser steps that a mean reward is taken over.
        patience: steps without a rise of `min_gain` (reward) above the best mean.
        min_gain: see patience.
        max_kl: mean KL of the last window, nats/token, up to which the run counts as converged.
        min_steps: no earlier than this.
    """

    enabled: bool = False
    window: int = 50
    patience: int = 100
    min_gain: float = 0.01
    max_kl: float = 0.5
    min_steps: int = 200


@dataclass
class LadderConfig:
    """train.ladder: checkpoints are measured while GRPO runs, and the best one becomes the result (pipeline.ladder).

    Attributes:
        every: optimiser steps between rungs; 0 takes the last checkpoint, unmeasured.
        issues: held-out issues that checkpoints are chosen by; the evaluation leaves them out.
    """

    every: int = 0
    issues: int = 32


@dataclass
class RailConfig:
    """One guard rail of GRPO: a metric, a limit, and what happens beyond it.

    Attributes:
        metric: a name of codegrep.tracking.names.
        above: the limit. times_start: the limit as a multiple of the metric at the start. One of the two.
        action: warn says it, tag also marks the run in MLflow, stop also ends training with a checkpoint; off: nothing.
    """

    metric: str
    above: float | None = None
    times_start: float | None = None
    action: str = "tag"


@dataclass
class GuardRailsConfig:
    """train.guard_rails. window: steps that are averaged before a limit is looked at."""

    window: int
    rails: dict[str, RailConfig]


@dataclass
class TrainConfig:
    """conf/train. workers: Ray Train workers; use_gpu: one GPU a worker."""

    lora: LoraSettings
    warm_start: WarmStartConfig
    grpo: GRPOSettings
    guard_rails: GuardRailsConfig
    workers: int
    use_gpu: bool
    cpus_per_worker: float
    max_failures: int
    gradient_checkpointing: bool
    early_stop: EarlyStopConfig = field(default_factory=EarlyStopConfig)
    ladder: LadderConfig = field(default_factory=LadderConfig)


@dataclass
class EvaluateConfig:
    """conf/evaluate.

    Attributes:
        models: which of MODELS are measured.
        baselines: which of BASELINES are measured.
        temperature: 0 is greedy. bootstrap: resamples.
        batch: issues a block.
        actors: agent actors.
        loaded: model in MLflow that is measured as "loaded" (models:/NAME@ALIAS and the like); None where it is not
            among `models`.
    """

    models: list[str]
    baselines: list[str]
    temperature: float
    bootstrap: int
    batch: int
    actors: int
    loaded: str | None = None


@dataclass
class SandboxConfig:
    """conf/sandbox.

    Attributes:
        clone_timeout: seconds for a clone or a fetch (600).
        min_free_gib: disk that stays free.
        actors: sandbox actors on every node.
        max_worktrees: trees kept; 0 means no limit.
        max_disk_gib: disk that the trees of one folder may take; 0 means no limit.
        index_mib: memory of the index of file contents in one sandbox; 0 searches whole trees.
    """

    clone_timeout: float
    min_free_gib: float
    actors: int
    max_worktrees: int
    max_disk_gib: float = 0.0
    index_mib: float = 512.0


@dataclass
class ScaleConfig:
    """conf/scale: only its name; its values go to the other groups."""

    name: str


@dataclass
class SubmitConfig:
    """cluster.submit: how a run reaches a cluster that it is not started on (cluster.submit).

    Attributes:
        kind: dotted name of the target's class.
        address: of the cluster's dashboard, for the Jobs API.
        upload: send the checkout along; False where the cluster's image holds it.
        max_upload_mib: more than this is not sent. excludes: patterns (of .gitignore's kind) that stay here.
        env: variables for the job, plain: they are shown in dashboards.
        secrets: variable -> reference; never a value. "" means that the cluster's own environment has it; for
            Kubernetes it is "secret/key".
        options: what the target alone knows; its conf/cluster file explains them.
    """

    kind: str
    address: str = ""
    upload: bool = True
    max_upload_mib: float = 50.0
    excludes: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ClusterConfig:
    """conf/cluster.

    Attributes:
        address: None starts a local Ray sized to this machine; "auto" or host:port joins one.
        num_cpus: for a local Ray; None takes all.
        object_store_gib: for a local Ray.
        storage: fsspec address (s3://bucket/path) for finished artifacts and checkpoints; "" keeps them in `outputs`.
        submit: how `codegrep submit` brings the run there; None where it does not.
    """

    name: str
    address: str | None
    num_cpus: int | None
    object_store_gib: float
    storage: str = ""
    submit: SubmitConfig | None = None


@dataclass
class TrackingConfig:
    """conf/tracking.

    Attributes:
        uri: MLflow tracking URI; empty means SQLite under `outputs`.
        experiment: MLflow experiment; runs of one experiment are compared side by side.
        artifact_location: where a new experiment's artifacts go; None leaves it to the store.
        register: name that trained policies are registered under; empty leaves them unregistered. The alias "best"
            goes to the one with the highest held-out F0.5 on the same data.
        sweep, parent_run: id of the sweep and MLflow run id of its parent run; set by the launcher of a sweep.
        start_patience_seconds: how long a new run waits for a server that does not answer before it gives up.
        system_metrics_seconds: how often CPU, memory, disk, network and GPU use is recorded; 0 never.
    """

    name: str
    uri: str
    experiment: str
    artifact_location: str | None = None
    register: str = ""
    sweep: str = ""
    parent_run: str = ""
    start_patience_seconds: float = 0.0
    system_metrics_seconds: float = 10.0


@dataclass
class SearchConfig:
    """conf/sweep: a search over values of the configuration (cluster.search); without it an experiment is one run.

    Attributes:
        name: of the search.
        space: key of the configuration -> {low, high, log, integer} or {choices}.
        trials: how many points are tried.
        grace: optimiser steps before a trial may be ended. reduction: one trial in so many goes on beyond a rung.
        at_once: most trials side by side; 0: as many as the cluster carries.
        seed: of the proposals.
    """

    name: str
    space: dict[str, dict[str, Any]]
    trials: int
    grace: int
    reduction: int
    at_once: int = 0
    seed: int = 0


@dataclass
class Config:
    """A whole experiment. `name` labels the run; `outputs` is the folder that everything is written under."""

    name: str
    seed: int
    outputs: str
    stages: list[str]
    data: DataConfig
    labels: LabelsConfig
    judge: JudgeConfig
    model: ModelConfig
    engine: EngineConfig
    tools: ToolsConfig
    agent: AgentConfig
    reward: FunctionConfig
    advantage: AdvantageConfig
    governance: GovernanceConfig
    process: ProcessConfig
    verdict: VerdictConfig
    train: TrainConfig
    evaluate: EvaluateConfig
    sandbox: SandboxConfig
    scale: ScaleConfig
    cluster: ClusterConfig
    tracking: TrackingConfig
    sweep: SearchConfig | None = None

    @property
    def outputs_path(self) -> Path:
        """`outputs` as an absolute path."""
        return Path(self.outputs).expanduser().absolute()
