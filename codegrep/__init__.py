"""Reinforcement-learned code retrieval: train a small agent that finds the files an issue is about.

`Retriever.load("hybrid").search("Ctrl-C loses the last checkpoint", repo="../my-project")` finds files without a model;
`Retriever.load("models:/NAME@best")` lets a trained policy search. Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codegrep.errors import CodegrepError
    from codegrep.serve.retriever import Answer, Retriever

__version__ = "0.1.0"
__all__ = ["Retriever", "Answer", "CodegrepError", "__version__"]
_HOMES = {
    "Retriever": "codegrep.serve.retriever",
    "Answer": "codegrep.serve.retriever",
    "CodegrepError": "codegrep.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'codegrep' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
