"""conf/data: where issues come from and how they are split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class SourceConfig:
    """One source of issues (conf/data).

    Attributes:
        kind: dotted name of the source's class.
        args: its keyword arguments, checked by the class.
        use: "split" takes part in the split, "train" is training material only (its repositories may not be held out).
        limit: at most so many issues, drawn from the seed; 0 means all. Issues of a source with use=train that choose
            checkpoints do not count.
    """

    kind: str
    args: dict[str, Any] = field(default_factory=dict)
    use: str = "split"
    limit: int = 0


@dataclass
class SplitConfig:
    """How issues are divided, once, from the seed.

    Attributes:
        by: "repository", or "instance" for one-repository data.
        held_out: what is held out: repositories (owner/name), or roles of conf/roles.yaml; empty means a share drawn
            from the seed.
        validation: repositories or roles whose issues choose checkpoints; they are neither trained nor reported on.
        enforce_roles: never train on or choose by a repository that conf/roles.yaml keeps for something else. False is
            for work that stands beside no result of this project.
        held_out_share: share of the units (repositories or instances) held out when none is named.
        seed: own seed, so that training seeds share one split.
        max_train, max_held_out: cut after the split, drawn from the seed; 0 means all.
    """

    by: str = "repository"
    held_out: list[str] = field(default_factory=list)
    validation: list[str] = field(default_factory=list)
    enforce_roles: bool = True
    held_out_share: float = 0.25
    seed: int = 0
    max_train: int = 0
    max_held_out: int = 0


@dataclass
class DataConfig:
    """conf/data: where issues come from and how they are split.

    Attributes:
        gold_entities: look up the classes and functions that the gold patches touch, for rewards that score them; needs
            gold line ranges, Python files, and some seconds for each thousand issues.
        max_missing_gold: share of the training issues that may lack gold lines or entities that the reward scores; with
            more of them nothing is trained. 1 allows all.
    """

    name: str
    sources: dict[str, SourceConfig]
    split: SplitConfig
    gold_entities: bool = False
    max_missing_gold: float = 0.1
