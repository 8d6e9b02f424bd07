"""A clock that only one process has, for tests and benchmarks of waits at any rate."""

from __future__ import annotations

from emulator_runtime.timing.anchors import Anchors, FixedAnchors, checked_rate
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.waiter import Waiter


def private_clock(rate: float = 1.0, waiter: Waiter | None = None, *, strict_ns: int | None = None) -> HostClock:
    """A clock that starts at 0 now and always runs at `rate`."""
    waiter = waiter or Waiter()
    source = FixedAnchors(Anchors(waiter.now(), 0, checked_rate(rate)), waiter.now)
    return HostClock(source, waiter, strict_ns=strict_ns)
