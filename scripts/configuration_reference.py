"""Write docs/reference/configuration.md from the fields of codegrep/config and the files of conf/.

python scripts/configuration_reference.py            writes the page
python scripts/configuration_reference.py --check    fails where the page is not what this script writes
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).parents[1]))

from codegrep.compose import compose_overrides
from codegrep.conf_folder import CONF
from codegrep.config import Config
from codegrep.config.reading import walk
from codegrep.usage import first_sentence

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"
_LEAD = """\
# Configuration

An experiment is a Hydra configuration. `conf/` has one folder (group) for each choice: `group=choice` picks one,
`group.key=value` sets one key, `+experiment=NAME` sets several groups. The command line wins, then the experiment, then
the paper's values with `scale=paper`, then the scale, then the groups. `--cfg job` prints the result.

Defaults are those of a run without an experiment (`scale=laptop`). "Paper" is CodeGrep (arXiv 2608.05886) unless
another source is named. This page is generated from `codegrep/config/`: `python scripts/configuration_reference.py`.
"""
_NUMBERS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
# Groups of conf/ that are no field of the configuration, and where their choices go.
_OTHER = {
    "retriever": "one row of the evaluation",
    "experiment": "a whole design",
    "loss": "keys of train.grpo",
    "paper": "values of scale=paper",
}


def page() -> str:
    """Return the page."""
    defaults: Any = OmegaConf.to_container(compose_overrides([]))
    parts = [_LEAD, "## Run\n", _table(_rows(Config, defaults, top=True))]
    for group in get_type_hints(Config):
        keys = _rows(Config, defaults, group=group)
        if keys:
            parts += [f"## {group}\n", _choices(group), _table(keys)]
    for group, what in _OTHER.items():
        parts += [f"## {group}: {what}\n", _choices(group)]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def _rows(kind: type, defaults: Any, group: str = "", top: bool = False) -> list[list[str]]:
    """Rows of a table: key, values that are allowed, default, paper, meaning."""
    rows = []
    for key, (owner, name) in walk(kind):
        field = owner.__pydantic_fields__[name]  # type: ignore[attr-defined]
        meaning = field.description
        if meaning.startswith("see ") or (top != ("." not in key)) or (group and key.split(".")[0] != group):
            continue
        hint = get_type_hints(owner)[name]
        paper = (field.json_schema_extra or {}).get("paper", "")
        rows.append([f"`{key}`", _allowed(hint, field.metadata), _default(defaults, key), paper, meaning])
    return rows


def _allowed(hint: Any, metadata: list[Any]) -> str:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        inner = next(argument for argument in arguments if argument is not NoneType)
        return f"{_allowed(inner, metadata)} or null"
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    bounds = " and ".join(
        f"{sign} {getattr(part, name):g}" for part in metadata for name, sign in _NUMBERS.items() if hasattr(part, name)
    )
    if origin is list:
        return f"list of {_allowed(arguments[0], [])}"
    word = {int: "integer", float: "number", bool: "true, false", str: "text"}.get(hint, "mapping")
    return f"{word} {bounds}".strip()


def _default(defaults: Any, key: str) -> str:
    node = defaults
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return ""
        node = node[part]
    if isinstance(node, dict):
        return ""
    if node is None:
        return "null"
    if isinstance(node, bool):
        return str(node).lower()
    text = f"{node:g}" if isinstance(node, float) else str(node).replace("'", "")
    return f"`{text}`" if text and len(text) <= 60 else text and "…"


def _choices(group: str) -> str:
    files = sorted((CONF / group).glob("*.yaml"))
    return "".join(f"- `{file.stem}`: {first_sentence(file) or file.stem}.\n" for file in files)


def _table(rows: list[list[str]]) -> str:
    lines = ["| key | values | default | paper | meaning |", "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE} is old: run {Path(__file__).name}")
    PAGE.write_text(page(), encoding="utf-8")
