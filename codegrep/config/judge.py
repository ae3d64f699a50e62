"""conf/judge: who decides whether a file that was read is relevant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass
class JudgeConfig:
    """conf/judge: who decides whether a read file is relevant.

    Attributes:
        kind: dotted name of the judge's class. params: its keyword arguments, checked by the class.
        where: "miners" judges in the workers that mine, "actors" in actors of their own (a judge that waits for a
            server), "driver" with one Ray Data pipeline over all candidates (a judge that is such a pipeline).
        actors: of where=actors.
        max_error_share: candidates without a verdict, beyond which the stage stops; the same command asks again.
        second: a second judge on a sample, for agreement; None is none. Keys kind, params, sample.
    """

    name: str
    kind: str
    params: dict[str, Any]
    where: str
    actors: int
    max_error_share: float
    second: dict[str, Any] | None = None
