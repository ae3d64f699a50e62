"""conf/data: where issues come from and how they are split."""

from __future__ import annotations

from typing import Any, Literal

from codegrep.config.setting import group, setting


@group
class SourceConfig:
    """data.sources.<name>: one source of issues."""

    kind: str = setting("dotted name of the source's class")
    args: dict[str, Any] = setting("its keyword arguments, checked by the class", default_factory=dict)
    use: Literal["split", "train"] = setting(
        "split: divided by the split; train: for training only, held-out repositories are left out", default="split"
    )
    limit: int = setting("issues at most, drawn from the split's seed; 0: all", ge=0, default=0)


@group
class SplitConfig:
    """data.split: how issues are divided, once, from the split's seed."""

    by: Literal["repository", "instance"] = setting(
        "unit of the split; instance for data of one repository", default="repository"
    )
    held_out: list[str] = setting(
        "held-out repositories (owner/name) or roles of conf/roles.yaml; empty: a share is drawn", default_factory=list
    )
    validation: list[str] = setting(
        "repositories or roles that choose checkpoints; neither trained nor reported on", default_factory=list
    )
    enforce_roles: bool = setting(
        "keep repositories to their role in conf/roles.yaml; false for work beside no result of this project",
        default=True,
    )
    held_out_share: float = setting("share of the units that is drawn where none is named", gt=0, lt=1, default=0.25)
    seed: int = setting("of the split alone, so that training seeds share it", ge=0, default=0)
    max_train: int = setting("training issues at most, drawn from the seed; 0: all", ge=0, default=0)
    max_held_out: int = setting("held-out issues at most, drawn from the seed; 0: all", ge=0, default=0)


@group
class DataConfig:
    """conf/data: where issues come from and how they are split."""

    name: str = setting("label")
    sources: dict[str, SourceConfig] = setting("sources by name", min_length=1)
    split: SplitConfig = setting("see data.split")
    gold_entities: bool = setting(
        "look up the classes and functions that the gold patches touch, for rewards that score them", default=False
    )
    max_missing_gold: float = setting(
        "share of training issues that may lack gold that the reward scores; beyond, nothing is trained",
        ge=0,
        le=1,
        default=0.1,
    )
