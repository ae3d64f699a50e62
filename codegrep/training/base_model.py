"""The base model, as workers load it."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from codegrep.engines.models import load_model, load_tokenizer, provide


@dataclass(frozen=True)
class BaseModel:
    """Where the base comes from; picklable, so that workers load it themselves.

    Attributes:
        path: as model.path: a local folder, "provided:NAME" or a hub id.
        dtype: "bfloat16" or "float32", of the weights.
        revision: hub revision, or None.
    """

    path: str
    dtype: str
    revision: str | None = None

    def load(self, trainable: bool = False) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Model in training mode, and its tokenizer with a pad token.

        Args:
            trainable: all weights are trained; else they are frozen and an adapter is.

        Raises:
            ModelError: the folder lacks something.
        """
        folder = provide(self.path, revision=self.revision)
        model = load_model(folder, self.dtype)
        model.requires_grad_(trainable)
        model.train()
        return model, load_tokenizer(folder)
