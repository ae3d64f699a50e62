"""Fits the learned fusion that the index ships with, and writes codegrep/index/data/fusion.json.

python scripts/train_fusion.py --repositories FOLDER --models A.npz:repo,repo B.npz:repo,repo

Each repository's features are made with a static model that was trained without it (scripts/train_static.py --only).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
from scipy.optimize import minimize
from search_material import commits_of

from codegrep.errors import CodegrepError
from codegrep.index.fusion import FEATURES, SHIPPED, candidates
from codegrep.index.history import commit_files
from codegrep.index.statement import statement_of
from codegrep.index.static import StaticModel, load_static
from codegrep.index.tree import TreeIndexer
from codegrep.issues.git import open_repository
from codegrep.issues.issue import Issue
from codegrep.issues.paths import is_gold_path
from codegrep.issues.repositories import list_repositories

LEAST_SCALE = 0.1


def features_of(folder: Path, issues: Sequence[Issue], model: StaticModel, index: Path) -> list[dict[str, np.ndarray]]:
    """Features and gold of the candidates of each issue of one repository."""
    indexer = TreeIndexer(index, model)
    examples = []
    with open_repository(list_repositories(folder)[issues[0].repo]) as repo:
        for issue in issues:
            files = [f for f in commit_files(repo, issue.base_commit) if is_gold_path(f.path, (".py",), False)]
            tree = indexer.index(issue.repo, files)
            found = candidates(tree, statement_of(issue.problem_statement), np.ones(len(tree.paths), bool))
            gold = np.array([tree.paths[file] in issue.gold_files for file in found.files])
            examples.append({"features": found.features, "gold": gold})
    return examples


def fit(examples: Sequence[tuple[np.ndarray, np.ndarray, float]], strength: float) -> dict[str, list[float]]:
    """Weights of a conditional logit with an L2 penalty. examples: features, gold, weight of the issue."""
    usable = [(x, gold, weight) for x, gold, weight in examples if gold.any() and not gold.all()]
    rows = np.concatenate([x for x, _, _ in usable])
    # What commit messages hardly ever have (tracebacks, imports) would get a large weight from a few of them.
    means, scales = rows.mean(axis=0), np.maximum(rows.std(axis=0), LEAST_SCALE)
    standard = (rows - means) / scales
    gold = np.concatenate([g for _, g, _ in usable])
    starts = np.cumsum([0, *(len(g) for _, g, _ in usable[:-1])])
    sizes = np.array([len(g) for _, g, _ in usable])
    weights = np.array([w for _, _, w in usable])
    weights /= weights.sum()

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        """-log of the probability that a gold file is first, and its gradient."""
        logits = standard @ w
        logits -= np.repeat(np.maximum.reduceat(logits, starts), sizes)
        odds = np.exp(logits)
        every, right = np.add.reduceat(odds, starts), np.add.reduceat(odds * gold, starts)
        difference = odds / np.repeat(every, sizes) - odds * gold / np.repeat(right, sizes)
        value = weights @ (np.log(every) - np.log(right)) + strength * (w @ w)
        return float(value), standard.T @ (difference * np.repeat(weights, sizes)) + 2 * strength * w

    solved = minimize(loss, np.zeros(standard.shape[1]), jac=True, method="L-BFGS-B")
    return {"means": means.tolist(), "scales": scales.tolist(), "weights": solved.x.tolist()}


def main() -> int:
    """Return 0, or 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(description="Fit the learned fusion of the index.")
    parser.add_argument("--repositories", type=Path, required=True, help="folder of bare clones, owner__name.git")
    parser.add_argument("--models", nargs="+", required=True, help="model.npz:owner/name,… that it was not trained on")
    parser.add_argument("--work", type=Path, default=Path("outputs/search"), help="folder of intermediate files")
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--commits", type=int, default=60, help="most fix commits of a repository")
    parser.add_argument("--strength", type=float, default=3e-2, help="of the penalty on the weights")
    given = parser.parse_args()
    examples = []
    try:
        for entry in given.models:
            path, _, repos = entry.partition(":")
            model = load_static(Path(path))
            for repo in repos.split(","):
                issues = commits_of(given.repositories, "train", given.commits, only_fixes=True, only=[repo])
                own = features_of(given.repositories, issues, model, given.work / "index")
                examples += [(e["features"], e["gold"], 1 / len(own)) for e in own]
                print(
                    f"{repo}: {len(own)} issues, {np.mean([e['gold'].any() for e in own]):.2f} within reach", flush=True
                )
    except CodegrepError as error:
        print(f"codegrep: {error}", file=sys.stderr)
        return 2
    given.out.write_text(json.dumps({"features": FEATURES, **fit(examples, given.strength)}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
