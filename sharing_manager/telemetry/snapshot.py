"""Makes a snapshot of a node from its devices and grants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sharing_manager.devices.pool import ManagedDevice
from sharing_manager.grants.grant import Grant
from sharing_manager.grants.session import Session
from sharing_manager.telemetry.model import DeviceTelemetry, NodeTelemetry, ProcessTelemetry


@dataclass(slots=True)
class Counters:
    """Counts since the manager's start: leases and demands, how many came too late, and the lag from the issue of each to its
    arrival."""

    leases: int = 0
    late: int = 0
    lag_ns: int = 0
    lag_max_ns: int = 0

    def add(self, lag_ns: int) -> None:
        self.leases += 1
        self.lag_ns += lag_ns
        self.lag_max_ns = max(self.lag_max_ns, lag_ns)


def snapshot(
    devices: Iterable[ManagedDevice], grants: Iterable[Grant], counters: Counters, now_ns: int
) -> NodeTelemetry:
    by_holder = {grant.holder: grant for grant in grants}
    return NodeTelemetry(
        at_ns=now_ns,
        devices=tuple(_device(device, by_holder, now_ns) for device in devices),
        leases_total=counters.leases,
        late_total=counters.late,
        request_lag_ns=counters.lag_ns,
        request_lag_max_ns=counters.lag_max_ns,
    )


def _device(managed: ManagedDevice, by_holder: dict[str, Grant], now_ns: int) -> DeviceTelemetry:
    holders = [by_holder[holder] for holder in sorted(managed.holders) if holder in by_holder]
    return DeviceTelemetry(
        device=managed.device,
        resource=managed.resource,
        replicas=managed.replicas,
        healthy=managed.healthy,
        reason=managed.reason,
        used_bytes=managed.memory.used_bytes,
        utilisation=managed.busy.share(now_ns, managed.engine.busy_since_ns()),
        leased_ns=managed.leased_ns,
        processes=tuple(process for grant in holders for process in _processes(managed, grant)),
    )


def _processes(managed: ManagedDevice, grant: Grant) -> Iterator[ProcessTelemetry]:
    """The connected processes of a holder that use the device; if there is none, one with pid 0 stands for the holder."""
    using = [session for session in grant.sessions if managed.device.uuid in session.uuids]
    for session in [session for session in using if session.connected] or [grant.main]:
        yield _process(managed, session)


def _process(managed: ManagedDevice, session: Session) -> ProcessTelemetry:
    grant, held = session.grant, managed.memory.held.get(session.key)
    return ProcessTelemetry(
        grant=grant.digest,
        job_id=grant.job_id,
        pid=session.pid,
        pod=grant.pod,
        used_bytes=0 if held is None else held.peak_bytes,
        leased_ns=grant.leased_ns,
    )
