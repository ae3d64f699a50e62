"""From read paths to repo-relative ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.labels.workspace_paths import PathRules


@pytest.mark.parametrize(
    ("path", "kept", "reason"),
    [
        ("/workspace/PlasmaFAIR__sdf-xarray__unknown/src/a.py", "src/a.py", ""),
        ("/workspace/tianocore__edk2-pytool-library__0.15/x/y.py", "x/y.py", ""),
        ("/workspace/sympy/sympy/core/a.py", "sympy/core/a.py", ""),  # OpenHands V1: the repository's name alone
        ("/testbed/src/a.py", "src/a.py", ""),
        ("/repo/a.c", "a.c", ""),
        ("src/./b//c.py", "src/b/c.py", ""),
        ("/workspace/o__n__1/a/../b.py", "b.py", ""),
        ("/workspace", "", "directory"),
        ("/workspace/o__n__1", "", "directory"),
        ("/workspace/o__n__1/", "", "directory"),
        ("/workspace/o__n__1/src", "", "no extension"),
        ("/workspace/o__n__1/Makefile", "", "no extension"),
        ("/workspace/o__n__1/.gitignore", "", "no extension"),
        ("/workspace/o__n__1/README.md", "", "document"),
        ("/workspace/o__n__1/docs/x.RST", "", "document"),
        ("/workspace/reproduce.py", "", "outside the repository"),
        ("/tmp/a.py", "", "outside the repository"),
        ("/workspace/o__n__1/../../etc/a.py", "", "outside the repository"),
        ("../a.py", "", "outside the repository"),
        ("/workspace/o__n__1/a\\b.py", "", "unsafe path"),
        ("a\nb.py", "", "unsafe path"),
        ("  ", "", "no path"),
    ],
)
def test_paths(path: str, kept: str, reason: str) -> None:
    assert PathRules().reader()(path) == (kept, reason)


def test_tests_and_suffixes_are_switches() -> None:
    strict = PathRules(tests=False, suffixes=(".py",)).reader()
    assert strict("/testbed/tests/test_a.py") == ("", "test")
    assert strict("/testbed/a.c") == ("", "other suffix")
    assert PathRules().reader()("/testbed/tests/test_a.py") == ("tests/test_a.py", "")


@given(st.text(max_size=40) | st.lists(st.sampled_from(["..", ".", "a", "b.py", "", "workspace", "/"])).map("/".join))
def test_nothing_absolute_or_upward_comes_out(path: str) -> None:
    kept, reason = PathRules().reader()(path)
    assert bool(kept) != bool(reason)
    assert not kept.startswith("/") and ".." not in kept.split("/") and "\0" not in kept and not kept.endswith("/")
