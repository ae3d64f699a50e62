"""conf/model: the base model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ModelConfig:
    """conf/model.

    Attributes:
        path: local folder or hub id; "provided:smollm2-135m-instruct" and "provided:nano" are made on this machine.
        dtype: "bfloat16" or "float32", of the frozen base weights; "auto" is resolved when the configuration is loaded:
            float32 on a CPU without bfloat16 instructions, else bfloat16.
        revision: hub revision, or None.
        context: longest prompt + completion, tokens.
    """

    path: str
    dtype: str
    context: int
    revision: str | None = None
