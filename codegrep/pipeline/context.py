"""What every stage is handed: the configuration, where things lie, and whom to tell."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from codegrep.config import Config
from codegrep.errors import CodegrepError
from codegrep.runtime.artifacts import Artifact, ArtifactStore
from codegrep.sandbox.actor import RemoteSandbox
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

    def need(self, stage: str) -> Artifact:
        """The complete artifact of an earlier stage.

        Raises:
            CodegrepError: the stage has not run and is not asked for.
        """
        artifact = self.artifacts.get(stage)
        if artifact is None or not artifact.complete:
            raise CodegrepError(f"the artifact of stage {stage} is missing", f"Add {stage} to stages=[…] and run again")
        return artifact

    def say(self, text: str, style: str | None = None) -> None:
        """One line for the person who watches. Brackets are brackets: paths and errors hold them."""
        self.console.print(text, style=style, markup=False, highlight=False)

    @contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Advance]:
        """A progress bar, or lines where there is no terminal; the yielded object is told of what is done."""
        if not self.console.is_terminal:
            lines = Lines(self.console, label, total)
            yield lines
            lines.end()
            return
        columns = (
            TextColumn("  {task.description:<24}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=self.console) as bar:
            yield Bar(bar, bar.add_task(label, total=total, note=""))


class Advance(Protocol):
    """Is told how far something is."""

    def __call__(self, by: int = 1, note: str = "") -> None:
        """So many more items are done."""
        ...

    def to(self, done: int, note: str = "") -> None:
        """So many items are done altogether."""
        ...


class Bar:
    """A bar in a terminal."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def __call__(self, by: int = 1, note: str = "") -> None:
        """See Advance."""
        self._bar.update(self._task, advance=by, note=note)

    def to(self, done: int, note: str = "") -> None:
        """See Advance."""
        self._bar.update(self._task, completed=done, note=note)


class Lines:
    """Plain lines for logs, at most one in `every` seconds, and one at the end."""

    def __init__(self, console: Console, label: str, total: int | None, every: float = 20.0) -> None:
        self._console, self._label, self._every = console, label, every
        self._of = "" if total is None else f" of {total}"
        self._done, self._started = 0, time.monotonic()
        self._done_said = -1
        self._said = self._started

    def __call__(self, by: int = 1, note: str = "") -> None:
        """See Advance."""
        self.to(self._done + by, note)

    def to(self, done: int, note: str = "") -> None:
        """See Advance."""
        self._done = done
        if time.monotonic() - self._said >= self._every:
            self._say()

    def end(self) -> None:
        """Say how far it came, unless that has just been said."""
        if self._done_said != self._done:
            self._say()

    def _say(self) -> None:
        self._said, self._done_said = time.monotonic(), self._done
        seconds = self._said - self._started
        self._console.print(f"  {self._label}: {self._done}{self._of} ({seconds:.0f} s)", highlight=False)
