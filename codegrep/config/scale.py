"""conf/scale: how large an experiment is."""

from __future__ import annotations

from codegrep.config.setting import group, setting


@group
class ScaleConfig:
    """conf/scale: only its name; its values go to the other groups."""

    name: str = setting("label")
