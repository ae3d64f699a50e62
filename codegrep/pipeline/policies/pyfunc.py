"""What `mlflow.pyfunc.load_model` gets for a logged policy: a model from issues to files. Named in its MLmodel file.

Only this installed module runs; nothing that lies in the model is executed. Clones and worktrees of the repositories
that are asked about are kept under $CODEGREP_OUTPUTS (default: outputs).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codegrep.errors import DataError
from codegrep.issues import Issue
from codegrep.issues.git import holds, open_repository
from codegrep.issues.source import RepositoryLocation
from codegrep.pipeline.policies.engines import InProcessHandle
from codegrep.pipeline.policies.fetch import policy_of, recorded_config
from codegrep.pipeline.workers import AgentSettings, AgentWorker
from codegrep.rollout.record import from_row
from codegrep.runtime.artifacts import Places
from codegrep.sandbox import Sandbox
from codegrep.sandbox.repositories import Repositories
from codegrep.tracking.policy_package import read_package

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("problem_statement", "repository", "base_commit")


class PolicyModel:
    """A policy that answers issues in this process, without Ray.

    Args:
        folder: a policy package.
    """

    def __init__(self, folder: Path) -> None:
        self._package = read_package(folder)
        self._config = recorded_config(self._package)
        self._places = Places(Path(os.environ.get("CODEGREP_OUTPUTS") or "outputs").expanduser().absolute())
        self._files = policy_of(self._package, self._places.artifacts)

    def predict(self, model_input: DataFrame, params: dict[str, Any] | None = None) -> list[list[str]]:
        """Return the files to change, best first, for each row; empty where the policy gave no readable answer.

        Args:
            model_input: columns problem_statement, repository (a local clone, or a URL to clone from) and base_commit
                (full hash, HEAD, branch or tag).
            params: none are known; MLflow gives them.

        Raises:
            DataError: a column is missing.
            RepositoryError: no such repository or commit; before the model is loaded.
        """
        missing = [column for column in COLUMNS if column not in model_input]
        if missing:
            raise DataError(f"the input has no column {', '.join(missing)}", f"Columns: {', '.join(COLUMNS)}")
        rows = [{column: str(row[column]) for column in COLUMNS} for row in model_input.to_dict("records")]
        config = self._config
        names = {row["repository"]: f"served/{_digest(row['repository'])}" for row in rows}
        locations = {name: _location(repository) for repository, name in names.items()}
        repositories = Repositories(self._places.clones, config.sandbox.clone_timeout, locations)
        for row in rows:
            row["base_commit"] = repositories.resolve(names[row["repository"]], row["base_commit"])
            repositories.fetch_commit(repositories.open(names[row["repository"]]), row["base_commit"])
        issues = [
            Issue(
                instance_id=f"row-{number}",
                repo=names[row["repository"]],
                base_commit=row["base_commit"],
                problem_statement=row["problem_statement"],
                gold_files=(),
            )
            for number, row in enumerate(rows)
        ]
        sandbox = Sandbox.under(self._places.sandbox, config.tools, config.sandbox, locations)
        try:
            base = self._package.base
            engine = InProcessHandle(
                config=config.engine,
                model=str(self._files.model),
                adapter=None if self._files.adapter is None else str(self._files.adapter),
                dtype=base.dtype,
                context=base.context,
                seed=config.seed,
                actors=1,
                use_gpu=config.train.use_gpu,
            )
            worker = AgentWorker(
                engine=engine,
                settings=AgentSettings(config.agent, config.tools, base.context),
                sandbox=sandbox,
                temperature=config.evaluate.temperature,
                seed=config.seed,
                label="served",
            )
            rollouts = [from_row(row["rollout"]) for row in worker.answer(issues)]
        finally:
            sandbox.close()
        lost = next((rollout.error for rollout in rollouts if rollout.error), "")
        if lost:
            raise DataError(f"an issue could not be answered: {lost}", "Check repository and base_commit")
        return [
            _existing(repositories.open(rollout.repo).path, rollout.base_commit, rollout.answer) for rollout in rollouts
        ]


def _load_pyfunc(path: str) -> PolicyModel:
    """Open a package; MLflow calls this."""
    return PolicyModel(Path(path))


def _location(repository: str) -> RepositoryLocation:
    local = Path(repository).expanduser()
    return RepositoryLocation(local=local) if local.exists() else RepositoryLocation(url=repository)


def _existing(clone: Path, commit: str, paths: Sequence[str]) -> list[str]:
    """Return the paths that the commit has: a small model copies long paths with mistakes."""
    with open_repository(clone) as repo:
        return [path for path in paths if "\n" not in path and holds(repo, f"{commit}:{path}")]


def _digest(repository: str) -> str:
    return hashlib.sha256(repository.encode()).hexdigest()[:12]
