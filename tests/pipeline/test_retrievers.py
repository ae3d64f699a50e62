"""A retriever is one class and one file of conf/retriever; its rows are in every table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from codegrep.compare.runs import issue_rows
from codegrep.compose import compose_overrides, load
from codegrep.config import Config
from codegrep.errors import ConfigError
from tests.pipeline.experiments import HELD_OUT, Experiment

OWN = '''
from codegrep.retrievers.retriever import Retrieved

class Named:
    """Files whose path holds a word of the issue."""

    def __init__(self, least: int = 4) -> None:
        self.least = least

    def retrieve(self, issue, tree):
        words = {word for word in issue.problem_statement.lower().split() if len(word) >= self.least}
        paths = sorted(str(path.relative_to(tree)) for path in tree.rglob("*.py"))
        return Retrieved(tuple(path for path in paths if words & set(path.split("/"))), 0.0)
'''
ROWS = ("bm25_no_tests_top1", "bm25_no_tests_top2", "hybrid_top1", "named_top1", "named_top3")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with a retriever of one's own: its module and its file."""
    folder = tmp_path / "own"
    (folder / "retriever").mkdir(parents=True)
    (folder / "my_retriever.py").write_text(OWN)
    (folder / "retriever" / "named.yaml").write_text("name: named\nkind: my_retriever.Named\ntops: [1, 3]\n")
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_retriever_of_ones_own_is_in_every_table(experiment: Experiment, own: Path) -> None:
    experiment.environment["PYTHONPATH"] = str(own)
    asked = "[bm25_no_tests, hybrid, named]"
    run = (
        *("--config-dir", str(own), "stages=[prepare,evaluate,report]", "evaluate.models=[]"),
        f"evaluate.retrievers={asked}",
    )
    done = experiment.run(*run)
    assert done.process.returncode == 0, done.err.read_text()
    (folder,) = (experiment.outputs / "runs").iterdir()
    table: list[dict[str, Any]] = json.loads((folder / "report" / "per_issue.json").read_text())
    assert {row["retriever"] for row in table} == set(ROWS) and len(table) == len(ROWS) * HELD_OUT
    mine = [row for row in table if row["retriever"] == "named_top1"]
    assert {row["f05"] for row in mine} == {1.0} and {row["hit_at_5"] for row in mine} == {1.0}
    report = (folder / "report" / "results.md").read_text()
    assert "| named_top1 | 1.000" in report and "named_top1 − bm25_no_tests_top1" in report
    assert "named_top1" in done.out.read_text()
    page = (folder / "report" / "leaderboard.md").read_text()
    assert page.index("| named_top1 | 1.000") < page.index("| bm25_no_tests_top1 |") and "query ms p50" in page
    assert json.loads((folder / "report" / "leaderboard.json").read_text())[0]["retriever"] == "named_top1"
    (record,) = experiment.mlflow_runs()
    assert record.data.metrics["eval/named_top1/f05_mean"] == 1.0
    assert record.data.metrics["eval/hybrid_top1/index_bytes"] > 0
    assert record.data.params["retrievers.named.kind"] == "my_retriever.Named"
    assert "evaluation/leaderboard.md" in experiment.mlflow_files(record.info.run_id)
    logged = experiment.mlflow().download_artifacts(record.info.run_id, "evaluation/per_issue.json", str(own))
    compared = issue_rows(json.loads(Path(logged).read_text()))
    assert {row.retriever for row in compared if row.kind == "baseline"} == set(ROWS)

    # Another argument asks this retriever alone again, another length nothing.
    (own / "my_retriever.py").write_text(OWN.replace("words & set", "[] and words & set"))
    again = experiment.run(*run, "+retrievers.named.tops=[2]", "name=again")
    assert "named_top2" in again.out.read_text()
    assert len(list((experiment.outputs / "artifacts").glob("measured-named-*"))) == 1
    other = experiment.run(*run, "+retrievers.named.args.least=2", "name=other")
    assert "| named_top1 | 0.000" in _results(experiment, "other"), other.err.read_text()
    assert len(list((experiment.outputs / "artifacts").glob("measured-named-*"))) == 2
    assert len(list((experiment.outputs / "artifacts").glob("measured-hybrid-*"))) == 1


def _results(experiment: Experiment, name: str) -> str:
    (folder,) = (experiment.outputs / "runs").glob(f"{name}-seed*")
    return (folder / "report" / "results.md").read_text()


def composed(*overrides: str) -> Config:
    return load(compose_overrides(overrides))


def test_rows_are_read_from_their_files_and_changed_beside_them() -> None:
    config = composed("+retrievers.bm25.tops=[3]", "+retrievers.hybrid.args.include_tests=true")
    assert list(config.retrievers) == ["bm25", "bm25_no_tests", "hybrid"]
    assert config.retrievers["bm25"].tops == [3] and config.retrievers["bm25_no_tests"].tops == [1, 2]
    assert config.retrievers["hybrid"].args == {"index": "hybrid", "include_tests": True}


def test_one_retriever_alone() -> None:
    config = composed("retriever=static", "+retriever.args.include_tests=true", "evaluate.models=[]")
    assert config.evaluate.retrievers == ["static"] and list(config.retrievers) == ["static"]
    assert config.retrievers["static"].args["include_tests"]
    assert not hasattr(config, "retriever")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["evaluate.retrievers=[hybird]"], "there is no retriever called 'hybird'. Did you mean hybrid?"),
        (["evaluate.retrievers=[orcale]"], "there is no retriever called 'orcale'. Did you mean oracle?"),
        (["evaluate.retrievers=[../reward/v3]"], "there is no retriever called '../reward/v3'. Known: bm25"),
        (["retriever=hybird"], "there is no retriever called 'hybird'. Did you mean retriever=hybrid?"),
        (["+retrievers.bm52.tops=[1]"], "retrievers.bm52 changes what evaluate.retrievers does not ask for"),
        (["+retrievers.bm25.tops=[0]"], "retrievers.bm25: tops=[0] must hold positive numbers"),
        (["+retrievers.bm25.args.stem=1"], "retrievers.bm25.args.stem is not known to BM25"),
        (["+retrievers.bm25.args.include_tests=2"], "retrievers.bm25.args.include_tests is 2. Expected bool"),
        (["+retrievers.bm25.kind=my.Own"], "retrievers.bm25.kind 'my.Own' cannot be found"),
        (["+retrievers.bm25.kind=pathlib.Path"], "retrievers.bm25.kind 'pathlib.Path' is no retriever"),
        (["evaluate.retrievers=[]", "evaluate.models=[]"], "evaluate.models and retrievers are both empty"),
    ],
)
def test_a_wrong_configuration_is_one_line(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        composed(*overrides)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_every_file_of_conf_is_a_retriever() -> None:
    from codegrep.conf_folder import CONF

    for file in sorted((CONF / "retriever").glob("*.yaml")):
        settings: Any = OmegaConf.load(file)
        missing = [f"+retrievers.{file.stem}.{key}=x" for key in OmegaConf.missing_keys(settings)]
        config = composed(f"evaluate.retrievers=[{file.stem}]", *missing)
        assert list(config.retrievers) == [file.stem]


def test_composing_loads_no_network() -> None:

    code = (
        "import sys; from codegrep.compose import compose_overrides, load; load(compose_overrides([]));"
        "sys.exit(any(m in sys.modules for m in ('sentence_transformers', 'ray', 'mlflow')))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
