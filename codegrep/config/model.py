"""conf/model: the base model."""

from __future__ import annotations

from typing import Literal

from codegrep.config.setting import group, setting


@group
class ModelConfig:
    """conf/model."""

    path: str = setting("folder, hub id, or provided:NAME (made on this machine)", paper="Qwen3-14B")
    dtype: Literal["auto", "bfloat16", "float32"] = setting(
        "of the frozen base weights; auto: float32 on a CPU without bfloat16 instructions, else bfloat16"
    )
    context: int = setting("longest prompt and completion, tokens", ge=128)
    revision: str | None = setting("hub revision", default=None)
