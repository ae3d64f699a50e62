"""The configuration, one module a group of conf/. Pure: importing it loads neither torch nor ray nor mlflow.

Defaults live in conf/; a field without a default here must be given there. Unknown keys and wrong types are refused by
`load` before anything is started, in one line.
"""

from codegrep.config.advantage import AdvantageConfig
from codegrep.config.agent import PROMPTS, AgentConfig
from codegrep.config.cluster import ClusterConfig, SubmitConfig
from codegrep.config.data import DataConfig, SourceConfig, SplitConfig
from codegrep.config.engine import EngineConfig, OpenAIConfig, SyncConfig, VLLMConfig
from codegrep.config.evaluate import BASELINES, MODELS, EvaluateConfig
from codegrep.config.experiment import STAGES, Config
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
from codegrep.config.train import (
    RAIL_ACTIONS,
    EarlyStopConfig,
    GRPOSettings,
    GuardRailsConfig,
    LadderConfig,
    LoraSettings,
    RailConfig,
    TeacherConfig,
    TrainConfig,
    WarmStartConfig,
)
from codegrep.config.verdict import VerdictConfig

__all__ = [
    "AdvantageConfig",
    "AgentConfig",
    "BASELINES",
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
    "LadderConfig",
    "LoraSettings",
    "MODELS",
    "ModelConfig",
    "OpenAIConfig",
    "PROMPTS",
    "ProcessConfig",
    "RAIL_ACTIONS",
    "RailConfig",
    "STAGES",
    "SandboxConfig",
    "ScaleConfig",
    "SearchConfig",
    "SourceConfig",
    "SplitConfig",
    "SubmitConfig",
    "SyncConfig",
    "TeacherConfig",
    "ToolsConfig",
    "TrackingConfig",
    "TrainConfig",
    "VLLMConfig",
    "VerdictConfig",
    "WarmStartConfig",
]
