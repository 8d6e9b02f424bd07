"""Retries after failures: growing pauses, and a thread's work that goes on after errors."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable
from random import Random

from emulator_runtime.domain.errors import EmuGpuError

_EXPECTED = (EmuGpuError, sqlite3.Error)
"""Problems of another program or of a file. Any other error is a bug, and its traceback is logged."""
_log = logging.getLogger(__name__)


def growing_pause(failures: int, first_s: float, longest_s: float) -> float:
    """The pause after `failures` failures in a row (at least 1): `first_s`, doubled by each further one, at most `longest_s`."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, 60))


class Backoff:
    """The pauses of one program between its attempts: growing, and shortened at random so that nodes don't retry in step.

    A pause is between half and all of `growing_pause`, in host seconds.
    """

    def __init__(self, chance: Random, *, first_s: float = 0.05, longest_s: float = 5.0) -> None:
        self._chance, self._first_s, self._longest_s = chance, first_s, longest_s
        self._failures = 0

    def next_s(self) -> float:
        """The pause before the next attempt."""
        self._failures += 1
        return growing_pause(self._failures, self._first_s, self._longest_s) * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """An attempt succeeded: begin again with the shortest pause."""
        self._failures = 0


def keep_running(
    name: str,
    work: Callable[[], None],
    stopping: threading.Event,
    backoff: Backoff,
    failed: Callable[[Exception], None],
) -> None:
    """Call `work` again and again until `stopping` is set. An error is passed to `failed`, and a pause follows.

    `work` resets `backoff` when it succeeds. If the same bug occurs several times in a row, it is logged once.
    """
    logged = ""
    while not stopping.is_set():
        try:
            work()
        except Exception as error:
            if not isinstance(error, _EXPECTED) and repr(error) != logged:
                logged = repr(error)
                _log.error("%s failed (%s); it goes on after a pause", name, logged, exc_info=error)
            with contextlib.suppress(Exception):  # `failed` itself may fail
                failed(error)
            stopping.wait(backoff.next_s())
