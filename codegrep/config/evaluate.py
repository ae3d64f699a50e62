"""conf/evaluate: what is measured on held-out issues."""

from __future__ import annotations

from dataclasses import dataclass

MODELS = ("base", "warm_start", "trained", "loaded")
BASELINES = ("bm25", "bm25_no_tests", "first_row", "oracle", "oracle_met")


@dataclass
class EvaluateConfig:
    """conf/evaluate.

    Attributes:
        models: which of MODELS are measured.
        baselines: which of BASELINES are measured.
        temperature: 0 is greedy. bootstrap: resamples.
        batch: issues a block.
        actors: agent actors.
        latency_issues: issues that every retriever answers once more, one at a time, for its latency; 0 measures none.
        targets: samples.parquet of `python -m codegrep label` with target sets of held-out issues, which results are
            given against too, beside the patch's files; None where there are none.
        loaded: model in MLflow that is measured as "loaded" (models:/NAME@ALIAS and the like); None where it is not
            among `models`.
    """

    models: list[str]
    baselines: list[str]
    temperature: float
    bootstrap: int
    batch: int
    actors: int
    loaded: str | None = None
    latency_issues: int = 0
    targets: str | None = None
