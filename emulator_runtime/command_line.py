"""What the command lines of all programs have in common: a mistake is one line, and a reader that leaves is no mistake."""

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


def piped(work: Callable[[], int]) -> int:
    """The exit status of a program's work; EXIT_UNREAD where its output didn't find its reader."""
    try:
        status = work()
    except BrokenPipeError:
        status = EXIT_UNREAD
    except SystemExit as ended:  # --help, or a wrong option
        if _flushed() or ended.code:
            raise
        raise SystemExit(EXIT_UNREAD) from None
    return status if _flushed() or status else EXIT_UNREAD


def _flushed() -> bool:
    """Whether all that was printed is on its way; if not, the rest is thrown away: Python would complain about it at the end."""
    if sys.stdout is None:  # the caller has closed it
        return True
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
