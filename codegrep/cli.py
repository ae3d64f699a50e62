"""The commands beside the experiment: `python -m codegrep NAME …`. An experiment itself needs none.

A command is one function `(argv: list[str]) -> int` (the exit code), in the module of its own room, imported only when
it is called. To add one: write the function and a line below.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from codegrep.errors import ConfigError


@dataclass(frozen=True)
class Command:
    """Where a command is.

    Attributes:
        function: "package.module:function".
        summary: one line for the overview.
    """

    function: str
    summary: str


COMMANDS: dict[str, Command] = {
    "search": Command("codegrep.serve.search_command:search", "the files of a working tree that a text is about"),
    "serve": Command("codegrep.serve.serve_command:serve", "answer coding agents over MCP"),
    "export": Command("codegrep.serve.export_command:main", "a policy as a folder for transformers, peft and vLLM"),
    "label": Command("codegrep.labels.command:label", "mine target files from agent trajectories"),
    "label_audit": Command("codegrep.labels.command:audit", "agreement of a judge with a checked sheet"),
    "evaluate": Command("codegrep.pipeline.evaluate_command:main", "measure a trained policy that is kept in MLflow"),
    "register": Command("codegrep.tracking.register_command:main", "name a run's policy in MLflow, with an alias"),
    "compare": Command("codegrep.compare.command:main", "one page that says which design of a sweep is better on what"),
    "paper": Command(
        "codegrep.compare.paper_command:main", "where a run departs from its experiment's source, key by key"
    ),
    "plan": Command("codegrep.submit.plan.command:main", "what a run needs on a cluster, computed before it starts"),
    "submit": Command("codegrep.submit.command:main", "run an experiment as a job on a cluster"),
    "trace": Command("codegrep.traces.command:main", "read an attempt at an issue turn by turn, or two side by side"),
    "replay": Command("codegrep.lab.command:replay", "judge stored rollouts again under other reward designs"),
    "gaming": Command("codegrep.lab.command:gaming", "run scripted policies that game a reward through the designs"),
    "simulate": Command("codegrep.lab.command:simulate", "train a bandit-sized policy under each design"),
    "completion": Command("codegrep.completion:main", "print a script that completes words in bash, zsh or fish"),
}


def named(word: str) -> Command | None:
    """Return the command that a first word names; None where it is an override or an option of Hydra."""
    return COMMANDS.get(word)


def refuse_bare_word(word: str, experiments: Sequence[str]) -> None:
    """Refuse a first word that is no command, no override and no option.

    Raises:
        ConfigError: names the nearest experiment or command.
    """
    if not word or "=" in word or word[0] in "-+~":
        return
    if word in experiments:
        raise ConfigError(f"there is no command '{word}'", f"Did you mean +experiment={word}?")
    near = difflib.get_close_matches(word, [*COMMANDS, *experiments], n=1, cutoff=0.5)
    name = f"+experiment={near[0]}" if near and near[0] in experiments else "".join(near)
    raise ConfigError(
        f"there is no command '{word}'", f"Did you mean {name}?" if name else "See python -m codegrep --help"
    )


def run(command: Command, argv: list[str]) -> int:
    """Import and call a command; return its exit code."""
    module, _, function = command.function.partition(":")
    return int(getattr(importlib.import_module(module), function)(argv))
