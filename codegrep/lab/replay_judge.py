"""A judge for stored rollouts: asks about answers whose reward needs a judgement that is not known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from codegrep.issues.issue import Issue, issue_of
from codegrep.judges.answer_judging import AnswerJudging, needs_judgement
from codegrep.judges.answers import AnswerQuestion
from codegrep.lab.designs import Design
from codegrep.rewards.governance import EXIT_CAUSES, govern
from codegrep.rewards.outcome import Outcome
from codegrep.rollout.outcome import conduct_of, question_of
from codegrep.rollout.record import Rollout

# Folder for the judge's answers (None keeps nothing) -> the judge.
OpenJudge = Callable[[Path | None], AnswerJudging]


class ReplayJudge:
    """Asks about rollouts as they are read; what training has asked the same judge costs nothing.

    Args:
        open_judge: opens a judge for each outputs folder.
        designs: whose rewards are computed.
    """

    def __init__(self, open_judge: OpenJudge, designs: Sequence[Design]) -> None:
        self._open = open_judge
        self._designs = [design for design in designs if "judgement" in design.needs]
        self._judges: dict[Path | None, AnswerJudging] = {}
        self._asked = self._requests = self._failed = self._unknown_issues = 0
        self._first_failure = ""

    def judged(
        self, folder: Path, rollouts: Sequence[Rollout], outcomes: Sequence[Outcome], issues: Mapping[str, Issue]
    ) -> list[Outcome]:
        """Return the outcomes with the judgements that they need."""
        cache = answers_of(folder)
        if cache not in self._judges:
            self._judges[cache] = replace(self._open(cache), max_failed_share=1.0)
        questions = [self._question(r, o, issues) for r, o in zip(rollouts, outcomes, strict=True)]
        batch = self._judges[cache].ask(questions)
        self._asked += len(batch.asked)
        self._requests += batch.requests
        self._failed += len(batch.failed)
        if batch.failed and not self._first_failure:
            self._first_failure = batch.failed[0].error
        return [
            outcome if judgement is None else replace(outcome, judgement=judgement.agrees)
            for outcome, judgement in zip(outcomes, batch.judgements, strict=True)
        ]

    def notes(self) -> list[str]:
        """Return what a reader of the replay has to know, one sentence each."""
        notes = [f"a judge was asked about {self._asked} rollouts, with {self._requests} requests"]
        if self._failed:
            notes.append(f"it failed on {self._failed} of them (first: {self._first_failure})")
        if self._unknown_issues:
            notes.append(f"it was not asked about {self._unknown_issues} rollouts of unknown issues (--issues)")
        return notes

    def _question(self, rollout: Rollout, outcome: Outcome, issues: Mapping[str, Issue]) -> AnswerQuestion | None:
        if outcome.judgement is not None or outcome.exit_cause not in EXIT_CAUSES:
            return None
        conduct = conduct_of(rollout)
        if not any(
            govern(conduct, design.signal.rules).scored_as == "own" and needs_judgement(outcome, design.signal.reward)
            for design in self._designs
        ):
            return None
        issue = issue_of(issues, rollout.instance_id)
        if issue is None:
            self._unknown_issues += 1
            return None
        return question_of(outcome, rollout, issue)


def answers_of(folder: Path) -> Path | None:
    """Return where the run that left these rollouts kept its judge's answers; None outside an outputs folder."""
    artifacts = folder.absolute().parent.parent
    return artifacts.parent / "answer_judgements" if artifacts.name == "artifacts" else None
