"""Whatever reads text of others (issues, commits, trajectories, tools, models) takes time in proportion to it."""

from __future__ import annotations

import json
import random
import signal
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import pyarrow as pa
import pytest

from codegrep.issues import Issue
from codegrep.issues.commit_words import (
    is_chore,
    is_merge_message,
    is_revert,
    telling_words,
    tells_of_a_fix,
)
from codegrep.issues.docstrings import Docstring, informative_words, query_of
from codegrep.issues.entities import entities_at
from codegrep.issues.issue import Entity, LineRange
from codegrep.issues.patch import PatchError, parse_patch
from codegrep.issues.paths import is_test_path
from codegrep.issues.statements import names_gold, statement_hash, statement_of_message
from codegrep.issues.swe_bench_rows import RowError, read_fields
from codegrep.judges.answers import AnswerQuestion, parse_judgement, prompt
from codegrep.judges.endpoint.prompting import object_with, shortened, visible
from codegrep.judges.files import Question, parse_answer
from codegrep.judges.files_rules import RulesJudge
from codegrep.judges.turns import parse_scores
from codegrep.lab.gaming import worlds_of
from codegrep.labels import adapters
from codegrep.labels.adapters.parts import AdapterError, text_of
from codegrep.labels.columnar import mine
from codegrep.labels.requests import ReadRules, created_path, shell_request, thought_of, view_request
from codegrep.labels.shard_work import task_of
from codegrep.labels.shell_reads import SHELL_READERS, files_read
from codegrep.labels.tokens import WordCounter
from codegrep.labels.trajectory import Call, Message, Trajectory, to_arrow
from codegrep.labels.workspace_paths import PathReader, PathRules
from codegrep.metrics.scores import entity_f_beta
from codegrep.protocol.calls import FileMatches, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.observation import render
from codegrep.protocol.parse import parse_message
from codegrep.protocol.paths import normalise_path
from codegrep.protocol.prompt import user_prompt
from codegrep.protocol.shown import shown_files
from codegrep.retrievers.bm25 import tokenise, tokenise_path
from codegrep.rollout.terms import search_terms
from codegrep.sandbox.guard import PathRefused, check_text
from codegrep.sandbox.tools import ArgumentError, Glob, Grep, Read
from codegrep.sandbox.tools.formatting import fit, shown_line
from codegrep.sandbox.tools.literals import whole_literals
from codegrep.sandbox.tools.matches import BlockReader, LineReader, MatchReader, name_words
from codegrep.sandbox.tools.output_columns import Printed
from codegrep.sandbox.tools.pathglob import BadGlob, is_seen
from codegrep.sandbox.tools.search import short_reason, split_globs
from tests.sandbox.trees import tool_limits

#: Characters of a text, and seconds of processor time that a reader may take for it: twenty times what the slowest one
#: takes, and far less than one whose time grows with the square of the length.
SIZE, MOST = 100_000, 3.0
#: A tenth of the text is tried first. Whose time grows with the square of the length takes a hundredth for it, so that
#: the whole is read only by those that take longer than that.
SHARE = 10

_TOKENS = random.Random(0)
_URL_SAFE = string.ascii_letters + string.digits + "-_"
#: Repeated up to SIZE.
UNITS = [
    *"Aa_1./-\\|()[]{}<>'\"`#:;=*@ \n\r\0é",
    *["A_", "aA", "Ab1", "a.", "A.B", "a/", "a-", "--a", "a ", " \n", "\r\n", "a\n", "``a", '\\"', "[a]", "[a](", "a("],
    *["(a)", "{a,", '{"', '{"a":', ":a:`", ":a:`<", "://", "x@", "a, b: ", "<think>", "</think>", "<tool_call>"],
    *["<tool_call>{", "<answer>", '<answer>{"files": [', "<issue_description>", "```bash\n", "```bash\nx", 'File "'],
    *[
        'File "a", line 1, in ',
        "E ",
        "ValueError: ",
        "the file ",
        "this file is not ",
        "NOT ",
        "NOT_",
        "fix ",
        "- fix ",
    ],
    *["fixes #1 ", "test ", "bump 1.", "http://", "cc: ", "- tests\n", "class A:\n", "@@ -1 +1 @@\n", "+\n"],
    *["--- a/x\n+++ b/x\n", "diff --git a/x b/x\n", "rename from a\n", "cat: a\n", "cd a; ", "/workspace/a__b/"],
    *["/home/a__b", "a.py:1:", "[a.py, lines 1-2 of 3]\n", "export ", "\udc80"],
]
#: What begins a construct, and what follows it without an end.
OPEN = [
    *[("args", " "), ("args(", "a"), ("a:", " "), ("cc", " "), ("refs 1", " "), ("- fix tests", " "), ("- ", " ")],
    *[("- fix ", ".py"), ("(#1)", " "), (":a:`", " "), (":a:`a", "<"), ("[a](", "a"), ("`", "a"), ('"', "a")],
    *[("'", "\\"), ("```bash", "\n"), ("/home/a/", "_"), ("/workspace/", "a"), ("<issue_description>", "a")],
    *[
        ('<tool_call>{"a": "', "a"),
        ('{"command": "', "\\"),
        ('"path"', "\\"),
        ('"path"', " "),
        ("NOT", "_"),
        ("fix", " "),
    ],
    *[("this file is ", "a"), ("E", " "), ("E", "\n"), ("ValueError: ", "a"), ("class", " "), ("diff --git ", " ")],
    *[('cat "', ";"), ('File "', "a"), ("x.py:", " "), ("the ", "a."), ("a = ", "a")],
]


def _texts(size: int) -> dict[str, str]:
    made = {unit: (unit * size)[:size] for unit in UNITS}
    made["url-safe tokens"] = "".join(_TOKENS.choices(_URL_SAFE, k=size))
    made["many url-safe tokens"] = " ".join("".join(_TOKENS.choices(_URL_SAFE, k=9)) for _ in range(size // 10))
    for opener, unit in OPEN:
        made[f"{opener} and then {unit}"] = (opener + unit * size)[: size - 1] + "x"
    return made


LONG, SHORT = _texts(SIZE), _texts(SIZE // SHARE)
LIMITS = tool_limits()


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises within a pattern too. Of processor time, so that a busy machine changes nothing."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _tools(text: str) -> None:
    for tool in (Grep(LIMITS), Glob(LIMITS), Read(LIMITS)):
        for arguments in ({"pattern": text, "path": text}, {text: text}, {"path": text}):
            try:
                tool.check(arguments)
            except ArgumentError as error:
                assert len(str(error)) < 400
    # What passes the check is text, and at most so long.
    short = text_of(text)[:1000]
    with suppress(PathRefused):
        check_text(text)
    split_globs(short)
    with suppress(BadGlob):
        is_seen("a/b/" + "a" * 200, [short])
    is_seen(short, ["**/*a*a*a*b", "**/a/**/a/**/b"])
    name_words(short)
    for ignore_case in (False, True):
        whole_literals(short, ignore_case)


def _search_output(text: str) -> None:
    lines = text.replace("\0", "").encode("utf-8", "replace")
    numbered = b"".join(b"%d:%s\n" % item for item in enumerate(lines.split(b"\n"), 1))
    words = frozenset([b"a"])
    blocks = b"a.py\0" + numbered + b"\nb.py\0" + numbered
    records = b"".join(b"a.py\0%s\n" % line for line in numbered.split(b"\n")[:-1])
    for reader, output in ((BlockReader(50, 1 << 30, words), blocks), (MatchReader(50, 1 << 30, words), records)):
        for start in range(0, len(output), 4096):
            reader.take(output[start : start + 4096])
        reader.hits()
        assert not reader.ended_binary
    whole = LineReader(1 << 30)
    whole.take(blocks)
    Printed(whole, lambda path: False, 800).found(((b"aa",),), False, words, 50, 200)
    short_reason(text[: 1 << 14])
    shown_line(text, 200)
    fit(text.split("\n"), 4000, str)


def _observations(text: str) -> None:
    call = ToolCall("grep", {"pattern": text})
    files = (FileMatches("a.py", 3, 1, text), FileMatches(text[:900].replace("\n", ""), 1, 1, text))
    result = ToolResult(1, call, ToolStatus.OK, "a.py:1:" + text, files)
    read = ToolResult(2, ToolCall("read", {"path": "a.py"}), ToolStatus.OK, "[a.py, lines 1-2 of 3]\n" + text, files)
    for style in ("results", "table"):
        render([result, read], tool_limits(observation=style, max_observation_chars=4000))
    shown_files(text, [file.path for file in files], text)
    user_prompt("o/n", text, 4000)


def _answers(text: str) -> None:
    message = parse_message(text)
    parse_message(f"<answer>{json.dumps({'files': [text], 'entities': [f'a.py:{text}']})}</answer>")
    parse_message(f"<tool_call>{json.dumps({'name': 'grep', 'arguments': text})}</tool_call>")
    normalise_path(text)
    assert len(message.calls) <= SIZE
    entities = json.dumps({"files": [], "entities": [f"a.py:{text}"]})
    if (answer := parse_message(f"<answer>{entities}</answer>").answer) is not None:
        entity_f_beta(answer.entities, [Entity("a.py", "A.b", "function")], kind="class")


def _judges(text: str) -> None:
    prompt(AnswerQuestion(text, ("a.py",), (text[:1000],), patch=text))
    object_with(text, "12345678")
    parse_judgement(text, "12345678")
    parse_scores(text, 3, "12345678")
    parse_answer(text)
    visible(shortened(text, 6000))


def _rules_judge(text: str) -> None:
    for one in (text, f"nothing wrong, {text} is irrelevant", f"this file is irrelevant. {text}"):
        RulesJudge().judge([Question("a.py", one)])


def _arguments_of_trajectories(text: str) -> None:
    quoted = json.dumps(text)
    for arguments in (
        text,
        quoted,
        f'{{"command": "view", "path": {quoted}}}',
        f'{{"command": "view", "path": "{text}',
    ):
        view_request(arguments)
        created_path(arguments.replace("view", "create"))
        thought_of(arguments)
        shell_request(arguments, SHELL_READERS)
    files_read(text[:4000])
    PathReader(PathRules())(text)
    PathReader(PathRules(tests=False))(f"/home/a/{text[:50_000]}/x.py")


def _trajectories(text: str) -> None:
    text = text_of(text)
    view = json.dumps({"command": "view", "path": "/repo/a.py"})
    said = (
        Message("user", text),
        Message("assistant", text, (Call("1", "str_replace_editor", view), Call("2", "execute_bash", text))),
        Message("tool", text, call_id="1"),
        Message("assistant", text),
    )
    table = to_arrow([Trajectory("t", "o__n-1", "o/n", said)])
    column = table.column("trajectory").combine_chunks()
    mine(column.chunk(0) if isinstance(column, pa.ChunkedArray) else column, ReadRules())
    task_of(text)
    WordCounter().counts([text])
    rows = (
        {"messages": [{"role": "assistant", "content": text}], "instance_id": text},
        {"history": [{"action": "run", "args": {"command": text, "thought": text}, "id": 1}], "instance_id": "i"},
        {"trajectory": [{"action": text, "observation": text, "thought": text}], "instance_id": "i"},
    )
    for row in rows:
        with suppress(AdapterError):
            adapters.convert(row, "name")


def _commits(text: str) -> None:
    for message in (text, f"Fix a crash\n\n{text}"):
        statement_of_message(message)
        for say in (is_revert, is_merge_message, is_chore, tells_of_a_fix, telling_words, statement_hash):
            say(message)
        names_gold(message, ["src/pkg/module.py"])


def _docstrings(text: str) -> None:
    for kind, hide in (("function", True), ("class", False)):
        query = query_of(Docstring("Model.fit_all", kind, text, 1, 2, b"", True), 100, hide)
        informative_words(query)


def _patches(text: str) -> None:
    header = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,9 +1,9 @@\n"
    for patch in (text, header + text, f"diff --git {text}\n", f'diff --git "{text}\n--- "{text}\n+++ "{text}\n'):
        try:
            parsed = parse_patch(patch)
        except PatchError:
            continue
        assert parsed.old_files is not None and parsed.old_ranges is not None and parsed.added_files is not None
    with suppress(RowError):
        read_fields({"instance_id": text, "repo": text, "base_commit": text, "patch": text, "problem_statement": text})
    is_test_path(text)
    is_test_path(f"test_{text}")


def _worlds(text: str) -> None:
    files = tuple(f"pkg/m{n}.py" for n in range(12))
    worlds_of([Issue("o__n-1", "o/n", "0" * 40, text, files)])


def _sources(text: str) -> None:
    # As many definitions as fit, and all of their lines touched.
    entities_at("def f(): pass\n" * (len(text) // 14), [LineRange("a.py", 1, SIZE)])


def _bm25(text: str) -> None:
    tokenise(text)
    tokenise_path(text[:4096])


READERS: list[Callable[[str], object]] = [
    search_terms,
    _answers,
    _arguments_of_trajectories,
    _bm25,
    _commits,
    _docstrings,
    _judges,
    _observations,
    _patches,
    _rules_judge,
    _search_output,
    _sources,
    _tools,
    _trajectories,
    _worlds,
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__.strip("_"))
def test_time_grows_with_the_length_and_no_faster(reader: Callable[[str], object]) -> None:
    reader("a warm start")
    slow = []
    for name, text in list(SHORT.items())[: 1 if reader is _sources else None]:
        try:
            with _at_most(MOST / SHARE**2):
                reader(text)
        except TimeoutError:
            try:
                with _at_most(MOST):
                    reader(LONG[name])
            except TimeoutError:
                slow.append(name)
    assert not slow
