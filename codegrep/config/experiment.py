"""conf/config.yaml: a whole experiment, one field a group."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import model_validator

from codegrep.config.advantage import AdvantageConfig
from codegrep.config.agent import AgentConfig
from codegrep.config.answer_judge import AnswerJudgeConfig
from codegrep.config.cluster import ClusterConfig
from codegrep.config.data import DataConfig
from codegrep.config.engine import EngineConfig
from codegrep.config.evaluate import EvaluateConfig
from codegrep.config.governance import GovernanceConfig
from codegrep.config.judge import JudgeConfig
from codegrep.config.labels import LabelsConfig
from codegrep.config.model import ModelConfig
from codegrep.config.retriever import RetrieverConfig
from codegrep.config.reward import FunctionConfig
from codegrep.config.sandbox import SandboxConfig
from codegrep.config.scale import ScaleConfig
from codegrep.config.setting import group, setting
from codegrep.config.sweep import SearchConfig
from codegrep.config.tools import ToolsConfig
from codegrep.config.tracking import TrackingConfig
from codegrep.config.train import TrainConfig
from codegrep.config.turn_scores import TurnScoresConfig

Stage = Literal["prepare", "label", "warm_start", "train", "evaluate", "report"]


@group
class Config:
    """A whole experiment."""

    name: str = setting("label of the run; an experiment file sets it", min_length=1)
    seed: int = setting("of training and sampling; the split has its own", ge=0)
    outputs: str = setting("folder that everything is written under", min_length=1)
    stages: list[Stage] = setting("stages to run; finished ones are skipped", min_length=1)
    data: DataConfig = setting("see data")
    labels: LabelsConfig = setting("see labels")
    judge: JudgeConfig = setting("see judge")
    model: ModelConfig = setting("see model")
    engine: EngineConfig = setting("see engine")
    tools: ToolsConfig = setting("see tools")
    agent: AgentConfig = setting("see agent")
    reward: FunctionConfig = setting("see reward")
    advantage: AdvantageConfig = setting("see advantage")
    governance: GovernanceConfig = setting("see governance")
    turn_scores: TurnScoresConfig = setting("see turn_scores")
    answer_judge: AnswerJudgeConfig = setting("see answer_judge")
    train: TrainConfig = setting("see train")
    evaluate: EvaluateConfig = setting("see evaluate")
    retrievers: dict[str, RetrieverConfig] = setting("see retrievers")
    sandbox: SandboxConfig = setting("see sandbox")
    scale: ScaleConfig = setting("see scale")
    cluster: ClusterConfig = setting("see cluster")
    tracking: TrackingConfig = setting("see tracking")
    sweep: SearchConfig | None = setting("see sweep; null: one run", default=None)

    @property
    def outputs_path(self) -> Path:
        """`outputs` as an absolute path."""
        return Path(self.outputs).expanduser().absolute()

    @model_validator(mode="after")
    def _groups_fit_together(self) -> Config:
        for wrong, what in (
            (self.labels.enabled and not self.labels.trajectories, "labels.trajectories is empty; name some files"),
            (
                self.stages == ["label"] and not self.labels.enabled,
                "the stage label has nothing to do; add labels=catm and labels.trajectories=[…]",
            ),
            (
                self.train.full_parameters and self.model.dtype == "bfloat16",
                "train.full_parameters=true loses small steps with model.dtype=bfloat16; set float32",
            ),
            (
                self.train.grpo.sampling_correction != "none" and self.engine.sync.max_staleness > 0,
                "train.grpo.sampling_correction and engine.sync.max_staleness both correct for the sampler; use one",
            ),
            (
                ("loaded" in self.evaluate.models) != bool(self.evaluate.loaded),
                "evaluate.models and evaluate.loaded do not fit together; measure a model of MLflow with "
                "python -m codegrep evaluate model=models:/NAME@ALIAS",
            ),
            (not (self.evaluate.models or self.evaluate.retrievers), "evaluate.models and retrievers are both empty"),
            (self._selection_takes_all(), self._selection_advice()),
            (
                self.sweep is not None and not (self.train.checkpoint_selection.every and self.train.grpo.enabled),
                "a search needs train.checkpoint_selection.every above 0 and train.grpo.enabled",
            ),
        ):
            if wrong:
                raise ValueError(what)
        return self

    def _selection_takes_all(self) -> bool:
        selection, split = self.train.checkpoint_selection, self.data.split
        return bool(selection.every and split.max_held_out and not split.validation) and (
            selection.issues >= split.max_held_out
        )

    def _selection_advice(self) -> str:
        issues = self.train.checkpoint_selection.issues
        return (
            f"train.checkpoint_selection.issues={issues} takes all {self.data.split.max_held_out} held-out issues "
            "(data.split.max_held_out); use about half of them"
        )
