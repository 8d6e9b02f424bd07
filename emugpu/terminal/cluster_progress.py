"""Steps on a terminal: a moving line with a bar, the progress and the elapsed time, then a line that stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Display

from cluster_harness.steps import Progress, Report
from emulator_runtime.domain.units import NS_PER_S

_BAR_WIDTH = 24


class TerminalSteps:
    """Like PlainSteps, with one moving line. The bar moves to and fro while the total is unknown."""

    def __init__(self, now_ns: Callable[[], int], console: Console | None = None) -> None:
        self.taken: list[tuple[str, float]] = []
        self._now_ns = now_ns
        self._console = console or Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Report]:
        """A step that fails leaves no line: its error says what happened."""
        started_ns = self._now_ns()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR_WIDTH),
            TimeElapsedColumn(),
            TextColumn("{task.fields[progress]}", markup=False),
        )
        with Display(*columns, console=self._console, transient=True) as display:
            task = display.add_task(title, total=None, progress="")

            def report(progress: Progress) -> None:
                display.update(task, completed=progress.done, total=progress.total, progress=str(progress))

            yield report
        seconds = (self._now_ns() - started_ns) / NS_PER_S
        self.taken.append((title, seconds))
        self._console.print(f"[green]\u2713[/] {title}  [dim]{seconds:.1f} s[/]")

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False)
