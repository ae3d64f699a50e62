from __future__ import annotations

from pathlib import Path

import pytest
import torch

from codegrep.engines.models import provide


@pytest.fixture(scope="session")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nano model: real architecture, real tokenizer, random weights."""
    torch.set_num_threads(1)
    return provide("provided:nano", tmp_path_factory.mktemp("models"))
