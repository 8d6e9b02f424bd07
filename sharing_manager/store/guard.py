"""Keeps a thread of the store running after errors. Without it, events would no longer be shipped, or jobs would wait
for their progress for ever."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable

from emulator_runtime.domain.errors import EmuGpuError
from sharing_manager.store.backoff import Backoff

EXPECTED = (EmuGpuError, sqlite3.Error)
"""Problems of Redis or the file. Any other error is a bug, and its traceback is logged."""
_log = logging.getLogger("sharing_manager")


def guarded(
    name: str,
    work: Callable[[], None],
    stopping: threading.Event,
    backoff: Backoff,
    failed: Callable[[Exception], None],
) -> None:
    """Call `work` again and again until `stopping` is set. An error is passed to `failed`, and a pause follows.

    The owner of `backoff` resets it when the work succeeds. The same bug is logged once in a row.
    """
    logged = ""
    while not stopping.is_set():
        try:
            work()
        except Exception as error:
            if not isinstance(error, EXPECTED) and repr(error) != logged:
                logged = repr(error)
                _log.error("%s failed (%s); it goes on after a pause", name, logged, exc_info=error)
            with contextlib.suppress(Exception):  # `failed` itself may fail
                failed(error)
            stopping.wait(backoff.next_s())
