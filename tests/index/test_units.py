"""Units of files in every language that is parsed, and of files that nobody should have to parse."""

from __future__ import annotations

import textwrap

import pytest

from codegrep.index.units import MAX_CHARACTERS, MAX_LINES, MAX_PARSED, Unit, units_of


def places(path: str, text: str) -> list[tuple[str, str, int, int]]:
    return [(u.kind, u.name, u.start, u.end) for u in units_of(path, textwrap.dedent(text).encode())]


PYTHON = '''
import os

@decorated
class Model(Base):
    """Holds rows.

    More.
    """

    size = 3

    @property
    def rows(self, kind: str = "a") -> list:
        def inner():
            return 1
        return inner()

async def load(path):
    r"""Load it."""
    return open(path)

LIMIT = 1
A = 2
B = 3
'''


def test_python() -> None:
    assert places("a.py", PYTHON) == [
        ("module", "", 2, 2),
        ("class", "Model", 4, 11),
        ("function", "Model.rows", 13, 17),
        ("function", "load", 19, 21),
        ("module", "", 23, 25),
    ]
    _, model, rows, load, _ = units_of("a.py", PYTHON.encode())
    assert (model.signature, model.docstring) == ("class Model(Base)", "Holds rows.\n\n    More.")
    assert rows.signature == 'def rows(self, kind: str = "a") -> list'
    assert rows.body.startswith("    @property\n") and rows.body.endswith("return inner()")
    assert load.docstring == "Load it."


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "a.js",
            """\
            // Adds.
            function add(a, b) {
              return a + b
            }
            const f = (x) => {
              return 1
            }
            module.exports.g = function () {}
            class A {
              m() {}
            }
            """,
            [
                ("function", "add", 1, 4),
                ("function", "f", 5, 7),
                ("function", "module.exports.g", 8, 8),
                ("class", "A", 9, 9),
                ("function", "A.m", 10, 10),
            ],
        ),
        (
            "a.ts",
            """\
            export interface I {
              a: string
            }
            namespace N {
              export class C {
                m(): void {}
              }
            }
            """,
            [("class", "I", 1, 3), ("class", "N", 4, 4), ("class", "N.C", 5, 5), ("function", "N.C.m", 6, 6)],
        ),
        ("a.tsx", "export const C = () => <div/>;\n", [("function", "C", 1, 1)]),
        (
            "a.go",
            """\
            // Foo does.
            func (t *T) Foo(a int) error {
              return nil
            }
            type T struct {
              A int
            }
            """,
            [("function", "T.Foo", 1, 4), ("class", "T", 5, 7)],
        ),
        (
            "A.java",
            """\
            /** Doc. */
            public class A {
              int x;
              /** Does m. */
              public int m(int a) { return 1; }
            }
            """,
            [("class", "A", 1, 3), ("function", "A.m", 4, 5)],
        ),
        (
            "a.rs",
            """\
            /// Doc.
            pub fn f(a: u8) -> u8 { a }
            impl Foo for Bar {
              fn g(&self) {}
            }
            """,
            [("function", "f", 1, 2), ("class", "Bar", 3, 3), ("function", "Bar.g", 4, 4)],
        ),
        (
            "a.c",
            """\
            /* Doc. */
            static int *foo(int a)
            {
              return 0;
            }
            struct s {
              int a;
            };
            """,
            [("function", "foo", 1, 5), ("class", "s", 6, 8)],
        ),
        (
            "a.cpp",
            """\
            namespace n {
            class A {
             public:
              int m() { return 1; }
            };
            int A::k(int x) { return 2; }
            }
            """,
            [("class", "n", 1, 1), ("class", "n.A", 2, 3), ("function", "n.A.m", 4, 4), ("function", "n.A.k", 6, 6)],
        ),
    ],
)
def test_languages(path: str, text: str, expected: list[tuple[str, str, int, int]]) -> None:
    assert places(path, text) == expected


def test_comments_above_a_definition_are_its_docstring() -> None:
    (unit,) = units_of("a.go", b"// Foo does\n// much.\nfunc Foo() {\n}\n")
    assert unit.docstring == "Foo does\n much."


def test_a_long_function_continues_in_further_units_of_its_name() -> None:
    text = "def f():\n" + "    x = 1\n" * (2 * MAX_LINES)
    assert places("a.py", text) == [
        ("function", "f", 1, 60),
        ("function", "f", 61, 120),
        ("function", "f", 121, 121),
    ]


def test_a_long_function_that_defines_others_is_divided_as_a_class_is() -> None:
    text = "(function () {\nfunction wrapper() {\n" + "  x();\n" * 150 + "  function inner() {\n    y();\n  }\n}\n})\n"
    assert ("function", "wrapper.inner", 153, 155) in places("a.js", text)


def test_other_text_is_cut_into_chunks() -> None:
    units = units_of("notes.md", b"word\n" * 130)
    assert [(u.kind, u.start, u.end) for u in units] == [("text", 1, 60), ("text", 61, 120), ("text", 121, 130)]


@pytest.mark.parametrize("content", [b"", b" \n\t\n", b"\x7fELF\0\0\0", b"\0" * 9000])
def test_blank_and_binary_files_have_no_units(content: bytes) -> None:
    assert units_of("a.py", content) == []


@pytest.mark.parametrize(
    "content",
    [
        "def é():\n    pass\n".encode("latin-1"),
        b"\xef\xbb\xbfdef f():\n    pass\n",
        "def f():\n    pass\n".encode("utf-16"),
        b"def f():\r\n    pass\r\n",
    ],
)
def test_odd_encodings(content: bytes) -> None:
    (unit,) = units_of("a.py", content)
    assert (unit.kind, unit.start, unit.end) == ("function", 1, 2)


def test_syntax_errors_keep_what_can_be_read() -> None:
    names = [
        u.name for u in units_of("a.py", b"def good():\n    return 1\n\ndef bad(:\n  x = = 2\n\nprint 'python 2'\n")
    ]
    assert "good" in names


def bounded(units: list[Unit]) -> bool:
    return len(units) <= 2_000 and all(len(u.body) <= 2 * MAX_CHARACTERS for u in units)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("big.py", b"x = 1\n" * 900_000),
        ("minified.js", b"a=function(){return 1};" * 20_000),
        ("one_line.txt", b"word " * 1_000_000),
        ("brackets.py", b"(" * 200_000),
        ("braces.c", b"{" * 100_000),
        ("nested.py", b"".join(b" " * i + b"class A:\n" for i in range(700))),
        ("nested.js", b"function a(){" * 20_000),
        ("broken.py", b"def f(:\n" * 50_000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.timeout(60)
def test_generated_and_hostile_files_stay_bounded(path: str, content: bytes) -> None:
    assert len(content) > MAX_PARSED or len(content) > 90_000
    assert bounded(units_of(path, content))
