"""From conf/reward, conf/advantage, conf/governance and the groups of scorers and judges to what scores a batch."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import cast

from codegrep.config import AdvantageConfig, AnswerJudgeConfig, FunctionConfig, GovernanceConfig, TurnScoresConfig
from codegrep.errors import ConfigError
from codegrep.judges.answer_judging import AnswerJudging
from codegrep.judges.answers import AnswerJudge
from codegrep.rewards.governance import Rules
from codegrep.rewards.load import load_advantage, load_function, load_reward
from codegrep.rewards.signal import TrainingSignal
from codegrep.rewards.turn_credit import CallFacts, RolloutFacts, TurnFacts, TurnScorer
from codegrep.rewards.turn_scores import TurnScoring

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


def load_signal(reward: FunctionConfig, advantage: AdvantageConfig, governance: GovernanceConfig) -> TrainingSignal:
    """Return the signal of three groups; its functions are tried on sample rollouts.

    Raises:
        ConfigError: no such function, a wrong parameter, or a value that is unknown or out of range.
    """
    return TrainingSignal(
        reward=load_reward(reward),
        factor=load_advantage(advantage),
        baseline=advantage.baseline,
        scale=advantage.scale,
        rules=load_governance(governance),
    )


def load_governance(config: GovernanceConfig) -> Rules:
    """Return the rules of `config`.

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
        raise ConfigError(f"governance: {problem}", "See conf/governance") from problem


def load_turn_scoring(config: TurnScoresConfig) -> TurnScoring:
    """Return the turn scoring of `config`.

    A scorer is tried on sample trajectories, unless its function has an attribute `asks_a_model` that is true.

    Raises:
        ConfigError: no such function, a wrong parameter, or a function that does not give a score in [0, 1] or None for
            each turn.
    """
    if not config.function:
        return TurnScoring(None, config.only_answered, config.floor)
    function = load_function(FunctionConfig(config.name, config.function, config.params), "turn_scores")
    scoring = TurnScoring(cast(TurnScorer, function), config.only_answered, config.floor, config.concurrency)
    for sample in () if getattr(function.func, "asks_a_model", False) else _SAMPLES:
        try:
            _, status = replace(scoring, only_answered=False).scores(sample)
        except Exception as problem:  # whatever a user's function raises, before anything is started
            raise ConfigError(
                f"turn_scores: {config.function} failed on a sample rollout: {type(problem).__name__}: {problem}",
                "Check turn_scores.params, or the function",
            ) from problem
        if status != "weighted":
            raise ConfigError(
                f"turn_scores: {config.function} did not give a score in [0, 1] or None for each turn of a sample",
                "Check turn_scores.params, or the function",
            )
    return scoring


def load_answer_judge(config: AnswerJudgeConfig, cache: Path | None = None) -> AnswerJudging:
    """Return the judge of `config`, opened but not asked.

    Args:
        config: class and parameters.
        cache: folder for the judge's answers, for classes that take one; None keeps nothing.

    Raises:
        ConfigError: no such class, a wrong parameter, or a number out of range.
    """
    if not config.judge:
        return AnswerJudging(None, config.max_failed_share)
    try:
        judge_class = pkgutil.resolve_name(config.judge)
        parameters = inspect.signature(judge_class).parameters
    except (ImportError, AttributeError, ValueError, TypeError) as problem:
        raise ConfigError(
            f"answer_judge.judge: there is no class {config.judge!r} ({problem})", "See conf/answer_judge"
        ) from problem
    params = {str(name): value for name, value in config.params.items()}
    if cache is not None and "cache" in parameters:
        params["cache"] = str(cache)
    try:
        judge = judge_class(**params)
    except TypeError as problem:
        raise ConfigError(f"answer_judge.params: {problem}", "See conf/answer_judge") from problem
    if not callable(getattr(judge, "judge", None)) or not hasattr(judge, "usage"):
        raise ConfigError(
            f"answer_judge.judge: {config.judge} has no method judge or no usage",
            "It must be as codegrep.judges.answers.AnswerJudge",
        )
    return AnswerJudging(cast(AnswerJudge, judge), config.max_failed_share)
