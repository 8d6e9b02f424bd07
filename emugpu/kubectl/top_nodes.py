"""`top nodes`: a line per node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from emugpu.kubectl.gpu_cells import NO_NODES, load, mean_load, memory, problems, some, used_bytes
from emugpu.kubectl.nodes_seen import NodeSeen, gpu_types
from emugpu.kubectl.output import MISSING, Answer, Cell, columns
from emugpu.kubectl.top_devices import device_row


def nodes_answer(nodes: Sequence[NodeSeen], *, wide: bool) -> Answer:
    """A line per node, and their sum."""
    headings = ("NODE", "POOL", "TYPE", "GPUS", "UTIL", "MEMORY", *(("READY",) if wide else ()), "HOLDERS")
    rows = [_node_cells(node, wide=wide) for node in nodes]
    if len(nodes) > 1:
        rows.append(_sum_cells(nodes, wide=wide))
    document = [_node_row(node) for node in nodes]
    flat = [{name: value for name, value in row.items() if name not in ("devices", "pods")} for row in document]
    return Answer(columns(headings, rows), document, flat, NO_NODES, problems(nodes))


def _node_cells(node: NodeSeen, *, wide: bool) -> list[Cell]:
    figures = [device.now for device in node.devices]
    holders = list(dict.fromkeys(pod.holder for pod in node.pods))
    return [
        Cell(node.name, "" if node.ready else "red"),
        Cell(node.pool or MISSING),
        Cell(gpu_types(node) or MISSING),
        Cell(f"{node.allocated}/{node.allocatable}", right=True),
        load(figures),
        memory(figures),
        *((Cell("yes" if node.ready else "NO", "" if node.ready else "red"),) if wide else ()),
        Cell(some(holders, wide=wide)),
    ]


def _sum_cells(nodes: Sequence[NodeSeen], *, wide: bool) -> list[Cell]:
    figures = [device.now for node in nodes for device in node.devices]
    allocated, allocatable = sum(node.allocated for node in nodes), sum(node.allocatable for node in nodes)
    cells = [
        Cell(f"{len(nodes)} nodes", "dim"),
        Cell(""),
        Cell(f"{len(figures)} devices", "dim"),
        Cell(f"{allocated}/{allocatable}", right=True),
        load(figures),
        memory(figures),
    ]
    return [*cells, *((Cell(""),) if wide else ()), Cell("")]


def _node_row(node: NodeSeen) -> dict[str, Any]:
    figures = [device.now for device in node.devices]
    return {
        "node": node.name,
        "pool": node.pool,
        "ready": node.ready,
        "gpu_types": gpu_types(node),
        "allocated": node.allocated,
        "allocatable": node.allocatable,
        "utilisation": mean_load(figures),
        "memory_used_bytes": used_bytes(figures),
        "memory_total_bytes": sum(device.memory_bytes for device in node.devices),
        "holders": list(dict.fromkeys(pod.holder for pod in node.pods)),
        "problem": node.problem,
        "pods": [asdict(pod) for pod in node.pods],
        "devices": [device_row(device, {}) for device in node.devices],
    }
