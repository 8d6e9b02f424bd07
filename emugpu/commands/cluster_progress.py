"""Steps on a terminal: a spinner with what the step is at and its seconds, then a line that stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cluster_harness.steps import Note
from emulator_runtime.domain.units import NS_PER_S


class TerminalSteps:
    """Like PlainSteps, with one moving line."""

    def __init__(self, now_ns: Callable[[], int], console: Console | None = None) -> None:
        self.taken: list[tuple[str, float]] = []
        self._now_ns = now_ns
        self._console = console or Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Note]:
        """A step that fails leaves no line: its error says what happened."""
        started_ns = self._now_ns()
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[at]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(title, total=None, at="")
            yield lambda text: progress.update(task, at=text)
        seconds = (self._now_ns() - started_ns) / NS_PER_S
        self.taken.append((title, seconds))
        self._console.print(f"[green]\u2713[/] {title}  [dim]{seconds:.1f} s[/]")

    def say(self, text: str) -> None:
        self._console.print(f"  {text}", markup=False)
