"""`codegrep trace` on stored rollouts and on trajectories of published agents' forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codegrep.errors import ConfigError, DataError
from codegrep.rollout.record import CallRecord, Rollout, Turn
from codegrep.rollout.store import write_rollouts
from codegrep.traces.command import main
from codegrep.tracking.trace_page import Trace, TraceTurn, html, segments

GOLD = "src/app.py"
HOSTILE = "<script>alert(1)</script> {{ 7 * 7 }}"


def rollout(issue: str, answer: list[str], *, step: int = -1) -> Rollout:
    search = Turn(
        0, 3, "searching", [CallRecord(1, "grep", '{"pattern": "total"}', "ok", "", [GOLD])],
        f"{GOLD}:4: total\n{HOSTILE}", seconds_generation=1.25, seconds_tools=0.5,
    )  # fmt: skip
    return Rollout(
        f"{issue}-{step}", issue, "o/n", "c" * 40, "policy", [1], [2] * 5, [1] * 5, [], [search, Turn(3, 5, "done")],
        answer, True, [GOLD], "answer", step=step,
    )  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "measured-trained-0123456789ab"
    rollouts = [rollout("o__n-1", [GOLD]), rollout("o__n-1", [], step=2), rollout("o__n-2", ["src/b.py"])]
    (folder / "rollouts").mkdir(parents=True)
    write_rollouts(folder / "rollouts", rollouts)
    return folder


def test_a_rollout_in_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(place), "--issue", "o__n-1"]) == 0
    said = capsys.readouterr().out
    assert "o__n-1 · measured-trained-0123456789ab" in said
    assert "turns 2 · calls 1 · tokens 5 · seconds 1.8 · first gold file turn 1 · F0.5 1.000" in said
    assert "turn 1  3 tokens · model 1.2 s · tools 0.5 s" in said and 'grep {"pattern": "total"}' in said
    assert f"answer: {GOLD}" in said
    assert main([str(place), "--issue", "o__n-1", "--number", "2"]) == 0
    assert "answer: none" in capsys.readouterr().out


def test_two_attempts_side_by_side_on_a_page_that_runs_nothing(place: Path, tmp_path: Path) -> None:
    page = tmp_path / "trace.html"
    assert (
        main([str(place), str(place), "--issue", "o__n-1", "--number", "1", "--number", "2", "--html", str(page)]) == 0
    )
    text = page.read_text(encoding="utf-8")
    assert text.count("<th>") == 2 and f"<mark>{GOLD}</mark>" in text
    assert "<script" not in text and "&lt;script&gt;" in text and "{{ 7 * 7 }}" in text
    assert "default-src 'none'" in text and "http" not in text.partition("<body>")[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "has 2 issues. Choose with --issue: o__n-1, o__n-2"),
        (["--issue", "o__n-3"], "Did you mean o__n-"),
        (["--issue", "o__n-2", "--number", "5"], "has 1 attempts at o__n-2. Give --number 1 to 1"),
    ],
)
def test_mistakes_name_what_there_is(place: Path, arguments: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as error:
        main([str(place), *arguments])
    assert words in str(error.value)


def test_a_trajectory_of_another_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "cat src/app.py"}'}}
    row = {
        "trajectory_id": "t1", "instance_id": "o__n-1", "repo": "o/n", "resolved": 1,
        "trajectory": [
            {"role": "user", "content": "Fix it"},
            {"role": "assistant", "content": "I look.", "tool_calls": [call]},
            {"role": "tool", "content": "def total", "tool_call_id": "1"},
            {"role": "assistant", "content": "Done."},
        ],
    }  # fmt: skip
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps(row) + "\nbroken\n", encoding="utf-8")
    assert main([str(file), "--gold", GOLD]) == 0
    said = capsys.readouterr().out
    assert "ended resolved · turns 2 · calls 1" in said and "def total" in said and "gold: src/app.py" in said
    (tmp_path / "none.jsonl").write_text("broken\n", encoding="utf-8")
    with pytest.raises(DataError, match="no trajectory that can be read"):
        main([str(tmp_path / "none.jsonl")])


def test_only_whole_paths_of_gold_files_are_marked() -> None:
    text = "src/app.py:3 other/src/app.py src/app.pyi src/app.py. (/workspace/repo__1.0/src/app.py)"
    marked = [piece for piece, gold in segments(text, ["src/app.py"]) if gold]
    assert marked == ["src/app.py", "src/app.py", "/workspace/repo__1.0/src/app.py"]
    assert "".join(piece for piece, _ in segments(text, ["src/app.py"])) == text


def test_traces_of_different_lengths_and_without_gold_fit_on_a_page() -> None:
    turn = TraceTurn("text", (), "seen")
    page = html([Trace("a", "i", (turn, turn)), Trace("b", "i", ())])
    assert "they are not known here" in page and page.count('class="turn"') == 2
