"""A judge asked by the replay: about what needs a judgement, once, and not about what training has asked already."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from codegrep.cli import COMMANDS, run
from codegrep.config import AnswerJudgeConfig
from codegrep.errors import ConfigError
from codegrep.issues.issue import Issue
from codegrep.issues.jsonl import write_issues
from codegrep.judges.answer_judging import AnswerJudging
from codegrep.judges.answers import AnswerQuestion, Judgement
from codegrep.judges.endpoint import Usage
from codegrep.lab.designs import Design, load_judge
from codegrep.lab.replay import replay
from codegrep.lab.replay_judge import OpenJudge, ReplayJudge, answers_of
from codegrep.lab.stored import read_stored, rollout_folders
from codegrep.rewards.designs import tiered, v3
from codegrep.rewards.signal import TrainingSignal
from codegrep.rollout.store import read_rollouts, write_rollouts
from codegrep.training.signals import load_answer_judge
from tests.chat_server import Answer, said
from tests.lab.made import write_run


def sensible(_: int, body: dict[str, Any]) -> Answer:
    """Finds an answer consistent unless it has names that are neither gold nor were shown by a tool."""
    text = body["messages"][0]["content"]
    code = re.findall(r'"code": "(\w+)"', text)[-1]
    return said(
        json.dumps({"code": code, "is_semantic_consistent": "more names" not in text.partition("<<answer ")[2]})
    )


def overrides(server: Any) -> str:
    params = {"url": server.url, "model": "m", "retries": 0, "backoff": 0.01}
    return "answer_judge=llm " + " ".join(f"answer_judge.params.{key}={value}" for key, value in params.items())


JUDGED = Design("judged", TrainingSignal(tiered))


def judge_at(server: Any) -> OpenJudge:
    params = {"url": server.url, "model": "m", "retries": 0, "backoff": 0.01}
    kind = "codegrep.judges.answers.EndpointAnswerJudge"
    return partial(load_answer_judge, AnswerJudgeConfig("llm", kind, params))


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """A run with its rollouts and issues."""
    write_run(tmp_path / "outputs")
    found = {r.instance_id: r.gold_files for folder in rollout_folders([tmp_path]) for r in read_rollouts(folder)}
    issues = [Issue(name, "o/n", "c", f"about {name}", gold_files=tuple(gold)) for name, gold in found.items()]
    (tmp_path / "outputs" / "artifacts" / "prepare-0").mkdir(parents=True)
    write_issues(tmp_path / "outputs" / "artifacts" / "prepare-0" / "issues.jsonl", {"train": issues})
    return tmp_path / "outputs"


def test_it_is_asked_about_what_needs_a_judgement_and_once(serve: Any, outputs: Path) -> None:
    server = serve(sensible)
    designs = [Design("v3", TrainingSignal(v3)), JUDGED]
    done = replay([outputs], designs, open_judge=judge_at(server))
    stored, judged = done.stored, done.rescored[1]
    needed = [
        o.exit_cause != "infrastructure" and o.answered and bool(o.gold & set(o.predicted)) for o in stored.outcomes
    ]
    assert [o.judgement is not None for o in stored.outcomes] == needed and 0 < sum(needed) < len(stored)
    assert 0 < len(server.seen) == len(set(server.asked)) < sum(needed)
    for outcome, reward in zip(stored.outcomes, judged.batch.rewards, strict=True):
        if outcome.judgement is not None:
            assert (
                outcome.judgement is (set(outcome.predicted) <= outcome.gold | {"a.py"})
                and reward == 0.5 + 0.5 * outcome.judgement
            )
    assert f"a judge was asked about {sum(needed)} rollouts, with {len(server.seen)} requests" in done.notes
    asked = len(server.seen)
    again = replay([outputs], designs, open_judge=judge_at(server))
    assert (
        len(server.seen) == asked and f"a judge was asked about {sum(needed)} rollouts, with 0 requests" in again.notes
    )
    # What is known from a file is not asked, and goes before the judge.
    ids = dict.fromkeys(stored.rollout_ids, True)
    told = replay([outputs], designs, judgements=ids, open_judge=judge_at(server))
    assert "a judge was asked about 0 rollouts, with 0 requests" in told.notes
    assert all(outcome.judgement for outcome in told.stored.outcomes)


def test_nobody_is_asked_for_designs_without_a_judge(serve: Any, outputs: Path) -> None:
    server = serve(sensible)
    replay([outputs], [Design("v3", TrainingSignal(v3))], open_judge=judge_at(server))
    assert not server.seen


def test_failures_and_unknown_issues_are_said(serve: Any, outputs: Path) -> None:
    server = serve(lambda *_: (503, {}, b""))
    designs = [JUDGED]
    done = replay([outputs], designs, open_judge=judge_at(server))
    assert any(re.match(r"it failed on \d+ of them \(first: HTTP 503\)", note) for note in done.notes)
    done = replay([outputs], designs, issues={}, open_judge=judge_at(server))
    assert any("rollouts of unknown issues (--issues)" in note for note in done.notes)


def test_the_command_asks(serve: Any, outputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(sensible)
    argv = [str(outputs), "--design", "judged: reward=tiered advantage=none", "--judge", overrides(server)]
    assert run(COMMANDS["replay"], argv) == 0
    assert server.seen and "a judge was asked about" in capsys.readouterr().out


def test_where_a_run_keeps_its_judges_answers(tmp_path: Path) -> None:
    assert answers_of(tmp_path / "artifacts" / "train-1" / "rollouts") == tmp_path / "answer_judgements"
    assert answers_of(tmp_path / "some" / "where") is None


@pytest.mark.parametrize(
    ("words", "said_"),
    [
        ("answer_judge=llm", r"answer_judge\.params\.model is not set"),
        ("answer_judge=none", "names no judge"),
        ("answer_judge=lml", "Did you mean answer_judge=llm"),
        ("answer_judge=llm answer_judge.params.model=m +answer_judge.params.modell=x", "modell"),
    ],
)
def test_a_mistake_is_one_line(words: str, said_: str) -> None:
    with pytest.raises(ConfigError, match=said_):
        load_judge(words)


def test_samples_of_an_issue_are_asked_about_with_its_statement(outputs: Path, tmp_path: Path) -> None:
    (folder,) = rollout_folders([outputs])
    issues = {f"issue-{n}": Issue(f"issue-{n}", "o/n", "c", f"about issue-{n}") for n in range(4)}
    asked: list[list[AnswerQuestion]] = []
    for suffix in ("", "@2"):
        place = tmp_path / f"samples{suffix}"
        rollouts = [replace(r, instance_id=r.instance_id + suffix) for r in read_rollouts(folder)]
        place.mkdir()
        write_rollouts(place, rollouts)
        judge = Listening()
        replay_judge = ReplayJudge(lambda _, judge=judge: AnswerJudging(judge), [JUDGED])  # type: ignore[misc]
        read_stored([place], issues, judge=replay_judge)
        assert len(replay_judge.notes()) == 1
        asked.append(judge.questions)
    assert asked[0] == asked[1] != [] and all(question.statement.startswith("about issue-") for question in asked[1])


class Listening:
    """Keeps what it is asked, and agrees."""

    version, usage = "1", Usage()

    def __init__(self) -> None:
        self.questions: list[AnswerQuestion] = []

    def judge(self, questions: Sequence[AnswerQuestion]) -> list[Judgement]:
        self.questions += questions
        return [Judgement(True)] * len(questions)
