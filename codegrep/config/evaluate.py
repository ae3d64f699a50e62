"""conf/evaluate: what is measured on held-out issues."""

from __future__ import annotations

from typing import Literal, get_args

from codegrep.config.setting import group, setting

Model = Literal["base", "warm_start", "trained", "loaded"]
MODELS: tuple[Model, ...] = get_args(Model)
SCRIPTED = ("first_row", "oracle", "oracle_met")
"""Rows of the scripted search; they are asked for like retrievers and have no file in conf/retriever."""


@group
class EvaluateConfig:
    """conf/evaluate."""

    models: list[Model] = setting("models that are measured")
    retrievers: list[str] = setting(
        "retrievers that are measured: files of conf/retriever, first_row, oracle, oracle_met"
    )
    temperature: float = setting("0: greedy", ge=0)
    bootstrap: int = setting("resamples of the intervals", ge=1)
    batch: int = setting("issues of a block, answered together", ge=1)
    actors: int = setting("agent actors", ge=1)
    loaded: str | None = setting("model in MLflow (models:/NAME@ALIAS) that is measured as `loaded`", default=None)
    latency_issues: int = setting(
        "issues that every retriever answers once more, one at a time, for its latency; 0: none", ge=0, default=0
    )
    targets: str | None = setting(
        "samples.parquet of `codegrep label` with target sets of held-out issues, reported beside the patch's files",
        default=None,
    )
