"""Trajectories of every known kind, in the form that each agent writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegrep.labels.adapters import ADAPTERS, AdapterError, convert
from codegrep.labels.columnar import mine
from codegrep.labels.requests import ReadRules
from codegrep.labels.trajectory import to_arrow

ROOT = "/workspace/o__n__1"
CAT = f"Here's the result of running `cat -n` on {ROOT}/a.py:\n1\tx"
VIEW = {"command": "view", "path": f"{ROOT}/a.py"}
CALL = {"id": "c1", "type": "function", "function": {"name": "str_replace_editor", "arguments": json.dumps(VIEW)}}


def padded(role: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": None, "name": None, "tool_call_id": None, "tool_calls": None, **more}


NEBIUS = {
    "trajectory_id": "t",
    "instance_id": "o__n-1",
    "repo": "o/n",
    "resolved": 1,
    "trajectory": [
        padded("user", content="the issue"),
        padded("assistant", content="", tool_calls=[CALL]),
        padded("tool", content=CAT, tool_call_id="c1", name="str_replace_editor"),
        padded("assistant", content="after it"),
    ],
}
# Arguments as a struct that a column store has padded.
NEBIUS_STRUCT = json.loads(json.dumps(NEBIUS))
NEBIUS_STRUCT["trajectory"][1]["tool_calls"][0]["function"]["arguments"] = {**VIEW, "old_str": None}
MODEL = {"id": "r1", "choices": [{"message": {"role": "assistant", "content": "", "tool_calls": [CALL]}}]}
ABOUT = {"function_name": "str_replace_editor", "tool_call_id": "c1", "model_response": MODEL}
V0 = {
    "instance_id": "o__n-1",
    "report": {"resolved": True},
    "history": [
        {"id": 0, "source": "user", "action": "message", "args": {"content": "the issue"}},
        {"id": 1, "source": "agent", "action": "read", "args": {"path": f"{ROOT}/a.py"}, "tool_call_metadata": ABOUT},
        {"id": 2, "source": "agent", "observation": "read", "content": CAT, "cause": 1, "tool_call_metadata": ABOUT},
        {"id": 3, "source": "agent", "action": "message", "args": {"content": "after it"}},
    ],
}
V0_PAIRS = {
    "instance_id": "o__n-1",
    "instruction": "the issue",
    "history": [
        [
            {"id": 1, "source": "agent", "action": "read", "args": {"path": f"{ROOT}/a.py", "thought": "look"}},
            {"id": 2, "source": "agent", "observation": "read", "content": CAT, "cause": 1},
        ],
        [{"id": 3, "source": "agent", "action": "message", "args": {"content": "after it"}}],
    ],
}
V1 = {
    "instance_id": "o__n-1",
    "attempt": 1,
    "instance": {"repo": "o/n"},
    "history": [
        {"kind": "SystemPromptEvent", "source": "agent", "system_prompt": {"type": "text", "text": "You are"}},
        {"kind": "MessageEvent", "source": "user", "llm_message": {"content": [{"type": "text", "text": "the issue"}]}},
        {
            **{"kind": "ActionEvent", "source": "agent", "thought": [{"type": "text", "text": "look"}]},
            **{"tool_name": "file_editor", "tool_call_id": "c1", "llm_response_id": "r1"},
            "action": {"kind": "FileEditorAction", **VIEW},
        },
        {
            **{"kind": "ActionEvent", "source": "agent", "thought": [], "tool_name": "terminal"},
            **{"tool_call_id": "c2", "llm_response_id": "r1", "action": {"kind": "TerminalAction", "command": "ls"}},
        },
        {
            **{"kind": "ObservationEvent", "tool_name": "file_editor", "tool_call_id": "c1"},
            "observation": {"kind": "FileEditorObservation", "content": [{"type": "text", "text": CAT}]},
        },
        {"kind": "AgentErrorEvent", "tool_name": "terminal", "tool_call_id": "c2", "error": "no such command"},
        {"kind": "MessageEvent", "source": "agent", "llm_message": {"content": [{"type": "text", "text": "after it"}]}},
    ],
}
SWE_AGENT = {
    "environment": "swe_main",
    "history": [{"role": "system", "content": "You are"}, {"role": "user", "content": "the issue"}],
    "trajectory": [
        {
            "thought": "look",
            "action": "open a.py 10",
            "observation": "[File: a.py]",
            "state": '{"working_dir": "/testbed"}',
        },
        {
            "thought": "after it",
            "action": "str_replace_editor view /testbed/b.py --view_range 1 9",
            "observation": "ok",
        },
        {"thought": "done", "action": "submit", "observation": ""},
    ],
    "info": {"exit_status": "submitted"},
}
MINI = {
    "info": {"exit_status": "Submitted"},
    "instance_id": "o__n-1",
    "messages": [
        {"role": "system", "content": "You are"},
        {"role": "user", "content": "the issue"},
        {"role": "assistant", "content": "THOUGHT: look\n\n```bash\ncat /testbed/a.py\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\nx = 1\n</output>"},
        {"role": "assistant", "content": "THOUGHT: after it\n\n```bash\nls\n```"},
    ],
}
RULES = ReadRules(shell_readers=("cat",))


@pytest.mark.parametrize(
    ("row", "reads", "resolved"),
    [
        (NEBIUS, [("a.py", "after it")], True),
        (NEBIUS_STRUCT, [("a.py", "after it")], True),
        (V0, [("a.py", "after it")], True),
        (V0_PAIRS, [("a.py", "after it")], None),
        (V1, [("a.py", "after it")], None),
        (SWE_AGENT, [("a.py", "after it"), ("b.py", "done")], None),
        (MINI, [("a.py", "THOUGHT: after it")], None),
    ],
)
def test_every_kind_gives_the_same_reads(
    row: dict[str, Any], reads: list[tuple[str, str]], resolved: bool | None
) -> None:
    made = convert(row, "o__n-1.traj")
    assert made.instance_id == "o__n-1" and made.resolved is resolved
    assert next(m.content for m in made.messages if m.role == "user") == "the issue"
    found = mine(to_arrow([made]).column("trajectory").combine_chunks(), RULES)
    assert [(r.path, r.text) for r in found.reads] == reads
    assert to_arrow([made]).to_pylist()[0]["repo"] == "o/n"


def test_calls_of_one_response_are_one_message() -> None:
    made = convert(V1, "x")
    (message,) = [m for m in made.messages if m.calls]
    assert [c.name for c in message.calls] == ["file_editor", "terminal"] and message.content == "look"
    assert [m.content[:5] for m in made.messages if m.role == "tool"] == ["Here'", "ERROR"]


@pytest.mark.parametrize(
    "row", [{}, {"trajectory": []}, {"history": "x"}, {"instance_id": "a", "messages": [{"role": 1}]}]
)
def test_what_is_no_trajectory_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(AdapterError):
        convert(row, "")


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from(
    "instance_id trajectory history messages role content tool_calls function name arguments action observation kind "
    "args thought tool_call_metadata model_response choices source state info llm_message".split()
) | st.text(max_size=4)
ROWS = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=30
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(KEYS, ROWS, max_size=6), st.sampled_from(["auto", *ADAPTERS]))
def test_any_row_is_converted_or_refused_and_goes_through(row: dict[str, Any], form: str) -> None:
    try:
        made = convert(row, "name", form)
    except AdapterError:
        return
    mine(to_arrow([made]).column("trajectory").combine_chunks(), RULES)
