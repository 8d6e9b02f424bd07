"""A collector in a process of its own that kills itself (SIGKILL) at the place it is told: `URL FILE PLACE AFTER`.

PLACE: before-store (read, not stored), mid-store (stored, not committed), before-acknowledge (stored, not acknowledged),
before-read, or none: it reads all there is and ends.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from operators.results import collector
from operators.results.collector import Collector
from operators.results.metrics import CollectorMetrics
from operators.results.store import ResultStore
from sharing_manager.store.client import client_of
from sharing_manager.store.reader import GroupReader


def deadly(method: Callable[..., Any], countdown: list[int]) -> Callable[..., Any]:
    """The method; instead of its so-many-th call, death."""

    def call(*args: Any, **options: Any) -> Any:
        countdown[0] -= 1
        if countdown[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return method(*args, **options)

    return call


def main(url: str, file: str, place: str, after: str) -> None:
    owner, name = {
        "before-store": (ResultStore, "write"),
        "mid-store": (ResultStore, "_advance"),
        "before-acknowledge": (GroupReader, "acknowledge"),
        "before-read": (GroupReader, "read"),
    }.get(place, (None, ""))
    if owner is not None:
        setattr(owner, name, deadly(getattr(owner, name), [int(after)]))
    collector._COUNT = 20
    reading = Collector(
        client_of(url, "URL"), url, lambda: ResultStore(Path(file)), CollectorMetrics(CollectorRegistry()), lambda: 1
    )
    empty = 0
    while empty < 5:
        empty = 0 if reading.attempt(20) else empty + 1
    reading.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
