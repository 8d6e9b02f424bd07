"""The terminal: results on stdout, as wide as it is; live progress on stderr, a bar per run with messages above the bars."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.kube.timestamps import rfc3339

_PIPE_WIDTH = 120
_LEAST_NS = 100_000_000
"""Time between two updates of a bar."""


class PipedConsole(Console):
    """Raises BrokenPipeError when the reader of the output has gone, so that `emugpu.__main__` chooses the exit status (141).
    Rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def result_console(least_width: int = 0) -> Console:
    """A console on stdout; a terminal narrower than `least_width` wraps the lines rather than lose columns."""
    console = PipedConsole(highlight=False)
    console.width = max(console.width, least_width) if console.is_terminal else _PIPE_WIDTH
    return console


class ProgressBars:
    """Bars where stderr is a terminal, plain lines otherwise. `log` gets every line too, with its time."""

    def __init__(self, *, explain: bool, log: Path | None = None, unit: str = "jobs") -> None:
        self._explain = explain
        self._log = log
        self._console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn(f"{{task.completed:.0f}}/{{task.total:.0f}} {unit}"),
            TextColumn("{task.fields[clock]}"),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        if error is not None:
            self._write(f"ended: {error or type(error).__name__}")

    def bar(self, title: str, jobs: int) -> ProgressBar:
        """The bar of one run of so many jobs."""
        self._line(f"{title} ...")
        return ProgressBar(self._progress, title, jobs, self._line, explain=self._explain)

    def say(self, text: str) -> None:
        """A message above the bars."""
        self._write(text)
        self._console.print(f"emugpu: {text}", markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line of detail: in the log, and where there are no bars."""
        self._line(text)

    def _line(self, text: str) -> None:
        """What a bar shows."""
        self._write(text)
        if not self._console.is_terminal:
            print(text, file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(f"{rfc3339(wall_ns())} {text}\n")


class ProgressBar:
    """The bar of one run."""

    def __init__(
        self, progress: Progress, title: str, jobs: int, line: Callable[[str], None], *, explain: bool
    ) -> None:
        self._progress, self._title, self._line = progress, title, line
        self._task = progress.add_task(title, total=jobs, clock="")
        self.explain = self._print_reason if explain else None
        self._jobs, self._shown_ns = jobs, 0

    def update(self, ended: int, now_s: float | None = None) -> None:
        """Jobs that have ended, and the emulated time. A simulator calls this ten thousand times a second; a bar shows ten."""
        now_ns = monotonic_ns()
        if now_ns - self._shown_ns < _LEAST_NS and ended < self._jobs:
            return
        self._shown_ns = now_ns
        clock = "" if now_s is None else f"emulated {now_s:.0f} s"
        self._progress.update(self._task, completed=ended, clock=clock)

    def describe(self, text: str) -> None:
        """Which part of the run is being done."""
        self._progress.update(self._task, description=f"{self._title}: {text}")
        self._line(f"{self._title}: {text}")

    def _print_reason(self, now_s: float, job_id: str, reason: str) -> None:
        self._progress.console.print(f"{now_s:10.3f} s  {job_id}: {reason}", markup=False, soft_wrap=True)
