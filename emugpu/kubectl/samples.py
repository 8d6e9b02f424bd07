"""A manager's /metrics as facts about devices: the counterpart of sharing_manager/kubernetes/metrics.py, which names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from emulator_runtime.domain.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a device: a container of a pod, all empty where the manager doesn't know whose it is."""

    namespace: str
    pod: str
    container: str
    used_bytes: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.pod}" if self.pod else "?"


@dataclass(frozen=True, slots=True)
class DeviceFigures:
    """One device as its manager sees it now. `utilisation`: busy share of the last second, 0 to 1."""

    uuid: str
    index: int
    gpu_type: str
    memory_bytes: int
    used_bytes: int
    utilisation: float
    healthy: bool
    holders: tuple[Holder, ...]


def device_figures(text: str) -> list[DeviceFigures]:
    """All devices in the order of their indexes. Raises ProtocolError where the text is something else."""
    values: dict[str, dict[str, float]] = {}
    labels: dict[str, Mapping[str, str]] = {}
    holders: dict[str, list[Holder]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                uuid = sample.labels.get("uuid", "")
                if sample.name.startswith("emugpu_device_"):
                    labels[uuid] = sample.labels
                    values.setdefault(uuid, {})[sample.name.removeprefix("emugpu_device_")] = sample.value
                elif sample.name == "emugpu_process_memory_used_bytes":
                    holders.setdefault(uuid, []).append(_holder(sample.labels, sample.value))
        found = [_figures(labels[uuid], values[uuid], holders.get(uuid, [])) for uuid in values]
    except (ValueError, KeyError) as error:
        raise ProtocolError(f"what it answers is not the metrics of a sharing manager ({error})") from error
    return sorted(found, key=lambda device: device.index)


def _holder(labels: Mapping[str, str], used_bytes: float) -> Holder:
    return Holder(labels["namespace"], labels["pod"], labels["container"], int(used_bytes))


def _figures(labels: Mapping[str, str], values: Mapping[str, float], holders: list[Holder]) -> DeviceFigures:
    return DeviceFigures(
        uuid=labels["uuid"],
        index=int(labels["gpu"]),
        gpu_type=labels["gpu_type"],
        memory_bytes=int(values["memory_total_bytes"]),
        used_bytes=int(values["memory_used_bytes"]),
        utilisation=values["utilisation_ratio"],
        healthy=values["healthy"] == 1,
        holders=tuple(sorted(holders, key=lambda holder: (holder.namespace, holder.pod, holder.container))),
    )
