"""One process a run, a sweep, a search."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from codegrep.compose import compose_overrides, load
from codegrep.errors import CodegrepError
from codegrep.runtime.process_lock import hold

_HOLD = """
import sys, time
from pathlib import Path
from codegrep.runtime.process_lock import hold
with hold(Path(sys.argv[1]), "run"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_another_process_is_named_and_lets_go_when_it_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "v3-seed0-1a2b3c4d"
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        said = r"this run is running in another process \(v3-seed0-1a2b3c4d\)"
        with pytest.raises(CodegrepError, match=said), hold(folder, "run"):
            pass
    finally:
        holder.kill()
        holder.wait()
    with hold(folder, "run"):
        pass
    with hold(folder, "run"):
        pass


def test_a_search_that_is_going_on_is_not_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from codegrep.sweeps import search as searches

    overrides = [
        "+experiment=v3",
        "+sweep=tune_lr",
        "scale=debug",
        "train.checkpoint_selection.issues=1",
        f"outputs={tmp_path}",
    ]
    began: list[str] = []
    monkeypatch.setattr(searches, "_search", lambda _config, _overrides, _base, name, *_: began.append(name))
    config = load(compose_overrides(overrides))
    searches.search(config, overrides)
    with hold(tmp_path / "sweeps" / began[0], "search"), pytest.raises(CodegrepError, match="this search"):
        searches.search(config, overrides)
    assert len(began) == 1
