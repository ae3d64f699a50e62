"""Measures against values worked by hand, and the whole replay from Parquet to page."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from codegrep.cli import COMMANDS, run
from codegrep.errors import ConfigError, DataError
from codegrep.issues.issue import Issue
from codegrep.issues.jsonl import write_issues
from codegrep.lab.designs import SHIPPED, Design, load_designs
from codegrep.lab.measures import agreements, measure, pairs_within, properties
from codegrep.lab.replay import read_issues, read_judgements, replay
from codegrep.lab.rescored import rescore
from codegrep.lab.stored import Stored
from codegrep.rewards.advantage import efficiency
from codegrep.rewards.designs import v3
from codegrep.rewards.governance import Conduct, Rules
from codegrep.rewards.outcome import Outcome, RewardParts
from codegrep.rewards.signal import TrainingSignal, batch_advantages, score_rollout
from tests.lab.made import write_run


def outcome(found: bool, calls: int, tokens: int = 10, exit_cause: str = "answer") -> Outcome:
    return Outcome(
        ("a",) if found else ("x",), frozenset("a"), calls_per_turn=(calls, 0), exit_cause=exit_cause,
        unique_calls_per_turn=(calls, 0), generated_tokens=tokens,
    )  # fmt: skip


def stored_of(groups: list[list[Outcome]]) -> Stored:
    flat = [o for group in groups for o in group]
    return Stored(
        [str(n) for n in range(len(flat))],
        flat,
        [Conduct(o.exit_cause, o.calls_per_turn) for o in flat],
        [(o.generated_tokens - 2, 2) for o in flat],
        np.array([g for g, group in enumerate(groups) for _ in group], dtype=np.intp),
        [str(g) for g in range(len(groups))],
    )


ALIVE = [outcome(True, 4, 30), outcome(False, 1, 10), outcome(True, 1, 20), outcome(False, 4, 40)]
DEAD = [outcome(True, 2, 10), outcome(True, 4, 10)]
PLAIN = Design("plain", TrainingSignal(v3, scale="none"))
SCALED = Design("scaled", TrainingSignal(v3, efficiency, scale="none"))


def test_measures_by_hand() -> None:
    stored = stored_of([ALIVE, DEAD])
    m = measure(stored, rescore(stored, SCALED), properties(stored))
    assert (m.rollouts, m.scored, m.groups, m.dead) == (6, 6, 2, 0.5)
    assert m.reward_mean == pytest.approx(4 / 6)
    # Rewards 1 0 1 0: deviation sqrt(4·0.25/3) = 0.57735; the dead group has 0.
    assert m.group_std == pytest.approx(0.57735 / 2, abs=1e-5)
    # |A| = 0.5 four times; factors 1, .5, .5, 1.
    assert m.mass_normalised == pytest.approx(2.0 / 6)
    assert m.mass_factor == pytest.approx(1.5 / 6)
    assert m.mass == pytest.approx(1.5 / 6)
    # Weights .5 .25 .25 .5: (1.5)² / (.25 + .0625 + .0625 + .25) = 3.6 of 6 rollouts.
    assert m.effective == pytest.approx(3.6 / 6)
    assert m.bias == pytest.approx(0.0)
    (file_f, *_) = m.components
    assert (file_f.name, file_f.alone, file_f.unique) == ("file_f", pytest.approx(1.0), pytest.approx(1.0))
    assert {c.name for c in m.components} == {"file_f", "searched"}  # what is only observed is no component


def test_correlation_is_within_groups() -> None:
    # Between groups longer is worse, within groups longer is better: only the latter is what GRPO sees.
    first = [outcome(True, 1, 20), outcome(False, 1, 10)]
    second = [outcome(False, 1, 110), outcome(False, 1, 100), outcome(True, 1, 120)]
    stored = stored_of([first, second])
    m = measure(stored, rescore(stored, PLAIN), properties(stored))
    assert m.pushes["tokens"] > 0.8
    assert math.isnan(m.pushes["turns"])


def test_rewards_and_advantages_are_those_of_the_signal() -> None:
    stored = stored_of([ALIVE, [*DEAD, outcome(False, 1), outcome(True, 1, exit_cause="infrastructure")]])
    signal = TrainingSignal(v3, efficiency)
    done = rescore(stored, Design("v3", signal))
    scores = [score_rollout(o, c, signal) for o, c in zip(stored.outcomes, stored.conducts, strict=True)]
    assert done.batch.advantages.tolist() == batch_advantages(scores, stored.groups, signal).advantages.tolist()
    assert np.isnan(done.batch.rewards[-1])
    assert done.kept[-1] == 0


def test_governance_takes_mass() -> None:
    group = [*ALIVE[:3], outcome(False, 6, 12, exit_cause="max_tokens"), outcome(True, 6, 12)]
    masked = Rules({"max_tokens": "full_mask", "excessive_calls": "last_turn"}, max_calls=5)
    stored = stored_of([group])
    done = rescore(stored, replace(PLAIN, signal=replace(PLAIN.signal, rules=masked)))
    # Six calls in the first turn: judged as ended there, which holds 10 of its 12 tokens; and its reward is 0.
    assert done.kept.tolist() == pytest.approx([1, 1, 1, 10 / 12, 10 / 12])
    assert done.batch.rewards.tolist() == [1, 0, 1, 0, 0]
    only_tokens = rescore(
        stored, replace(PLAIN, signal=replace(PLAIN.signal, rules=Rules({"max_tokens": "full_mask"}, False)))
    )
    assert only_tokens.kept.tolist() == [1, 1, 1, 0, 1]
    assert np.isnan(only_tokens.batch.rewards[3])


def test_a_design_that_raises_loses_the_rollout_only() -> None:
    def fussy(o: Outcome) -> RewardParts:
        return RewardParts(1.0 / (o.generated_tokens - 20))

    stored = stored_of([ALIVE])
    done = rescore(stored, Design("fussy", TrainingSignal(fussy)))
    assert done.failed == 1
    assert done.first_failure == "2: ZeroDivisionError: float division by zero"
    assert np.isnan(done.batch.rewards).tolist() == [False, False, True, False]


def test_an_unknown_exit_cause_loses_the_rollout_only() -> None:
    stored = stored_of([[*ALIVE, outcome(True, 1, exit_cause="sunspots")]])
    done = rescore(stored, PLAIN)
    assert done.failed == 1
    assert "sunspots" in done.first_failure
    assert np.isnan(done.batch.rewards[-1])
    assert not np.isnan(done.batch.rewards[:-1]).any()


def test_sign_flips_by_hand() -> None:
    def upside_down(o: Outcome) -> RewardParts:
        return RewardParts(-v3(o).total)

    def calls(o: Outcome) -> float:
        return float(sum(o.calls_per_turn) > 1)

    stored = stored_of([ALIVE, DEAD])
    rescored = [
        rescore(stored, d)
        for d in (PLAIN, Design("down", TrainingSignal(upside_down)), Design("few", TrainingSignal(v3, calls)))
    ]
    with_down, with_few, _ = agreements(stored, rescored)
    assert (with_down.tau, with_down.flips) == (-1.0, 1.0)
    assert (with_few.tau, with_few.flips) == (1.0, 0.0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=24),
)
def test_tau_is_scipys(rows: list[tuple[int, int, int]]) -> None:
    groups = np.unique([g for g, _, _ in rows], return_inverse=True)[1]
    outcomes = [replace(ALIVE[0], generated_tokens=a, malformed_calls=b) for _, a, b in rows]
    stored = replace(stored_of([outcomes]), groups=groups, group_names=[str(g) for g in range(groups.max() + 1)])
    a = rescore(stored, Design("a", TrainingSignal(lambda o: RewardParts(float(o.generated_tokens)))))
    b = rescore(stored, Design("b", TrainingSignal(lambda o: RewardParts(float(o.malformed_calls)))))
    (agreement,) = agreements(stored, [a, b])
    taus = [
        kendalltau(a.batch.rewards[groups == g], b.batch.rewards[groups == g]).statistic
        for g in range(groups.max() + 1)
        if a.batch.alive[groups == g].any() and b.batch.alive[groups == g].any()
    ]
    assert math.isnan(agreement.tau) if not taus else agreement.tau == pytest.approx(np.mean(taus))


def test_pairs() -> None:
    first, second = pairs_within(np.array([1, 0, 1, 2, 1, 0])).tolist()
    found = {frozenset(pair) for pair in zip(first, second, strict=True)}
    assert found == {frozenset(p) for p in [(1, 5), (0, 2), (0, 4), (2, 4)]}
    assert pairs_within(np.zeros(1000, dtype=int)).shape[1] == 64 * 63 // 2
    assert pairs_within(np.array([], dtype=int)).shape[1] == 0


def test_designs_by_name() -> None:
    designs = load_designs([*SHIPPED, "plain: reward=v3 advantage=none", "reward=v2"])
    assert [d.name for d in designs][:4] == ["v1", "v2", "v3", "swe_grep"]
    assert (designs[3].signal.baseline, designs[3].signal.scale) == ("loo", "none")
    assert designs[3].signal.rules.handling["max_tokens"] == "full_mask"
    assert designs[-1].name == "v2+efficiency"
    for spec, words in [
        ("v9", "no experiment called 'v9'"),
        ("x: reward=v9", "no reward called 'v9'"),
        ("x:", "names nothing"),
        ("x: reward=v3 reward.params.betta=1", "betta"),
    ]:
        with pytest.raises(ConfigError, match=words):
            load_designs([spec])
    with pytest.raises(ConfigError, match="two designs are called v3"):
        load_designs(["v3", "v3"])


def test_the_documented_design_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "tutorials" / "own-reward.md").read_text(encoding="utf-8")
    code, settings = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "yaml"))
    assert code is not None
    assert settings is not None
    (tmp_path / "conf" / "reward").mkdir(parents=True)
    (tmp_path / "conf" / "reward" / "first_file.yaml").write_text(settings[1], encoding="utf-8")
    (tmp_path / "my_rewards.py").write_text(code[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (design,) = load_designs(["mine: reward=first_file advantage=rloo"], tmp_path / "conf")
    assert design.signal.baseline == "loo"
    assert design.signal.reward(outcome(True, 1, 100)).total == pytest.approx(0.99)
    assert design.signal.reward(outcome(True, 0, 100)).total == 0
    later = replace(outcome(True, 1, 100), predicted=("x", "a"))
    assert design.signal.reward(later).total == pytest.approx(0.49)
    assert design.needs == frozenset()


def test_the_command_from_parquet_to_page_and_mlflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "outputs")
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.json"
    judgements = tmp_path / "judgements.jsonl"
    judgements.write_text('{"rollout_id": "policy-0-issue-0-0", "judgement": true}\n')
    argv = [str(tmp_path / "outputs"), "--design", "v1", "--design", "v3", "--design", "judged: reward=tiered"]
    argv += [
        "--html",
        str(page),
        "--json",
        str(numbers),
        "--judgements",
        str(judgements),
        "--mlflow",
        str(tmp_path / "ml"),
    ]
    assert run(COMMANDS["replay"], argv) == 0
    printed = capsys.readouterr().out
    assert "72 rollouts in 12 groups" in printed
    assert "have no judgement" in printed
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 4
    for outside in ("<script", "<link", "src=", "<img", "@import"):
        assert outside not in text
    loaded = json.loads(numbers.read_text(encoding="utf-8"))
    assert [d["name"] for d in loaded["designs"]] == ["v1", "v3", "judged"]
    assert len(loaded["agreements"]) == 3

    from codegrep.tracking.store import connect, sqlite_uri

    client = connect(sqlite_uri(tmp_path / "ml"))
    (experiment,) = [e for e in client.search_experiments() if e.name == "codegrep-replay"]
    (logged,) = client.search_runs([experiment.experiment_id])
    assert logged.info.status == "FINISHED"
    assert logged.data.metrics["replay/v3/dead"] == pytest.approx(loaded["designs"][1]["dead"])
    assert "replay/v1/share_file_f" in logged.data.metrics


def test_notes_say_what_is_not_known(tmp_path: Path) -> None:
    write_run(tmp_path)
    done = replay([tmp_path], load_designs(["v2", "codescout"]))
    text = "\n".join(done.notes)
    assert "72 of 72 rollouts have no gold lines: the line score of v2" in text
    assert "classes and functions are not known for 72 of 72 rollouts (codescout)" in text


def test_issues_are_found_beside_the_rollouts(tmp_path: Path) -> None:
    write_run(tmp_path)
    line = {
        "instance_id": "issue-0", "repo": "o/n", "base_commit": "c", "problem_statement": "s", "patch": "",
        "gold_files": ["a.py"], "gold_ranges": [{"path": "a.py", "start": 1, "end": 2}], "source": "", "created_at": "",
    }  # fmt: skip
    for number, ranges in enumerate(([], line["gold_ranges"], [])):
        folder = tmp_path / "artifacts" / f"prepare-{number}"
        folder.mkdir()
        (folder / "issues.jsonl").write_text(json.dumps({**line, "gold_ranges": ranges}) + "\n")
    done = replay([tmp_path], load_designs(["v2"]))
    known = [o for o in done.stored.outcomes if o.gold_ranges]
    assert len(known) == 18  # issue-0 in 3 steps of 6


def test_files_that_are_none(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    with pytest.raises(DataError, match="cannot be read"):
        read_issues(bad)
    bad.write_text('{"rollout_id": "x"}\n')
    with pytest.raises(DataError, match="no issue"):
        read_issues(bad)
    with pytest.raises(DataError, match="line 1: no judgement"):
        read_judgements(bad)
    bad.write_text("{")
    with pytest.raises(DataError, match="no JSONL"):
        read_judgements(bad)


def test_files_that_an_editor_saved_are_read(tmp_path: Path) -> None:
    # A byte-order mark, line ends of Windows, and text with U+2028, which ends no line of JSON.
    judgements = tmp_path / "judgements.jsonl"
    judgements.write_bytes(b'\xef\xbb\xbf{"rollout_id": "a\xe2\x80\xa8b", "judgement": true}\r\n\r\n')
    assert read_judgements(judgements) == {"a\u2028b": True}
    write_issues(tmp_path / "issues.jsonl", {"held_out": [Issue("i", "o/n", "c", "line\u2028end\x85")]})
    text = (tmp_path / "issues.jsonl").read_text(encoding="utf-8")
    text = json.dumps(json.loads(text), ensure_ascii=False)
    (tmp_path / "issues.jsonl").write_bytes(f"\ufeff{text}\r\n\r\n".encode())
    assert read_issues(tmp_path)["i"].problem_statement == "line\u2028end\x85"
    judgements.write_bytes('{"rollout_id": "ä", "judgement": true}'.encode("latin-1"))
    with pytest.raises(DataError, match="no JSONL"):
        read_judgements(judgements)
