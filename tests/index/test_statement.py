from __future__ import annotations

import pytest

from codegrep.index.statement import MENTIONS, mentions, statement_of

TEXT = """Crash in load_model when the file is empty

Traceback (most recent call last):
  File "/usr/lib/python3/site-packages/pkg/cli.py", line 10, in main
    run()
  File "/usr/lib/python3/site-packages/pkg/io/loader.py", line 3, in load_model
    raise ValueError

See pkg/io/formats.py and `FormatError`. To reproduce:

```
from pkg.io.readers import Reader, open_reader
pkg.util.helpers.tidy(x)
```
"""


def told(path: str, *defined: str) -> dict[str, float]:
    values = mentions(statement_of(TEXT), path, frozenset(defined))
    return {name: value for name, value in zip(MENTIONS, values.tolist(), strict=True) if value}


@pytest.mark.parametrize(
    ("path", "defined", "expected"),
    [
        ("src/pkg/io/loader.py", (), {"file_name": 1, "frame": 1, "last_frame": 1, "stem": 1}),
        ("src/pkg/cli.py", (), {"file_name": 1, "frame": 1, "last_frame": 0.5}),
        ("pkg/io/formats.py", (), {"path": 1, "file_name": 1, "stem": 1}),
        (
            "src/pkg/io/readers.py",
            ("Reader", "open_reader"),
            {"imported": 1, "imported_names": 1, "module_named": 1, "stem": 1},
        ),
        ("pkg/base.py", ("Reader",), {"imported_names": 0.5}),
        ("pkg/util/helpers.py", (), {"module_named": 0.5, "stem": 1}),
        ("pkg/file.py", (), {"stem": 1}),
        ("pkg/io/__init__.py", (), {"module_named": 0.5}),
        ("other/unrelated.py", (), {}),
    ],
)
def test_what_a_statement_tells_of_a_file(path: str, defined: tuple[str, ...], expected: dict[str, float]) -> None:
    assert told(path, *defined) == expected


def test_names_of_code() -> None:
    statement = statement_of(TEXT)
    assert {"load_model", "FormatError", "ValueError", "open_reader", "tidy"} <= statement.code_names
    assert "empty" not in statement.code_names
    assert statement.title == "Crash in load_model when the file is empty"
    assert statement.frames[0].endswith("loader.py")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", ["", "\n\n", "a." * 50_000, "/" * 100_000, "from " * 30_000, 'File "' * 20_000, "a_" * 50_000]
)
def test_hostile_statements_take_no_time(text: str) -> None:
    statement = statement_of(text)
    assert mentions(statement, "a/b.py", frozenset()).shape == (len(MENTIONS),)
    assert len(statement.code_names) <= 20_000
