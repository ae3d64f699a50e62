"""Divides files into units and counts their words; many files in two processes, for a parser holds the lock of one."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from codegrep.index.terms import Counts, count_terms, joined
from codegrep.index.units import Unit, units_of

Meta = tuple[str, str, int, int, str, str]
"""Kind, name, start, end, signature and first line of the docstring of a unit."""
Digest = tuple[list[list[Meta]], Counts]
"""The units of each file; the words of all units, one after another."""
# A second process takes a third of a second to start.
_MANY = 300


def unit_text(unit: Unit) -> str:
    """Return what of a unit is counted; the words of its name and docstring count twice, for its body has them too."""
    return f"{unit.name}\n{unit.docstring}\n{unit.body}"


def digest(files: Sequence[tuple[str, bytes]]) -> Digest:
    """Units and words of files (path, content)."""
    if len(files) < _MANY or (os.cpu_count() or 1) < 2:
        return _digest(files)
    total, half = sum(len(content) for _, content in files), 0
    cut = 0
    while half < total / 2:
        half += len(files[cut][1])
        cut += 1
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    child = subprocess.Popen(
        [sys.executable, "-m", "codegrep.index.digest"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    with child, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(child.communicate, pickle.dumps(files[cut:]))
        meta, words = _digest(files[:cut])
        rest = answer.result()[0]
    further, further_words = pickle.loads(rest) if child.returncode == 0 else _digest(files[cut:])
    return meta + further, joined([words, further_words])


def _digest(files: Sequence[tuple[str, bytes]]) -> Digest:
    divided = [units_of(path, content) for path, content in files]
    words = count_terms(unit_text(unit) for units in divided for unit in units)
    return [
        [(u.kind, u.name, u.start, u.end, u.signature, u.docstring.partition("\n")[0]) for u in units]
        for units in divided
    ], words


if __name__ == "__main__":
    # What this process was given by `digest`, and what it gives back.
    pickle.dump(_digest(pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
