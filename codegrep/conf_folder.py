"""Where conf/ is, and where this user's files are that can be made again."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# An installed wheel carries a copy inside the package; in a checkout conf/ stands beside it.
CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"


def checkout() -> Path | None:
    """Return the checkout that this package is in; None for an installed wheel."""
    return None if CONF.parent == _PACKAGE else _PACKAGE.parent


def cache_folder() -> Path:
    """Return $XDG_CACHE_HOME/codegrep, or ~/.cache/codegrep."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "codegrep"
