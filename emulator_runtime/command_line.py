"""Behaviour shared by all command lines: a usage error is one line, and a closed output pipe isn't an error message."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from emulator_runtime.domain.wording import folded
from emulator_runtime.exit_codes import EXIT_WRONG

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

EXIT_UNREAD = 128 + signal.SIGPIPE
"""The exit status if the reader of the output (head, less) closed the pipe early; shells report SIGPIPE the same way."""


class OneLineParser(argparse.ArgumentParser):
    """A parser that reports a usage error in one line, without the usage text. Subcommands use the same class."""

    exit_wrong = EXIT_WRONG
    """The exit status after a usage error; a program that needs another one sets it."""

    def error(self, message: str) -> NoReturn:
        self.exit(self.exit_wrong, f"{self.prog}: error: {folded(message)}; see --help\n")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Like the base class, except that it doesn't suppress the error of a closed pipe."""
        print(self.format_help(), end="", file=file or sys.stdout)


def piped(program: str, work: Callable[[], int]) -> int:
    """Run `work` and return the exit status of the program.

    EXIT_UNREAD: the reader of the output closed the pipe. EXIT_WRONG: the output couldn't be written (a full disk), which
    is one line on stderr. If `work` itself fails, its status is kept; it has explained EXIT_WRONG already.
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
    """Flush stdout and return the exit status.

    If the flush fails, stdout is replaced by /dev/null: the data stays in the buffer, and Python would report another
    error when it exits.
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
