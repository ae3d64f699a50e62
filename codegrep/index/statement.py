"""What a statement spells out: paths, modules, tracebacks, names that files define."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from codegrep.index.terms import words_of

# Possessive: a statement of one word of 20,000 letters costs no more than any other.
_PATH = re.compile(r"[\w./\\-]++")
_FRAME = re.compile(r'File "([^"\n]{1,300})", line \d+|^\s*at [^\n(]{1,200}\(([^():\n]{1,200}):\d+', re.MULTILINE)
_IMPORT = re.compile(r"^\W{0,8}(?:from\s+([\w.]+)\s+import\s+([^\n#(]{1,200})|import\s+([\w.]+))", re.MULTILINE)
_DOTTED = re.compile(r"[\w.]++")
_NAME = re.compile(r"\b[A-Za-z_]\w{2,}+")
_USED = re.compile(r"(?:(?<=[.`])[A-Za-z_]\w{2,}+)|\b[A-Za-z_]\w{2,}+(?=\()")
_INNER_CAPITAL = re.compile(r"[a-z]+[A-Z]|[A-Z]\w*[a-z]\w*[A-Z]")
_MAX_STATEMENT = 20_000


@dataclass(frozen=True)
class Statement:
    """A query and its first line."""

    text: str

    @property
    def title(self) -> str:
        """The first line."""
        return self.text.strip().partition("\n")[0]

    @cached_property
    def words(self) -> frozenset[str]:
        """Words of the text, identifiers split."""
        return frozenset(words_of(self.text))

    @cached_property
    def title_words(self) -> frozenset[str]:
        """Words of the first line."""
        return frozenset(words_of(self.title))

    @cached_property
    def names(self) -> frozenset[str]:
        """Words that could name a definition."""
        return frozenset(_NAME.findall(self.text))

    @cached_property
    def code_names(self) -> frozenset[str]:
        """Words that look like names of code: with an underscore, an inner capital, a dot before or a bracket after."""
        looks = {name for name in self.names if "_" in name or _INNER_CAPITAL.match(name[:60])}
        return frozenset(looks | set(_USED.findall(self.text)))

    @cached_property
    def title_names(self) -> frozenset[str]:
        """Those of the first line."""
        return frozenset(_NAME.findall(self.title))

    @cached_property
    def paths(self) -> frozenset[str]:
        """Everything that looks like the path or the name of a file."""
        words = (word.replace("\\", "/").strip("./-") for word in _PATH.findall(self.text))
        return frozenset(word for word in words if 0 < len(word) - word.rfind(".") - 1 <= 4 and word.rfind(".") > 0)

    @cached_property
    def frames(self) -> tuple[str, ...]:
        """Files of traceback frames, the innermost first."""
        found = [(a or b).replace("\\", "/") for a, b in _FRAME.findall(self.text)]
        return tuple(dict.fromkeys(reversed(found)))

    @cached_property
    def modules(self) -> Mapping[str, frozenset[str]]:
        """Modules that the statement imports, and the names it imports from them."""
        modules: dict[str, set[str]] = {}
        for source, names, whole in _IMPORT.findall(self.text):
            own = modules.setdefault(source or whole, set())
            own.update(_NAME.findall(names.partition(" as ")[0]))
        return {module: frozenset(names) for module, names in modules.items()}

    @cached_property
    def brought(self) -> frozenset[str]:
        """Names that its import lines bring in."""
        return frozenset().union(*self.modules.values())

    @cached_property
    def dotted(self) -> frozenset[str]:
        """Dotted names: modules, attributes, methods."""
        return frozenset(name for word in _DOTTED.findall(self.text) if "." in (name := word.strip(".")))


@lru_cache(maxsize=100_000)
def _names_of(path: str) -> tuple[str, str, str, str]:
    """Return module, stem, file name, and the last two parts of a path."""
    pure = PurePosixPath(path)
    parts = pure.with_suffix("").parts
    module = ".".join(part for part in parts if part not in ("src", "lib", "__init__"))
    stem = parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]
    return module, stem, pure.name, "/".join(pure.parts[-2:])


def statement_of(text: str) -> Statement:
    """Return the statement of a text, of bounded length."""
    return Statement(text[:_MAX_STATEMENT])


MENTIONS = ("path", "file_name", "frame", "last_frame", "imported", "imported_names", "module_named", "stem")
"""What `mentions` tells of a file."""


def mentions(statement: Statement, path: str, defined: frozenset[str]) -> NDArray[np.float64]:
    """(8,) MENTIONS of one file; numbers from 0 to 1.

    Args:
        statement: of the issue.
        path: of the file.
        defined: names that the file defines.
    """
    module, stem, name, tail = _names_of(path)
    places = [place for place, frame in enumerate(statement.frames) if frame == path or frame.endswith("/" + path)]
    if not places:  # an installed copy: site-packages/pkg/a.py is src/pkg/a.py
        places = [place for place, frame in enumerate(statement.frames) if frame.endswith("/" + tail)]
    imported = [names for name, names in statement.modules.items() if name == module or module.endswith("." + name)]
    further = [
        dotted.count(".") - module.count(".")
        for dotted in statement.dotted
        if "." in module and (dotted + ".").startswith(module + ".")
    ]
    values = (
        any(
            found == path or (len(found) > 4 and "/" in found and path.endswith("/" + found))
            for found in statement.paths
        ),
        name != "__init__.py" and any(found.rpartition("/")[2] == name for found in statement.paths),
        bool(places),
        1 / (1 + places[0]) if places else 0.0,
        bool(imported),
        min(1.0, len(statement.brought & defined) / 2),
        1 / (1 + min(further)) if further else 0.0,
        len(stem) > 3 and stem in statement.names,
    )
    return np.array(values, np.float64)
