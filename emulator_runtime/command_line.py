"""What the command lines of all programs have in common: a mistake is one line, and a reader that leaves is none."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from emulator_runtime.domain.wording import folded

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

EXIT_WRONG = 2
EXIT_UNREAD = 128 + signal.SIGPIPE
"""Whoever read the output (head, less) left before its end: what a shell says of any program that ends so."""


class OneLineParser(argparse.ArgumentParser):
    """Tells a mistake without the usage before it; its commands are parsers of the same kind."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_WRONG, f"{self.prog}: error: {folded(message)}; see --help\n")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """As the base class does it, which keeps it for itself when nobody reads it."""
        print(self.format_help(), end="", file=file or sys.stdout)


def piped(program: str, work: Callable[[], int]) -> int:
    """The exit status of a program's work; EXIT_UNREAD where its output didn't find its reader, EXIT_WRONG where it had no room.

    The latter is one line on stderr. Work that has failed keeps its own status, and EXIT_WRONG has been explained already.
    """
    try:
        return _flushed(program, work())
    except BrokenPipeError:
        return _flushed(program, EXIT_UNREAD)
    except SystemExit as ended:  # --help, or a wrong option
        status = _flushed(program, EXIT_WRONG if ended.code else 0)
        if ended.code or not status:
            raise
        raise SystemExit(status) from None


def _flushed(program: str, status: int) -> int:
    """The exit status once all that was printed is on its way.

    What can't be written is thrown away: a failed flush keeps it, and Python would complain about it at the end.
    """
    if sys.stdout is None:  # the caller has closed it
        return status
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return status or EXIT_UNREAD
        if status != EXIT_WRONG:
            print(f"{program}: the output can't be written: {error.strerror}", file=sys.stderr)
        return status or EXIT_WRONG
    return status
