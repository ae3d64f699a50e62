"""Build rules, turn scorers and judges from their configuration, before anything is started."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import cast

from codegrep.config import AnswerJudgeConfig, FunctionConfig, GovernanceConfig, TurnScoresConfig
from codegrep.errors import ConfigError
from codegrep.judges.answers import AnswerJudge
from codegrep.judges.verdicts import Verdicts
from codegrep.rewards.governance import Rules
from codegrep.rewards.load import load_function
from codegrep.rewards.process_weights import ProcessScoring
from codegrep.rewards.turn_credit import CallFacts, RolloutFacts, TurnFacts, TurnScorer

# A search that finds, one that repeats, an answer; and a rollout that ended before its first turn.
_SAMPLES = (
    RolloutFacts(
        (
            TurnFacts((CallFacts("grep a", ("a.py", "b.py")), CallFacts("grep b", (), ok=False))),
            TurnFacts((CallFacts("grep a", ("a.py", "b.py")),)),
            TurnFacts(submission=("a.py",)),
        ),
        frozenset({"a.py"}),
    ),
    RolloutFacts((), frozenset({"a.py"})),
)


def load_governance(config: GovernanceConfig, key: str = "governance") -> Rules:
    """Rules of `config`.

    Raises:
        ConfigError: an unknown cause or handling, or a number out of range.
    """
    try:
        return Rules(
            handling=dict(config.handling),
            masked_in_group=config.masked_in_group,
            infrastructure_in_group=config.infrastructure_in_group,
            max_calls=config.max_calls,
            repetition_tokens=config.repetition_tokens,
            repetition_times=config.repetition_times,
        )
    except ValueError as problem:
        raise ConfigError(f"{key}: {problem}", "See conf/governance") from problem


def load_turn_scores(config: TurnScoresConfig, key: str = "turn_scores") -> ProcessScoring:
    """Turn scoring of `config`. A scorer is tried on sample trajectories, unless its function has an attribute
    `asks_a_model` that is true.

    Raises:
        ConfigError: no such function, a wrong parameter, or a function that does not give a score in [0, 1] or None for
            each turn.
    """
    if not config.function:
        return ProcessScoring(None, config.only_answered, config.floor)
    function = load_function(FunctionConfig(config.name, config.function, config.params), key)
    scorer = cast(TurnScorer, function)
    scoring = ProcessScoring(scorer, config.only_answered, config.floor, config.concurrency)
    asks = bool(getattr(getattr(function, "func", function), "asks_a_model", False))
    for sample in () if asks else _SAMPLES:
        try:
            _, standing = replace(scoring, only_answered=False).scores(sample)
        except Exception as problem:  # whatever a user's function raises, before anything is started
            raise ConfigError(
                f"{key}: {config.function} failed on a sample rollout: {type(problem).__name__}: {problem}",
                f"Check {key}.params, or the function",
            ) from problem
        if standing != "weighted":
            raise ConfigError(
                f"{key}: {config.function} did not give a score in [0, 1] or None for each turn of a sample rollout",
                f"Check {key}.params, or the function",
            )
    return scoring


def load_verdicts(config: AnswerJudgeConfig, cache: Path | None = None, key: str = "answer_judge") -> Verdicts:
    """The judge of `config`, opened but not asked.

    Args:
        cache: folder for what it should not forget, for classes that take one; None keeps nothing.

    Raises:
        ConfigError: no such class, a wrong parameter, or a number out of range.
    """
    if not config.judge:
        return Verdicts(None, config.max_failed_share)
    try:
        made = pkgutil.resolve_name(config.judge)
        takes = inspect.signature(made).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as problem:
        raise ConfigError(
            f"{key}.judge: there is no class {config.judge!r} ({problem})", "See conf/answer_judge"
        ) from problem
    params = {str(name): value for name, value in config.params.items()}
    if cache is not None and "cache" in takes:
        params["cache"] = str(cache)
    try:
        judge = made(**params)
    except TypeError as problem:
        raise ConfigError(f"{key}.params: {problem}", "See conf/answer_judge") from problem
    if not callable(getattr(judge, "judge", None)) or not hasattr(judge, "usage"):
        raise ConfigError(
            f"{key}.judge: {config.judge} has no method judge or no usage",
            "It must be as codegrep.judges.answers.AnswerJudge",
        )
    return Verdicts(cast(AnswerJudge, judge), config.max_failed_share)
