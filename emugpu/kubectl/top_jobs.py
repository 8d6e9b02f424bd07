"""`top jobs`: a line per EmuJob that runs, with what its devices do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emugpu.kubectl.gpu_cells import load, mean_load, memory, problems, used_bytes
from emugpu.kubectl.jobs_seen import GOING_ON, JobSeen
from emugpu.kubectl.nodes_seen import DeviceSeen, NodeSeen
from emugpu.kubectl.output import MISSING, Answer, Cell, columns, count, phase, seconds

_HEADINGS = ("NAME", "PHASE", "GPUS", "UTIL", "MEMORY", "PROGRESS", "PREDICTED", "ELAPSED", "DEVICES")


def jobs_answer(jobs: Sequence[JobSeen], nodes: Sequence[NodeSeen], namespace: str, now_s: float) -> Answer:
    """A line per EmuJob that runs or starts, with the devices that its pods hold."""
    everywhere, held = namespace == "*", _held(nodes)
    going = [(job, held.get(job.key, [])) for job in jobs if job.phase in GOING_ON]
    headings = (*(["NAMESPACE"] if everywhere else []), *_HEADINGS)
    cells = [[*([Cell(job.namespace)] if everywhere else []), *_cells(job, devices, now_s)] for job, devices in going]
    document = [_row(job, devices, now_s) for job, devices in going]
    none = f"no EmuJob runs{'' if everywhere else f' in namespace {namespace}'}"
    return Answer(columns(headings, cells), document, document, none, problems(nodes))


def _cells(job: JobSeen, devices: Sequence[DeviceSeen], now_s: float) -> list[Cell]:
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


def _row(job: JobSeen, devices: Sequence[DeviceSeen], now_s: float) -> dict[str, Any]:
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


def _places(devices: Sequence[DeviceSeen]) -> list[str]:
    return [f"{device.node}/{device.index}" for device in devices]


def _held(nodes: Sequence[NodeSeen]) -> dict[str, list[DeviceSeen]]:
    """By EmuJob (namespace/name): the devices that its pods hold."""
    found: dict[str, list[DeviceSeen]] = {}
    for node in nodes:
        jobs = {f"{pod.namespace}/{pod.name}": f"{pod.namespace}/{pod.job}" for pod in node.pods if pod.job}
        for device in node.devices:
            keys = {jobs.get(holder.key, "") for holder in device.now.holders} if device.now else set()
            for key in sorted(keys - {""}):
                found.setdefault(key, []).append(device)
    return found
