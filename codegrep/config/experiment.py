"""conf/config.yaml: a whole experiment, one field a group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from codegrep.config.advantage import AdvantageConfig
from codegrep.config.agent import AgentConfig
from codegrep.config.cluster import ClusterConfig
from codegrep.config.data import DataConfig
from codegrep.config.engine import EngineConfig
from codegrep.config.evaluate import EvaluateConfig
from codegrep.config.governance import GovernanceConfig
from codegrep.config.judge import JudgeConfig
from codegrep.config.labels import LabelsConfig
from codegrep.config.model import ModelConfig
from codegrep.config.process import ProcessConfig
from codegrep.config.reward import FunctionConfig
from codegrep.config.sandbox import SandboxConfig
from codegrep.config.scale import ScaleConfig
from codegrep.config.sweep import SearchConfig
from codegrep.config.tools import ToolsConfig
from codegrep.config.tracking import TrackingConfig
from codegrep.config.train import TrainConfig
from codegrep.config.verdict import VerdictConfig

STAGES = ("prepare", "label", "warm_start", "train", "evaluate", "report")


@dataclass
class Config:
    """A whole experiment. `name` labels the run; `outputs` is the folder that everything is written under."""

    name: str
    seed: int
    outputs: str
    stages: list[str]
    data: DataConfig
    labels: LabelsConfig
    judge: JudgeConfig
    model: ModelConfig
    engine: EngineConfig
    tools: ToolsConfig
    agent: AgentConfig
    reward: FunctionConfig
    advantage: AdvantageConfig
    governance: GovernanceConfig
    process: ProcessConfig
    verdict: VerdictConfig
    train: TrainConfig
    evaluate: EvaluateConfig
    sandbox: SandboxConfig
    scale: ScaleConfig
    cluster: ClusterConfig
    tracking: TrackingConfig
    sweep: SearchConfig | None = None

    @property
    def outputs_path(self) -> Path:
        """`outputs` as an absolute path."""
        return Path(self.outputs).expanduser().absolute()
