from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pipeline.experiments import Experiment, make_repository


@pytest.fixture
def experiment(tmp_path: Path) -> Iterator[Experiment]:
    """A new tiny experiment; nothing that it started outlives the test."""
    made = Experiment(tmp_path, make_repository(tmp_path / "repositories" / "acme__shop"))
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def shared_experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Experiment]]:
    """Makes an experiment for a whole module."""
    made: list[Experiment] = []

    def make(*arguments: str) -> Experiment:
        folder = tmp_path_factory.mktemp("experiment")
        repository = make_repository(folder / "repositories" / "acme__shop")
        experiment = Experiment(folder, repository)
        experiment.arguments = (*experiment.arguments, *arguments)
        made.append(experiment)
        return experiment

    yield make
    for experiment in made:
        experiment.clean_up()
