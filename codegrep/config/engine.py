"""conf/engine: what generates tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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
        backend: dotted name of the class that opens it (codegrep.pipeline.policies.engines.Backend).
        sync, vllm, openai: see there; the last two only where the backend needs them.
    """

    name: str
    max_batch: int
    max_wait_ms: float = 5.0
    backend: str = "codegrep.pipeline.policies.engines.InProcess"
    sync: SyncConfig = field(default_factory=SyncConfig)
    vllm: VLLMConfig | None = None
    openai: OpenAIConfig | None = None
