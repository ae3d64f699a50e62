"""Several runs of one experiment that differ by seed -> one table in Markdown.

    python scripts/seeds.py outputs/runs/v3-seed0-… outputs/runs/v3-seed1-… outputs/runs/v3-seed2-…

Scores are averaged over seeds for each issue first; intervals and tests then resample repositories and the issues
within them, so n is the number of repositories and not of runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codegrep.metrics.bootstrap import RESAMPLES, bootstrap_mean, mean_over_seeds
from codegrep.metrics.runs import few_repositories
from codegrep.pipeline.results import comparisons

Table = dict[str, dict[str, list[dict[str, Any]]]]  # retriever -> instance_id -> one row a seed


def read(run: Path) -> list[dict[str, Any]]:
    """Return the per-issue rows that a run's report was made from.

    Raises:
        SystemExit: the run has no report yet.
    """
    path = run / "report" / "per_issue.json"
    if not path.is_file():
        sys.exit(f"{run} has no report yet: run the stage 'report' first")
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def gather(runs: Sequence[Path]) -> Table:
    """Rows of all runs; issues that some run lacks are left out for every retriever."""
    table: Table = {}
    for run in runs:
        for row in read(run):
            table.setdefault(row["retriever"], {}).setdefault(row["instance_id"], []).append(row)
    complete = set.intersection(*({i for i, rows in by.items() if len(rows) == len(runs)} for by in table.values()))
    return {name: {i: rows for i, rows in by.items() if i in complete} for name, by in table.items()}


def means(by_issue: Mapping[str, list[dict[str, Any]]], column: str) -> dict[str, float]:
    """Mean over seeds of one column, by issue."""
    ids = sorted(by_issue)
    values = mean_over_seeds([[float(row[column]) for row in by_issue[i]] for i in ids])
    return dict(zip(ids, values.tolist(), strict=True))


def retriever_lines(table: Table) -> list[str]:
    """One Markdown row a retriever, with the value of each seed where they differ."""
    lines = [
        "| retriever | F0.5 [95 %] | each seed | at one file | P | R | ≥ 0.8 | files | turns | calls | tokens |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, by_issue in table.items():
        f05 = means(by_issue, "f05")
        interval = bootstrap_mean(list(f05.values()), clusters=[by_issue[i][0]["repo"] for i in f05])
        seeds = range(len(next(iter(by_issue.values()))))
        each = [sum(rows[s]["f05"] for rows in by_issue.values()) / len(by_issue) for s in seeds]
        shown = " / ".join(f"{v:.3f}" for v in each) if max(each) - min(each) > 1e-9 else "–"
        numbers = [f"{_mean(means(by_issue, column)):.3f}" for column in ("f05_top1", "precision", "recall", "good")]
        lines.append(
            f"| {name} | {interval.estimate:.3f} [{interval.low:.3f}, {interval.high:.3f}] | {shown} | "
            f"{' | '.join(numbers)} | {_cells(by_issue)} |"
        )
    return lines


def pair_lines(table: Table) -> list[str]:
    """One Markdown row a comparison, whole lists and first files."""
    rows: list[dict[str, Any]] = []
    for name, by_issue in table.items():
        f05, top1 = means(by_issue, "f05"), means(by_issue, "f05_top1")
        rows += [
            {"retriever": name, "instance_id": i, "repo": by_issue[i][0]["repo"], "f05": f05[i], "f05_top1": top1[i]}
            for i in by_issue
        ]
    lines = ["| a − b | on | difference [95 %] | p (Holm) | better/equal/worse |", "|---|---|---|---|---|"]
    for pair in comparisons(rows, RESAMPLES):
        c, d = pair.comparison, pair.comparison.difference
        lines.append(
            f"| {pair.a} − {pair.b} | {pair.on} | "
            f"{d.estimate:+.3f} [{d.low:+.3f}, {d.high:+.3f}] | {pair.p_holm:.3f} | {c.better}/{c.equal}/{c.worse} |"
        )
    return lines


def _mean(values: Mapping[str, float]) -> float:
    return sum(values.values()) / len(values)


def _cells(by_issue: Mapping[str, list[dict[str, Any]]]) -> str:
    cells = []
    for column, digits in (("files", 2), ("turns", 1), ("calls", 1), ("generated_tokens", 0)):
        values = [row[column] for rows in by_issue.values() for row in rows if row[column] is not None]
        cells.append(f"{sum(values) / len(values):.{digits}f}" if values else "–")
    return " | ".join(cells)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders, one a seed")
    table = gather(parser.parse_args().runs)
    any_retriever = list(next(iter(table.values())).values())
    repositories = len({rows[0]["repo"] for rows in any_retriever})
    print(f"{len(any_retriever)} issues of {repositories} repositories, {len(any_retriever[0])} seeds.\n")
    pairs = pair_lines(table)
    print("\n".join([*retriever_lines(table), "", *pairs, "", *few_repositories(repositories, (len(pairs) - 2) // 2)]))


if __name__ == "__main__":
    main()
