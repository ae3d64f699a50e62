"""Runs the RUN lines of the Dockerfile, in order, on the committed files in a fresh folder with a bare environment.

python scripts/dockerfile_steps.py [--keep FOLDER] [--only WORD]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run_lines(dockerfile: str) -> list[str]:
    """Return the shell command of each RUN line, lines that end in a backslash joined."""
    joined = re.sub(r"\s*\\\n\s*", " ", dockerfile)
    return [line.removeprefix("RUN ").strip() for line in joined.splitlines() if line.startswith("RUN ")]


def main() -> int:
    """Return the exit code of the first line that fails, or 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", type=Path, help="a folder to work in that stays (default: a temporary one)")
    parser.add_argument("--only", default="", help="run only the lines that hold this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="codegrep-docker-") as scratch:
        folder = options.keep or Path(scratch, "codegrep")
        folder.mkdir(parents=True)
        committed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        with tarfile.open(fileobj=BytesIO(committed)) as archive:
            archive.extractall(folder, filter="data")
        # Docker hands on nothing but these; pip's settings say where packages come from on this machine.
        kept = {
            name: value for name, value in os.environ.items() if name in ("PATH", "HOME") or name.startswith("PIP_")
        }
        for command in run_lines((folder / "Dockerfile").read_text(encoding="utf-8")):
            if options.only not in command:
                continue
            if command.startswith("apt-get") and os.geteuid() != 0:
                print(f"left out, it needs root: {command}", flush=True)
                continue
            print(f"RUN {command}", flush=True)
            done = subprocess.run(["sh", "-c", command], cwd=folder, env=kept, stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                print(f"failed with {done.returncode}: {command}", file=sys.stderr)
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
