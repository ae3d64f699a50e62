"""conf/retriever: one retriever, a row of the evaluation for each of its `tops`."""

from __future__ import annotations

from typing import Any

from pydantic import model_validator

from codegrep.config.setting import group, setting


@group
class RetrieverConfig:
    """conf/retriever: one retriever."""

    name: str = setting("label of its rows; that of its file", pattern=r"^[\w.-]+$")
    kind: str = setting("dotted name of its class")
    args: dict[str, Any] = setting("its keyword arguments, checked by the class", default_factory=dict)
    tops: list[int] = setting("lengths of the lists that are rows of the table, in files", default_factory=lambda: [1])

    @model_validator(mode="after")
    def _tops_are_lengths(self) -> RetrieverConfig:
        if not self.tops or min(self.tops) < 1:
            raise ValueError(f"tops={self.tops} must hold positive numbers")
        return self
