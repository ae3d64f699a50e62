"""A judge of answers in training: who is asked, what a failure becomes, and real GRPO steps against a real server."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from codegrep.errors import InfrastructureError
from codegrep.judges.answer_judging import AnswerJudging
from codegrep.judges.answers import EndpointAnswerJudge
from codegrep.rewards.designs import tiered, v3
from codegrep.rewards.governance import JUDGE_FAILED, Rules
from codegrep.rewards.outcome import RewardDesign
from codegrep.rewards.signal import TrainingSignal
from codegrep.rollout.record import Rollout
from codegrep.tracking.names import describe
from codegrep.training.score_batch import BatchScoring, ScoredRollout, judge_answers, score_batch
from codegrep.training.signal_metrics import judge_sums, signal_sums
from codegrep.training.step_metrics import add_up
from tests.chat_server import Answer, said
from tests.training.made_rollouts import issues
from tests.training.test_reference_loss import RECIPES
from tests.training.varied_rollouts import ENDS, GRAM, HANDLING, MAX_CALLS, Varied, trainer_for

ISSUES = {issue.instance_id: issue for issue in issues(2)}
REWARD = partial(tiered, check="hit", judge="answer_judge")
PLAIN = Rules()


def shown(body: dict[str, Any]) -> set[str]:
    """Files of the answer that a question is about."""
    answer = re.search(r"<<answer \w+>>\n(.*)\n<<end of answer", body["messages"][0]["content"], re.DOTALL)
    assert answer is not None
    return set(re.findall(r"- (\S+\.py)", answer[1]))


def sensible(_: int, body: dict[str, Any]) -> Answer:
    """Finds what holds b.py consistent."""
    code = re.findall(r'"code": "(\w+)"', body["messages"][0]["content"])[-1]
    return said(json.dumps({"code": code, "is_semantic_consistent": "b.py" in shown(body), "reason": "so"}))


def judging_by(server: Any, share: float = 1.0, **more: Any) -> AnswerJudging:
    judge = EndpointAnswerJudge(**{"url": server.url, "model": "m", "backoff": 0.01, "retries": 0, **more})
    return AnswerJudging(judge, share)


def score(
    rollouts: list[Rollout],
    judging: AnswerJudging,
    rules: Rules = PLAIN,
    reward: RewardDesign = REWARD,
) -> tuple[list[ScoredRollout], dict[str, float]]:
    scoring = BatchScoring(TrainingSignal(reward, rules=rules), judging=judging)
    judged = judge_answers(rollouts, ISSUES, scoring)
    batch = score_batch(rollouts, ISSUES, 8, scoring, judged)
    return batch, add_up([judge_sums(judged), signal_sums(batch, [0.0] * len(batch), 0.1)])


def rollouts(ends: tuple[str, ...] = ENDS) -> list[Rollout]:
    return Varied(ends=ends).collect(list(ISSUES.values()), 8, 0)


def test_zero_half_and_one_from_a_judge(serve: Any) -> None:
    server = serve(sensible)
    batch, numbers = score(rollouts(("answer",)), judging_by(server))
    assert {one.score.reward.total for one in batch if one.score.reward} == {0.0, 0.5, 1.0}
    for one in batch:
        assert one.score.reward is not None
        hit, consistent = bool({"a.py", "b.py"} & set(one.rollout.answer)), "b.py" in one.rollout.answer
        assert one.score.reward.total == 0.5 * hit + 0.5 * (hit and consistent)
    asked = sum(1 for one in batch if one.score.reward and one.score.reward.total)
    # Only what passed the check is asked about, and equal answers to an issue once.
    different = {(one.rollout.instance_id, frozenset(one.rollout.answer)) for one in batch if one.score.reward.total}  # type: ignore[union-attr]
    assert numbers["judge/rollouts"] == asked < 16 and numbers["judge/requests"] == len(server.seen) <= len(different)
    assert numbers["judge/cache_hits"] == pytest.approx(1 - len(server.seen) / asked)
    assert numbers["judge/consistent"] == pytest.approx(
        sum(1 for one in batch if one.score.reward and one.score.reward.total == 1.0) / asked
    )
    assert (numbers["judge/failed"], numbers["judge/failed_share"]) == (0, 0)
    assert numbers["judge/tokens"] == 12 * len(server.seen)


def test_what_governance_masks_is_not_judged(serve: Any) -> None:
    server = serve(sensible)
    rules = Rules(HANDLING, True, True, MAX_CALLS, *GRAM)
    made = [replace(one, answer=["a.py"], answered=True) if one.turns else one for one in rollouts()]
    batch, numbers = score(made, judging_by(server), rules)
    judged = [one.outcome.judgement is not None for one in batch]
    assert judged == [end in ("answer", "max_turns") for end in ENDS] * 2 and numbers["judge/rollouts"] == sum(judged)


def test_a_design_without_a_judge_asks_nobody(serve: Any) -> None:
    server = serve(sensible)
    batch, numbers = score(rollouts(("answer",)), judging_by(server), reward=v3)
    assert not server.seen and numbers["judge/rollouts"] == 0
    alone, _ = score(rollouts(("answer",)), AnswerJudging(), reward=v3)
    assert [one.score for one in batch] == [one.score for one in alone]


@pytest.mark.parametrize("in_group", [True, False])
def test_a_failure_of_the_judge_is_left_out_and_never_a_zero(serve: Any, in_group: bool) -> None:
    server = serve(lambda n, body: (500, {}, b"") if "b.py" in shown(body) else sensible(n, body))
    rules = Rules(masked_in_group=in_group, infrastructure_in_group=in_group)
    batch, numbers = score(rollouts(("answer",)), judging_by(server), rules)
    failed = [one for one in batch if "b.py" in one.rollout.answer]
    assert failed and numbers["judge/failed"] == numbers["masked/judge_failed"] == len(failed)
    assert all(one.score.reward is None and not any(one.mask) and not one.alive for one in failed)
    assert all(one.score.reward is not None and any(one.mask) for one in batch if one not in failed)
    assert 0 < numbers["judge/failed_share"] < 1 and numbers["judge/consistent"] == 0


def test_a_failure_of_the_judge_as_in_the_paper_keeps_the_checks_half(serve: Any) -> None:
    server = serve(lambda *_: said("I would rather not say."))
    rules = Rules({JUDGE_FAILED: "normal"})
    batch, numbers = score(rollouts(("answer",)), judging_by(server), rules)
    assert {one.score.reward.total for one in batch if one.score.reward} == {0.0, 0.5}
    assert all(any(one.mask) for one in batch)
    assert numbers["judge/failed"] > 0 and numbers["masked/judge_failed"] == 0


def test_the_names_are_in_the_catalogue(serve: Any) -> None:
    _, numbers = score(rollouts(), judging_by(serve(sensible)))
    assert any(name.startswith("judge/") for name in numbers)
    assert not [name for name in numbers if describe(name) is None]


def trained(nano: Path, folder: Path, judging: AnswerJudging, **changes: Any) -> Any:
    recipe = replace(RECIPES["v3"], reward=REWARD, factor=lambda outcome: 1.0)
    trainer, _ = trainer_for(recipe, nano, folder, Varied(ends=("answer",)), judging=judging, **changes)
    trainer.train()
    return trainer


def test_grpo_steps_ask_the_judge_and_a_resumed_run_does_not_ask_again(serve: Any, nano: Path, tmp_path: Path) -> None:
    server = serve(sensible)
    cache = str(tmp_path / "answers")
    trainer = trained(nano, tmp_path / "a", judging_by(server, cache=cache), steps=2)
    numbers = trainer.own_metrics
    assert numbers["judge/rollouts"] > 0 and 0 < numbers["reward/judge"] < numbers["reward/check"] <= 0.5
    assert numbers["reward/judge"] == pytest.approx(0.5 * numbers["judge/consistent"] * numbers["judge/rollouts"] / 16)
    assert numbers["seconds/scoring"] >= numbers["judge/seconds"] > 0
    questions = len(server.seen)
    assert questions == len(set(server.asked)) < 2 * 16
    again = trained(nano, tmp_path / "b", judging_by(server, cache=cache), steps=2)
    assert len(server.seen) == questions
    same = [name for name in numbers if not name.startswith(("seconds/", "judge/"))]
    assert {name: again.own_metrics[name] for name in same} == {name: numbers[name] for name in same}
    assert (again.own_metrics["judge/cache_hits"], again.own_metrics["judge/requests"]) == (1.0, 0)


def test_a_dead_judge_ends_the_training_instead_of_training_on_nothing(serve: Any, nano: Path, tmp_path: Path) -> None:
    server = serve(lambda *_: (503, {}, b""))
    with pytest.raises(InfrastructureError, match=r"the judge failed on .* HTTP 503"):
        trained(nano, tmp_path / "a", judging_by(server, share=0.5), steps=1)
    # Let pass by configuration, it leaves those that it was asked about out of their groups.
    trainer = trained(nano, tmp_path / "b", judging_by(server, share=1.0), steps=1)
    assert trainer.own_metrics["judge/failed_share"] == 1.0
    assert trainer.own_metrics["masked/judge_failed"] == trainer.own_metrics["judge/failed"] > 0
