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


BOOKKEEPING = [
    {"source": "agent", "action": "condensation", "args": {"summary": "so far", "forgotten_event_ids": [1]}},
    {"source": "agent", "observation": "condense", "content": "condensed", "cause": 9},
    {"source": "environment", "action": "change_agent_state", "args": {"agent_state": "running", "thought": ""}},
    {"source": "environment", "observation": "agent_state_changed", "content": "", "cause": 9},
    {"source": "environment", "action": "null", "args": {}},
    {"source": "agent", "observation": "null", "content": "", "cause": 9},
    {"source": "user", "action": "recall", "args": {"query": "the issue"}},
    {"source": "environment", "observation": "recall", "content": "repository info", "cause": 9},
    {"source": "agent", "action": "of_a_later_version", "args": {}},
]


@pytest.mark.parametrize("event", BOOKKEEPING)
def test_bookkeeping_of_v0_is_no_message(event: dict[str, Any]) -> None:
    plain = convert(V0, "x")
    for place in range(1, len(V0["history"]) + 1):
        history = [*V0["history"][:place], event, *V0["history"][place:]]
        assert convert({**V0, "history": history}, "x").messages == plain.messages


def response(identity: str, *views: str, said: str = "") -> list[dict[str, Any]]:
    """Events of one response of a model: its calls, then their results."""
    calls = [
        {"id": f"c-{path}", "function": {"name": "str_replace_editor", "arguments": json.dumps({**VIEW, "path": path})}}
        for path in views
    ]
    model = {"id": identity, "choices": [{"message": {"content": said, "tool_calls": calls}}]}
    about = [{"function_name": "x", "tool_call_id": call["id"], "model_response": model} for call in calls]
    return [
        *({"source": "agent", "action": "read", "args": {}, "tool_call_metadata": one} for one in about),
        *({"observation": "read", "content": CAT, "cause": 1, "tool_call_metadata": one} for one in about),
    ]


def test_response_ids_of_v0_need_not_be_unique() -> None:
    a, b, c = (f"{ROOT}/{name}.py" for name in "abc")
    opening = V0["history"][0]
    # Two calls of one response are one message; another response under the same id is another, an equal one too.
    events = [*response("r", a, b, said="two"), *response("r", c, said="one"), *response("r", c, said="one")]
    made = convert({**V0, "history": [opening, *events]}, "x")
    assert [(m.content, len(m.calls)) for m in made.messages if m.role == "assistant"] == [
        *[("two", 2), ("one", 1), ("one", 1)]
    ]
    found = mine(to_arrow([made]).column("trajectory").combine_chunks(), RULES)
    texts = [("a.py", "one"), ("b.py", "one"), ("c.py", "one"), ("c.py", "")]
    assert [(r.path, r.text) for r in found.reads] == texts


# The text form of SWE-agent in nebius/SWE-agent-trajectories: commands are in the text, under other keys.
TEXT_FORM = {
    "instance_id": "o__n-1",
    "model_name": "swe-agent-llama-70b",
    "target": True,
    "trajectory": [
        {"role": "system", "system_prompt": "SETTING", "text": None, "mask": False},
        {"role": "user", "system_prompt": None, "text": "the issue", "mask": False},
        {"role": "ai", "system_prompt": None, "text": "DISCUSSION\nlook\n```\nopen a.py\n```", "mask": True},
        {"role": "user", "system_prompt": None, "text": "[File: /o__n/a.py]", "mask": False},
    ],
}


@pytest.mark.parametrize("form", ["auto", "nebius"])
def test_messages_whose_text_is_under_another_key_are_refused_and_not_emptied(form: str) -> None:
    with pytest.raises(AdapterError, match="mask, role, system_prompt, text"):
        convert(TEXT_FORM, "x", form)


@pytest.mark.parametrize("key", ["trajectory", "messages"])
def test_chats_with_text_under_another_key_are_refused(key: str) -> None:
    with pytest.raises(AdapterError, match="role, text"):
        convert({"instance_id": "o__n-1", key: [{"role": "assistant", "text": "look"}]}, "x")


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
