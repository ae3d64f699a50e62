"""A turn: numbered answers in order, really at the same time, nothing dropped, the machine's faults told apart."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegrep.config import SandboxConfig
from codegrep.errors import ConfigError, InfrastructureError
from codegrep.protocol.calls import MalformedCall, ToolCall, ToolResult, ToolStatus
from codegrep.protocol.schemas import schemas_of
from codegrep.sandbox import Outcome, Sandbox, Toolbox
from codegrep.sandbox.cache import ResultCache
from tests.sandbox.probes import Meet
from tests.sandbox.trees import Made, assert_no_leases, make_repository, tool_limits

PROBES = "tests.sandbox.probes"
SETTINGS = SandboxConfig(clone_timeout=60, min_free_gib=0, actors=1, max_worktrees=0)


def sandbox(folder: Path, made: Made, **changed: Any) -> Sandbox:
    return Sandbox.under(folder, tool_limits(**changed), SETTINGS, {"o/n": made})


def probe(box: Sandbox, name: str = "meet") -> Meet:
    tool = box.toolbox.check(ToolCall(name, {"place": 0, "parties": 0})).tool
    assert isinstance(tool, Meet)
    return tool


def turn(box: Sandbox, made: Made, *calls: ToolCall | MalformedCall, commit: int = 0) -> list[ToolResult]:
    return asyncio.run(box.run_turn("o/n", made.commits[commit], calls))


def meet(place: int, parties: int) -> ToolCall:
    return ToolCall("meet", {"place": place, "parties": parties})


def test_a_turn_of_everything(tmp_path: Path, many: Made) -> None:
    calls = [
        ToolCall("grep", {"pattern": "def f1[(]"}),
        MalformedCall("{pattern", "it is no JSON"),
        ToolCall("read", {"path": "/workspace/o__n__1.0/which.py"}),
        ToolCall("search", {"q": "x"}),
        ToolCall("glob", {"pattern": "which.*"}),
        ToolCall("grep", {"pattern": "("}),
        ToolCall("grep", {"patern": "x"}),
        ToolCall("read", {"path": "../x"}),
        ToolCall("grep", {"pattern": "x"}),
        MalformedCall("", "nothing in it"),
    ]
    results = turn(sandbox(tmp_path, many), many, *calls, commit=4)
    assert [r.number for r in results] == list(range(1, 11)) and [r.call for r in results] == calls
    ok, bad, refused = ToolStatus.OK, ToolStatus.MODEL_ERROR, ToolStatus.REFUSED
    assert [r.status for r in results] == [ok, bad, ok, bad, ok, bad, bad, bad, refused, refused]
    assert results[1].text == "ERROR: the call cannot be read: it is no JSON"
    assert results[2].text == "[which.py, lines 1-1 of 1]\n1\t4"
    assert results[3].text == "ERROR: there is no tool 'search' (tools: grep, glob, read)"
    assert results[4].text == "which.py"
    assert "did you mean 'pattern'?" in results[6].text
    assert results[8].text == "ERROR: not executed, at most 8 calls a turn are allowed"
    assert all(r.text for r in results)


def test_eight_calls_are_inside_at_the_same_time(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many, names=[f"{PROBES}.Meet"])
    results = turn(box, many, *(meet(i, 8) for i in range(9)))
    assert [r.text for r in results[:8]] == [f"{i} met 8" for i in range(8)]
    assert results[8].status is ToolStatus.REFUSED
    assert probe(box).most == 8


def test_no_more_at_once_than_the_limit_over_all_turns(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many, names=[f"{PROBES}.Meet"], concurrency=3)

    async def main() -> list[list[ToolResult]]:
        turns = (box.run_turn("o/n", many.commits[0], [meet(10 * t + c, 3) for c in range(5)]) for t in range(4))
        return list(await asyncio.gather(*turns))

    assert all(r.status is ToolStatus.OK for results in asyncio.run(main()) for r in results)
    assert probe(box).most == 3 and probe(box).runs == 20


def test_the_queue_is_fair(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many, names=[f"{PROBES}.Meet"], concurrency=1)
    ended: list[int] = []

    async def main() -> None:
        await box.prepare("o/n", many.commits[0])

        async def one(number: int) -> None:
            await box.run_turn("o/n", many.commits[0], [meet(8 * number + i, 1) for i in range(8)])
            ended.append(number)

        turns = [asyncio.ensure_future(one(number)) for number in range(12)]
        turns[4].cancel()
        await asyncio.gather(*turns, return_exceptions=True)

    asyncio.run(main())
    assert ended == [
        number for number in range(12) if number != 4
    ]  # first come, first served; nobody waits for the dead


def test_same_calls_at_the_same_time_are_executed_once(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many, names=[f"{PROBES}.Meet", "grep"])

    async def main() -> None:
        calls = [meet(1, 1), meet(1, 1), ToolCall("grep", {"pattern": "f3"})]
        await asyncio.gather(*(box.run_turn("o/n", many.commits[0], calls) for _ in range(8)))

    asyncio.run(main())
    stats = box.stats()
    assert probe(box).runs == 1 and stats["cache/misses"] == 2
    assert stats["cache/hits"] + stats["cache/shared"] == 22 and stats["calls/ok"] == 24
    # Other spellings of the same call, and in another event loop.
    turn(box, many, ToolCall("grep", {"path": ".", "pattern": "f3", "ignore_case": "false", "include": None}))
    assert box.stats()["cache/misses"] == 2
    turn(box, many, ToolCall("grep", {"pattern": "f3"}), commit=1)
    assert box.stats()["cache/misses"] == 3


def test_a_fault_is_infrastructure_and_is_not_kept(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many, names=[f"{PROBES}.Breaks", "grep"])
    for _ in range(2):
        broken, fine = turn(
            box, many, ToolCall("breaks", {"place": 0, "parties": 0}), ToolCall("grep", {"pattern": "f3"})
        )
        assert broken.status is ToolStatus.INFRASTRUCTURE and "KeyError" in broken.text
        assert fine.status is ToolStatus.OK
    assert box.stats()["cache/misses"] == 3 and box.stats()["calls/infrastructure"] == 2


def test_a_tool_that_ignores_the_cap_is_cut(tmp_path: Path, many: Made) -> None:
    (result,) = turn(
        sandbox(tmp_path, many, names=[f"{PROBES}.Talks"]), many, ToolCall("talks", {"place": 0, "parties": 0})
    )
    assert len(result.text) == 4096 and result.text.endswith(" [cut]") and result.truncated


def test_cancelling_a_turn_ends_its_calls_but_not_those_that_others_wait_for(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many, names=[f"{PROBES}.Meet"])
    tool = probe(box)

    async def main() -> list[ToolResult]:
        commit = many.commits[0]
        await box.prepare("o/n", commit)
        doomed = asyncio.ensure_future(box.run_turn("o/n", commit, [meet(1, 4), meet(2, 4)]))
        lives = asyncio.ensure_future(box.run_turn("o/n", commit, [meet(2, 4), meet(3, 4)]))
        while tool.inside < 3:
            await asyncio.sleep(0.001)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        while tool.inside > 2:
            await asyncio.sleep(0.001)
        assert tool.cancelled == 1
        await box.run_turn("o/n", commit, [meet(4, 3), meet(5, 4)])
        return await lives

    assert [r.text for r in asyncio.run(main())] == ["2 met 4", "3 met 4"]
    assert_no_leases(tmp_path / "trees")


def test_cancelling_while_the_tree_is_made_leaves_no_lease(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many)

    async def main() -> None:
        doomed = asyncio.ensure_future(box.run_turn("o/n", many.commits[0], [ToolCall("read", {"path": "which.py"})]))
        await asyncio.sleep(0.01)
        doomed.cancel()
        with pytest.raises(asyncio.CancelledError):
            await doomed
        await box.run_turn("o/n", many.commits[0], [ToolCall("read", {"path": "which.py"})])
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert_no_leases(tmp_path / "trees")


@pytest.mark.parametrize(("repo", "commit"), [("o/n", "1" * 40), ("x/y", None), ("o/n", "HEAD"), ("../x", "1" * 40)])
def test_no_tree_is_infrastructure(tmp_path: Path, many: Made, repo: str, commit: str | None) -> None:
    box = sandbox(tmp_path, many)
    with pytest.raises(InfrastructureError) as caught:
        asyncio.run(box.run_turn(repo, commit or many.commits[0], [ToolCall("glob", {"pattern": "*"})]))
    assert "\n" not in str(caught.value)


def test_a_turn_without_a_call_to_execute_needs_no_tree(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many)
    assert asyncio.run(box.run_turn("x/y", "?", [])) == []
    (result,) = asyncio.run(box.run_turn("x/y", "?", [MalformedCall("", "nothing")]))
    assert result.status is ToolStatus.MODEL_ERROR


def test_a_thousand_calls_are_all_answered(tmp_path: Path, many: Made) -> None:
    results = turn(sandbox(tmp_path, many), many, *(ToolCall("read", {"path": "which.py"}) for _ in range(1000)))
    assert [r.status for r in results] == [ToolStatus.OK] * 8 + [ToolStatus.REFUSED] * 992


def test_many_turns_at_once_leave_nothing_behind(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many, concurrency=16)
    rng = random.Random(3)
    descriptors = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0

    async def one(i: int) -> None:
        number = rng.randrange(6)
        calls = [ToolCall("grep", {"pattern": f"f{rng.randrange(60)}"}), ToolCall("read", {"path": "which.py"})]
        results = await box.run_turn("o/n", many.commits[number], calls)
        assert results[1].text.endswith(f"\n1\t{number}") and results[0].status is ToolStatus.OK

    async def main() -> None:
        await asyncio.gather(*(one(i) for i in range(200)))

    asyncio.run(main())
    assert_no_leases(tmp_path / "trees")
    assert box.stats()["worktrees/adds"] == 6
    if descriptors:
        assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 3
        children = subprocess.run(["ps", "-o", "comm=", "--ppid", str(os.getpid())], capture_output=True, text=True)
        assert "rg" not in children.stdout.split()


def test_schemas_are_json_and_wrong_names_are_one_line() -> None:
    box = Toolbox(tool_limits())
    # What the model is told (protocol) and what is accepted (here) must not drift apart.
    told = {s.name: (list(s.parameters), list(s.required)) for s in schemas_of(["grep", "glob", "read"])}
    taken = {s["function"]["name"]: s["function"]["parameters"] for s in box.schemas()}
    assert told == {name: (list(p["properties"]), p["required"]) for name, p in taken.items()}
    schemas = json.loads(json.dumps(box.schemas()))
    assert [s["function"]["name"] for s in schemas] == ["grep", "glob", "read"]
    assert schemas[0]["function"]["parameters"]["required"] == ["pattern"]
    for names in (["grep", "semantic"], ["nowhere.Tool"], ["json.Nothing"], ["grep", "grep"], ["os.getcwd"]):
        with pytest.raises(ConfigError) as caught:
            Toolbox(tool_limits(names=names))
        assert "tools.names" in str(caught.value)


def test_the_room_imports_without_ray() -> None:
    code = "import sys, codegrep.sandbox; sys.exit(any(m in sys.modules for m in ('ray', 'torch', 'mlflow')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


def outcome(text: str) -> Outcome:
    return Outcome(ToolStatus.OK, text)


def test_the_cache_is_bounded_and_forgets_the_oldest() -> None:
    cache = ResultCache(max_bytes=10_000)

    async def compute(key: str) -> str:
        async def make() -> Outcome:
            return outcome(key * 500)

        return (await cache.get((key,), make)).text

    async def main() -> None:
        for key in "abcdefghijklmnop":
            await compute(key)
            await compute("a")
            assert cache.size <= 10_000
        assert cache.look_up(("a",)) is not None and cache.look_up(("p",)) is not None
        assert cache.look_up(("b",)) is None

    asyncio.run(main())


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.lists(st.text(max_size=3)),
    st.sampled_from(
        ["../outside", "/etc/passwd", ".git", "--pre=touch", "-e", "\0", "link/secret.py", "link", "(a+)+$", "*", "**",
         "", "a" * 5000, "/repo/src/app.py", "src/app.py", "{a,b", "!x", "\ud800", "~", "/proc/self/environ", "."]
    ),
)  # fmt: skip
ARGUMENTS = st.dictionaries(
    st.sampled_from(["pattern", "path", "include", "ignore_case", "start", "end", "x"]), VALUES, max_size=5
)
CALLS = st.builds(ToolCall, st.sampled_from(["grep", "glob", "read", "grep ", "", "rm"]), ARGUMENTS)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sandbox, Made]]:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "outside").mkdir()
    (folder / "outside" / "secret.py").write_text("OUTSIDE SECRET src/app.py\n")
    files: dict[str, bytes | str] = {
        "src/app.py": b"def run():\n    pass\n",
        "link": str(folder / "outside"),
        "file.py": "../../../outside/secret.py",
    }
    made = make_repository(folder / "source.git", [files])
    box = sandbox(folder / "root", made)
    yield box, made
    box.close()


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, max_size=9))
def test_whatever_is_asked_is_answered_truthfully_and_from_inside(
    watched: tuple[Sandbox, Made], calls: list[ToolCall]
) -> None:
    box, made = watched
    results = turn(box, made, *calls)
    assert [r.number for r in results] == list(range(1, len(calls) + 1))
    for result in results:
        assert result.text and len(result.text) <= 4096 and result.status is not ToolStatus.INFRASTRUCTURE
        assert "OUTSIDE" not in result.text and "gitdir" not in result.text
        result.text.encode()  # what is given to a tokenizer or a Parquet file must be encodable
        for file in result.files:
            assert (
                (box.worktrees.root / f"o__n_{made.commits[0][:8]}" / file.path)
                .resolve()
                .is_relative_to(box.worktrees.root)
            )
            assert ".git" not in file.path.split("/")


def test_a_tree_that_was_deleted_by_hand_is_made_again(tmp_path: Path, many: Made) -> None:
    box = sandbox(tmp_path, many)
    turn(box, many, ToolCall("read", {"path": "which.py"}))
    shutil.rmtree(tmp_path / "trees" / f"o__n_{many.commits[0][:8]}")
    (result,) = turn(box, many, ToolCall("glob", {"pattern": "which.py"}))
    assert result.text == "which.py"
