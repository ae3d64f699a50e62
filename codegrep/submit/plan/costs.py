"""Unit costs that a plan is computed from. Each says where it comes from; those that were not measured say so."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from codegrep.errors import ConfigError

MEASURED = "scripts/bench/unit_costs.py"
_ONE_MACHINE = f"{MEASURED} --quick, 2 cores (x86-64)"


@dataclass(frozen=True)
class Cost:
    """One number. measured: by this project; otherwise `source` says whose number or which assumption it is."""

    value: float
    unit: str
    source: str
    measured: bool = False


@dataclass(frozen=True)
class Costs:
    """All unit costs. Times of the sandbox are CPU time, which a busy machine does not stretch."""

    call_cpu: Cost = Cost(0.018, "CPU s / tool call", _ONE_MACHINE, True)
    call_own_cpu: Cost = Cost(0.0084, "CPU s / tool call, in the actor's one thread", _ONE_MACHINE, True)
    call_seconds: Cost = Cost(0.1, "s / turn of calls on a free machine", "assumed; the benchmark tells it")
    tree_cpu: Cost = Cost(0.00021, "CPU s / file of a new worktree", _ONE_MACHINE, True)
    tree_file_bytes: Cost = Cost(15_000, "B / file of a worktree", _ONE_MACHINE, True)
    record_token_bytes: Cost = Cost(3.6, "B / token of a stored rollout", _ONE_MACHINE, True)
    clone_bytes: Cost = Cost(84 * 2**20, "B / bare clone", "disk of 19 full clones of Python projects, mean")
    tree_files: Cost = Cost(1_500, "files / repository", "assumed: a middling Python project; pandas has 2,600")
    commits_per_repository: Cost = Cost(6, "base commits / repository", "assumed: SWE-rebench has 21,336 for 3,468")
    adapter_bytes: Cost = Cost(4.0, "B / LoRA parameter", "float32, as it is saved")
    clone_rate: Cost = Cost(20e6, "B / s for one clone", "assumed: a public host to a data centre")
    gpu_flops: Cost = Cost(2.25e15, "FLOP/s of a GPU, dense bf16", "data sheet of the B200, the paper's GPU")
    gpu_bandwidth: Cost = Cost(8.0e12, "B / s of GPU memory", "data sheet of the B200")
    gpu_bytes: Cost = Cost(180e9, "B of GPU memory", "data sheet of the B200")
    core_flops: Cost = Cost(2.1e11, "FLOP/s of a core in training, bf16", "from 525 tokens/s of SmolLM2-135M, 2 cores")
    core_bandwidth: Cost = Cost(2.8e9, "B / s of a core in decoding", "from 330 tokens/s of SmolLM2-135M, 16 streams")
    train_mfu: Cost = Cost(0.35, "share of peak FLOP/s in training", "assumed; no GPU has been measured here")
    decode_mbu: Cost = Cost(0.5, "share of peak bandwidth in decoding", "assumed; no GPU has been measured here")
    decode_streams: Cost = Cost(64, "sequences that a GPU decodes at once", "assumed: rollouts of a step over its GPUs")
    rollout_tokens: Cost = Cost(0.5, "sampled share of agent.max_completion_tokens", "assumed; see --rollout-tokens")
    turns_used: Cost = Cost(2.5, "turns with calls, of agent.exploration_turns", "CodeGrep's curves: 3.5 down to 2.1")
    calls_used: Cost = Cost(4, "calls of such a turn", "CodeGrep's target for c̄")
    prompt_tokens: Cost = Cost(2_000, "tokens of prompt and issue", "assumed for the detailed prompt")
    observation_chars: Cost = Cost(0.5, "share of tools.max_chars that a result fills", "assumed")
    chars_per_token: Cost = Cost(3.5, "characters / token of code", "assumed for Qwen3's tokenizer")


def with_measured(costs: Costs, file: Path) -> Costs:
    """Return the costs with the values of a file that scripts/bench/unit_costs.py wrote on this machine.

    Raises:
        ConfigError: the file is no such file.
    """
    try:
        lines = file.read_text(encoding="utf-8").strip().splitlines()
        found: dict[str, Any] = dict(json.loads(lines[-1])["costs"])
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        raise ConfigError(f"{file} holds no unit costs", f"Make it: python {MEASURED} > {file}") from None
    known = {f.name for f in fields(costs)}
    if unknown := sorted(set(found) - known):
        raise ConfigError(f"{file} holds unknown unit costs {unknown}", "Make it anew")
    changed = {
        name: replace(getattr(costs, name), value=float(value), source=f"{file.name}, this machine", measured=True)
        for name, value in found.items()
    }
    return replace(costs, **changed)
