"""The base model as training workers load it, and the model of a checkpoint where all weights are trained."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from codegrep.engines.models import load_model, load_tokenizer, provide


@dataclass(frozen=True)
class BaseModel:
    """Where the base model comes from; picklable, so that each worker loads it.

    Attributes:
        path: as model.path: a local folder, "provided:NAME" or a hub id.
        dtype: "bfloat16" or "float32", of the weights.
    """

    path: str
    dtype: str

    def load(self, trainable: bool = False) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Load the model in training mode, and its tokenizer with a pad token.

        Args:
            trainable: train all weights; otherwise they are frozen for an adapter.

        Raises:
            ModelError: the folder is incomplete.
        """
        folder = provide(self.path)
        model = load_model(folder, self.dtype)
        model.requires_grad_(trainable)
        model.train()
        return model, load_tokenizer(folder)


def keep_model(checkpoint: Path, start: Path, out: Path) -> None:
    """Copy the model of a checkpoint, without optimiser and progress, to a folder that engines can load.

    Args:
        checkpoint: of a trainer that trained all weights.
        start: the model that training began from; its tokenizer is copied too.
        out: replaced if it exists.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for pattern in ("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json"):
        for path in checkpoint.glob(pattern):
            shutil.copyfile(path, out / path.name)
    load_tokenizer(start).save_pretrained(str(out))
