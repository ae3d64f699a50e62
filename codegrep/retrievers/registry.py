"""From a retriever's configuration to the retriever: one class and one file of conf/retriever each."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from codegrep.config import RetrieverConfig
from codegrep.errors import ConfigError
from codegrep.named import check_arguments, make_named, named_class
from codegrep.retrievers.retriever import Retriever

_OFFERED = ("name", "folder")


def check_retriever(settings: RetrieverConfig) -> type[Retriever]:
    """Import a retriever's class and check its arguments; nothing is opened.

    Raises:
        ConfigError: one line with the key.
    """
    key = f"retrievers.{settings.name}"
    kind = named_class(settings.kind, f"{key}.kind", "retrieve", "retriever")
    check_arguments(kind, settings.args, f"{key}.args", _OFFERED)
    return kind


def open_retriever(settings: RetrieverConfig, folder: Path, *, evaluation: bool = False) -> Retriever:
    """Make a retriever.

    Args:
        settings: its configuration.
        folder: where indexes are kept; given to classes that have an argument of this name, as is `name`.
        evaluation: it becomes a row of an evaluation, where gold files and published answers may be looked at.

    Raises:
        ConfigError: a wrong argument, or a retriever that only an evaluation can have.
    """
    kind = check_retriever(settings)
    if not evaluation and getattr(kind, "evaluation_only", False):
        raise ConfigError(
            f"{settings.name} is a row of evaluations and finds nothing for other issues", "Choose another retriever"
        )
    offered = {"name": settings.name, "folder": folder}
    return cast(Retriever, make_named(kind, settings.args, f"retrievers.{settings.name}.args", offered))


def uses_gold(settings: RetrieverConfig) -> bool:
    """Return whether it looks at gold files: a bound, no rival."""
    return bool(getattr(check_retriever(settings), "uses_gold", False))


def runs_a_model(settings: RetrieverConfig) -> bool:
    """Return whether it runs a neural network, and so is given the CPUs and the GPU of a worker."""
    return bool(getattr(check_retriever(settings), "runs_a_model", False))


def identity(retriever: Retriever) -> str:
    """Return what beyond its arguments decides its answers: of a model, an index, a file; "" where nothing does.

    Raises:
        CodegrepError: the model or the file is not there.
    """
    of = getattr(retriever, "identity", None)
    return str(of()) if of is not None else ""
