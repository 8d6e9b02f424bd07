"""`top devices`: a line per device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emugpu.kubectl.gpu_cells import NO_NODES, load, memory, problems, some
from emugpu.kubectl.nodes_seen import DeviceSeen, NodeSeen
from emugpu.kubectl.output import Answer, Cell, columns


def devices_answer(nodes: Sequence[NodeSeen], *, wide: bool) -> Answer:
    """A line per device."""
    headings = ("DEVICE", "TYPE", "UTIL", "MEMORY", "STATE", *(("RESOURCE", "UUID") if wide else ()), "HOLDERS")
    rows, document = [], []
    for node in nodes:
        called = {f"{pod.namespace}/{pod.name}": pod.holder for pod in node.pods}
        for device in node.devices:
            state = (
                Cell("ok") if _healthy(device) else Cell(f"LOST: {device.reason}" if device.reason else "LOST", "red")
            )
            row = device_row(device, called)
            rows.append(
                [
                    Cell(f"{device.node}/{device.index}"),
                    Cell(device.gpu_type),
                    load([device.now]),
                    memory([device.now]),
                    state,
                    *((Cell(device.resource), Cell(device.uuid)) if wide else ()),
                    Cell(some(row["holders"], wide=wide)),
                ]
            )
            document.append(row)
    return Answer(columns(headings, rows), document, document, NO_NODES, problems(nodes))


def device_row(device: DeviceSeen, called: Mapping[str, str]) -> dict[str, Any]:
    now = device.now
    holders = [] if now is None else [called.get(holder.key, holder.key) for holder in now.holders]
    return {
        "node": device.node,
        "index": device.index,
        "uuid": device.uuid,
        "gpu_type": device.gpu_type,
        "resource": device.resource,
        "healthy": _healthy(device),
        "reason": device.reason,
        "utilisation": None if now is None else now.utilisation,
        "memory_used_bytes": None if now is None else now.used_bytes,
        "memory_total_bytes": device.memory_bytes,
        "holders": list(dict.fromkeys(holders)),
    }


def _healthy(device: DeviceSeen) -> bool:
    return device.healthy and (device.now is None or device.now.healthy)
