from __future__ import annotations

import importlib.metadata
import inspect

import pytest
import torch
from trl import GRPOTrainer

from codegrep.training.trl_hooks import trim_padding

TRL_TESTED = "1.16"

# Method -> parameters that are relied upon.
_METHODS: dict[str, tuple[str, ...]] = {
    "_generate": ("prompts",),
    "_generate_and_score_completions": ("inputs",),
    "_prepare_inputs": ("generation_batch",),
    "_compute_loss": ("model", "inputs"),
    "_get_per_token_logps_and_entropies": (
        "model",
        "input_ids",
        "attention_mask",
        "logits_to_keep",
        "batch_size",
        "compute_entropy",
        "compute_aux_loss",
    ),
    "training_step": ("model", "inputs", "num_items_in_batch"),
    "log": ("logs", "start_time"),
}
# Text in a method's source that an override here reproduces or reads.
_SOURCE: dict[str, tuple[str, ...]] = {
    "_generate": ('extra_fields.pop("env_mask", None)', "return prompt_ids, completion_ids, tool_mask"),
    "_generate_and_score_completions": ('"advantages": advantages', 'output["tool_mask"]', "torch.nanmean"),
    "_prepare_inputs": ("self._buffered_inputs", "self._step % generate_every == 0", "split_tensor_dict"),
    "_compute_loss": (
        'inputs["tool_mask"]',
        "advantages.dim() == 1",
        'advantages = inputs["advantages"]',
        'inputs.get("old_per_token_logps")',
    ),
    "log": ("self._metrics[mode].items()", "logs.update(metrics)"),
    "training_step": ('self._metrics["train"]["step_time"]',),
}
# Text that has to come in this order: advantages are weighed between scoring and the loss.
_ORDER: dict[str, tuple[str, ...]] = {
    "_compute_loss": ("self._get_per_token_logps_and_entropies(", 'advantages = inputs["advantages"]'),
}


def missing_hooks() -> list[str]:
    """What trl_hooks overrides in TRL and no longer finds there."""
    missing = []
    for name, parameters in _METHODS.items():
        method = getattr(GRPOTrainer, name, None)
        if method is None:
            missing.append(f"GRPOTrainer.{name} is gone")
            continue
        method = inspect.unwrap(method)
        known = inspect.signature(method).parameters
        missing += [f"GRPOTrainer.{name} has no parameter {p}" for p in parameters if p not in known]
        source = inspect.getsource(method)
        missing += [f"GRPOTrainer.{name} no longer has: {text}" for text in _SOURCE.get(name, ()) if text not in source]
        places = [source.find(text) for text in _ORDER.get(name, ())]
        if places != sorted(places):
            missing.append(f"GRPOTrainer.{name} no longer does these in turn: {', '.join(_ORDER[name])}")
    return missing


def test_trl_has_what_is_overridden() -> None:
    assert not missing_hooks()


def test_trl_is_the_version_that_was_read() -> None:
    assert importlib.metadata.version("trl").startswith(TRL_TESTED), (
        "read the overridden methods again, then move the pin"
    )


def test_a_changed_trl_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model: 0)
    missing = missing_hooks()
    assert any("_compute_loss has no parameter inputs" in text for text in missing)
    monkeypatch.delattr(GRPOTrainer, "_prepare_inputs")
    assert any("_prepare_inputs is gone" in text or "_prepare_inputs" in text for text in missing_hooks())


def test_trim_cuts_padding_only() -> None:
    inputs = {
        "prompt_ids": torch.tensor([[0, 0, 1, 2], [0, 3, 4, 5]]),
        "prompt_mask": torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]]),
        "completion_ids": torch.tensor([[6, 0, 0], [7, 8, 0]]),
        "completion_mask": torch.tensor([[1, 0, 0], [1, 1, 0]]),
        "tool_mask": torch.ones(2, 3),
        "advantages": torch.zeros(2),
    }
    trimmed = trim_padding(inputs)
    assert trimmed["prompt_ids"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert trimmed["completion_ids"].tolist() == [[6, 0], [7, 8]]
    assert trimmed["tool_mask"].shape == (2, 2)
