"""`import codegrep`: small, lazy, and light where no model answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import codegrep

HEAVY = ("torch", "ray", "transformers", "mlflow")


def modules_after(code: str, cache: Path) -> list[str]:
    code += "\nimport sys, json\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(codegrep.__file__).parents[1],
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(cache), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    loaded: list[str] = json.loads(done.stdout.splitlines()[-1])
    return loaded


@pytest.mark.parametrize("retriever", ["hybrid", "static", "bm25"])
def test_searching_without_a_model_imports_no_framework(retriever: str, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "basket.py").write_text("def total(prices):\n    return sum(prices)\n")
    code = (
        "import codegrep, sys\nassert 'numpy' not in sys.modules\n"
        f"found = codegrep.Retriever.load({retriever!r}).search('basket total', repo={str(tmp_path / 'shop')!r})\n"
        "assert [one.path for one in found] == ['basket.py'], found"
    )
    assert not set(HEAVY) & set(modules_after(code, tmp_path / "cache"))


def test_every_public_name_exists_and_no_other() -> None:
    assert all(getattr(codegrep, name) for name in codegrep.__all__)
    with pytest.raises(AttributeError, match="nothing_of_it"):
        _ = codegrep.nothing_of_it


def test_a_retriever_that_is_none_is_named() -> None:
    with pytest.raises(codegrep.CodegrepError, match="no retriever 'bm26'"):
        codegrep.Retriever.load("bm26")
    with pytest.raises(codegrep.CodegrepError, match="no policy"):
        codegrep.Retriever.load("bm25").rollout("text")
