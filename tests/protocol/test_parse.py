from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.protocol.calls import MalformedCall, ToolCall
from codegrep.protocol.parse import parse_message

GREP = '<tool_call>\n{"name": "grep", "arguments": {"pattern": "x"}}\n</tool_call>'


def only_call(text: str) -> ToolCall | MalformedCall:
    (call,) = parse_message(text).calls
    return call


def malformed(text: str) -> str:
    call = only_call(text)
    assert isinstance(call, MalformedCall), call
    return call.reason


def test_reads_calls_in_order() -> None:
    message = parse_message(
        f'I look.\n{GREP}\n<tool_call>{{"name":"read","arguments":{{"path":"a.py","start":3}}}}</tool_call>'
    )
    assert message.calls == (ToolCall("grep", {"pattern": "x"}), ToolCall("read", {"path": "a.py", "start": 3}))
    assert message.answer is None


def test_arguments_may_be_a_json_string() -> None:
    text = '<tool_call>{"name":"grep","arguments":"{\\"pattern\\": \\"a\\"}"}</tool_call>'
    assert only_call(text) == ToolCall("grep", {"pattern": "a"})


def test_markers_inside_json_strings_are_text() -> None:
    pattern = "</tool_call> <tool_call> <answer> <think> </think>"
    text = f"<tool_call>{json.dumps({'name': 'grep', 'arguments': {'pattern': pattern}})}</tool_call>"
    assert only_call(text) == ToolCall("grep", {"pattern": pattern})


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "JSON object is expected"),
        ("grep x", "JSON object is expected"),
        ("[1]", "JSON object is expected"),
        ('{"name": "grep", "arguments": {"pattern": "x"}', "invalid JSON"),
        ('{"name": "grep", "arguments": {"pattern": NaN}}', "NaN"),
        ('{"name": "grep", "arguments": {"limit": ' + "9" * 5000 + "}}", "invalid JSON"),
        ('{"name": "grep", "arguments": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
        ('{"name": "grep", "arguments": {"a": ' + "[" * 50 + "]" * 50 + "}}", "nested too deeply"),
        ('{"name": "grep", "arguments": {"pattern": "\\ud800"}}', "Unicode"),
        ('{"name": "grep", "arguments": ["x"]}', "not a JSON object"),
        ('{"name": "grep", "arguments": null}', "not a JSON object"),
        ('{"name": "grep"}', "not a JSON object"),
        ('{"name": "grep", "arguments": "x"}', "holds no JSON object"),
        ('{"name": "grep", "pattern": "x"}', "unknown keys"),
        ('{"arguments": {}}', 'no "name"'),
        ('{"name": 3, "arguments": {}}', 'no "name"'),
        ('{"name": "grep", "arguments": {}} {"name": "read", "arguments": {}}', "text after the JSON"),
    ],
)
def test_malformed_calls_say_why(body: str, reason: str) -> None:
    assert reason in malformed(f"<tool_call>{body}</tool_call>")


def test_unclosed_last_call_is_malformed_and_the_others_stand() -> None:
    calls = parse_message(GREP + '<tool_call>{"name": "grep", "arguments": {}}').calls
    assert isinstance(calls[0], ToolCall)
    assert isinstance(calls[1], MalformedCall) and "not closed" in calls[1].reason


def test_nested_call_leaves_the_inner_one() -> None:
    calls = parse_message(f"<tool_call>\n{GREP}\n</tool_call>").calls
    assert isinstance(calls[0], MalformedCall) and calls[1] == ToolCall("grep", {"pattern": "x"})
    assert len(calls) == 2


def test_an_unclosed_call_does_not_swallow_the_answer() -> None:
    message = parse_message('<tool_call>{"name": <answer>{"files": ["a.py"]}</answer>')
    assert message.answer is not None and message.answer.files == ("a.py",)
    assert len(message.calls) == 1


def test_thought_is_skipped() -> None:
    assert parse_message(f'<think>{GREP}<answer>{{"files": []}}</answer></think>').calls == ()
    assert parse_message(f"<think>{GREP}").calls == ()
    assert parse_message(f"{GREP}</think>{GREP}").calls == (ToolCall("grep", {"pattern": "x"}),)


@pytest.mark.parametrize(
    "thought",
    [
        "a <tool_call> may help",
        "<tool_call>{broken",
        '<tool_call>{"name": "grep"}',
        "<answer> comes later",
        "<answer>{",
    ],
)
def test_what_a_thought_leaves_open_does_not_reach_beyond_its_end(thought: str) -> None:
    # The beginning of the thought stood in the prompt.
    for said in (GREP, '<answer>{"files": ["a.py"]}</answer>', "nothing"):
        assert parse_message(f"{thought}\n</think>\n\n{said}") == parse_message(said)
        assert parse_message(f"<think>{thought}\n</think>\n\n{said}") == parse_message(said)


def test_last_readable_answer_counts() -> None:
    bodies = ('{"files":["a.py"]}', '{"files":["./b.py","b.py"]}', '{"files":"c"}')
    message = parse_message(" ".join(f"<answer>{body}</answer>" for body in bodies))
    assert message.answer is not None and message.answer.files == ("b.py",)
    assert message.answer_error == "" and message.malformed_answers == 1 and message.malformed


def test_every_answer_block_that_cannot_be_read_counts() -> None:
    bad, good = "<answer>a.py</answer>", '<answer>{"files": ["a.py"]}</answer>'
    counts = {
        good: 0,
        bad: 1,
        bad + good: 1,
        good + bad + bad: 2,
        f"{bad}</think>{good}": 0,
        f"<think>{bad}</think>": 0,
    }
    assert {text: parse_message(text).malformed_answers for text in counts} == counts
    assert not parse_message(good + GREP).malformed and parse_message(good + "<tool_call>{</tool_call>").malformed


@pytest.mark.parametrize("body", ["", "[]", '{"files": "a.py"}', '{"file": ["a.py"]}', '{"files": ["a.py"]', "a.py"])
def test_unreadable_answers_are_no_answers(body: str) -> None:
    message = parse_message(f"<answer>{body}</answer>")
    assert message.answer is None and message.answer_error


def test_unclosed_answer_is_no_answer() -> None:
    message = parse_message('<answer>{"files": ["a.py"]}')
    assert message.answer is None and "not closed" in message.answer_error


def test_calls_beside_an_answer_are_returned() -> None:
    message = parse_message(GREP + '<answer>{"files": []}</answer>' + GREP)
    assert message.answer is not None and message.answer.files == ()
    assert len(message.calls) == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
pieces = st.one_of(
    st.sampled_from(
        [
            *("<tool_call>", "</tool_call>", "<answer>", "</answer>", "<think>", "</think>", "{", "}", '"', "\\", "\n"),
            *('{"name": "grep", "arguments": {"pattern": "x"}}', '{"files": ["a.py"]}', '"name"', '"arguments":'),
        ]
    ),
    st.text(max_size=8),
    json_values.map(json.dumps),
)


@given(st.lists(pieces, max_size=15).map("".join))
def test_never_raises_and_results_are_writable(text: str) -> None:
    message = parse_message(text)
    for call in message.calls:
        if isinstance(call, ToolCall):
            json.dumps(dict(call.arguments), ensure_ascii=False).encode()
        else:
            assert call.reason and len(call.raw) <= 500
    assert not (message.answer and message.answer_error)


@given(
    st.text(min_size=1, alphabet="abcdefg_"),
    st.dictionaries(st.text(), json_values, max_size=4),
    st.text(max_size=5).map(lambda s: s.strip() and " " + "\n"),
)
def test_round_trip(name: str, arguments: dict[str, object], space: str) -> None:
    text = f"<tool_call>{space}{json.dumps({'name': name, 'arguments': arguments})}{space}</tool_call>"
    assert only_call(text) == ToolCall(name, json.loads(json.dumps(arguments)))


@given(st.lists(st.one_of(st.text(max_size=12), json_values), max_size=5), json_values)
def test_any_answer_json_is_read_without_raising(files: list[object], ranges: object) -> None:
    message = parse_message(f"<answer>{json.dumps({'files': files, 'line_ranges': ranges})}</answer>")
    assert message.answer is not None
    assert len(set(message.answer.files)) == len(message.answer.files)
    assert all(r.start >= 1 and r.end >= r.start for r in message.answer.ranges)
