"""What rewards, turn scores, judges and governance see of a rollout. Pure functions of its record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import get_args

from codegrep.issues.issue import Entity, EntityKind, Issue, LineRange
from codegrep.judges.answers import AnswerQuestion
from codegrep.metrics.scores import entity_f_beta, line_f_beta
from codegrep.protocol.calls import ToolStatus
from codegrep.protocol.parse import AssistantMessage, parse_message
from codegrep.rewards.governance import Conduct
from codegrep.rewards.outcome import Outcome
from codegrep.rewards.turn_credit import CallFacts, RolloutFacts, TurnFacts
from codegrep.rollout.record import CallRecord, Rollout, Turn, is_executed

_NO_ANSWER = AssistantMessage(())


def outcome_of(
    rollout: Rollout,
    *,
    gold_ranges: Sequence[LineRange] = (),
    mined_files: Sequence[str] = (),
    gold_entities: Sequence[Entity] | None = None,
    judgement: bool | None = None,
) -> Outcome:
    """Return the outcome that reward designs score.

    Args:
        rollout: its gold_files are the gold; line ranges and entities of its answer are read from the last turn's text.
        gold_ranges: of the issue.
        mined_files: gold files that come from mining alone.
        gold_entities: of the issue.
        judgement: of a judge on this rollout's answer.
    """
    # A turn without the marker holds no answer: a replay reads far more of those than of the others.
    answers = [parse_message(turn.text) if "<answer>" in turn.text else _NO_ANSWER for turn in rollout.turns]
    answer = answers[-1].answer if rollout.answered and answers else None
    return Outcome(
        predicted=tuple(rollout.answer),
        gold=frozenset(rollout.gold_files),
        predicted_ranges=answer.ranges if answer else (),
        gold_ranges=tuple(gold_ranges),
        calls_per_turn=rollout.calls_per_turn,
        answered=rollout.answered,
        exit_cause=rollout.exit_cause,
        unique_calls_per_turn=_unique_calls_per_turn(rollout.turns),
        malformed_calls=sum(1 for turn in rollout.turns for call in turn.calls if not call.name),
        malformed_answers=sum(message.malformed_answers for message in answers),
        mined_files=frozenset(mined_files),
        generated_tokens=rollout.generated_tokens,
        predicted_entities=answer.entities if answer else (),
        gold_entities=None if gold_entities is None else frozenset(gold_entities),
        judgement=judgement,
    )


def outcome_for(rollout: Rollout, issue: Issue, *, judgement: bool | None = None) -> Outcome:
    """Return the outcome of a rollout on its issue, with the issue's gold lines and entities."""
    return outcome_of(
        rollout,
        gold_ranges=issue.gold_ranges,
        mined_files=mined_files(rollout.gold_files, issue.gold_ranges),
        gold_entities=issue.gold_entities,
        judgement=judgement,
    )


def mined_files(gold_files: Sequence[str], gold_ranges: Sequence[LineRange]) -> tuple[str, ...]:
    """Return the gold files that come from mining alone: those without gold lines on an issue that has some.

    Line ranges answered in them are not scored.
    """
    lined = {span.path for span in gold_ranges}
    return tuple(path for path in gold_files if path not in lined) if lined else ()


def turn_facts(rollout: Rollout) -> list[TurnFacts]:
    """Return what turn scorers see of each turn; the answer belongs to the last turn."""
    last = len(rollout.turns) - 1
    return [
        TurnFacts(
            calls=tuple(
                CallFacts(
                    call_key(call.name, call.arguments),
                    tuple(call.paths),
                    call.status == ToolStatus.OK.value,
                    _lines_read(call),
                )
                for call in turn.calls
            ),
            submission=tuple(rollout.answer) if rollout.answered and index == last else None,
            text=turn.text,
        )
        for index, turn in enumerate(rollout.turns)
    ]


def trajectory_of(rollout: Rollout, statement: str = "") -> RolloutFacts:
    """Return what a turn scorer sees of a rollout. statement: the issue's text, for judges."""
    return RolloutFacts(tuple(turn_facts(rollout)), frozenset(rollout.gold_files), statement)


def question_of(outcome: Outcome, rollout: Rollout, issue: Issue) -> AnswerQuestion:
    """Return what a judge of answers sees: answered files that are gold or that a tool showed; others are counted."""
    known = outcome.gold.union(
        *(call.paths for turn in rollout.turns for call in turn.calls if call.status == ToolStatus.OK.value)
    )
    files = tuple(sorted(known.intersection(outcome.predicted)))
    return AnswerQuestion(
        statement=issue.problem_statement,
        gold=tuple(sorted(outcome.gold)),
        files=files,
        ranges=tuple(span for span in outcome.predicted_ranges if span.path in files),
        unknown=len(set(outcome.predicted).difference(files)),
        patch=issue.patch,
    )


def conduct_of(rollout: Rollout, *, judge_failed: bool = False) -> Conduct:
    """Return what governance looks at: all calls, refused and malformed ones included, and the sampled tokens."""
    return Conduct(
        exit_cause=rollout.exit_cause,
        calls_per_turn=tuple(len(turn.calls) for turn in rollout.turns),
        turns=tuple(tuple(rollout.completion_ids[turn.start : turn.end]) for turn in rollout.turns),
        judge_failed=judge_failed,
    )


def _lines_read(call: CallRecord) -> tuple[LineRange, ...]:
    """Return the lines that a read showed, which may be fewer than it asked for."""
    if not call.lines or len(call.paths) != 1:
        return ()
    return (LineRange(call.paths[0], min(call.lines), max(call.lines)),)


def _unique_calls_per_turn(turns: Sequence[Turn]) -> tuple[int, ...]:
    seen: set[str] = set()
    counts = []
    for turn in turns:
        executed = [call for call in turn.calls if is_executed(call.name, call.status)]
        fresh = {call_key(call.name, call.arguments) for call in executed} - seen
        seen |= fresh
        counts.append(len(fresh))
    return tuple(counts)


@lru_cache(maxsize=100_000)  # the rollouts of a group ask the same again and again
def call_key(name: str, arguments: str) -> str:
    """Return a key that is equal for the same tool and arguments, whatever the order and white space of their JSON."""
    with suppress(ValueError):
        arguments = json.dumps(json.loads(arguments), sort_keys=True)
    return f"{name} {arguments}"


def place_scores(outcome: Outcome) -> dict[str, float | None]:
    """Return an answer's line-range F0.5, F1 of classes and F1 of functions; None where gold has none of the kind."""
    gold = outcome.gold_entities or frozenset()
    scores: dict[str, float | None] = {"line_f05": None}
    if outcome.gold_ranges:
        mined = outcome.mined_files
        scores["line_f05"] = line_f_beta(outcome.predicted_ranges, outcome.gold_ranges, mined_files=mined)
    for kind in get_args(EntityKind):
        has_gold = any(entity.kind == kind for entity in gold)
        scores[f"{kind}_f1"] = entity_f_beta(outcome.predicted_entities, gold, kind=kind) if has_gold else None
    return scores
