"""A snapshot of a node for metrics, status and nvidia-smi: plain data, without references to the manager's objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from emulator_runtime.domain.gpu import Device
from sharing_manager.grants.identity import PodIdentity


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

    `leases_total` counts leases, demands and reports of use. `request_lag_ns` is the sum of the lags from issue to arrival of
    leases and demands, `request_lag_max_ns` the longest of them, `late_total` how many demands came more than a second late.
    `attach_failures` counts refused attachments by error code, `rejected_total` the connections rejected because their container
    has too many, `paused_total` how often a connection was paused (sharing_manager/service/time_budgets.py).
    """

    at_ns: int
    devices: tuple[DeviceTelemetry, ...]
    leases_total: int
    request_lag_ns: int
    request_lag_max_ns: int
    connections: int = 0
    attached: int = 0
    pending_attaches: int = 0
    attach_failures: Mapping[str, int] = field(default_factory=dict)
    rejected_total: int = 0
    paused_total: int = 0
    late_total: int = 0
