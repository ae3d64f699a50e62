"""Which run a configuration is, and whether that run is complete, as a sweep asks before it starts a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from codegrep.config import Config
from codegrep.rewards.governance import JUDGE_FAILED
from codegrep.runtime.artifacts import FORMAT, Artifact, Places, fingerprint, from_outputs, write_json

# What does not change a result is no part of a run's identity: the same command with other stages continues the run.
NOT_IDENTITY = ("outputs", "stages", "cluster", "sandbox", "tracking", "sweep")
_FILE = "completed.json"


def run_name(config: Config) -> str:
    """Name the run's folder: label, seed, and eight hex digits of everything that decides its results."""
    decides = {key: value for key, value in asdict(config).items() if key not in NOT_IDENTITY}
    decides["data"] = from_outputs(decides["data"], config.outputs)
    # An experiment without labels, or without a judge of answers, is the same whatever they would be.
    if not config.labels.enabled:
        del decides["labels"], decides["judge"]
    if not config.answer_judge.judge:
        del decides["answer_judge"]
        decides["governance"]["handling"].pop(JUDGE_FAILED, None)
    digest = fingerprint({"format": FORMAT, **decides})[:8]
    return f"{config.name}-seed{config.seed}-{digest}"


def mark(run_folder: Path, config: Config, artifacts: Mapping[str, Artifact]) -> None:
    """Note that all configured stages were run to their end, and which artifacts they left."""
    left = {stage: artifacts[stage].folder.name for stage in config.stages if stage in artifacts}
    write_json(run_folder / _FILE, {"artifacts": left})


def clear(run_folder: Path) -> None:
    """Take the note back: the run goes on."""
    (run_folder / _FILE).unlink(missing_ok=True)


def is_completed(config: Config) -> bool:
    """Return whether every configured stage of this run is complete and its artifact is still there."""
    places = Places(config.outputs_path)
    try:
        noted = json.loads((places.runs / run_name(config) / _FILE).read_text(encoding="utf-8"))["artifacts"]
    except (OSError, ValueError, KeyError):
        return False
    if not set(config.stages) <= noted.keys():
        return False
    return all((places.artifacts / noted[stage] / "artifact.json").is_file() for stage in config.stages)
