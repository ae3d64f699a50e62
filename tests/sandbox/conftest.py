"""Fixtures: a repository with many commits, a small tree with a secret beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandbox.trees import Made, Tree, make_repository


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """24 commits of 60 files each; file `which.py` holds the number of its commit."""
    files = {f"pkg{i % 7}/mod{i}.py": f"def f{i}():\n    return {i}\n".encode() * 20 for i in range(60)}
    trees = [{**files, "which.py": b"%d\n" % n} for n in range(24)]
    return make_repository(tmp_path_factory.mktemp("many") / "source.git", trees)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A small tree with git's own file, and a secret beside it."""
    made = Tree(tmp_path / "tree", tmp_path / "outside")
    made.root.mkdir()
    made.outside.mkdir()
    (made.outside / "secret.py").write_text("SECRET = 1\n")
    made.write(".git", b"gitdir: /SECRET/place\n")
    made.write(
        "src/app.py",
        b"import os\n\n\ndef run(x):\n    return x\n\n\nclass App:\n    def run(self):\n        return run(1)\n",
    )
    made.write("src/deep/util.py", b"def helper():\n    return 'run'\n")
    made.write("tests/test_app.py", b"def test_run():\n    run(1)\n")
    made.write("README.md", b"# run it\n")
    return made
