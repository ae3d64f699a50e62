"""What decides a trained adapter, as far as signals go: what changes nothing leaves the fingerprint as it was."""

from __future__ import annotations

from typing import Any

from codegrep.compose import compose_overrides, load
from codegrep.pipeline.run_identity import run_name
from codegrep.pipeline.stages.train import signals

LLM = ("reward.params.judge=answer_judge", "answer_judge=llm", "answer_judge.params.model=m")


def of(*overrides: str) -> dict[str, Any]:
    return signals(load(compose_overrides(overrides)))


def test_without_a_judge_there_is_nothing_of_it() -> None:
    assert of("+experiment=v3") == {}
    found = of("+experiment=signal_reshaping")
    assert "answer_judge" not in found and "judge_failed" not in found["governance"]["handling"]
    assert of("+experiment=signal_reshaping", "governance.handling.judge_failed=full_mask") == found


def test_a_judge_counts_by_what_changes_its_verdicts() -> None:
    found = of("+experiment=signal_reshaping", *LLM)
    assert found["answer_judge"]["params"] == {"model": "m", "temperature": 0.0, "max_tokens": 512, "extra": {}}
    assert found["answer_judge"]["failed"] == "normal" and found["answer_judge"]["version"]
    elsewhere = (
        "answer_judge.params.url=http://there/v1",
        "answer_judge.params.key_variable=KEY",
        "answer_judge.params.retries=9",
    )
    assert of("+experiment=signal_reshaping", *LLM, *elsewhere, "answer_judge.max_failed_share=1") == found
    for change in (
        "answer_judge.params.model=n",
        "answer_judge.params.temperature=1",
        "governance.handling.judge_failed=full_mask",
    ):
        assert of("+experiment=signal_reshaping", *LLM, change) != found
    assert of("+experiment=v3", *LLM[1:])["answer_judge"]["failed"] == "full_mask"


def test_a_run_is_the_same_run_whatever_judge_is_not_asked() -> None:
    def name(*overrides: str) -> str:
        return run_name(load(compose_overrides(["+experiment=signal_reshaping", *overrides])))

    assert name() == name("governance.handling.judge_failed=full_mask") == name("answer_judge.max_failed_share=1")
    assert name(*LLM) != name(LLM[0]) != name()
    assert name(*LLM, "governance.handling.judge_failed=full_mask") != name(*LLM)
