"""The benchmark runs, and its last line is one JSON object with the figures that others read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROMISED = {"grep_vs_rg_cpu", "cached_ms", "step_speedup_vs_grep", "next_lease_ms", "add_failures"}


@pytest.mark.slow
def test_the_quick_benchmark_on_this_project() -> None:
    command = [sys.executable, "scripts/bench/sandbox.py", "--quick", "--packages", "codegrep"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures) >= PROMISED
    assert figures["add_failures"] == 0 and figures["step_infrastructure"] == 0 and figures["step_leaked"] == 0
    assert figures["step_calls"] == 8 * 192 and figures["step_speedup_vs_grep"] > 0
