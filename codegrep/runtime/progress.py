"""What a person sees of a run in progress: lines, tables, and how far a long stage is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

_LINE_SECONDS = 20.0


class Progress:
    """Writes to the terminal, or to a log where there is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return self._console.width

    def say(self, text: str, style: str | None = None) -> None:
        """Write one line. Brackets are kept: paths and errors hold them."""
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """Write a table."""
        self._console.print(what)

    @contextmanager
    def bar(self, label: str, total: int, done: int = 0) -> Iterator[Advance]:
        """Show how far something is and about how long it still takes: a bar, or lines where there is no terminal.

        Args:
            label: what is counted.
            total: items altogether.
            done: items that were done before this start. They say nothing about how long the others take.
        """
        advance = Advance(total, done)
        if not self._console.is_terminal:
            with self._lines(label, advance):
                yield advance
            return
        columns = (
            TextColumn("  {task.description:<24}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            _Left(advance),
            TextColumn("{task.fields[note]}"),
        )
        with RichProgress(*columns, console=self._console) as bars:
            task = bars.add_task(label, total=total, completed=done, note="")
            advance.changed = lambda note: bars.update(task, completed=advance.done, note=note)
            yield advance

    @contextmanager
    def _lines(self, label: str, advance: Advance) -> Iterator[None]:
        """Write a line in `_LINE_SECONDS` at most, and one at the end."""
        written, written_done = time.monotonic(), -1

        def write() -> None:
            nonlocal written, written_done
            written, written_done = time.monotonic(), advance.done
            left = f", about {duration(advance.left)} left" if advance.left else ""
            self.say(f"  {label}: {advance.done} of {advance.total} ({advance.elapsed:.0f} s{left})")

        def changed(_note: str) -> None:
            if time.monotonic() - written >= _LINE_SECONDS:
                write()

        advance.changed = changed
        yield
        if written_done != advance.done:
            write()


class Advance:
    """Callback that reports progress, and the estimate that follows from it.

    Attributes:
        total: items altogether.
        done: items that are done.
        changed: called with a note after each report.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self.total, self.done = total, done
        self.changed: Callable[[str], None] = lambda note: None
        self._before = done
        self._started = self._last = time.monotonic()

    def __call__(self, by: int = 1, note: str = "") -> None:
        """Report that so many more items are done."""
        self.to(self.done + by, note)

    def to(self, done: int, note: str = "") -> None:
        """Report how many items are done altogether."""
        if done != self.done:
            self.done, self._last = done, time.monotonic()
        self.changed(note)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def left(self) -> float | None:
        """Seconds that the other items take at the mean pace of this start; None before the first one is done."""
        new = self.done - self._before
        if new <= 0:
            return None
        others = (self._last - self._started) / new * (self.total - self.done)
        return max(0.0, others - (time.monotonic() - self._last))


class _Left(ProgressColumn):
    """The remaining time. Rich's own forgets what is older than half a minute, and a training step takes longer."""

    def __init__(self, advance: Advance) -> None:
        super().__init__()
        self._advance = advance

    def render(self, task: Task) -> Text:
        left = self._advance.left
        return Text(f"{duration(left)} left" if left else "", style="progress.remaining")


def duration(seconds: float) -> str:
    """Write a duration as a person would say it: 45 s, 12 min, 3 h 05 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
