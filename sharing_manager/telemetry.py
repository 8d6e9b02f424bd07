"""What a node's manager can tell at one moment: a snapshot for metrics, status and nvidia-smi. Plain facts, no object behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.units import NS_PER_S
from sharing_manager.identity import PodIdentity

WINDOW_NS = NS_PER_S
"""Utilisation is the busy share of this last stretch of emulated time, as long as nvidia-smi's samples are at most."""


@dataclass(frozen=True, slots=True)
class ProcessTelemetry:
    """A holder on one device. `pid` is 0 where it isn't connected or not to be seen; `pod` None in a local cluster.

    `used_bytes` (the peak that it reserved) and `leased_ns` are on this device; `grant` (the digest of its token) tells two
    holders of one job apart.
    """

    grant: str
    job_id: str
    pid: int
    pod: PodIdentity | None
    used_bytes: int
    leased_ns: int


@dataclass(frozen=True, slots=True)
class DeviceTelemetry:
    """One device. `utilisation` is from 0 to 1 over the last second, `leased_ns` all device time that was leased so far."""

    device: Device
    resource: str
    replicas: int
    healthy: bool
    reason: str
    used_bytes: int
    utilisation: float
    leased_ns: int
    processes: tuple[ProcessTelemetry, ...]


@dataclass(frozen=True, slots=True)
class NodeTelemetry:
    """A node at `at_ns` (the manager's clock). Totals count from the manager's start.

    `request_lag_ns` adds up how long after their issue the requests for leases were heard, `request_lag_max_ns` is the
    longest of them; `attach_failures` counts refused attachments by the error's code, `turned_away_total` connections of a
    container that has too many, `held_total` how often one had to wait (sharing_manager/fairness.py).
    """

    at_ns: int
    devices: tuple[DeviceTelemetry, ...]
    leases_total: int
    request_lag_ns: int
    request_lag_max_ns: int
    node: str = ""
    pool: str = ""
    connections: int = 0
    attached: int = 0
    pending_attaches: int = 0
    attach_failures: Mapping[str, int] = field(default_factory=dict)
    turned_away_total: int = 0
    held_total: int = 0


_MOST_INTERVALS = 8192


class BusyTime:
    """When a device was busy in the last WINDOW_NS, and what is booked beyond: intervals that don't overlap, in order."""

    def __init__(self) -> None:
        self._intervals: deque[list[int]] = deque()
        self._sum_ns = 0

    def add(self, start_ns: int, end_ns: int, now_ns: int) -> None:
        """Busy in [start_ns, end_ns), as known at `now_ns` (the manager's clock, not the client's)."""
        self._forget(now_ns)
        intervals = self._intervals
        if intervals and intervals[-1][1] == start_ns:
            intervals[-1][1] = end_ns
        else:
            intervals.append([start_ns, end_ns])
        self._sum_ns += end_ns - start_ns
        if len(intervals) > _MOST_INTERVALS:
            self._drop_first()

    def __len__(self) -> int:
        """The intervals that are kept."""
        return len(self._intervals)

    def cut(self, end_ns: int) -> None:
        """Not busy any more after `end_ns`."""
        intervals = self._intervals
        while intervals and intervals[-1][1] > end_ns:
            start_ns, was_ns = intervals[-1]
            self._sum_ns -= was_ns - max(start_ns, end_ns)
            if start_ns < end_ns:
                intervals[-1][1] = end_ns
                return
            intervals.pop()

    def share(self, now_ns: int) -> float:
        """The busy share of the window that ends now. Costs what is booked beyond now, however busy the window was."""
        self._forget(now_ns)
        busy_ns = self._sum_ns
        if self._intervals:
            busy_ns -= max(0, now_ns - WINDOW_NS - self._intervals[0][0])
        for start_ns, end_ns in reversed(self._intervals):
            if end_ns <= now_ns:
                break
            busy_ns -= end_ns - max(start_ns, now_ns)
        return max(0, busy_ns) / WINDOW_NS

    def _forget(self, now_ns: int) -> None:
        while self._intervals and self._intervals[0][1] <= now_ns - WINDOW_NS:
            self._drop_first()

    def _drop_first(self) -> None:
        start_ns, end_ns = self._intervals.popleft()
        self._sum_ns -= end_ns - start_ns
