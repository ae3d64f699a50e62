"""A judge's verdicts on stored rollouts, for the designs that want them: what training has asked costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from codegrep.errors import DataError
from codegrep.issues.issue import Issue, issue_of
from codegrep.judges.answers import AnswerQuestion
from codegrep.judges.verdicts import Verdicts, matters
from codegrep.lab.designs import Design
from codegrep.rewards.governance import EXIT_CAUSES, govern
from codegrep.rollout.outcome import conduct_of, outcome_for, question_of
from codegrep.rollout.record import Rollout
from codegrep.rollout.store import read_part

ROLLOUTS_AT_ONCE = 512

# Folder for what the judge should not forget (None: keep nothing) -> the judge.
OpenJudge = Callable[[Path | None], Verdicts]


@dataclass
class Asked:
    """What came of it.

    Attributes:
        by_folder: verdicts by rollout id, one mapping for each folder (ids repeat between runs).
        rollouts: needed a verdict. requests: were sent for them. failed: have none; first_failure says why.
        unknown_issues: rollouts that need one and whose issue is not at hand.
    """

    by_folder: list[dict[str, bool]] = field(default_factory=list)
    rollouts: int = 0
    requests: int = 0
    failed: int = 0
    first_failure: str = ""
    unknown_issues: int = 0

    def notes(self) -> list[str]:
        """For readers of a replay, one sentence each."""
        made = [f"a judge was asked about {self.rollouts} rollouts, with {self.requests} requests"]
        if self.failed:
            made.append(f"it gave no verdict on {self.failed} of them (first: {self.first_failure})")
        if self.unknown_issues:
            made.append(f"it was not asked about {self.unknown_issues} rollouts whose issues are not known (--issues)")
        return made


def ask(
    folders: Sequence[Path],
    designs: Sequence[Design],
    open_judge: OpenJudge,
    issues: Mapping[str, Issue],
    known: Mapping[str, bool],
    advance: Callable[[int], object] = lambda rows: None,
) -> Asked:
    """Ask about the rollouts whose reward under one of the designs needs a verdict that is not known.

    Args:
        issues: by id. known: verdicts by rollout id.
        advance: told of rollouts as they are done with.
    """
    wanting = [design for design in designs if "verdict" in design.needs]
    asked, judges = Asked(), dict[Path | None, Verdicts]()
    for folder in folders:
        found: dict[str, bool] = {}
        asked.by_folder.append(found)
        cache = answers_of(folder)
        if cache not in judges:
            judges[cache] = replace(open_judge(cache), max_failed_share=1.0)
        for rollouts in _batches(folder) if wanting else ():
            questions = [None if r.rollout_id in known else _question(r, issues, wanting, asked) for r in rollouts]
            judged = judges[cache].ask(questions)
            asked.rollouts += len(judged.asked)
            asked.requests += judged.requests
            asked.failed += len(judged.failed)
            if judged.failed and not asked.first_failure:
                asked.first_failure = judged.failed[0].error
            for rollout, opinion in zip(rollouts, judged.opinions, strict=True):
                if opinion is not None and opinion.agrees is not None:
                    found[rollout.rollout_id] = opinion.agrees
            advance(len(rollouts))
    return asked


def answers_of(folder: Path) -> Path | None:
    """Where the run that left these rollouts kept its judge's answers; None where they lie in no outputs folder."""
    artifacts = folder.absolute().parent.parent
    return artifacts.parent / "verdict_answers" if artifacts.name == "artifacts" else None


def _question(
    rollout: Rollout, issues: Mapping[str, Issue], designs: Sequence[Design], asked: Asked
) -> AnswerQuestion | None:
    known = issue_of(issues, rollout.instance_id)
    issue = known or Issue(rollout.instance_id, rollout.repo, rollout.base_commit, "")
    outcome = outcome_for(rollout, issue)
    if rollout.exit_cause not in EXIT_CAUSES:  # of a version that this one does not know
        return None
    conduct = conduct_of(rollout)
    if not any(
        govern(conduct, design.rules).scored_as == "own" and matters(outcome, design.reward) for design in designs
    ):
        return None
    if known is None:
        asked.unknown_issues += 1
        return None
    return question_of(outcome, rollout, issue)


def _batches(folder: Path) -> Iterator[list[Rollout]]:
    waiting: list[Rollout] = []
    for part in sorted(folder.glob("part-*.parquet")):
        try:
            waiting += read_part(part)
        except DataError:  # counted where the rollouts are scored
            continue
        if len(waiting) >= ROLLOUTS_AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting
