"""conf/engine: what generates tokens."""

from __future__ import annotations

from typing import Any, Literal

from codegrep.config.setting import group, setting


@group
class SyncConfig:
    """engine.sync: how an engine with weights of its own keeps in step with the trainer."""

    max_staleness: int = setting(
        "optimiser updates that the engine may be behind; above 0 with truncated importance ratios",
        ge=0,
        default=0,
        paper="on-policy",
    )
    importance_cap: float = setting("largest ratio pi_trainer / pi_engine of a token", gt=0, default=3.0)
    max_logprob_gap: float = setting(
        "mean |log-probability at sampling - at training|, nats a token, beyond which training stops; 0: measure only",
        ge=0,
        default=0.0,
    )
    min_ess: float = setting(
        "effective sample size of the ratios, as a share, below which training stops; 0: measure only",
        ge=0,
        le=1,
        default=0.0,
    )


@group
class VLLMConfig:
    """engine.vllm: vLLM in Ray actors."""

    device: Literal["cpu", "cuda"] = setting("where it computes", paper="cuda")
    replicas: int = setting("engines side by side", ge=1)
    placement: Literal["own", "shared"] = setting(
        "own: GPUs for each replica; shared: the trainer's, divided by memory_share", paper="shared"
    )
    tensor_parallel: int = setting("GPUs of one replica, all of one node", ge=1, paper="8")
    pipeline_parallel: int = setting("stages of one replica, of tensor_parallel GPUs each", ge=1)
    memory_share: float = setting("share of each GPU's memory", gt=0, le=1, paper="0.35")
    cpus: float = setting("Ray CPUs set aside for a replica", ge=0)
    threads: int = setting("threads of a replica on a CPU; 0: the node's cores, divided among replicas", ge=0)
    kv_cache_gib: float = setting("GiB of keys and values of a replica on a CPU", gt=0)
    prefix_caching: bool = setting("keep keys and values of known beginnings", paper="true")
    eager: bool = setting("no compilation: starts at once, slower on GPUs")
    max_batched_tokens: int = setting("tokens of one engine step; 0: vLLM's default, on a CPU 4,096", ge=0)
    sleep: bool = setting("give the GPU's memory back while the trainer works (placement: shared)", paper="true")
    start_seconds: float = setting("longest start of a replica", gt=0)
    request_seconds: float = setting("a request without an answer for so long means that the replica hangs", gt=0)
    attempts: int = setting("of one request, on another replica where there is one", ge=1)
    extra: dict[str, Any] = setting("further arguments of vllm.AsyncEngineArgs", default_factory=dict)


@group
class OpenAIConfig:
    """engine.openai: an endpoint with chat completions. Text in, text out."""

    url: str = setting("base URL, up to and with /v1")
    model: str = setting("the model's name there")
    key_variable: str = setting("environment variable that holds the key; empty: none", default="")
    seconds: float = setting("longest answer", gt=0, default=120.0)
    attempts: int = setting("of one request", ge=1, default=4)
    parallel: int = setting("requests at once", ge=1, default=8)


@group
class EngineConfig:
    """conf/engine: what generates tokens."""

    name: str = setting("label")
    max_batch: int = setting("sequences generated together, of one replica", ge=1)
    max_wait_ms: float = setting("transformers: milliseconds that a first request waits for others", ge=0, default=5.0)
    backend: str = setting(
        "dotted name of the class that opens the engine", default="codegrep.pipeline.policies.engines.InProcess"
    )
    sync: SyncConfig = setting("see engine.sync", default_factory=SyncConfig)
    vllm: VLLMConfig | None = setting("see engine.vllm; null: not vLLM", default=None)
    openai: OpenAIConfig | None = setting("see engine.openai; null: no endpoint", default=None)
