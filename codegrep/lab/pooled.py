"""Which runs stored rollouts are from, so that a report of several names what it pools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codegrep.lab.stored import Stored


def pooled_notes(folders: Sequence[Path], stored: Stored) -> list[str]:
    """Return one sentence a folder, and a warning where their models or scales differ.

    Args:
        folders: with rollouts, `outputs/artifacts/<stage>-<fingerprint>/rollouts`.
        stored: what was read from them.
    """
    rollouts = Counter(stored.group_names[group].partition("/")[0] for group in stored.groups.tolist())
    notes, kinds = [], set()
    for folder in folders:
        run, config = _run_of(folder)
        model, scale = (
            str(config.get(group, {}).get(key, "?")) for group, key in (("model", "path"), ("scale", "name"))
        )
        told = f" of run {run} (model {model}, scale {scale})" if run else ""
        kinds.add((model, scale) if run else None)
        notes.append(f"{folder.parent.name}: {rollouts[folder.parent.name]} rollouts{told}")
    if len(kinds) > 1:
        notes.append("runs of different models or scales are pooled: give one of these folders to look at it alone")
    return notes


def _run_of(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the name and the configuration of the first run that left this artifact; "" where none is known."""
    artifact = folder.parent
    for noted in sorted(artifact.parents[1].glob("runs/*/completed.json")):
        try:
            left = json.loads(noted.read_text(encoding="utf-8"))["artifacts"]
            if artifact.name in left.values():
                config = json.loads((noted.parent / "config.json").read_text(encoding="utf-8"))
                return noted.parent.name, dict(config)
        except (OSError, ValueError, KeyError, AttributeError):
            continue
    return "", {}
