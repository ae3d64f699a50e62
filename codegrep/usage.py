"""What `python -m codegrep --help` prints: experiments, commands and the choices of each configuration group.

Read from the folder of configurations itself, so that it cannot fall behind it. Hydra's own help, which also prints
every value, is `python -m codegrep +experiment=v3 --help`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from codegrep.cli import COMMANDS

_WIDTH = 110
_OF_THEIR_OWN = ("experiment", "sweep", "hydra")
_ENDS = """
python -m codegrep +experiment=v3 train.grpo.kl=0.05 reward=v2   any value, any choice
python -m codegrep -m +experiment=v1,v2,v3 seed=0,1,2            a sweep: every combination, as far as there is room
python -m codegrep +experiment=v3 --cfg job                      the whole configuration, composed
python -m codegrep NAME --help                                   a command's options
python -m codegrep --hydra-help                                  Hydra's options
"""


def usage(conf: Path) -> str:
    """Return the text.

    Args:
        conf: folder of configurations.
    """
    parts = [
        "python -m codegrep +experiment=NAME [group=choice] [key=value] …",
        "python -m codegrep COMMAND …",
        "",
        "Experiments",
        _table({path.stem: first_sentence(path) for path in _files(conf / "experiment")}),
        "",
        "Searches (+sweep=NAME beside an experiment)",
        _table({path.stem: first_sentence(path) for path in _files(conf / "sweep")}),
        "",
        "Commands",
        _table({name: command.summary for name, command in COMMANDS.items()}),
        "",
        "Groups and choices",
        _table({group: ", ".join(choices) for group, choices in groups(conf).items()}),
        _ENDS.rstrip(),
    ]
    return "\n".join(parts)


def groups(conf: Path) -> dict[str, list[str]]:
    """Return the choices of each group that an experiment is made of."""
    folders = sorted(path for path in conf.iterdir() if path.is_dir() and path.name not in _OF_THEIR_OWN)
    return {folder.name: [path.stem for path in _files(folder)] for folder in folders}


def first_sentence(path: Path) -> str:
    """Return the first sentence of the comment at the head of a YAML file, or ''."""
    comment: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            comment.append(line.lstrip("#").strip())
    text = " ".join(comment)
    found = re.match(r".*?\.(?=\s|$)", text)
    return (found.group() if found else text).rstrip(".")


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def _table(rows: Mapping[str, str]) -> str:
    margin = max(map(len, rows)) + 4
    return "\n".join(
        textwrap.fill(
            text,
            _WIDTH,
            initial_indent=f"  {name}".ljust(margin),
            subsequent_indent=" " * margin,
            break_long_words=False,
        )
        for name, text in rows.items()
    )
