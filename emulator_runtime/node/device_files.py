"""The device files of a container, /edev/<index>: what each of its devices is, and how they are linked to each other.

The device plugin writes them for what the kubelet allocated, and the manager again if the container gets other devices when it
attaches.
"""

from __future__ import annotations

from collections.abc import Sequence

from emulator_runtime.node.inventory import DeviceEntry, ResourceEntry, mig_facts, split_device_id


def device_files(resource: ResourceEntry, node: str, device_ids: Sequence[str]) -> dict[int, dict[str, object]]:
    """The content of each file by the index of the device for which an id stands. Links are to the container's other devices."""
    known = resource.by_id()
    replicas: dict[int, int | None] = {}
    entries: dict[int, DeviceEntry] = {}
    for device_id in device_ids:
        entry = known[device_id]
        replicas.setdefault(entry.device.index, split_device_id(device_id)[1])
        entries[entry.device.index] = entry
    return {
        index: {
            "uuid": entry.device.uuid,
            "index": index,
            "gpu_type": entry.device.gpu_type,
            "memory_bytes": entry.device.memory_bytes,
            **mig_facts(entry.device),
            "node": node,
            "numa_node": entry.numa_node,
            "links": {peer.device.uuid: _link(entry, peer) for peer in entries.values() if peer is not entry},
            "replica": replicas[index],
            "resource": resource.name,
        }
        for index, entry in entries.items()
    }


def _link(one: DeviceEntry, other: DeviceEntry) -> str:
    return "NVLink" if one.link_group == other.link_group else "PCIe"
