"""`python -m codegrep compare`: one page about the runs of a sweep, or about runs that are named one by one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from codegrep.errors import ConfigError, DataError

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

    from codegrep.compare.contents import Comparison

_EPILOG = """
examples:
  python -m codegrep compare                            what there is to compare
  python -m codegrep compare SWEEP                      the runs of a sweep
  python -m codegrep compare v1-seed0-1a2b3c4d v3-seed0-5e6f7a8b    runs by folder name or MLflow run id

The page is written to OUTPUTS/compare/NAME (index.html, compare.md, figures, results.json) and stored in
MLflow: with the sweep's parent run, or in a run of its own.
"""


def main(argv: list[str]) -> int:
    """Entry point; the exit code.

    Raises:
        CodegrepError: nothing to compare, or MLflow cannot be read.
    """
    options = _parse(argv)
    from codegrep.compare.sources import chosen_runs, listing, open_store  # MLflow's client takes seconds to import

    client, uri = open_store(options.uri, options.outputs)
    if not options.runs:
        table = listing(client)
        Console(width=None if sys.stdout.isatty() else 160).print(
            table if table.row_count else "There are no runs yet."
        )
        return 0
    name, found, parent = chosen_runs(client, options.runs, options.outputs)
    comparison = _comparison(client, uri, name, found, options)
    folder = options.to or options.outputs / "compare" / name
    _write(comparison, folder)
    print(comparison.verdict.headline)
    for pair in comparison.verdict.pairs:
        print(f"- {pair.what}")
    print(f"Page: {folder / 'index.html'}")
    if not options.no_log:
        print(f"MLflow: run {_store(client, found, name, parent, folder)}, artifacts under compare/")
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m codegrep compare",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", metavar="SWEEP | RUN", help="id of a sweep, or two and more runs")
    parser.add_argument("--outputs", type=Path, default=Path("outputs"), help="outputs folder (default: outputs)")
    parser.add_argument("--uri", default="", help="MLflow tracking URI (default: the SQLite file under OUTPUTS)")
    parser.add_argument("--to", type=Path, default=None, help="folder for the page (default: OUTPUTS/compare/NAME)")
    parser.add_argument("--margin", type=float, default=0.02, help="smallest difference of F0.5 that counts (0.02)")
    parser.add_argument("--resamples", type=int, default=10_000, help="bootstrap and permutation draws (10000)")
    parser.add_argument("--no-log", action="store_true", help="write the page only, nothing to MLflow")
    options = parser.parse_args(argv)
    if not 0 < options.margin < 1:
        raise ConfigError(f"--margin {options.margin:g} is out of range", "Use a difference of F0.5 in (0, 1)")
    if options.resamples < 100:
        raise ConfigError(f"--resamples {options.resamples} is too few", "Use 1000 or more")
    return options


def _comparison(
    client: MlflowClient, uri: str, name: str, found: Sequence[Run], options: argparse.Namespace
) -> Comparison:
    from codegrep.compare.analysis import analyse
    from codegrep.compare.contents import Comparison
    from codegrep.compare.designs import group
    from codegrep.compare.events import dead_groups
    from codegrep.compare.runs import read_runs
    from codegrep.compare.verdict import verdict

    records, left_out = read_runs(client, uri, found)
    if not records:
        reasons = "; ".join(f"{run.name}: {run.reason}" for run in left_out[:3])
        raise DataError(f"none of the {len(found)} runs has finished with held-out results ({reasons})", "")
    designs, repeated = group(records)
    analysis = analyse(designs, resamples=options.resamples)
    return Comparison(
        name=name,
        designs=tuple(designs),
        analysis=analysis,
        verdict=verdict(analysis, options.margin, dead_groups(designs)),
        left_out=(*left_out, *repeated),
        margin=options.margin,
        resamples=options.resamples,
    )


def _write(comparison: Comparison, folder: Path) -> None:
    from codegrep.compare.contents import page_of
    from codegrep.runtime.artifacts import write_json
    from codegrep.tracking import pages

    pages.write(page_of(comparison), folder, markdown_name="compare.md", html_name="index.html")
    write_json(folder / "results.json", _results(comparison))


def _results(comparison: Comparison) -> dict[str, Any]:
    """Return the numbers of the page, for programs."""
    analysis, verdict = comparison.analysis, comparison.verdict
    return {
        "name": comparison.name,
        "issues": len(analysis.issues),
        "repositories": len(set(analysis.repositories)),
        "headline": verdict.headline,
        "pairs": [{**asdict(pair), "claim": pair.claim.value} for pair in verdict.pairs],
        "retrievers": [
            {
                "retriever": line.label,
                "design": line.design,
                "runs": line.runs,
                "f05": asdict(line.interval),
                "f05_of_runs": line.scores["f05"].run_means.tolist(),
                **{column: line.mean(column) for column in line.scores},
            }
            for line in analysis.retrievers
        ],
        "contrasts": [
            {"a": c.a, "b": c.b, "measure": c.column, "p_holm": c.p_holm, **asdict(c.result)}
            for c in (*analysis.between, *analysis.against)
        ],
        "runs": [
            {"design": design.label, "seed": run.seed, "run_id": run.run_id}
            for design in comparison.designs
            for run in design.runs
        ],
    }


def _store(client: MlflowClient, found: Sequence[Run], name: str, parent: str, folder: Path) -> str:
    """Log the folder to the sweep's parent run, or to a comparison run that these very runs share; its id."""
    from codegrep.compare.sources import comparison_run

    run_id = parent or comparison_run(client, found, name, folder / "mlflow_run_id")
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            client.log_artifacts(run_id, str(path), f"compare/{path.name}")
        elif path.suffix in (".html", ".md", ".json"):
            client.log_artifact(run_id, str(path), "compare")
    return run_id
