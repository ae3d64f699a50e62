"""Stored rollouts as outcomes. Tokens and tool texts, nearly all of a file's bytes, are not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from codegrep.errors import DataError
from codegrep.issues.issue import Issue, issue_of
from codegrep.lab.replay_judge import ReplayJudge
from codegrep.rewards.governance import Conduct
from codegrep.rewards.outcome import Outcome
from codegrep.rollout.outcome import conduct_of, outcome_for
from codegrep.rollout.record import CallRecord, Rollout, Turn
from codegrep.rollout.store import read_columns

GroupBy = Literal["step", "issue"]
ROLLOUTS_AT_ONCE = 512
_CALL = ("name", "arguments", "status", "paths")
_COLUMNS = (
    *("rollout_id", "instance_id", "repo", "base_commit", "source", "step", "exit_cause", "answered", "answer"),
    "gold_files",
    *(f"turns.list.element.{name}" for name in ("start", "end", "text")),
    *(f"turns.list.element.calls.list.element.{name}" for name in _CALL),
)


@dataclass(frozen=True)
class Stored:
    """Rollouts of one or several folders.

    Attributes:
        rollout_ids, outcomes, conducts: (n,) in the order of reading.
        turn_tokens: (n,) sampled tokens of each assistant turn.
        groups: (n,) number of the group, from 0.
        group_names: of each group.
        left_out: rollouts and files that are not among them, counted by reason.
    """

    rollout_ids: list[str]
    outcomes: list[Outcome]
    conducts: list[Conduct]
    turn_tokens: list[tuple[int, ...]]
    groups: NDArray[np.intp]
    group_names: list[str]
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.outcomes)


def rollout_folders(places: Iterable[Path]) -> list[Path]:
    """Return folders with rollouts at or below `places`; of a place with training runs and others only the former.

    Raises:
        DataError: a place is not there, or holds none.
    """
    folders: dict[Path, None] = {}
    for place in places:
        if not place.is_dir():
            raise DataError(
                f"there is no folder {place}", "Give an outputs folder, an artifact, or its rollouts folder"
            )
        below = sorted({part.parent for part in place.rglob("part-*.parquet")})
        if not below:
            raise DataError(f"no rollouts are stored in {place}", "Rollouts are in outputs/artifacts/train-*/rollouts")
        trained = [folder for folder in below if folder.parent.name.startswith("train-")]
        folders.update(dict.fromkeys(trained or below))
    return list(folders)


def read_stored(
    folders: Sequence[Path],
    issues: Mapping[str, Issue] | None = None,
    judgements: Mapping[str, bool] | None = None,
    *,
    judge: ReplayJudge | None = None,
    group_by: GroupBy = "step",
    advance: Callable[[int], object] = lambda rows: None,
) -> Stored:
    """Read every rollout of the folders.

    A rollout that was sampled again after a restart is there twice; the later one counts. A damaged file is left out
    and counted.

    Args:
        folders: of `rollout_folders`. Rollouts of different folders are never in one group.
        issues: by instance id, for gold lines and entities, which are not part of a rollout.
        judgements: of a judge on answers, by rollout id.
        judge: asked for judgements that are needed and not known.
        group_by: "step": one issue's rollouts of one training step, the groups that GRPO compared; "issue": all of an
            issue's rollouts in a folder.
        advance: told of rows as they are read.

    Raises:
        DataError: not one rollout could be read.
    """
    left_out: Counter[str] = Counter()
    rows: dict[tuple[Path, str], tuple[str, Outcome, Conduct, tuple[int, ...]]] = {}
    for folder in folders:
        for rollouts in _batches(folder, left_out):
            outcomes = [_outcome(rollout, issues or {}, judgements or {}) for rollout in rollouts]
            if judge is not None:
                outcomes = judge.judged(folder, rollouts, outcomes, issues or {})
            for rollout, outcome in zip(rollouts, outcomes, strict=True):
                if rows.pop((folder, rollout.rollout_id), None) is not None:  # the later one also stands later
                    left_out["sampled again later"] += 1
                group = f"{folder.parent.name}/{rollout.instance_id}"
                group += f"/step {rollout.step}" if group_by == "step" else ""
                tokens = tuple(turn.end - turn.start for turn in rollout.turns)
                rows[folder, rollout.rollout_id] = group, outcome, conduct_of(rollout), tokens
            advance(len(rollouts))
    if not rows:
        reasons = "; ".join(f"{count} x {reason}" for reason, count in left_out.items()) or "no files"
        raise DataError(f"no rollout could be read ({reasons})", "Check the folder, or the version")
    numbers: dict[tuple[Path, str], int] = {}
    groups = [numbers.setdefault((folder, row[0]), len(numbers)) for (folder, _), row in rows.items()]
    _, outcomes_read, conducts, turn_tokens = zip(*rows.values(), strict=True)
    return Stored(
        [rollout_id for _, rollout_id in rows],
        list(outcomes_read),
        list(conducts),
        list(turn_tokens),
        np.array(groups, dtype=np.intp),
        [name for _, name in numbers],
        dict(left_out),
    )


def _batches(folder: Path, left_out: Counter[str]) -> Iterator[list[Rollout]]:
    """Yield lists of about ROLLOUTS_AT_ONCE rollouts: a training step writes many small files."""
    waiting: list[Rollout] = []
    for part in sorted(folder.glob("part-*.parquet")):
        try:
            waiting += map(_rollout, read_columns(part, _COLUMNS).to_pylist())
        except DataError:
            left_out["file that cannot be read"] += 1
            continue
        if len(waiting) >= ROLLOUTS_AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _rollout(row: Mapping[str, Any]) -> Rollout:
    """Return the record without its tokens."""
    turns = [
        Turn(
            turn["start"],
            turn["end"],
            turn["text"],
            [CallRecord(number, text="", **call) for number, call in enumerate(turn["calls"], 1)],
        )
        for turn in row["turns"]
    ]
    sampled = sum(turn.end - turn.start for turn in turns)
    tokens: dict[str, list[Any]] = {"prompt_ids": [], "completion_ids": [], "loss_mask": [1] * sampled, "logprobs": []}
    return Rollout(**{**row, **tokens, "turns": turns})


def _outcome(rollout: Rollout, issues: Mapping[str, Issue], judgements: Mapping[str, bool]) -> Outcome:
    issue = issue_of(issues, rollout.instance_id) or Issue(rollout.instance_id, rollout.repo, rollout.base_commit, "")
    return outcome_for(rollout, issue, judgement=judgements.get(rollout.rollout_id))
