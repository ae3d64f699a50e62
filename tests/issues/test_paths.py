from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegrep.issues.paths import (
    is_doc_path,
    is_gold_path,
    is_safe_path,
    is_source_path,
    is_test_path,
    is_vendored_path,
    is_version_path,
)


@pytest.mark.parametrize(
    "path",
    [
        "tests/x.py",
        "a/tests/deep/x.py",
        "test_a.py",
        "a/b_test.py",
        "conftest.py",
        "src/conftest.py",
        "testing/test_x.py",
        "testing/code.py",
        "lib/Test/x.py",
        "pkg/tests.py",
        "web/__tests__/a.js",
        "web/a.spec.ts",
        "web/a.test.jsx",
        "x/FooTest.java",
        "go/a_test.go",
        "spec/m.rb",
    ],
)
def test_test_paths(path: str) -> None:
    assert is_test_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "src/a.py",
        "numpy/testing/utils.py",
        "src/flask/testing.py",
        "attest.py",
        "contest/a.py",
        "latest.py",
        "src/_pytest/python.py",
        "testify.py",
        "a/protest.py",
        "Latest.java",
        "pylint/testutils.py",
        "",
    ],
)
def test_other_paths(path: str) -> None:
    assert not is_test_path(path)


def test_source_vendored_docs_versions() -> None:
    assert is_source_path("a/b.py") and is_source_path("A.PY") and is_source_path("x.rs")
    assert not is_source_path(".py") and not is_source_path("a.rst") and not is_source_path("a.pyi", (".py",))
    assert is_vendored_path("pip/_vendor/x.py") and not is_vendored_path("vendor.py")
    assert (
        is_doc_path("docs/conf.py")
        and is_doc_path("CHANGES.rst")
        and is_doc_path("README")
        and not is_doc_path("a/docs.py")
    )
    assert is_version_path("a/_version.py") and not is_version_path("a/versions.py")
    assert is_gold_path("a.py", (".py",), False) and not is_gold_path("tests/a.py", (".py",), False)
    assert is_gold_path("tests/a.py", (".py",), True)


@given(st.text())
def test_total_functions(path: str) -> None:
    for rule in (is_test_path, is_source_path, is_vendored_path, is_doc_path, is_version_path, is_safe_path):
        assert rule(path) in {True, False}


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b.py"]), min_size=1, max_size=5))
def test_safe_paths_stay_inside(parts: list[str]) -> None:
    path = "/".join(parts)
    assert is_safe_path(path) == (not {"", ".", ".."} & set(parts))
