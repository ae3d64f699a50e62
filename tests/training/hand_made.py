"""Eight rollouts of one GRPO step, written out by hand: two groups of four, with every kind of end in them.

group 0   answered, all gold   answered, half   out of tokens   lost by the machine
group 1   not searched, wrong  no call, no answer   no answer   stopped short of context
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from codegrep.issues.issue import Issue
from codegrep.protocol.exit_cause import ExitCause
from codegrep.rollout.record import CallRecord, Rollout, Turn

EOS = 2
Told = tuple[int, int, Sequence[CallRecord]]  # sampled tokens, tokens of tool text after them, calls


def call(number: int, pattern: str, status: str = "ok", name: str = "grep") -> CallRecord:
    return CallRecord(number, name, f'{{"pattern": "{pattern}"}}' if name else "{", status, "")


def made(issue: Issue, place: int, told: Sequence[Told], answer: Sequence[str] | None, cause: ExitCause) -> Rollout:
    completion: list[int] = []
    mask: list[int] = []
    turns: list[Turn] = []
    for number, (sampled, observed, calls) in enumerate(told):
        start = len(completion)
        completion += [(17 * place + 31 * number + 7 * n) % 280 + 5 for n in range(sampled)]
        completion += [(11 * place + 13 * number + 3 * n) % 280 + 5 for n in range(observed)]
        mask += [1] * sampled + [0] * observed
        turns.append(Turn(start, start + sampled, "", list(calls), seconds_generation=0.2, seconds_tools=0.1))
    return Rollout(
        rollout_id=f"{issue.instance_id}-{place}",
        instance_id=issue.instance_id,
        repo=issue.repo,
        base_commit=issue.base_commit,
        source="policy",
        prompt_ids=list(range(20, 30)),
        completion_ids=completion,
        loss_mask=mask,
        logprobs=[-5.0 if sampled else 0.0 for sampled in mask],
        turns=turns,
        answer=list(answer or ()),
        answered=answer is not None,
        gold_files=["a.py", "b.py"],
        exit_cause=cause.value,
    )


def first_group(issue: Issue) -> list[Rollout]:
    four = [call(n, f"p{n}") for n in range(1, 5)]
    return [
        made(issue, 0, [(5, 10, four), (3, 0, [])], ["a.py", "b.py"], ExitCause.ANSWER),
        made(issue, 1, [(4, 6, [call(1, "q")]), (3, 0, [])], ["a.py"], ExitCause.ANSWER),
        made(
            issue,
            2,
            [(6, 4, [call(1, "", "model_error", name=""), call(2, "r")]), (7, 0, [call(1, "s", "refused")])],
            None,
            ExitCause.MAX_TOKENS,
        ),
        made(issue, 3, [(2, 0, [])], None, ExitCause.INFRASTRUCTURE),
    ]


def second_group(issue: Issue) -> list[Rollout]:
    return [
        made(issue, 4, [(4, 0, [])], ["c.py"], ExitCause.ANSWER),
        made(issue, 5, [(3, 5, [call(1, "t"), call(2, "t")]), (2, 0, [])], None, ExitCause.NO_TOOL_CALL),
        made(issue, 6, [(3, 8, [call(1, "u")]), (5, 0, [])], None, ExitCause.MAX_TURNS),
        made(issue, 7, [(6, 20, [call(1, "v")]), (1, 0, [])], None, ExitCause.CONTEXT_LIMIT),
    ]


@dataclass
class HandMade:
    """Collector. The first issue that is asked for in a step is group 0, any other group 1."""

    asked: list[list[str]] = field(default_factory=list)
    first: str = ""

    def collect(self, wanted: Sequence[Issue], group_size: int, step: int) -> list[Rollout]:
        assert group_size == 4
        self.asked.append([issue.instance_id for issue in wanted])
        self.first = self.first or wanted[0].instance_id
        groups = [first_group(i) if i.instance_id == self.first else second_group(i) for i in wanted]
        return [rollout for group in groups for rollout in group]

    def close(self) -> None:
        pass
