"""A node's Prometheus metrics: names, units and labels are defined here, and the values come from one snapshot.

Names follow Prometheus' rules (base units, `_total` for counters). Labels follow the DCGM exporter: a device has index,
UUID and type, and its use has namespace, pod and container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from emulator_runtime.domain.units import to_s
from sharing_manager.telemetry.model import DeviceTelemetry, NodeTelemetry, ProcessTelemetry

_DEVICE = ("gpu", "uuid", "gpu_type", "resource")
_PROCESS = (*_DEVICE, "namespace", "pod", "container", "job")


@dataclass(frozen=True, slots=True)
class Figure:
    """One number without labels. The name of a counter is without `_total`, which the format adds."""

    name: str
    help_text: str
    value: float
    counter: bool = False


class BorderFigures(Protocol):
    """The part of the Kubernetes border's status (sharing_manager.kubernetes) that becomes metrics."""

    @property
    def events_queued(self) -> int: ...
    @property
    def events_dropped(self) -> int: ...
    @property
    def inventory_problem(self) -> str: ...
    @property
    def kubelet_problem(self) -> str: ...


class StoreFigures(Protocol):
    """The part of the event store's status (sharing_manager.store) that becomes metrics."""

    @property
    def connected(self) -> bool: ...
    @property
    def backlog_rows(self) -> int: ...
    @property
    def backlog_bytes(self) -> int: ...
    @property
    def oldest_age_s(self) -> float: ...
    @property
    def merged(self) -> int: ...
    @property
    def lost(self) -> int: ...


class NodeCollector(Collector):
    """Takes a new snapshot at each scrape; does nothing between scrapes."""

    def __init__(self, telemetry: Callable[[], NodeTelemetry], figures: Callable[[], Iterable[Figure]]) -> None:
        self._telemetry, self._figures = telemetry, figures

    def collect(self) -> Iterator[Metric]:
        """Raises what `telemetry` and `figures` raise; then the whole scrape fails."""
        node = self._telemetry()
        yield from _device_metrics(node.devices)
        yield from _process_metrics(node.devices)
        for figure in (*_node_figures(node), *self._figures()):
            family = CounterMetricFamily if figure.counter else GaugeMetricFamily
            yield family(figure.name, figure.help_text, value=figure.value)
        failures = CounterMetricFamily("emugpu_attach_failures", "Refused attachments by the error.", labels=["reason"])
        for reason, count in sorted(node.attach_failures.items()):
            failures.add_metric([reason], count)
        yield failures


def border_figures(status: BorderFigures) -> list[Figure]:
    """Metrics of the connections to the API server and the kubelet."""
    return [
        Figure("emugpu_kubernetes_events_queued", "Kubernetes Events that wait to be sent.", status.events_queued),
        Figure("emugpu_kubernetes_events_dropped", "Kubernetes Events dropped.", status.events_dropped, counter=True),
        Figure("emugpu_inventory_valid", "1: the Node's inventory annotation is valid.", not status.inventory_problem),
        Figure("emugpu_kubelet_up", "1: the kubelet lists which pods hold which devices.", not status.kubelet_problem),
    ]


def store_figures(status: StoreFigures) -> list[Figure]:
    """Metrics of the cluster-wide event log."""
    return [
        Figure("emugpu_redis_up", "1: Redis answers.", status.connected),
        Figure("emugpu_event_backlog", "Events that Redis doesn't have yet.", status.backlog_rows),
        Figure("emugpu_event_backlog_bytes", "Size of these events.", status.backlog_bytes),
        Figure("emugpu_event_backlog_age_seconds", "Age of the oldest of these events.", status.oldest_age_s),
        Figure(
            "emugpu_events_merged",
            "Events merged into a later one because the outbox was full.",
            status.merged,
            counter=True,
        ),
        Figure("emugpu_events_lost", "Events that Redis lost and this node no longer has.", status.lost, counter=True),
    ]


def _node_figures(node: NodeTelemetry) -> list[Figure]:
    lag_s, lag_max_s = to_s(node.request_lag_ns), to_s(node.request_lag_max_ns)
    return [
        Figure("emugpu_leases", "Leases, demands and reports of device time.", node.leases_total, counter=True),
        Figure("emugpu_late_demands", "Demands that came more than a second late.", node.late_total, counter=True),
        Figure("emugpu_lease_request_lag_seconds", "Sum of the lags from issue to arrival.", lag_s, counter=True),
        Figure("emugpu_lease_request_lag_max_seconds", "The longest lag so far.", lag_max_s),
        Figure("emugpu_connections", "Open connections of jobs.", node.connections),
        Figure("emugpu_attached", "Connections that hold devices.", node.attached),
        Figure("emugpu_pending_attaches", "Connections that are being identified.", node.pending_attaches),
        Figure(
            "emugpu_connections_turned_away",
            "Connections rejected because their container has too many.",
            node.rejected_total,
            counter=True,
        ),
        Figure(
            "emugpu_connections_held",
            "How often a connection was paused because its container's time budget was used up.",
            node.paused_total,
            counter=True,
        ),
    ]


def _device_metrics(devices: Sequence[DeviceTelemetry]) -> Iterator[Metric]:
    columns: tuple[tuple[str, str, Callable[[DeviceTelemetry], float]], ...] = (
        ("emugpu_device_utilisation_ratio", "Busy share of the last second.", lambda d: d.utilisation),
        ("emugpu_device_memory_used_bytes", "Memory in use.", lambda d: d.used_bytes),
        ("emugpu_device_memory_total_bytes", "Memory of the device.", lambda d: d.device.memory_bytes),
        ("emugpu_device_healthy", "1: healthy.", lambda d: d.healthy),
        ("emugpu_device_processes", "Holders of the device.", lambda d: len(d.processes)),
    )
    for name, help_text, value in columns:
        family = GaugeMetricFamily(name, help_text, labels=_DEVICE)
        for device in devices:
            family.add_metric(_labels(device), value(device))
        yield family
    leased = CounterMetricFamily("emugpu_device_leased_seconds", "Device time leased.", labels=_DEVICE)
    for device in devices:
        leased.add_metric(_labels(device), to_s(device.leased_ns))
    yield leased


def _process_metrics(devices: Sequence[DeviceTelemetry]) -> Iterator[Metric]:
    """Add up holders with equal labels (two processes of one container), as Prometheus refuses duplicate series."""
    used: dict[tuple[str, ...], int] = {}
    leased: dict[tuple[str, ...], int] = {}
    for device in devices:
        for process in device.processes:
            labels = (*_labels(device), *_pod_labels(process))
            used[labels] = used.get(labels, 0) + process.used_bytes
            leased[labels] = leased.get(labels, 0) + process.leased_ns
    memory = GaugeMetricFamily("emugpu_process_memory_used_bytes", "Memory in use by a holder.", labels=_PROCESS)
    for labels, used_bytes in used.items():
        memory.add_metric(labels, used_bytes)
    time = CounterMetricFamily("emugpu_process_leased_seconds", "Device time leased to a holder.", labels=_PROCESS)
    for labels, leased_ns in leased.items():
        time.add_metric(labels, to_s(leased_ns))
    yield from (memory, time)


def _labels(device: DeviceTelemetry) -> tuple[str, ...]:
    return str(device.device.index), device.device.uuid, device.device.gpu_type, device.resource


def _pod_labels(process: ProcessTelemetry) -> tuple[str, ...]:
    pod = process.pod
    return (pod.namespace, pod.pod, pod.container, process.job_id) if pod else ("", "", "", process.job_id)
