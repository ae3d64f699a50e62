"""colgrep (LightOn's program) as an Index: a late-interaction model ranks, the program keeps its own index."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from codegrep.errors import ConfigError, InfrastructureError
from codegrep.index.search import Hit, PatternError
from codegrep.index.tree import IndexedUnit
from codegrep.issues.paths import is_test_path

_SECONDS = 600.0  # the first search of a tree builds its index
_ENVIRONMENT = ("PATH", "HOME", "XDG_CONFIG_HOME", "HF_HOME", "HF_HUB_OFFLINE")


class ColgrepIndex:
    """Search a tree with the program `colgrep`; see `codegrep.index.search.Index`.

    Args:
        root: of the tree.
        folder: where the program keeps its indexes ($XDG_DATA_HOME).
        with_tests: test files may be found.

    Raises:
        ConfigError: the program is not installed.
    """

    def __init__(self, root: Path, folder: Path, *, with_tests: bool) -> None:
        program = shutil.which("colgrep")
        if program is None:
            raise ConfigError("the program colgrep is not installed", "Install it, or set tools.search.index=hybrid")
        self._program, self._root, self._with_tests = program, root.resolve(), with_tests
        given = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._environment = {**given, "XDG_DATA_HOME": str(folder.absolute())}

    def search(self, query: str, k: int, path: str | None = None, pattern: str | None = None) -> list[Hit]:
        """See `Index.search`."""
        is_place = path is not None and os.path.lexists(self._root / path)
        command = [self._program, "search", "--json", "--yes", f"--results={2 * k}"]  # some are left out
        command += [f"--include={path}"] if path and not is_place else []
        command += [f"--pattern={pattern}"] if pattern else []
        command += ["--", query, f"./{path}" if is_place else "."]
        try:
            done = subprocess.run(
                command, cwd=self._root, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=_SECONDS, check=False,
            )  # fmt: skip
            if done.returncode:
                problem = " ".join(done.stderr.decode("utf-8", "replace").split())[-200:]
                if pattern and "regex" in problem:
                    raise PatternError(problem)
                raise InfrastructureError(f"colgrep failed: {problem}")
            hits = [_hit(row, self._root) for row in json.loads(done.stdout)]
        except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError, KeyError, TypeError) as error:
            raise InfrastructureError(f"colgrep cannot be used: {error}") from error
        return [hit for hit in hits if self._is_seen(hit.unit.path)][:k]

    def _is_seen(self, path: str) -> bool:
        hidden = any(part.startswith(".") for part in path.split("/"))  # or outside: ../a.py
        return not hidden and (self._with_tests or not is_test_path(path))


def _hit(row: dict[str, Any], root: Path) -> Hit:
    unit = row["unit"]
    texts = [str(unit.get(name) or "") for name in ("signature", "docstring")]
    place = (int(unit["line"]), int(unit["end_line"]))
    path = os.path.relpath(os.path.realpath(root / unit["file"]), root)
    return Hit(
        IndexedUnit(path, str(unit["qualified_name"]), str(unit["unit_type"]), *place, *texts), float(row["score"])
    )
