"""Where results are printed: as wide as the terminal, or wide enough for every column where there is none."""

from __future__ import annotations

from rich.console import Console

_PIPE_WIDTH = 120


class PipedConsole(Console):
    """Leaves it to the front door what a reader that left means; the library would end the program with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def result_console(least_width: int = 0) -> Console:
    """A console on stdout; a terminal narrower than `least_width` wraps the lines rather than lose columns."""
    console = PipedConsole(highlight=False)
    console.width = max(console.width, least_width) if console.is_terminal else _PIPE_WIDTH
    return console
