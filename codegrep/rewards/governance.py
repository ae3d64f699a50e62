"""Rollout governance: how the cause of its end decides a rollout's reward, mask and place in the group (2605.07276).

arXiv 2605.07276 tells three kinds of ends apart. What has nothing to do with the policy's decisions (a lost
environment, a full context, a turn out of tokens) gets reward 0 and is masked whole. Degeneration (too many calls in a
turn, a repeated n-gram) gets reward 0 and keeps only the turn in which it happened. Everything else is settled as
usual. Nothing is sampled again, so masked rollouts stay in the group and move its mean and deviation; the paper keeps
that bias, `masked_in_group=False` takes it away.

Reconstructed:
- A rollout goes on here after a turn with too many calls, while the paper's ends there. It is judged as if it had ended
  in the first turn that degenerated: the turns before and after it are masked.
- "An n-gram of 15 to 50 tokens repeated more than 30 times" counts occurrences that do not overlap, within one turn. A
  longer n-gram contains shorter ones that occur at least as often, so only the shortest has to be looked for.
- A degenerate rollout is in the group in both readings: what is left of it needs an advantage.
- A prompt that fills the context is no end of the paper's. Nothing is sampled, so nothing can be judged or masked: such
  rollouts have no reward and are outside their group, whatever the switches say.
- A rollout whose reward needs a judge's verdict and has none is the machine's failure by default: masked whole, without
  a reward, outside the group, whatever the switches say, so that an outage never counts as 0. "normal" is the paper's
  way: it keeps what it has without the verdict (with `tiered` the check's half).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from codegrep.protocol.exit_cause import LOST, ExitCause

Handling = Literal["normal", "last_turn", "full_mask"]
HANDLINGS: tuple[str, ...] = get_args(Handling)
EXCESSIVE_CALLS = "excessive_calls"
REPETITION = "repetition"
JUDGE_FAILED = "judge_failed"
# What a rollout's record names as its end, and what is found in it afterwards.
EXIT_CAUSES = tuple(cause.value for cause in ExitCause)
CAUSES = (*EXIT_CAUSES, EXCESSIVE_CALLS, REPETITION, JUDGE_FAILED)
# What is done where the rules do not name the cause.
_DEFAULTS: Mapping[str, Handling] = {**dict.fromkeys(map(str, LOST), "full_mask"), JUDGE_FAILED: "full_mask"}

ScoredAs = Literal["own", "zero", "none"]


@dataclass(frozen=True)
class Conduct:
    """What governance looks at in one rollout.

    Attributes:
        exit_cause: as recorded.
        calls_per_turn: things meant as calls in each assistant turn, refused and malformed ones included.
        turns: sampled token ids of each assistant turn; needed only where repetition is looked for.
        judge_failed: its reward needs a judge's verdict, and none was had.
    """

    exit_cause: str
    calls_per_turn: tuple[int, ...]
    turns: tuple[tuple[int, ...], ...] = ()
    judge_failed: bool = False


@dataclass(frozen=True)
class Rules:
    """What is done about which cause.

    Attributes:
        handling: by cause; a cause that is not named is "normal". The machine's failure and a prompt longer than the
            context are always "full_mask", and judge_failed is "full_mask" (where it is not named) or "normal".
        masked_in_group: fully masked rollouts stay in mean and deviation of their group with reward 0 (the paper), or
            are left out. Those that the machine lost follow the next switch.
        infrastructure_in_group: the paper's treatment of the machine's failures: reward 0, in the group. False: no
            reward, outside the group.
        max_calls: more calls in one turn are excessive (5 in the paper); 0 never.
        repetition_tokens, repetition_times: a turn that holds one n-gram of so many tokens more than so many times is
            degenerate (15 and 30); 0 never.
    """

    handling: Mapping[str, Handling] = field(default_factory=dict)
    masked_in_group: bool = True
    infrastructure_in_group: bool = False
    max_calls: int = 0
    repetition_tokens: int = 15
    repetition_times: int = 0

    def __post_init__(self) -> None:
        unknown = set(self.handling) - set(CAUSES)
        if unknown:
            raise ValueError(f"unknown cause {sorted(unknown)[0]!r}; there are {', '.join(CAUSES)}")
        for cause, handling in self.handling.items():
            if handling not in HANDLINGS:
                raise ValueError(f"{cause}: {handling!r} is none of {', '.join(HANDLINGS)}")
        for cause in LOST:
            if self.handling.get(cause, "full_mask") != "full_mask":
                raise ValueError(f"{cause}: a rollout that is lost can only be full_mask")
        if self.handling.get(JUDGE_FAILED) == "last_turn":
            raise ValueError(f"{JUDGE_FAILED}: a missing judgement is no fault of a turn; use full_mask or normal")
        if self.max_calls < 0 or self.repetition_times < 0 or self.repetition_tokens < 1:
            raise ValueError("max_calls and repetition_times may not be negative, repetition_tokens is at least 1")
        object.__setattr__(self, "handling", MappingProxyType(dict(self.handling)))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        # A read-only view cannot be pickled, and rules travel to Ray workers.
        return type(self), (
            dict(self.handling),
            self.masked_in_group,
            self.infrastructure_in_group,
            self.max_calls,
            self.repetition_tokens,
            self.repetition_times,
        )


@dataclass(frozen=True)
class MaskDecision:
    """What becomes of one rollout.

    Attributes:
        cause: one of CAUSES.
        handling: what is done.
        kept_turns: one entry an assistant turn; the tokens of kept turns are in the loss and in KL.
        scored_as: "own" is the design's reward; "zero" is 0, the design is not asked; "none" leaves the rollout out of
            its group.
    """

    cause: str
    handling: Handling
    kept_turns: tuple[bool, ...]
    scored_as: ScoredAs


def govern(conduct: Conduct, rules: Rules) -> MaskDecision:
    """Verdict on one rollout.

    That it is lost goes before repetition, that before excessive calls, that before a missing verdict, that before the
    recorded cause.

    Raises:
        ValueError: an exit cause that is none of EXIT_CAUSES.
    """
    if conduct.exit_cause not in EXIT_CAUSES:
        raise ValueError(f"unknown exit cause {conduct.exit_cause!r}; there are {', '.join(EXIT_CAUSES)}")
    cause, turn = _cause(conduct, rules)
    count = len(conduct.calls_per_turn)
    handling = rules.handling.get(cause, _DEFAULTS.get(cause, "normal"))
    if handling == "normal":
        return MaskDecision(cause, handling, (True,) * count, "own")
    if handling == "last_turn":
        return MaskDecision(cause, handling, tuple(index == turn for index in range(count)), "zero")
    switches = {
        ExitCause.INFRASTRUCTURE.value: rules.infrastructure_in_group,
        ExitCause.PROMPT_TOO_LONG.value: False,
        JUDGE_FAILED: False,
    }
    in_group = switches.get(cause, rules.masked_in_group)
    return MaskDecision(cause, handling, (False,) * count, "zero" if in_group else "none")


def _cause(conduct: Conduct, rules: Rules) -> tuple[str, int]:
    """The cause, and the turn in which it happened."""
    last = len(conduct.calls_per_turn) - 1
    if conduct.exit_cause in LOST:
        return conduct.exit_cause, last
    if rules.repetition_times:
        for turn, tokens in enumerate(conduct.turns):
            if repeats(tokens, rules.repetition_tokens, rules.repetition_times):
                return REPETITION, turn
    if rules.max_calls:
        for turn, calls in enumerate(conduct.calls_per_turn):
            if calls > rules.max_calls:
                return EXCESSIVE_CALLS, turn
    own = rules.handling.get(conduct.exit_cause, "normal")
    if conduct.judge_failed and own == "normal" and rules.handling.get(JUDGE_FAILED) != "normal":
        return JUDGE_FAILED, last
    return conduct.exit_cause, last


def repeats(tokens: Sequence[int], size: int, times: int) -> bool:
    """Whether one n-gram of `size` tokens occurs more than `times` times without overlap."""
    if len(tokens) < size * (times + 1):
        return False
    seen: dict[tuple[int, ...], tuple[int, int]] = {}  # n-gram -> occurrences, first place where the next may start
    for start in range(len(tokens) - size + 1):
        gram = tuple(tokens[start : start + size])
        count, free = seen.get(gram, (0, 0))
        if start >= free:
            if count >= times:
                return True
            seen[gram] = (count + 1, start + size)
    return False
