"""What every stage is handed: the configuration, where things lie, and whom to tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from codegrep.config import Config
from codegrep.errors import CodegrepError
from codegrep.pipeline.artifact import Artifact, ArtifactStore
from codegrep.sandbox.actor import RemoteSandbox
from codegrep.sandbox.repositories import Location
from codegrep.tracking.run import Tracker


@dataclass(frozen=True)
class Places:
    """Folders under `outputs`."""

    outputs: Path

    @property
    def artifacts(self) -> Path:
        """Stage artifacts, shared by runs."""
        return self.outputs / "artifacts"

    @property
    def sandbox(self) -> Path:
        """Bare clones, worktrees and their ledger."""
        return self.outputs / "sandbox"

    @property
    def runs(self) -> Path:
        """One folder a run: its lock, its MLflow run id, its report."""
        return self.outputs / "runs"


@dataclass
class Context:
    """One run in progress."""

    config: Config
    experiment: str
    places: Places
    run_folder: Path
    store: ArtifactStore
    tracker: Tracker
    console: Console
    artifacts: dict[str, Artifact] = field(default_factory=dict)
    sandbox: RemoteSandbox | None = None
    locations: Mapping[str, Location] | None = None

    def need(self, stage: str) -> Artifact:
        """The complete artifact of an earlier stage.

        Raises:
            CodegrepError: the stage has not run and is not asked for.
        """
        artifact = self.artifacts.get(stage)
        if artifact is None or not artifact.complete:
            raise CodegrepError(f"the artifact of stage {stage} is missing", f"Add {stage} to stages=[…] and run again")
        return artifact

    def say(self, text: str) -> None:
        """One line for the person who watches."""
        self.console.print(text, highlight=False)

    @contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Advance]:
        """A progress bar; the yielded object is called after each finished item."""
        columns = (
            TextColumn("  {task.description:<28}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console, transient=not self.console.is_terminal) as bar:
            yield Advance(bar, bar.add_task(label, total=total, note=""))


class Advance:
    """Moves one progress bar."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def __call__(self, by: int = 1, note: str = "") -> None:
        self._bar.update(self._task, advance=by, note=note)

    def to(self, done: int, note: str = "") -> None:
        """Set the bar to an absolute value."""
        self._bar.update(self._task, completed=done, note=note)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mapping → one level with dotted keys."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            out.update(flat(value, f"{name}."))
        else:
            out[name] = value
    return out
