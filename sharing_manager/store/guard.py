"""Keeps a thread of the store alive: without it events are no longer shipped, or jobs wait for their progress for ever."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable

from emulator_runtime.domain.errors import EmuGpuError
from sharing_manager.store.backoff import Backoff

EXPECTED = (EmuGpuError, sqlite3.Error)
"""What can be wrong with Redis or the file; anything else is a mistake of ours, whose traceback is logged."""
_log = logging.getLogger("sharing_manager")


def guarded(
    name: str,
    work: Callable[[], None],
    stopping: threading.Event,
    backoff: Backoff,
    failed: Callable[[Exception], None],
) -> None:
    """Call `work` again and again until `stopping` is set. What it raises goes to `failed`, then there is a pause.

    Who gives `backoff` resets it when the work goes well again. The same mistake is logged once in a row.
    """
    said = ""
    while not stopping.is_set():
        try:
            work()
        except Exception as error:
            if not isinstance(error, EXPECTED) and repr(error) != said:
                said = repr(error)
                _log.error("%s failed (%s); it goes on after a pause", name, said, exc_info=error)
            with contextlib.suppress(Exception):  # to say what is wrong may fail too
                failed(error)
            stopping.wait(backoff.next_s())
