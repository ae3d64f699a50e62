"""Mining: hand-made cases, and the row-by-row miner as the judge of everything else."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegrep.labels.candidates import select
from codegrep.labels.columnar import mine
from codegrep.labels.requests import ReadRules
from codegrep.labels.tokens import WordCounter
from codegrep.labels.trajectory import SCHEMA, Call, Message, Mined, Trajectory, to_arrow
from scripts.bench.catm_rowwise import mine_rows
from tests.labels.trajectories import ROOT, SHOWN, shown, trajectory, view

RULES = ReadRules()
SHELL = ReadRules(shell_readers=("cat", "sed", "head"))


def mined(*trajectories: Trajectory, rules: ReadRules = RULES) -> Mined:
    column = to_arrow(trajectories).column("trajectory").combine_chunks()
    found = mine(column, rules)
    rows = mine_rows(column.to_pylist(), rules)
    assert found.reads == rows.reads and found.counts() == rows.counts()
    return found


def test_post_reasoning_is_the_next_assistant_message_after_the_tools() -> None:
    a, b = f"{ROOT}/src/a.py", f"{ROOT}/src/b.py"
    found = mined(
        trajectory(
            Message("assistant", "Two at once.", (view(a, "1"), view(b, "2"))),
            shown(b, "2"),  # answers may come in any order
            Message("tool", "ERROR:\nThe path is wrong", call_id="1"),
            Message("user", "Go on."),
            Message("assistant", "b is where it happens."),
        )
    )
    (read,) = found.reads
    assert (read.path, read.text, read.message, read.call, read.reasoning, read.turn) == (
        *("src/b.py", "b is where it happens."),
        *(2, 1, 6, 1),
    )
    assert found.dropped == {"failed read": 1}


def test_parallel_reads_share_one_text() -> None:
    a, b = f"{ROOT}/a.py", f"{ROOT}/b.py"
    found = mined(
        trajectory(
            Message("assistant", "", (view(a, "1"), view(b, "2"))),
            shown(a, "1"),
            shown(b, "2"),
            Message("assistant", "both"),
        )
    )
    assert [(r.path, r.text) for r in found.reads] == [("a.py", "both"), ("b.py", "both")]


def test_last_read_without_an_answer_and_without_a_thought_after_it() -> None:
    a = f"{ROOT}/a.py"
    found = mined(trajectory(Message("assistant", "", (view(a),)), shown(a), Message("assistant", "", (view(a),))))
    assert [(r.text, r.reasoning) for r in found.reads] == [("", 4)]
    assert found.dropped == {"no result": 1}
    alone = mined(trajectory(Message("assistant", "", (view(a),)), shown(a)))
    assert [(r.text, r.reasoning) for r in alone.reads] == [("", -1)]


def test_the_think_tool_is_kept_beside_the_content() -> None:
    a = f"{ROOT}/a.py"
    think = Call("9", "think", json.dumps({"thought": "It is the cache."}))
    found = mined(trajectory(Message("assistant", "", (view(a),)), shown(a), Message("assistant", "", (think,))))
    (read,) = found.reads
    assert (read.text, read.thought) == ("", "It is the cache.")
    assert (
        read.post_reasoning(with_thought=False) == "" and read.post_reasoning(with_thought=True) == "It is the cache."
    )


def test_files_that_the_agent_made_are_no_targets() -> None:
    made, edited = f"{ROOT}/reproduce.py", f"{ROOT}/there.py"
    create = Call("1", "str_replace_editor", json.dumps({"command": "create", "path": made, "file_text": "x" * 5000}))
    refused = Call("2", "str_replace_editor", json.dumps({"file_text": "x", "path": edited, "command": "create"}))
    turns = (
        Message("assistant", "", (create,)),
        Message("tool", "File created successfully", call_id="1"),
        Message("assistant", "", (refused,)),
        Message("tool", "ERROR:\nFile already exists", call_id="2"),
        Message("assistant", "", (view(made),)),
        shown(made),
        Message("assistant", "", (view(edited),)),
        shown(edited),
        Message("assistant", "text"),
    )
    assert [r.path for r in mined(trajectory(*turns)).reads] == ["there.py"]
    assert mined(trajectory(*turns)).dropped == {"created by the agent": 1}
    assert len(mined(trajectory(*turns), rules=ReadRules(drop_created=False)).reads) == 2


@pytest.mark.parametrize(
    ("arguments", "oddity"),
    [
        (json.dumps(json.dumps({"command": "view", "path": f"{ROOT}/a.py"})), "JSON in JSON"),
        ('{\\"command\\": \\"view\\", \\"path\\": \\"' + ROOT + '/a.py\\"}', "over-escaped"),
        (f"{{'command': 'view', 'path': '{ROOT}/a.py'}}", "Python literal"),
        (f'{{"command": "view", "path": "{ROOT}/a.py", "view_range": [1, 2', "malformed JSON"),
        (json.dumps({"path": f"{ROOT}/a.py", "command": "view", "view_range": "[1, 20]"}), "text instead of a list"),
        (
            json.dumps({"path": f"{ROOT}/a.py", "command": "view", "view_range": ["1", "20"]}),
            "text instead of a number",
        ),
        (json.dumps({"path": f"{ROOT}/a.py", "command": "view", "old_str": None}), "padded with null"),
        (json.dumps({"path": f"{ROOT}/a.py", "command": "view", "limit": 3}), "unknown key"),
    ],
)
def test_odd_arguments_are_counted_and_the_read_stays(arguments: str, oddity: str) -> None:
    call = Call("c", "str_replace_editor", arguments)
    found = mined(trajectory(Message("assistant", "", (call,)), shown("a.py"), Message("assistant", "text")))
    assert [r.path for r in found.reads] == ["a.py"]
    assert oddity in found.ledger


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


LAYERS = {
    "escaped": escaped,
    "quotes only": lambda text: text.replace('"', '\\"'),
    "backslashes only": lambda text: text.replace("\\", "\\\\"),
    "a string": json.dumps,
    "spaced": lambda text: f" {text}\n",
}


@pytest.mark.parametrize(
    ("layers", "oddity"),
    [
        (["escaped", "escaped"], "over-escaped"),
        (["quotes only", "backslashes only"], "over-escaped"),
        (["escaped", "escaped", "escaped"], "over-escaped"),
        (["a string", "a string"], "JSON in JSON"),
        (["escaped", "a string"], "over-escaped"),
        (["a string", "escaped"], "over-escaped"),
    ],
)
def test_arguments_escaped_more_than_once_are_read_and_marked(layers: list[str], oddity: str) -> None:
    for values in ({"path": f"{ROOT}/a.py", "command": "view"}, {"command": "view", "path": f"{ROOT}/a.py"}):
        text = json.dumps(values)
        for layer in layers:
            text = LAYERS[layer](text)
        call = Call("c", "str_replace_editor", text)
        found = mined(trajectory(Message("assistant", "", (call,)), shown("a.py"), Message("assistant", "text")))
        assert [r.path for r in found.reads] == ["a.py"] and found.read_calls == 1
        assert oddity in found.ledger


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([f"{ROOT}/a.py", f"{ROOT}/src", "/etc/x.py", "", 'a"b.py', "a\\b.py", "README.md"]),
            st.booleans(),
            st.lists(st.sampled_from(sorted(LAYERS)), max_size=4),
            st.integers(0, 30),
            st.sampled_from(["shown", "failed", "none"]),
        ),
        max_size=5,
    )
)
def test_no_view_is_lost_without_a_count(views: list[tuple[str, bool, list[str], int, str]]) -> None:
    messages: list[Message] = []
    for number, (path, command_first, layers, cut, result) in enumerate(views):
        values = {"command": "view", "path": path}
        text = json.dumps(values if command_first else dict(reversed(values.items())))
        for layer in layers:
            text = LAYERS[layer](text)
        text = text[: max(len(text) - cut, text.index("view") + len("view"))]
        messages.append(Message("assistant", "text", (Call(f"c{number}", "str_replace_editor", text),)))
        if result != "none":
            messages.append(shown(path, f"c{number}") if result == "shown" else Message("tool", "ERROR:\nno"))
    found = mined(trajectory(*messages))
    assert len(found.reads) + sum(found.dropped.values()) == found.read_calls == len(views)


def test_a_late_result_is_that_of_its_id() -> None:
    a, b = f"{ROOT}/a.py", f"{ROOT}/b.py"
    found = mined(
        trajectory(
            Message("assistant", "", (view(a, "1"),)),
            Message("user", "One moment."),
            shown(a, "1"),
            Message("assistant", "after a"),
            Message("assistant", "", (view(b, "2"),)),
            Message("assistant", "before b is there"),
            shown(b, "2"),
            Message("assistant", "after b"),
        )
    )
    assert [(r.path, r.text, r.reasoning) for r in found.reads] == [("a.py", "after a", 5), ("b.py", "after b", 9)]
    assert not found.dropped


def test_the_result_of_another_call_is_not_taken_for_its_own() -> None:
    a, b = f"{ROOT}/a.py", f"{ROOT}/b.py"
    found = mined(
        trajectory(
            Message("assistant", "", (view(a, "1"),)),
            Message("assistant", "", (view(b, "2"),)),
            shown(a, "1"),
            Message("tool", "ERROR:\nno", call_id="2"),
            Message("assistant", "text"),
            Message("assistant", "", (view(b, "3"),)),
            shown(a, "1"),
        )
    )
    # The id "1" has two results, so neither is sure to be that of the first call.
    assert found.reads == [] and found.dropped == {"failed read": 1, "no result": 2}


def test_arguments_beyond_repair_are_dropped_and_counted() -> None:
    call = Call("c", "str_replace_editor", '{"view')
    found = mined(trajectory(Message("assistant", "", (call,)), shown("a.py"), Message("assistant", "text")))
    assert not found.reads and found.dropped == {"unreadable arguments": 1} and found.read_calls == 1


def test_shell_reads_are_off_by_default() -> None:
    call = Call("c", "execute_bash", json.dumps({"command": f"cd {ROOT} && sed -n '1,20p' src/a.py"}))
    turns = (Message("assistant", "", (call,)), Message("tool", "import x", call_id="c"), Message("assistant", "text"))
    assert not mined(trajectory(*turns)).reads
    assert [r.path for r in mined(trajectory(*turns), rules=SHELL).reads] == ["src/a.py"]


def test_rows_do_not_leak_into_each_other() -> None:
    a = f"{ROOT}/a.py"
    first = trajectory(Message("assistant", "", (view(a),)), shown(a))
    second = trajectory(Message("assistant", "of the second"), identity="t2")
    assert [(r.row, r.text) for r in mined(first, second).reads] == [(0, "")]


def test_sliced_and_null_columns() -> None:
    a = f"{ROOT}/a.py"
    one = trajectory(Message("assistant", "", (view(a),)), shown(a), Message("assistant", "text"))
    column = to_arrow([one, one, one]).column("trajectory").combine_chunks()
    with_null = pa.concat_arrays([pa.nulls(1, column.type), column, pa.nulls(2, column.type)])
    whole = mine(with_null, RULES)
    assert [r.row for r in whole.reads] == [1, 2, 3]
    assert [r.row for r in mine(with_null.slice(2, 3), RULES).reads] == [0, 1]
    assert mine(pa.nulls(2, column.type), RULES).reads == []


TEXTS = st.sampled_from(
    [
        *("", "view", "create", '"view', "[1, 2]", "1", "README.md", "é/ü.py", ".py", "a.", "/", "//x.py", "a\\b.py"),
        *(
            "/workspace/a__b__1/src/x.py",
            "/workspace/a__b__1/src/",
            "/workspace",
            "/workspace/a__b__1",
            "/testbed/y.py",
        ),
        *("../z.py", "/etc/p.py", "x/../../y.py", "\x00.py", "/repo/./a//b.py", "/workspace/a__b__1/../../etc/x.py"),
    ]
) | st.text(max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
MORE = st.dictionaries(TEXTS, JSON, max_size=2)
ARGUMENTS = st.one_of(
    st.builds(lambda c, p, m: json.dumps({"command": c, "path": p, **m}), TEXTS, TEXTS, MORE),
    st.builds(lambda p: json.dumps({"command": "view", "path": p}), TEXTS),
    st.builds(lambda p: json.dumps({"command": "create", "path": p, "file_text": ""}), TEXTS),
    st.builds(json.dumps, JSON),
    st.builds(lambda value: json.dumps(json.dumps(value)), JSON),
    st.builds(lambda c: json.dumps({"command": f"cat {c}"}), TEXTS),
    st.builds(lambda t: json.dumps({"thought": t}), TEXTS),
    TEXTS,
)
CALLS = st.builds(
    lambda i, n, a: {"id": i, "type": "function", "function": {"name": n, "arguments": a}},
    st.sampled_from(["1", "2", "", None]),
    st.sampled_from(["str_replace_editor", "file_editor", "execute_bash", "think", "other", None]),
    ARGUMENTS | st.none(),
)
MESSAGES = st.builds(
    lambda role, content, calls, answers: {
        "role": role,
        "content": content,
        "name": None,
        "tool_call_id": answers,
        "tool_calls": calls,
    },
    st.sampled_from(["assistant", "assistant", "tool", "tool", "user", "system", None, "odd"]),
    st.sampled_from(
        [None, "", SHOWN, "ERROR:\nno", "Here's the files and directories up to 2 levels deep in /x", "text " * 9]
    ),
    st.lists(CALLS | st.none(), max_size=3) | st.none(),
    st.sampled_from(["1", "2", "", None]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(MESSAGES | st.none(), max_size=7) | st.none(), max_size=4), st.sampled_from([RULES, SHELL]))
def test_any_trajectory_is_mined_like_row_by_row_and_gives_clean_paths(rows: list[Any], rules: ReadRules) -> None:
    column = pa.array(rows, SCHEMA.field("trajectory").type)
    found = mine(column, rules)
    expected = mine_rows(column.to_pylist(), rules)
    assert found.reads == expected.reads
    assert found.counts() == expected.counts()
    made, _ = select(found.reads, WordCounter(), with_thought=True, min_tokens=30)
    assert len({(one.read.row, one.read.path) for one in made}) == len(made)
    for read in found.reads:
        path = PurePosixPath(read.path)
        assert not path.is_absolute() and ".." not in path.parts and str(path) == read.path and path.suffix
