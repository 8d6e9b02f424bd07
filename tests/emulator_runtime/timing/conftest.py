"""A fake host: time moves only when it is read (a little) or during a sleep (as requested, plus an oversleep)."""

from __future__ import annotations

from collections.abc import Callable

import pytest


class FakeHost:
    """`events` are (moment, action) in order: they happen during the sleep that contains the moment."""

    def __init__(self, oversleep: Callable[[], int] = lambda: 0, look_ns: int = 100) -> None:
        self.time_ns = 1_000_000
        self.looks = 0
        self.sleeps: list[int] = []
        self.events: list[tuple[int, Callable[[], object]]] = []
        self._oversleep = oversleep
        self._look_ns = look_ns

    def now(self) -> int:
        self.looks += 1
        self.time_ns += self._look_ns
        return self.time_ns

    def sleep(self, duration_ns: int) -> None:
        self.sleeps.append(duration_ns)
        wake_ns = self.time_ns + duration_ns + self._oversleep()
        while self.events and self.events[0][0] <= wake_ns:
            moment, action = self.events.pop(0)
            self.time_ns = max(self.time_ns, moment)
            action()
        self.time_ns = max(self.time_ns, wake_ns)


@pytest.fixture(scope="session")
def fake_host() -> type[FakeHost]:
    """The class, so that a test can make hosts with the oversleeps it needs."""
    return FakeHost
