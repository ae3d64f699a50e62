"""vLLM's arguments from the configuration. Imports no vLLM, so that configurations are checked without it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from codegrep.config import EngineConfig, VLLMConfig
from codegrep.errors import ConfigError

# Ranks that vLLM supports; a smaller adapter takes the next one.
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_CPU_BATCHED_TOKENS = 4096


@dataclass(frozen=True)
class VLLMSpec:
    """One engine; picklable.

    Attributes:
        model: folder of the base model.
        dtype: "bfloat16" or "float32".
        context: longest prompt + completion, tokens.
        stop_ids: ids that end a generation.
        vocabulary: all token ids are below it.
        config: conf/engine.
        lora_rank: of the adapters that it will be sent; 0 serves the base alone.
        seed: of requests without a seed.
    """

    model: str
    dtype: str
    context: int
    stop_ids: tuple[int, ...]
    vocabulary: int
    config: EngineConfig
    lora_rank: int = 0
    seed: int = 0

    @property
    def vllm(self) -> VLLMConfig:
        """engine.vllm.

        Raises:
            ConfigError: the engine's configuration has no such part.
        """
        if self.config.vllm is None:
            raise ConfigError(f"engine={self.config.name} has no engine.vllm", "Use engine=vllm")
        return self.config.vllm


def engine_arguments(spec: VLLMSpec) -> dict[str, Any]:
    """Return the keyword arguments of vllm.AsyncEngineArgs.

    Raises:
        ConfigError: a value cannot work.
    """
    config = spec.vllm
    check_vllm(config)
    arguments: dict[str, Any] = {
        "model": spec.model,
        "skip_tokenizer_init": True,  # token ids in, token ids out
        "dtype": spec.dtype,
        "max_model_len": spec.context,
        "max_num_seqs": spec.config.max_batch,
        "seed": spec.seed,
        "tensor_parallel_size": config.tensor_parallel,
        "pipeline_parallel_size": config.pipeline_parallel,
        "enable_prefix_caching": config.prefix_caching,
        "enforce_eager": config.eager,
        # Before temperature, top-p and top-k, as a policy ratio needs them.
        "logprobs_mode": "raw_logprobs",
        "generation_config": "vllm",  # the model's own sampling defaults would change the policy
        "disable_log_stats": True,
        "worker_extension_cls": "codegrep.engines.vllm_worker.AdapterReader",
    }
    if config.max_batched_tokens:
        arguments["max_num_batched_tokens"] = config.max_batched_tokens
    if config.device == "cpu":
        arguments["kv_cache_memory_bytes"] = int(config.kv_cache_gib * 2**30)
        # For a chunk of a prompt vLLM rewinds the request's random generator by one draw, which CPU generators cannot
        # do: a seeded request whose prompt is split ends the engine.
        arguments["enable_chunked_prefill"] = False
        arguments["max_num_batched_tokens"] = max(spec.context, config.max_batched_tokens or _CPU_BATCHED_TOKENS)
    else:
        arguments["gpu_memory_utilization"] = config.memory_share
        # Shards of one engine are processes of one node, without Ray.
        arguments["distributed_executor_backend"] = "mp" if gpus_of(config) > 1 else "uni"
        arguments["enable_sleep_mode"] = config.sleep
    if spec.lora_rank:
        rank = next((rank for rank in LORA_RANKS if rank >= spec.lora_rank), None)
        if rank is None:
            raise ConfigError(
                f"train.lora.r={spec.lora_rank} is above vLLM's largest, {LORA_RANKS[-1]}", "Lower train.lora.r"
            )
        arguments |= {"enable_lora": True, "max_loras": 1, "max_cpu_loras": 1, "max_lora_rank": rank}
    clash = sorted(set(config.extra) & set(arguments))
    if clash:
        raise ConfigError(
            f"engine.vllm.extra holds {', '.join(clash)}, which this project sets itself", "Use the keys of engine.vllm"
        )
    return arguments | config.extra


def check_vllm(config: VLLMConfig) -> None:
    """Check combinations of values before anything is started; each value's own bounds are checked when it is loaded.

    Raises:
        ConfigError: names the key.
    """

    def need(ok: bool, what: str, fix: str) -> None:
        if not ok:
            raise ConfigError(what, fix)

    if config.device == "cpu":
        need(gpus_of(config) == 1, "engine.vllm.tensor_parallel needs GPUs", "Use 1, and more replicas, on a CPU")
        need(not config.sleep, "engine.vllm.sleep needs GPUs", "Set engine.vllm.sleep=false on a CPU")
        need(config.placement == "own", "engine.vllm.placement=shared needs GPUs", "Use placement=own on a CPU")
    elif config.placement == "shared":
        need(
            config.replicas == 1,
            "engine.vllm.placement=shared with several replicas would give each GPU to more than two",
            "Use one replica, with tensor_parallel over the trainer's GPUs",
        )
    else:
        need(not config.sleep, "engine.vllm.sleep frees the trainer's GPUs", "Use it with engine.vllm.placement=shared")


def gpus_of(config: VLLMConfig) -> int:
    """Return the GPUs of one replica."""
    return config.tensor_parallel * config.pipeline_parallel


def environment(config: VLLMConfig, replicas_on_node: int = 1) -> dict[str, str]:
    """Return the environment variables of a replica's processes, to be set before vLLM is imported."""
    variables = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    if config.device != "cpu":
        return variables
    threads = config.threads or max(1, len(os.sched_getaffinity(0)) // replicas_on_node)
    return variables | {
        # One process with the model; with more, vLLM would choose the cores itself.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        # By default vLLM keeps one core free and pins a thread to each other core, where it competes with other work.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(threads),
        # Spinning threads take the core from those they wait for: 2 instead of 50 tokens a second.
        "OMP_WAIT_POLICY": "PASSIVE",
    }
