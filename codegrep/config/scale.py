"""conf/scale: how large an experiment is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ScaleConfig:
    """conf/scale: only its name; its values go to the other groups."""

    name: str
