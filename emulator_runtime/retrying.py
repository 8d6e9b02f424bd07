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


class Backoff:
    """Pauses between attempts: doubled after each failure, and shortened at random so that nodes don't retry in step.

    Pause number n (from 0) is between half and all of min(`first_s` x 2^n, `longest_s`), in host seconds.
    """

    def __init__(self, chance: Random, *, first_s: float = 0.05, longest_s: float = 5.0) -> None:
        self._chance, self._first_s, self._longest_s = chance, first_s, longest_s
        self._pause_s = first_s

    def next_s(self) -> float:
        """The pause before the next attempt."""
        pause_s = self._pause_s
        self._pause_s = min(2 * pause_s, self._longest_s)
        return pause_s * self._chance.uniform(0.5, 1.0)

    def reset(self) -> None:
        """An attempt succeeded: begin again with the shortest pause."""
        self._pause_s = self._first_s


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
