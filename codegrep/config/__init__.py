"""The configuration, one module a group of conf/. Importing it loads neither torch nor ray nor mlflow.

A setting is declared once, as a field with type, bounds, choices and documentation; YAML files hold values only.
docs/reference/configuration.md is generated from the fields (codegrep/config/reference.py).
"""

from codegrep.config.advantage import AdvantageConfig
from codegrep.config.agent import AgentConfig
from codegrep.config.answer_judge import AnswerJudgeConfig
from codegrep.config.cluster import ClusterConfig, SubmitConfig
from codegrep.config.data import DataConfig, SourceConfig, SplitConfig
from codegrep.config.engine import EngineConfig, OpenAIConfig, SyncConfig, VLLMConfig
from codegrep.config.evaluate import MODELS, SCRIPTED, EvaluateConfig
from codegrep.config.experiment import Config
from codegrep.config.governance import GovernanceConfig
from codegrep.config.judge import JudgeConfig
from codegrep.config.labels import LabelsConfig
from codegrep.config.model import ModelConfig
from codegrep.config.retriever import RetrieverConfig
from codegrep.config.reward import FunctionConfig
from codegrep.config.sandbox import SandboxConfig
from codegrep.config.scale import ScaleConfig
from codegrep.config.sweep import SearchConfig
from codegrep.config.tools import SearchToolConfig, ToolsConfig
from codegrep.config.tracking import TrackingConfig
from codegrep.config.train import (
    CheckpointSelectionConfig,
    EarlyStopConfig,
    GRPOSettings,
    GuardRailsConfig,
    LoraSettings,
    RailConfig,
    TeacherConfig,
    TrainConfig,
    WarmStartConfig,
)
from codegrep.config.turn_scores import TurnScoresConfig

__all__ = [
    "AdvantageConfig",
    "AgentConfig",
    "AnswerJudgeConfig",
    "CheckpointSelectionConfig",
    "ClusterConfig",
    "Config",
    "DataConfig",
    "EarlyStopConfig",
    "EngineConfig",
    "EvaluateConfig",
    "FunctionConfig",
    "GRPOSettings",
    "GovernanceConfig",
    "GuardRailsConfig",
    "JudgeConfig",
    "LabelsConfig",
    "LoraSettings",
    "MODELS",
    "ModelConfig",
    "OpenAIConfig",
    "RailConfig",
    "RetrieverConfig",
    "SCRIPTED",
    "SandboxConfig",
    "ScaleConfig",
    "SearchConfig",
    "SearchToolConfig",
    "SourceConfig",
    "SplitConfig",
    "SubmitConfig",
    "SyncConfig",
    "TeacherConfig",
    "ToolsConfig",
    "TrackingConfig",
    "TrainConfig",
    "TurnScoresConfig",
    "VLLMConfig",
    "WarmStartConfig",
]
