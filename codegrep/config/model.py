"""conf/model: the base model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ModelConfig:
    """conf/model.

    Attributes:
        path: local folder or hub id; "provided:smollm2-135m-instruct" and "provided:nano" are made on this machine.
        dtype: "bfloat16" or "float32": the dtype of the frozen base weights.
        revision: hub revision, or None.
        context: longest prompt + completion, tokens.
    """

    path: str
    dtype: str
    context: int
    revision: str | None = None
