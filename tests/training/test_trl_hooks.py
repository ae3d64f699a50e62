from __future__ import annotations

import importlib.metadata

import pytest
import torch
from trl import GRPOTrainer

from codegrep.training.trl_hooks import TRL_TESTED, missing_seams, trim_padding


def test_trl_has_what_is_overridden() -> None:
    assert not missing_seams()


def test_trl_is_the_version_that_was_read() -> None:
    assert importlib.metadata.version("trl").startswith(TRL_TESTED), (
        "read the overridden methods again, then move the pin"
    )


def test_a_changed_trl_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model: 0)
    missing = missing_seams()
    assert any("_compute_loss has no parameter inputs" in text for text in missing)
    monkeypatch.delattr(GRPOTrainer, "_prepare_inputs")
    assert any("_prepare_inputs is gone" in text or "_prepare_inputs" in text for text in missing_seams())


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
