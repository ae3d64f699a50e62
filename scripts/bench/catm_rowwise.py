"""The straightforward miner: row by row, message by message, every call's arguments through the JSON parser.

The reference of scripts/bench/catm.py and of the tests: the columnar miner must find exactly the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from codegrep.labels.arguments import read_arguments
from codegrep.labels.observations import HEAD, read_failure
from codegrep.labels.requests import COMMAND, VIEW, ReadRules, Request, shell_request, thought_of
from codegrep.labels.trajectory import ASSISTANT, Mined, Read

Row = dict[str, Any]


def mine_rows(rows: Sequence[list[Row] | None], rules: ReadRules) -> Mined:
    """Read of trajectories given as Python lists of messages (what Arrow's to_pylist gives)."""
    mined = Mined(rows=len(rows))
    dropped: Counter[str] = Counter()
    ledger: Counter[str] = Counter()
    path_of = rules.paths.reader()
    for number, messages in enumerate(rows):
        messages = messages or []
        created: dict[str, tuple[int, int]] = {}
        turn = 0
        for at, message in enumerate(messages):
            if message is None or message.get("role") not in ASSISTANT:
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
                        if kept and kept not in created and not _failure(_observation(messages, at, place, calls)):
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
                observed = _observation(messages, at, place, calls)
                failure = _failure(observed) if wanted else ""
                if failure:
                    dropped[failure] += len(wanted)
                    continue
                after = _next_assistant(messages, at)
                if observed is not None and 0 <= after < observed[0]:
                    after = _next_assistant(messages, observed[0])
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
    """Return what a call asks to read, and the path that it creates."""
    parsed = read_arguments(arguments)
    if name in rules.editors:
        if parsed.text("command") == "view":
            return Request((parsed.text("path"),) if parsed.text("path") else (), parsed.oddities), ""
        other = arguments.startswith(COMMAND) and not arguments.startswith(VIEW)  # names another command
        if other or "view" not in arguments or isinstance(parsed.values.get("command"), str):
            return None, parsed.text("path") if parsed.text("command") == "create" else ""
        return Request((), parsed.oddities), ""
    if rules.shell_readers and name in rules.shells:
        return shell_request(arguments, rules.shell_readers), ""
    return None, ""


def _next_assistant(messages: Sequence[Row], at: int) -> int:
    for later in range(at + 1, len(messages)):
        if messages[later] is not None and messages[later].get("role") in ASSISTANT:
            return later
    return -1


def _failure(observed: tuple[int, Row] | None) -> str:
    return read_failure((observed[1].get("content") or "")[:HEAD]) if observed else "no result"


def _observation(messages: Sequence[Row], at: int, place: int, calls: Sequence[Row]) -> tuple[int, Row] | None:
    """Return the tool message that answers a call, with its place."""
    near = []
    for later, message in enumerate(messages[at + 1 :], start=at + 1):
        if message is None or message.get("role") != "tool":
            break
        near.append((later, message))
    ids = [call.get("id") or "" for call in calls]
    wanted = ids[place]
    all_ids = [(call or {}).get("id") or "" for m in messages for call in (m or {}).get("tool_calls") or []]
    if wanted:
        mine = [one for one in near if one[1].get("tool_call_id") == wanted]
        if mine and ids.count(wanted) == 1:
            return mine[0]
        late = [
            (later, message)
            for later, message in enumerate(messages)
            if message is not None and message.get("role") == "tool" and message.get("tool_call_id") == wanted
        ]
        if all_ids.count(wanted) == 1 and len(late) == 1 and late[0][0] > at:
            return late[0]
    if place >= len(near):
        return None
    given = near[place][1].get("tool_call_id") or ""
    return None if given and given != wanted and given in all_ids else near[place]


def _thoughts(message: Row, rules: ReadRules) -> str:
    found = []
    for call in message.get("tool_calls") or []:
        function = (call or {}).get("function") or {}
        if function.get("name") == rules.think and (text := thought_of(function.get("arguments") or "")):
            found.append(text)
    return "\n".join(found)
