"""Rollout governance: how a rollout's end decides its reward, its mask and its place in the group.

arXiv 2605.07276 tells three kinds of ends apart. Ends that have nothing to do with the policy's decisions (a lost
environment, a full context, a turn out of tokens) get reward 0 and a full mask. Degeneration (too many calls in a turn,
a repeated n-gram) gets reward 0 and keeps only the turn in which it happened. Everything else is scored by the design.
Nothing is sampled again, so masked rollouts stay in the group and move its mean and deviation; the paper keeps that
bias, `masked_in_group=False` removes it.

Reconstructed:
- A rollout continues here after a turn with too many calls, while the paper's ends there. It is treated as if it had
  ended in the first turn that degenerated: the turns before and after it are masked.
- "An n-gram of 15 to 50 tokens repeated more than 30 times" counts occurrences that do not overlap, within one turn. A
  longer n-gram contains shorter ones that occur at least as often, so only the shortest is searched.
- A degenerate rollout is in the group in both readings: what is left of it needs an advantage.
- The paper has no prompt that fills the context. Nothing is sampled, so such rollouts have no reward and are outside
  their group, whatever the switches say.
- A rollout whose reward needs a judge that failed is by default masked whole, without a reward and outside the group,
  whatever the switches say, so that an outage never counts as 0. "normal" is the paper's way: the reward is what it is
  without the judgement (with `tiered` the check's half).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from codegrep.config.governance import Handling
from codegrep.protocol.exit_cause import LOST, ExitCause

EXCESSIVE_CALLS = "excessive_calls"
REPETITION = "repetition"
JUDGE_FAILED = "judge_failed"
EXIT_CAUSES = tuple(cause.value for cause in ExitCause)
CAUSES = (*EXIT_CAUSES, EXCESSIVE_CALLS, REPETITION, JUDGE_FAILED)
# For causes that the rules do not name; others are "normal".
_DEFAULTS: Mapping[str, Handling] = {**dict.fromkeys(map(str, LOST), "full_mask"), JUDGE_FAILED: "full_mask"}

ScoredAs = Literal["own", "zero", "none"]


@dataclass(frozen=True)
class Conduct:
    """What governance looks at in one rollout.

    Attributes:
        exit_cause: as recorded.
        calls_per_turn: things meant as calls in each assistant turn, refused and malformed ones included.
        turns: sampled token ids of each assistant turn; needed only where repetition is looked for.
        judge_failed: its reward needs a judge, and the judge failed.
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

    Raises:
        ValueError: an unknown cause, or a handling that the cause cannot have.
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
        for cause in LOST:
            if self.handling.get(cause, "full_mask") != "full_mask":
                raise ValueError(f"{cause}: a rollout that is lost can only be full_mask")
        if self.handling.get(JUDGE_FAILED) == "last_turn":
            raise ValueError(f"{JUDGE_FAILED}: a missing judgement is no fault of a turn; use full_mask or normal")


@dataclass(frozen=True)
class MaskDecision:
    """What happens to one rollout.

    Attributes:
        cause: one of CAUSES.
        handling: what the rules say about it.
        kept_turns: one entry an assistant turn; the tokens of kept turns are in the loss and in KL.
        scored_as: "own" is the design's reward; "zero" is 0, the design is not asked; "none" leaves the rollout out of
            its group.
    """

    cause: str
    handling: Handling
    kept_turns: tuple[bool, ...]
    scored_as: ScoredAs


def govern(conduct: Conduct, rules: Rules) -> MaskDecision:
    """Decide about one rollout. Precedence: lost, repetition, excessive calls, failed judge, recorded cause.

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
    """Return the cause, and the turn in which it happened."""
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
    """Return whether one n-gram of `size` tokens occurs more than `times` times without overlap."""
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
