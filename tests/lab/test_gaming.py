"""The suite finds what a design rewards that it should not, and nothing where there is nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegrep.cli import COMMANDS, run
from codegrep.errors import DataError
from codegrep.issues.issue import Issue
from codegrep.lab.designs import SHIPPED, Design, load_designs
from codegrep.lab.gaming import Played, built_in_worlds, play, worlds_of
from codegrep.lab.gaming_report import gaming_markdown
from codegrep.lab.policies import GAMING, HONEST
from codegrep.lab.scripted import World, record
from codegrep.metrics.scores import recall
from codegrep.rewards.outcome import Outcome, RewardParts
from codegrep.rewards.signal import TrainingSignal
from codegrep.rollout.outcome import outcome_of


def outcome(world: World, texts: list[str]) -> Outcome:
    return outcome_of(record(world, texts), gold_ranges=world.gold_ranges, gold_entities=world.gold_entities)


DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def shipped() -> Played:
    return play(load_designs(SHIPPED))


def cells(played: Played, design: str) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for finding in played.findings:
        if finding.design == design:
            found.setdefault(finding.policy, set()).add(finding.ranking)
    return {policy: "+".join(sorted(rankings)) for policy, rankings in found.items()}


def test_what_the_papers_designs_let_through(shipped: Played) -> None:
    parallel = {"guess": "update", "duplicate_calls": "update", "junk_calls": "update"}
    assert cells(shipped, "v1") == {}
    assert cells(shipped, "v2") == parallel
    assert cells(shipped, "v3") == parallel
    assert cells(shipped, "swe_grep") == parallel
    assert cells(shipped, "colgrep") == {}
    assert cells(shipped, "colgrep_f2") == {"ten_files": "reward+update"}
    assert ("v3", "huge_range") in shipped.ties
    assert ("v2", "huge_range") not in shipped.ties
    assert ("v1", "no_search") in shipped.ties


def test_findings_are_true(shipped: Played) -> None:
    worlds = {world.name: world for world in built_in_worlds()}
    f2 = next(f for f in shipped.findings if f.design == "colgrep_f2" and f.ranking == "reward")
    (design,) = load_designs([SHIPPED[5]])
    turns = {policy.name: policy.turns for policy in (*HONEST, *GAMING)}
    world = worlds[f2.world]
    gaming = design.signal.reward(outcome(world, turns[f2.policy](world))).total
    honest = design.signal.reward(outcome(world, turns[f2.rival](world))).total
    assert (gaming, honest) == (pytest.approx(f2.gaming_there), pytest.approx(f2.honest_there))
    assert gaming > honest


def test_a_design_that_pays_for_recall_is_caught() -> None:
    def greedy(o: Outcome) -> RewardParts:
        return RewardParts(recall(o.predicted, o.gold) + 0.1 * len(o.predicted_ranges))

    found = {f.policy for f in play([Design("greedy", TrainingSignal(greedy))]).findings if f.ranking == "reward"}
    assert {"all_files", "ten_files"} <= found


def test_five_spellings_are_one_file() -> None:
    world = built_in_worlds()[0]
    (policy,) = [policy for policy in GAMING if policy.name == "five_spellings"]
    assert outcome(world, policy.turns(world)).predicted == world.gold


def test_scripts_are_executed_as_the_loop_would() -> None:
    world = built_in_worlds()[1]
    of = {policy.name: outcome(world, policy.turns(world)) for policy in (*HONEST, *GAMING)}
    assert of["right"].calls_per_turn == (4, 4, 0)
    assert of["duplicate_calls"].calls_per_turn == (8, 8, 0)
    assert of["duplicate_calls"].unique_calls_per_turn == (1, 1, 0)
    assert of["no_answer"].exit_cause == "no_tool_call"
    assert not of["no_answer"].answered
    assert of["no_search"].calls_per_turn == (0,)
    assert of["right"].predicted_ranges == world.gold_ranges
    assert set(of["right"].predicted_entities) == set(world.gold_entities or ())
    assert len(of["all_files"].predicted) == 60


def test_real_issues_become_worlds() -> None:
    issues = [
        Issue(f"i{n}", "o/n", "c", f"see pkg/f{n}.py", gold_files=(f"pkg/f{n}.py", "pkg/base.py")) for n in range(15)
    ]
    worlds = worlds_of([*issues, Issue("alone", "o/small", "c", "s", gold_files=("a.py",))])
    assert len(worlds) == 15
    assert worlds[3].most_edited == "pkg/base.py"
    assert worlds[3].mentioned == ("pkg/f3.py",)
    assert worlds[3].wrong not in worlds[3].gold
    with pytest.raises(DataError, match="no issue can be played"):
        play([], worlds_of([]))


def test_the_documentation_ships_this_result(shipped: Played) -> None:
    assert gaming_markdown(shipped).strip() in (DOCS / "explanation" / "gaming-suite.md").read_text(encoding="utf-8")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "deep" / "report.md"
    assert run(COMMANDS["gaming"], ["--design", "colgrep", "--strict", "--markdown", str(report)]) == 0
    assert "`colgrep`: nothing." in report.read_text(encoding="utf-8")
    assert run(COMMANDS["gaming"], ["--design", "v3", "--strict"]) == 1
    assert "guess" in capsys.readouterr().out
