"""Searches that share a process answer what each answers alone."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegrep.sandbox import Outcome, ToolStatus
from codegrep.sandbox.tools import Grep, SearchPrograms, find_ripgrep
from codegrep.sandbox.tools.literals import whole_literals
from codegrep.sandbox.tools.matches import BlockReader, LineReader
from tests.sandbox.trees import tool_limits

pytestmark = pytest.mark.skipif(find_ripgrep() is None, reason="ripgrep is not installed")

FILES: dict[str, bytes | str] = {
    "src/app.py": b"import os\n\n\nclass Widget:\n    def run(self, kind):\n        return kind\n",
    "src/deep/util.py": b"def helper(x):\n    return 'Widget' + x\n",
    "src/deep/kelvin.py": "# \u212aind and \u017felf\nclass X: pass\n".encode(),
    "src/upper.py": b"CLASS WIDGET = HELPER\n",
    "src/bom.py": b"\xef\xbb\xbfimport os\r\nclass Bom:\r\n",
    "src/utf16.py": "class Widget:\n".encode("utf-16"),
    "src/binary.py": b"class Widget\n\0\nclass Late\n",
    "src/accents.py": "# Größe der Klasse: éclair\nclass Größe: pass\n".encode(),
    "src/latin.py": b"# caf\xe9 class\n",
    "src/empty.py": b"",
    ".hidden.py": b"class Hidden\n",
    ".github/x.py": b"class Widget in github\n",
    ".odd.py/y.py": b"class Odd\n",
    "docs/index.md": b"# class Widget\n",
    "docs/.hidden": b"class Hidden\n",
    "README": b"class of its own\n",
    "link.py": "src/app.py",
    "tests/test_app.py": b"from src import Widget\n\ndef test_run():\n    assert Widget().run(1) == 1\n",
    "src/long.py": b"short = 1\n" + b"x" * 3000 + b" needle kind\nneedle = 2\n",
    "src/wide.py": b" " * 900
    + b"def run(kind): pass\ndef "
    + b"kind" * 300
    + b"(): pass\n"
    + b"\xf0\x9f\x98\x80" * 201
    + b"kind",
    "src/late_binary.py": b"class Early\n" * 20_000 + b"\0\nclass Late\n",
    "src/crlf.py": b"class A:\r\n    kind = 1\r\n\r\nclass B:\r\n    run = 2",
    "src/twice.py": b"kind kind\nkindkind\n\n\nkind",
    "src/numbers.py": b"12:30\nx = 12\n" + b"\n" * 120 + b"y = 1\n",
    "src/many.py": b"def run(self):\n    return self.kind\n\n" * 400,
    "src/kinds.py": b"class Kind:\n    def kind(self): pass\n\nasync def other(kind): pass\n",
    "src/two\n\nends.py": b"def kind(self):\n    return self.kind\n",
    "src/two\n\nends/late_binary.py": b"class Early\n" * 20_000 + b"\0\nclass Late\n",
    "\n\n12:kind.py": b"class Kind: pass\n",
    "src/binary file matches.py": b'kind: binary file matches (found "\\0" byte around offset 3)\n',
}


# In these the folding of case goes beyond ASCII: what they may match is asked for alone.
ODD = ("src/deep/kelvin.py",)


@pytest.fixture(scope="module", params=["plain", "odd"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together") / "tree"
    for path, content in FILES.items():
        if request.param == "plain" and path in ODD:
            continue
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (folder / path).symlink_to(folder / content)
        else:
            (folder / path).write_bytes(content)
    return folder


class Counting(SearchPrograms):
    """Counts the searches that were started."""

    started = 0

    def matches(self, *arguments: Any, **options: Any) -> list[str]:
        self.started += 1
        return super().matches(*arguments, **options)


def alone(tool: Grep, root: Path, asked: dict[str, Any]) -> Outcome:
    return asyncio.run(tool.run(root, tool.check(asked)))


def together(tool: Grep, root: Path, asked: list[dict[str, Any]]) -> list[Outcome]:
    async def main() -> list[Outcome]:
        return list(await asyncio.gather(*(tool.run(root, tool.check(one)) for one in asked)))

    return asyncio.run(main())


PATTERNS = [
    "kind", "Kind", "KIND", "class", "self", "run", "needle", "short", "Late", "Early", "Größe", "zzz_nowhere", "12",
    ":", "x = 12", "30", "class |needle", "kind|run", "\\(self", "return self\\.kind", " ", "x", "binary file matches",
    "caf", "é", "self.kind", "self.KIND", "class.A", "Gr.ße", "Gr..e", "kind.kind", "n.y", "s.lf.k",
    "kind.run|Kind", "(.self", "d.s.i", "pass.", "r.e", "A:.",
    "def (run", "def \\w+", "(", "Widget", "kindkind", "d:", "\\-", "pass",
]  # fmt: skip


@pytest.mark.parametrize("changed", [{}, {"max_matches": 3}, {"exclude_tests": True}, {"max_line_chars": 20}])
def test_every_answer_is_the_one_of_a_search_alone(root: Path, changed: dict[str, Any]) -> None:
    programs = Counting()
    tool = Grep(tool_limits(**changed), programs)
    asked = [
        {"pattern": pattern, "ignore_case": ignore_case, "path": place, "include": include}
        for pattern, ignore_case in itertools.product(PATTERNS, (False, True))
        for place, include in ((".", "*.py"), ("src", ""))
    ]
    expected = [alone(tool, root, one) for one in asked]
    before, programs.started = programs.started, 0
    for one, answer, right in zip(asked, together(tool, root, asked), expected, strict=True):
        assert answer == right, one
    # Some patterns are no plain texts, and some texts begin like a line's number.
    assert before == len(asked) and programs.started < (0.55 if (root / ODD[0]).exists() else 0.35) * before


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.sampled_from(["kind", "k", "S", "class ", "ru", "n", "e", "|", "\\.", "1", "é", "ſ", " ", "def "]),
                min_size=1,
                max_size=4,
            ).map("".join),
            st.booleans(),
        ),
        min_size=2,
        max_size=6,
    )
)
def test_whatever_the_patterns(root: Path, patterns: list[tuple[str, bool]]) -> None:
    tool = Grep(tool_limits(), SearchPrograms())
    asked = [{"pattern": pattern, "ignore_case": ignore_case} for pattern, ignore_case in patterns]
    assert together(tool, root, asked) == [alone(tool, root, one) for one in asked]


def test_one_process_for_a_turn_and_one_for_what_gathers_meanwhile(root: Path) -> None:
    programs = Counting()
    tool = Grep(tool_limits(), programs)

    async def main() -> list[Outcome]:
        asked = [tool.check({"pattern": pattern}) for pattern in ("Widget", "self", "run", "class", "return", "pass")]
        first = [asyncio.ensure_future(tool.run(root, one)) for one in asked[:3]]
        await asyncio.sleep(0.001)
        return list(await asyncio.gather(*first, *(tool.run(root, one) for one in asked[3:])))

    assert all(outcome.files for outcome in asyncio.run(main()))
    assert programs.started == 2


def test_cancelling_one_leaves_the_others_and_cancelling_all_ends_the_process(root: Path) -> None:
    class Slow(SearchPrograms):
        def matches(self, *arguments: Any, **options: Any) -> list[str]:
            return [
                "/bin/sh",
                "-c",
                'sleep "$1"; shift; exec "$@"',
                "sh",
                seconds,
                *super().matches(*arguments, **options),
            ]

    async def main() -> None:
        tool = Grep(tool_limits(), Slow())
        tasks = [asyncio.ensure_future(tool.run(root, tool.check({"pattern": p}))) for p in ("kind", "self", "run")]
        await asyncio.sleep(0.1)
        tasks[0].cancel()
        assert [r.status for r in await asyncio.gather(*tasks[1:])] == [ToolStatus.OK, ToolStatus.OK]
        assert tasks[0].cancelled()

    async def doomed() -> float:
        tool = Grep(tool_limits(), Slow())
        tasks = [asyncio.ensure_future(tool.run(root, tool.check({"pattern": p}))) for p in ("kind", "self")]
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return asyncio.get_running_loop().time() - began

    seconds = "0.3"
    asyncio.run(main())
    seconds = "30"
    assert asyncio.run(doomed()) < 5


def test_a_search_that_takes_too_long_together_goes_on_alone(root: Path) -> None:
    class Stuck(SearchPrograms):
        def matches(self, *arguments: Any, **options: Any) -> list[str]:
            command = super().matches(*arguments, **options)
            return ["/bin/sleep", "30"] if any("|" in word for word in command) else command

    tool = Grep(tool_limits(grep_timeout=2.0), Stuck())
    answers = together(tool, root, [{"pattern": "kind"}, {"pattern": "self"}])
    assert answers == [alone(tool, root, {"pattern": pattern}) for pattern in ("kind", "self")]


def test_who_waited_long_for_others_has_time_for_a_search_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(SearchPrograms):
        def matches(self, *arguments: Any, **options: Any) -> list[str]:
            return ["/bin/sh", "-c", 'sleep 0.3; exec "$@"', "sh", *super().matches(*arguments, **options)]

    async def busy(*_: object) -> None:
        await asyncio.sleep(3.1)

    monkeypatch.setattr("codegrep.sandbox.tools.shared_search.Together.ask", busy)
    tool = Grep(tool_limits(grep_timeout=3.0), Slow())
    assert alone(tool, root, {"pattern": "kind"}).status == ToolStatus.OK


def test_a_group_that_never_rests_goes_on_sharing(root: Path) -> None:
    class Slow(Counting):
        def matches(self, *arguments: Any, **options: Any) -> list[str]:
            return ["/bin/sh", "-c", 'sleep 0.2; exec "$@"', "sh", *super().matches(*arguments, **options)]

    programs = Slow()
    tool = Grep(tool_limits(grep_timeout=4.0), programs)

    async def main() -> None:
        tasks = []
        for _ in range(12):  # for 2.4 s, twice what one shared search may take
            for pattern in ("Widget", "self", "return"):
                tasks.append(asyncio.ensure_future(tool.run(root, tool.check({"pattern": pattern}))))
            await asyncio.sleep(0.2)
        assert all(outcome.files for outcome in await asyncio.gather(*tasks))

    asyncio.run(main())
    assert programs.started <= 14


def test_an_error_of_ours_sends_each_back_to_a_search_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("codegrep.sandbox.tools.shared_search.Together._given_out", broken)
    tool = Grep(tool_limits(), SearchPrograms())
    asked = [{"pattern": "Widget"}, {"pattern": "self"}]
    assert together(tool, root, asked) == [alone(tool, root, one) for one in asked]


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("foo", ((b"foo",),)),
        ("foo|bar|foo", ((b"foo",), (b"bar",))),
        (r"foo\(\.x|a b", ((b"foo(.x",), (b"a b",))),
        ("größe", (("größe".encode(),),)),
        ("f.o", ((b"f", b"o"),)),
        (r"a.b\.c.d|e", ((b"a", b"b.c", b"d"), (b"e",))),
        ("", None), ("foo|", None), (".foo", None), ("foo.", None), ("f..o", None), ("f.*o", None),
        ("f.?", None), (r"foo\b", None), (r"\"foo", None), ("(foo)", None), ("foo]", None),
        ("foo\\", None), ("^foo", None), ("\ufffd", None),
    ],
)  # fmt: skip
def test_patterns_that_are_nothing_but_texts(pattern: str, texts: tuple[tuple[bytes, ...], ...] | None) -> None:
    assert whole_literals(pattern, False) == texts


def test_letters_outside_ascii_are_no_text_when_case_is_ignored() -> None:
    assert whole_literals("größe", True) is None and whole_literals("Foo", True) == ((b"Foo",),)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_the_lines_of_an_output_in_chunks(size: int) -> None:
    output = b"./a.py\x001:x\n2:y\n\nb\n.py\x0010:\n11:z\n"
    lines, blocks = LineReader(1000), BlockReader(50, 1000, frozenset())
    for at in range(0, len(output), size):
        assert lines.take(output[at : at + size]) and blocks.take(output[at : at + size])
    assert lines.files() == [(b"a.py", b"1:x\n2:y\n"), (b"b\n.py", b"10:\n11:z\n")]
    assert [(h.path, h.kept) for h in sorted(blocks.hits(), key=lambda h: h.path)] == lines.files()
    assert not LineReader(10).take(output)
