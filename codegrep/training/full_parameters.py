"""Where all weights are trained: the model inside a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

from codegrep.engines.models import load_tokenizer


def keep_model(checkpoint: Path, start: Path, out: Path) -> None:
    """Copy the model of a trainer's checkpoint, without optimiser and progress, into a folder that engines can load.

    Args:
        start: the model that training began from; its tokenizer goes along.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for pattern in ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json"):
        for path in checkpoint.glob(pattern):
            shutil.copyfile(path, out / path.name)
    load_tokenizer(start).save_pretrained(str(out))
