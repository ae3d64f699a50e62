"""A whole training signal by name: reward, factor, baseline, scale and governance, as an experiment trains with it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from codegrep.compose import CONF, compose_overrides, explain
from codegrep.config import AdvantageConfig, AnswerJudgeConfig, FunctionConfig, GovernanceConfig
from codegrep.config.reading import checked
from codegrep.errors import ConfigError
from codegrep.judges.verdicts import Verdicts
from codegrep.overrides import override
from codegrep.rewards.advantage import Baseline, Scale
from codegrep.rewards.governance import Rules
from codegrep.rewards.load import load_advantage, load_reward
from codegrep.rewards.needs import Need, needs
from codegrep.rewards.outcome import AdvantageFactor, RewardDesign
from codegrep.training.signals import load_governance, load_verdicts

# The designs of the papers, as the documentation shows them side by side.
SHIPPED = (
    "v1",
    "v2",
    "v3",
    "swe_grep",
    "colgrep",
    "colgrep_f2: reward=colgrep_f2 advantage=dr_grpo loss=colgrep",
    "colgrep_entities: reward=colgrep_entities advantage=dr_grpo loss=colgrep",
    "codescout",
    "tiered: reward=tiered advantage=none reward.params.judge=score loss=signal_reshaping",
)


@dataclass(frozen=True)
class Design:
    """What turns a group of outcomes into advantages.

    Attributes:
        name: of the experiment, or as given.
        reward, factor, baseline, scale, rules: as in conf/reward, conf/advantage and conf/governance.
        kl: coefficient of KL against the initial policy, as in conf/loss.
        summary: the configuration in one line.
    """

    name: str
    reward: RewardDesign
    factor: AdvantageFactor
    baseline: Baseline = "mean"
    scale: Scale = "group"
    rules: Rules = field(default_factory=Rules)
    summary: str = ""
    kl: float = 0.0

    @property
    def needs(self) -> frozenset[Need]:
        """See `codegrep.rewards.needs`."""
        return needs(self.reward)


def load_designs(specs: Sequence[str], config_dir: Path | None = None) -> list[Design]:
    """Designs by name.

    Args:
        specs: each an experiment ("v3"), or overrides of the configuration behind a label
            ("no_factor: reward=v3 advantage=none").
        config_dir: a folder of one's own, laid out as conf/, that is searched too.

    Raises:
        ConfigError: no such experiment, key or function, or two designs of one name.
    """
    designs: list[Design] = []
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for spec in specs:
            design = _load(spec, config_dir)
            if any(design.name == other.name for other in designs):
                raise ConfigError(f"two designs are called {design.name}", 'Give one a label: "label: reward=…"')
            designs.append(design)
    return designs


def load_judge(overrides: str, config_dir: Path | None = None) -> Callable[[Path | None], Verdicts]:
    """Load a judge of answers by overrides ("answer_judge=llm answer_judge.params.model=NAME"), for replays.

    Args:
        config_dir: see `load_designs`.

    Raises:
        ConfigError: no such key or class, a value that is missing, or overrides that name no judge.
    """
    words = overrides.split()
    if config_dir is not None:
        words.append(override("hydra.searchpath", [f"file://{config_dir.absolute()}"]))
    node = compose_overrides(words).answer_judge
    missing = sorted(OmegaConf.missing_keys(node))
    if missing:
        raise ConfigError(
            f"answer_judge.{missing[0]} is not set",
            f'Give it with --judge "answer_judge=… answer_judge.{missing[0]}=…"',
        )
    config = checked(AnswerJudgeConfig, _plain(node), "answer_judge.")
    if load_verdicts(config).judge is None:
        raise ConfigError(
            f"--judge {overrides!r} names no judge", 'Give "answer_judge=llm answer_judge.params.model=NAME"'
        )
    return functools.partial(load_verdicts, config)


def _load(spec: str, config_dir: Path | None) -> Design:
    label, colon, rest = spec.partition(":")
    if colon or "=" in spec:
        name, overrides = (label.strip(), rest.split()) if colon else ("", spec.split())
    else:
        name, overrides = spec.strip(), [f"+experiment={spec.strip()}"]
    if not overrides:
        raise ConfigError(f"design {spec!r} names nothing", 'Give an experiment, or "label: reward=v3 advantage=none"')
    if config_dir is not None:
        overrides.append(override("hydra.searchpath", [f"file://{config_dir.absolute()}"]))
    try:
        config = compose("config", overrides=overrides)
        reward = checked(FunctionConfig, _plain(config.reward), "reward.")
        advantage = checked(AdvantageConfig, _plain(config.advantage), "advantage.")
        governance = checked(GovernanceConfig, _plain(config.governance), "governance.")
        kl = float(config.train.grpo.kl)
    except (HydraException, OmegaConfBaseException, ValueError, TypeError) as error:
        raise explain(error) from None
    scale = "" if advantage.scale == "group" else f", scale {advantage.scale}"
    baseline = "" if advantage.baseline == "mean" else f", baseline {advantage.baseline}"
    return Design(
        name or f"{reward.name}+{advantage.name}",
        load_reward(reward),
        load_advantage(advantage),
        advantage.baseline,
        advantage.scale,
        load_governance(governance),
        f"reward {reward.name}, advantage {advantage.name}{baseline}{scale}, governance {governance.name}",
        kl,
    )


def _plain(node: Any) -> dict[str, Any]:
    return {str(key): value for key, value in cast(dict[Any, Any], OmegaConf.to_container(node, resolve=True)).items()}
