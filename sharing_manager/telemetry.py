"""A snapshot of a node for metrics, status and nvidia-smi: plain data, without references to the manager's objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.units import NS_PER_S
from sharing_manager.identity import PodIdentity

WINDOW_NS = NS_PER_S
"""Length of the window of emulated time over which utilisation is computed. nvidia-smi samples over at most one second,
too."""


@dataclass(frozen=True, slots=True)
class ProcessTelemetry:
    """A holder on one device. `pid` is 0 if it isn't connected or not visible; `pod` is None in a local cluster.

    `used_bytes` (the peak that it reserved) and `leased_ns` are for this device. `grant` (the token's digest) distinguishes
    two holders of the same job.
    """

    grant: str
    job_id: str
    pid: int
    pod: PodIdentity | None
    used_bytes: int
    leased_ns: int


@dataclass(frozen=True, slots=True)
class DeviceTelemetry:
    """One device. `utilisation` is from 0 to 1 over the last second; `leased_ns` is the sum of all its leases."""

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

    `request_lag_ns` is the sum of the lags from issue to arrival of lease requests, `request_lag_max_ns` the longest of
    them. `attach_failures` counts refused attachments by error code, `turned_away_total` the rejected connections of
    containers with too many, `held_total` how often a connection had to wait (sharing_manager/fairness.py).
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
    """The busy intervals of a device in the last WINDOW_NS and in the future (booked leases): disjoint and in order."""

    def __init__(self) -> None:
        self._intervals: deque[list[int]] = deque()
        self._sum_ns = 0

    def add(self, start_ns: int, end_ns: int, now_ns: int) -> None:
        """Add the busy interval [start_ns, end_ns). `now_ns` is the manager's clock, not the client's."""
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
        """Number of stored intervals."""
        return len(self._intervals)

    def cut(self, end_ns: int) -> None:
        """Remove all busy time after `end_ns`."""
        intervals = self._intervals
        while intervals and intervals[-1][1] > end_ns:
            start_ns, was_ns = intervals[-1]
            self._sum_ns -= was_ns - max(start_ns, end_ns)
            if start_ns < end_ns:
                intervals[-1][1] = end_ns
                return
            intervals.pop()

    def share(self, now_ns: int) -> float:
        """The busy share of the window that ends now. Its cost grows with the intervals after `now_ns`, not with those
        in the window."""
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
