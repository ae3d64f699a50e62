"""The straightforward miner: row by row, message by message, every call's arguments through the JSON parser.

The reference of scripts/bench/catm.py and of the tests: the columnar miner must find exactly the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from codegrep.labels.arguments import read_arguments
from codegrep.labels.observations import HEAD, read_failure
from codegrep.labels.requests import ReadRules, Request, shell_request, thought_of
from codegrep.labels.trajectory import Mined, Read

Row = dict[str, Any]


def mine_rows(rows: Sequence[list[Row] | None], rules: ReadRules) -> Mined:
    """Reads of trajectories given as Python lists of messages (what Arrow's to_pylist gives)."""
    mined = Mined(rows=len(rows))
    dropped: Counter[str] = Counter()
    ledger: Counter[str] = Counter()
    path_of = rules.paths.reader()
    for number, messages in enumerate(rows):
        messages = messages or []
        created: dict[str, tuple[int, int]] = {}
        turn = 0
        for at, message in enumerate(messages):
            if message is None or message.get("role") != "assistant":
                continue
            turn += 1
            calls = [call or {} for call in message.get("tool_calls") or []]
            mined.calls += len(calls)
            for place, call in enumerate(calls):
                function = call.get("function") or {}
                name, arguments = function.get("name") or "", function.get("arguments") or ""
                request, creates = _request(name, arguments, rules)
                if request is None:
                    if rules.drop_created and creates:
                        kept = path_of(creates)[0]
                        if kept and kept not in created and not _failure(messages, at, place, calls):
                            created[kept] = (at, place)
                    continue
                ledger.update(request.oddities)
                mined.read_calls += max(1, len(request.paths))
                if not request.paths:
                    dropped["unreadable arguments"] += 1
                wanted = []
                for path in request.paths:
                    kept, reason = path_of(path)
                    if reason:
                        dropped[reason] += 1
                    else:
                        wanted.append(kept)
                failure = _failure(messages, at, place, calls) if wanted else ""
                if failure:
                    dropped[failure] += len(wanted)
                    continue
                after = _next_assistant(messages, at)
                for path in wanted:
                    if path in created and created[path] < (at, place):
                        dropped["created by the agent"] += 1
                        continue
                    text = (messages[after].get("content") or "") if after >= 0 else ""
                    thought = _thoughts(messages[after], rules) if after >= 0 else ""
                    mined.reads.append(
                        Read(number, at, place, call.get("id") or "", name, turn, path, after, text, thought)
                    )
    mined.dropped, mined.ledger = dict(dropped), dict(ledger)
    return mined


def _request(name: str, arguments: str, rules: ReadRules) -> tuple[Request | None, str]:
    """What a call asks to read, and the path that it creates."""
    parsed = read_arguments(arguments)
    if name in rules.editors:
        if parsed.text("command") == "view":
            return Request((parsed.text("path"),) if parsed.text("path") else (), parsed.oddities), ""
        if not parsed.values and ('"view' in arguments or "'view" in arguments):
            return Request((), parsed.oddities), ""
        return None, parsed.text("path") if parsed.text("command") == "create" else ""
    if rules.shell_readers and name in rules.shells:
        return shell_request(arguments, rules.shell_readers), ""
    return None, ""


def _next_assistant(messages: Sequence[Row], at: int) -> int:
    for later in range(at + 1, len(messages)):
        if messages[later] is not None and messages[later].get("role") == "assistant":
            return later
    return -1


def _failure(messages: Sequence[Row], at: int, place: int, calls: Sequence[Row]) -> str:
    results = []
    for message in messages[at + 1 :]:
        if message is None or message.get("role") != "tool":
            break
        results.append(message)
    if not results:
        return "no result"
    if len(calls) == 1 and len(results) == 1:
        return read_failure((results[0].get("content") or "")[:HEAD])
    ids = [call.get("id") or "" for call in calls]
    answers = [result.get("tool_call_id") or "" for result in results]
    if ids[place] and ids[place] in answers and ids.count(ids[place]) == 1:
        return read_failure((results[answers.index(ids[place])].get("content") or "")[:HEAD])
    return read_failure((results[place].get("content") or "")[:HEAD]) if place < len(results) else "no result"


def _thoughts(message: Row, rules: ReadRules) -> str:
    found = []
    for call in message.get("tool_calls") or []:
        function = (call or {}).get("function") or {}
        if function.get("name") == rules.think and (text := thought_of(function.get("arguments") or "")):
            found.append(text)
    return "\n".join(found)
