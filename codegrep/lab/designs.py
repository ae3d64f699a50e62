"""Training signals by name, as an experiment trains with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from codegrep.compose import compose_overrides, explain
from codegrep.conf_folder import CONF
from codegrep.config import AdvantageConfig, AnswerJudgeConfig, FunctionConfig, GovernanceConfig
from codegrep.config.reading import checked
from codegrep.errors import ConfigError
from codegrep.judges.answer_judging import AnswerJudging
from codegrep.overrides import override
from codegrep.rewards.needs import Need, needs
from codegrep.rewards.signal import TrainingSignal
from codegrep.training.signals import load_answer_judge, load_signal

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
    """A named training signal.

    Attributes:
        name: of the experiment, or the label given.
        signal: from outcomes to advantages.
        summary: the configuration in one line.
        kl: coefficient of KL against the initial policy, as in conf/loss.
    """

    name: str
    signal: TrainingSignal
    summary: str = ""
    kl: float = 0.0

    @property
    def needs(self) -> frozenset[Need]:
        """What the reward depends on beyond files and calls."""
        return needs(self.signal.reward)


def load_designs(specs: Sequence[str], config_dir: Path | None = None) -> list[Design]:
    """Load designs by name.

    Args:
        specs: each an experiment ("v3"), or overrides of the configuration behind a label
            ("no_factor: reward=v3 advantage=none").
        config_dir: a folder laid out as conf/, that is searched too.

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


def load_judge(overrides: str, config_dir: Path | None = None) -> Callable[[Path | None], AnswerJudging]:
    """Return what opens a judge of answers, for replays.

    Args:
        overrides: of the configuration: "answer_judge=llm answer_judge.params.model=NAME".
        config_dir: as in `load_designs`.

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
    if load_answer_judge(config).judge is None:
        raise ConfigError(
            f"--judge {overrides!r} names no judge", 'Give "answer_judge=llm answer_judge.params.model=NAME"'
        )
    return functools.partial(load_answer_judge, config)


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
        load_signal(reward, advantage, governance),
        f"reward {reward.name}, advantage {advantage.name}{baseline}{scale}, governance {governance.name}",
        kl,
    )


def _plain(node: Any) -> dict[str, Any]:
    return {str(key): value for key, value in cast(dict[Any, Any], OmegaConf.to_container(node, resolve=True)).items()}
