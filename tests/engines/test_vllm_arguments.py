"""The configuration of vLLM, checked without starting it; where vLLM is installed its own classes check it too."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from codegrep.compose import CONF, load
from codegrep.config import Config, VLLMConfig
from codegrep.engines.vllm_arguments import VLLMSpec, check_vllm, engine_arguments, environment
from codegrep.errors import ConfigError
from codegrep.pipeline.policies.engines import backend_of
from tests.sweeps.composed import PATHS

HAS_VLLM = importlib.util.find_spec("vllm") is not None
needs_vllm = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed (make cpu-engine)")
PAPER = ("scale=paper", *PATHS)


def config_of(*overrides: str) -> Config:
    with initialize_config_dir(str(CONF), version_base=None):
        return load(compose("config", ["+experiment=v3", *overrides]))


def spec_of(config: Config, lora_rank: int = 32) -> VLLMSpec:
    return VLLMSpec("model", config.model.dtype, config.model.context, (2,), 100, config.engine, lora_rank, 3)


def vllm_of(config: Config) -> VLLMConfig:
    assert config.engine.vllm is not None
    return config.engine.vllm


def test_the_papers_engine() -> None:
    config = config_of(*PAPER)
    arguments = engine_arguments(spec_of(config))
    wanted = {
        "tensor_parallel_size": 8,
        "gpu_memory_utilization": 0.35,
        "enable_prefix_caching": True,
        "enable_sleep_mode": True,
        "enforce_eager": False,
        "max_model_len": 32768,
        "dtype": "bfloat16",
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": 32,
        "logprobs_mode": "raw_logprobs",
        "distributed_executor_backend": "mp",
    }
    assert {key: arguments[key] for key in wanted} == wanted
    assert "kv_cache_memory_bytes" not in arguments
    backend_of(config.engine).check(config)


@needs_vllm
@pytest.mark.parametrize("overrides", [PAPER, ("engine=vllm",), ("engine=vllm", "engine.vllm.replicas=2")])
def test_vllm_takes_every_argument(overrides: tuple[str, ...], tmp_path: Path) -> None:
    """AsyncEngineArgs knows the names; vLLM's own checked dataclasses know the values. No GPU is needed for either."""
    from vllm import AsyncEngineArgs
    from vllm.config import CacheConfig, LoRAConfig, ParallelConfig

    arguments = engine_arguments(spec_of(config_of(*overrides)))
    made = AsyncEngineArgs(**arguments)
    LoRAConfig(max_lora_rank=made.max_lora_rank, max_loras=made.max_loras, max_cpu_loras=made.max_cpu_loras)
    CacheConfig(
        gpu_memory_utilization=made.gpu_memory_utilization,
        enable_prefix_caching=made.enable_prefix_caching,
        kv_cache_memory_bytes=made.kv_cache_memory_bytes,
    )
    ParallelConfig(
        tensor_parallel_size=made.tensor_parallel_size,
        pipeline_parallel_size=made.pipeline_parallel_size,
        distributed_executor_backend="mp",
        worker_extension_cls=made.worker_extension_cls,
    )
    with pytest.raises(TypeError):
        AsyncEngineArgs(**arguments, no_such_argument=1)


def test_the_engine_on_a_cpu() -> None:
    config = config_of("engine=vllm", "scale=laptop")
    arguments = engine_arguments(spec_of(config, lora_rank=20))
    assert arguments["kv_cache_memory_bytes"] == 2**29 and arguments["max_lora_rank"] == 32
    # a seeded request whose prompt is split would end the engine
    assert arguments["enable_chunked_prefill"] is False
    assert arguments["max_num_batched_tokens"] >= arguments["max_model_len"]
    assert "enable_lora" not in engine_arguments(spec_of(config, lora_rank=0))
    variables = environment(replace(vllm_of(config), threads=3))
    assert variables["OMP_NUM_THREADS"] == "3" and variables["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_NUM_THREADS" not in environment(replace(vllm_of(config), device="cuda"))


@pytest.mark.parametrize(
    ("key", "value"), [("device", "tpu"), ("placement", "beside"), ("replicas", "0"), ("memory_share", "1.5")]
)
def test_a_value_out_of_bounds_is_refused_by_its_key(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"engine\.vllm\.{key}"):
        config_of("engine=vllm", f"engine.vllm.{key}={value}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tensor_parallel": 2}, "needs GPUs"),
        ({"sleep": True}, "sleep needs GPUs"),
        ({"placement": "shared"}, "shared needs GPUs"),
        ({"device": "cuda", "sleep": True}, "placement=shared"),
        ({"device": "cuda", "placement": "shared", "replicas": 2}, "several replicas"),
    ],
)
def test_impossible_combinations_name_the_key(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_vllm(replace(vllm_of(config_of("engine=vllm")), **change))


def test_extra_arguments_pass_through_but_never_over_ours() -> None:
    config = config_of("engine=vllm", "+engine.vllm.extra.block_size=32")
    assert engine_arguments(spec_of(config))["block_size"] == 32
    with pytest.raises(ConfigError, match="extra holds max_model_len"):
        engine_arguments(spec_of(config_of("engine=vllm", "+engine.vllm.extra.max_model_len=1")))
    with pytest.raises(ConfigError, match="above vLLM's largest"):
        engine_arguments(spec_of(config_of("engine=vllm"), lora_rank=1000))


def test_backends_refuse_what_they_cannot_do() -> None:
    def check(*overrides: str) -> None:
        config = config_of(*overrides)
        backend_of(config.engine).check(config)

    check()
    check("engine=vllm")
    check("engine=vllm", "engine.sync.max_staleness=2")
    check("engine=openai", "engine.openai.model=m", "stages=[prepare,evaluate,report]", "evaluate.models=[base]")
    with pytest.raises(ConfigError, match="GRPO cannot train"):
        check("engine=openai", "engine.openai.model=m", "evaluate.models=[base]")
    with pytest.raises(ConfigError, match=r"evaluate\.models"):
        check("engine=openai", "engine.openai.model=m", "stages=[evaluate]")
    with pytest.raises(ConfigError, match="weights of its own"):
        check("engine.sync.max_staleness=1")
    with pytest.raises(ConfigError, match=r"temperature=1"):
        check("engine=vllm", "engine.sync.max_staleness=1", "train.grpo.temperature=0.7")
    with pytest.raises(ConfigError, match=r"engine\.backend=no\.such"):
        check("engine.backend=no.such.Thing")


@pytest.mark.skipif(HAS_VLLM, reason="vLLM is installed")
def test_without_vllm_one_line_says_how_to_get_it() -> None:
    from codegrep.engines.vllm_engine import need_vllm

    with pytest.raises(ConfigError, match="make cpu-engine"):
        need_vllm()
