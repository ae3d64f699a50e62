"""Brings a model onto this machine and prints its folder.

python scripts/provide_model.py provided:smollm2-135m-instruct
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from codegrep.engines.models import provide
from codegrep.errors import CodegrepError


def main() -> int:
    """Return 0, or 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(description="Bring a model onto this machine, check it, print its folder.")
    parser.add_argument("path", help="provided:smollm2-135m-instruct, provided:nano, a local folder, or a hub id")
    parser.add_argument("--folder", type=Path, help="where provided models are kept (default: models/)")
    parser.add_argument("--revision", help="hub revision")
    given = parser.parse_args()
    try:
        print(provide(given.path, given.folder, revision=given.revision))
    except CodegrepError as error:
        print(f"codegrep: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
