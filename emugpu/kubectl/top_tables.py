"""The tables of `top`: a line per node, per device, or per running EmuJob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from emugpu.kubectl.job_views import JobView
from emugpu.kubectl.node_views import DeviceFigures, DeviceView, NodeView, gpu_types
from emugpu.kubectl.output import MISSING, Answer, Cell, columns, count, percent, phase, seconds
from emulator_runtime.domain.units import GIB
from operators.objects.names import HOLDING

NO_NODES = "no node has emulated GPUs; `kubectl get emugpupools` shows which nodes the pools choose"
Figures = Sequence[DeviceFigures | None]
"""Of several devices; None: its manager reports nothing."""
_BUSY = ((0.8, "green"), (0.3, "yellow"))


def mean_load(figures: Figures) -> float | None:
    """The mean utilisation of the devices with known figures."""
    known = [each.utilisation for each in figures if each is not None]
    return sum(known) / len(known) if known else None


def load(figures: Figures) -> Cell:
    share = mean_load(figures)
    style = next((style for least, style in _BUSY if share is not None and share >= least), "")
    return Cell(percent(share).text, style, right=True)


def used_bytes(figures: Figures) -> int | None:
    known = [each.used_bytes for each in figures if each is not None]
    return sum(known) if known else None


def memory(figures: Figures) -> Cell:
    """Used of all memory, of the devices with known figures."""
    used = used_bytes(figures)
    if used is None:
        return Cell(MISSING, right=True)
    total = sum(each.memory_bytes for each in figures if each is not None)
    return Cell(f"{used / GIB:.1f}/{total / GIB:.1f}Gi", right=True)


def some(names: Sequence[str], *, wide: bool = False, most: int = 3) -> str:
    """The first few names and how many more there are; all of them if `wide`."""
    if wide or len(names) <= most:
        return ", ".join(names) or MISSING
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def problems(nodes: Sequence[NodeView]) -> list[str]:
    """Why managers report nothing, each reason once with its nodes."""
    by_problem: dict[str, list[str]] = {}
    for node in nodes:
        if node.problem:
            by_problem.setdefault(node.problem, []).append(node.name)
    return [f"no load and memory of {some(names)}: {problem}" for problem, names in by_problem.items()]


def nodes_answer(nodes: Sequence[NodeView], *, wide: bool) -> Answer:
    """A line per node, and their sum."""
    headings = ("NODE", "POOL", "TYPE", "GPUS", "UTIL", "MEMORY", *(("READY",) if wide else ()), "HOLDERS")
    rows = [_node_cells(node, wide=wide) for node in nodes]
    if len(nodes) > 1:
        rows.append(_sum_cells(nodes, wide=wide))
    document = [_node_row(node) for node in nodes]
    flat = [{name: value for name, value in row.items() if name not in ("devices", "pods")} for row in document]
    return Answer(columns(headings, rows), document, flat, NO_NODES, problems(nodes))


def _node_cells(node: NodeView, *, wide: bool) -> list[Cell]:
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


def _sum_cells(nodes: Sequence[NodeView], *, wide: bool) -> list[Cell]:
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


def _node_row(node: NodeView) -> dict[str, Any]:
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


def devices_answer(nodes: Sequence[NodeView], *, wide: bool) -> Answer:
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


def device_row(device: DeviceView, called: Mapping[str, str]) -> dict[str, Any]:
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


def _healthy(device: DeviceView) -> bool:
    return device.healthy and (device.now is None or device.now.healthy)


_HEADINGS = ("NAME", "PHASE", "GPUS", "UTIL", "MEMORY", "PROGRESS", "PREDICTED", "ELAPSED", "DEVICES")


def jobs_answer(jobs: Sequence[JobView], nodes: Sequence[NodeView], namespace: str, now_s: float) -> Answer:
    """A line per EmuJob that runs or starts, with the devices that its pods hold."""
    everywhere, held = namespace == "*", _held(nodes)
    going = [(job, held.get(job.key, [])) for job in jobs if job.phase in HOLDING]
    headings = (*(["NAMESPACE"] if everywhere else []), *_HEADINGS)
    cells = [[*([Cell(job.namespace)] if everywhere else []), *_cells(job, devices, now_s)] for job, devices in going]
    document = [_row(job, devices, now_s) for job, devices in going]
    none = f"no EmuJob runs{'' if everywhere else f' in namespace {namespace}'}"
    return Answer(columns(headings, cells), document, document, none, problems(nodes))


def _cells(job: JobView, devices: Sequence[DeviceView], now_s: float) -> list[Cell]:
    figures = [device.now for device in devices]
    return [
        Cell(job.name),
        phase(job.phase),
        count(job.gpus),
        load(figures),
        memory(figures),
        Cell(f"{job.steps_done}/{job.steps}", right=True),
        seconds(job.predicted_jct_s),
        seconds(job.age_s(now_s)),
        Cell(" ".join(_places(devices)) or job.nodes or MISSING),
    ]


def _row(job: JobView, devices: Sequence[DeviceView], now_s: float) -> dict[str, Any]:
    figures = [device.now for device in devices]
    return {
        "namespace": job.namespace,
        "name": job.name,
        "phase": job.phase,
        "gpus": job.gpus,
        "utilisation": mean_load(figures),
        "memory_used_bytes": used_bytes(figures),
        "steps_done": job.steps_done,
        "steps": job.steps,
        "predicted_jct_s": job.predicted_jct_s,
        "elapsed_s": job.age_s(now_s),
        "devices": _places(devices),
    }


def _places(devices: Sequence[DeviceView]) -> list[str]:
    return [f"{device.node}/{device.index}" for device in devices]


def _held(nodes: Sequence[NodeView]) -> dict[str, list[DeviceView]]:
    """The devices that an EmuJob's pods hold, by namespace/name of the EmuJob."""
    found: dict[str, list[DeviceView]] = {}
    for node in nodes:
        jobs = {f"{pod.namespace}/{pod.name}": f"{pod.namespace}/{pod.job}" for pod in node.pods if pod.job}
        for device in node.devices:
            keys = {jobs.get(holder.key, "") for holder in device.now.holders} if device.now else set()
            for key in sorted(keys - {""}):
                found.setdefault(key, []).append(device)
    return found
