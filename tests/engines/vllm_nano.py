"""The nano model with heads of 32 instead of 16, the smallest that vLLM's attention on a CPU knows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from omegaconf import OmegaConf
from transformers import LlamaConfig, LlamaForCausalLM

from codegrep.config import EngineConfig
from codegrep.config.reading import checked
from codegrep.engines.models import provide
from codegrep.engines.vllm_arguments import VLLMSpec

CONF = Path(__file__).parents[2] / "conf" / "engine" / "vllm.yaml"


def make(folder: Path) -> Path:
    """A folder with it, under `folder`."""
    nano = provide("provided:nano", folder)
    made = folder / "vllm-nano"
    shutil.copytree(nano, made)
    config = json.loads((nano / "config.json").read_text())
    config |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(made)
    return made


def spec(model: Path, *, lora_rank: int = 4, dtype: str = "float32", context: int = 1024) -> VLLMSpec:
    """Small in every way."""
    loaded = checked(EngineConfig, OmegaConf.to_container(OmegaConf.load(CONF)))
    assert loaded.vllm is not None
    loaded.max_batch = 16
    loaded.vllm.kv_cache_gib = 0.05
    loaded.vllm.threads = 1
    loaded.vllm.extra = {"block_size": 32}
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    return VLLMSpec(str(model), dtype, context, (2,), vocabulary, loaded, lora_rank)
