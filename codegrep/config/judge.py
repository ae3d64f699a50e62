"""conf/judge: who decides whether a file that was read is relevant."""

from __future__ import annotations

from typing import Any, Literal

from codegrep.config.setting import group, setting


@group
class JudgeConfig:
    """conf/judge: the judge of mined files."""

    name: str = setting("label")
    kind: str = setting("dotted name of the judge's class")
    params: dict[str, Any] = setting("its keyword arguments, checked by the class", paper="GLM-5.1-FP8, 16 at a time")
    where: Literal["miners", "actors", "driver"] = setting(
        "miners: in the workers that mine; actors: in actors that wait for a server; driver: one Ray Data pipeline"
    )
    actors: int = setting("actors, with where=actors", ge=1)
    max_error_share: float = setting("candidates without a verdict beyond which the stage stops", ge=0, le=1)
    second: dict[str, Any] | None = setting(
        "a second judge on a sample, for agreement: kind, params, sample", default=None
    )
