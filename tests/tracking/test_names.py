"""The catalogue of metric names, and TRL's logs under them."""

from __future__ import annotations

import ast
import math
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from codegrep.tracking import names

ROOT = Path(__file__).parents[2]
READERS = (
    "codegrep/compare/*.py",
    "codegrep/lab/*.py",
    "codegrep/tracking/curves.py",
    "codegrep/pipeline/stages/report.py",
)
# Texts with a slash that are no metric: heads of tables, a repository, folders of artifacts.
NO_METRICS = {"better/equal/worse", "s/issue", "lab/lab", "figures/", "compare/", "evaluation/traces"}


def test_every_name_is_unique_allowed_and_described():
    logged = [metric.name.replace("<", "").replace(">", "") for metric in names.CATALOGUE]
    assert len(set(logged)) == len(logged)
    assert all(names.is_allowed(name) for name in logged)
    assert all(metric.meaning for metric in names.CATALOGUE)
    sources = [metric.trl for metric in names.CATALOGUE if metric.trl]
    assert len(set(sources)) == len(sources)


def test_mlflow_itself_allows_every_name():
    from mlflow.utils.validation import _validate_metric_name

    for metric in names.CATALOGUE:
        _validate_metric_name(metric.name.replace("<", "").replace(">", ""))


@given(st.text(max_size=300))
def test_what_is_called_allowed_is_allowed_by_mlflow(name):
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_metric_name

    if names.is_allowed(name):
        try:
            _validate_metric_name(name)
        except MlflowException as error:  # pragma: no cover
            pytest.fail(f"{name!r}: {error}")


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_label_makes_an_allowed_name(label, measure):
    assert names.is_allowed(names.evaluation(label, measure))
    assert names.is_allowed(names.reward_part(label))


@given(st.dictionaries(st.text(max_size=80), st.floats(allow_nan=True) | st.none()))
def test_any_log_of_trl_is_renamed_to_allowed_names(logs):
    renamed = names.from_trl(logs)
    assert all(names.is_allowed(name) for name in renamed)
    assert all(math.isnan(value) or math.isfinite(value) for value in renamed.values())


def test_logs_of_the_trainer():
    logs = {
        "loss": 0.1,
        "grad_norm": 0.6,
        "learning_rate": 5e-6,
        "step_time": 49.0,
        "train_runtime": 90.0,
        "train_loss": 0.2,
        "clip_ratio/low_min": 0.0,
        "policy/made_up": 3,
        "entropy_coef": None,
        "note": "text",
        "policy/kl": float("inf"),
    }
    renamed = names.from_trl(logs)
    assert math.isnan(renamed.pop("policy/kl"))
    assert renamed == {
        "optim/loss": 0.1,
        "optim/grad_norm": 0.6,
        "optim/learning_rate": 5e-6,
        "seconds/step": 49.0,
        "seconds/train": 90.0,
        "trl/train_loss": 0.2,
        "trl/clip_ratio/low_min": 0.0,
        "trl/policy/made_up": 3.0,
    }


def test_a_name_of_the_project_passes_through_trl_logs_unchanged():
    """TRL's log_metric puts the project's own metrics among TRL's; they come back as they went in."""
    own = {"rollout/turns": 2.5, "reward/file": 0.5, "errors/parse": 0.1, "seconds/tools": 1.0, "advantage/factor": 0.7}
    assert names.from_trl(own) == own


def test_the_keys_still_are_the_ones_that_the_installed_trl_logs():
    """Read in TRL's source, so that a renamed key is noticed before a run loses its curves."""
    spec = find_spec("trl")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("trl is not installed")
    source = Path(spec.submodule_search_locations[0], "trainer", "grpo_trainer.py").read_text(encoding="utf-8")
    logged = {node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)}
    by_transformers = {"loss", "grad_norm", "learning_rate", "train_runtime"}
    wanted = {metric.trl for metric in names.CATALOGUE if metric.trl and "<" not in metric.trl}
    assert wanted - by_transformers <= logged


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("reward/total", "reward/total"),
        ("reward/file", "reward/<part>"),
        ("eval/bm25_top-1/f05_mean", "eval/<retriever>/f05_mean"),
        ("kept/reward/file_f", "kept/<room>/<measure>"),
        ("rollout/exit_answer", "rollout/exit_<cause>"),
    ],
)
def test_a_logged_name_is_looked_up(name, entry):
    found = names.describe(name)
    assert found is not None
    assert found.name == entry


def test_an_unknown_name_has_no_entry():
    assert names.describe("trl/something") is None
    assert names.describe("eval/a/b/c") is None


@pytest.mark.parametrize("name", ["", "a//b", "/a", "../a", "a/../b", ".", "a/", "a:b", "ä", "a" * 251, "a\n"])
def test_refused_names(name):
    assert not names.is_allowed(name)


def test_whatever_reads_curves_reads_names_that_are_logged():
    """A room that nothing is logged under would leave its table empty without a word."""
    units = {metric.unit for metric in names.CATALOGUE}
    read = set()
    for path in (path for pattern in READERS for path in ROOT.glob(pattern)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if re.fullmatch(r"[a-z_]+/[a-z0-9_/]*", text) and text not in NO_METRICS | units:
                read.add(text)
    assert {"errors/", "guard/", "masked/", "judge/", "policy/kl"} <= read  # the test sees them
    logged = [metric.name for metric in names.CATALOGUE]
    assert [t for t in sorted(read) if not names.describe(t) and not any(n.startswith(t) for n in logged)] == []


def test_guard_rails_watch_names_that_are_logged():
    rails = yaml.safe_load((ROOT / "conf/train/default.yaml").read_text(encoding="utf-8"))["guard_rails"]["rails"]
    assert rails and [rail["metric"] for rail in rails.values() if not names.describe(rail["metric"])] == []
