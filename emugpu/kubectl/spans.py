"""EmuJobs' runs as the spans of reports: which job held which device of which node, in seconds since one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from emugpu.kubectl.job_views import JobView, RunView
from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import split_device_id
from operators.kube.api import Json
from operators.objects.names import FINAL
from operators.objects.node import Node
from scheduler_sims.record import JobRecord, RunRecord, Span

LIVE = "kubernetes"
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Places:
    """The places of devices: node and index by UUID; empty if nodes can't be read."""

    by_uuid: Mapping[str, tuple[str, int]]

    def of(self, run: RunView) -> list[tuple[str, int]]:
        """Node and index of each known device of the run; shares of one device count once."""
        uuids = dict.fromkeys(split_device_id(device)[0] for device in run.devices)
        return [self.by_uuid[uuid] for uuid in uuids if uuid in self.by_uuid]

    @classmethod
    def of_nodes(cls, documents: Iterable[Json]) -> Places:
        """From the inventories of Nodes as the API server sends them."""
        found = {}
        for facts in map(Node.read, documents):
            with suppress(InputError):  # written by another version: its devices count as unknown
                inventory = facts.inventory()
                for entry in inventory.entries() if inventory is not None else ():
                    found[entry.device.uuid] = facts.name, entry.device.index
        return cls(found)

    def with_unknown(self, jobs: Iterable[JobView]) -> Places:
        """Devices that are gone or can't be read get the next free indexes of their node, in order of first use."""
        found = dict(self.by_uuid)
        top: dict[str, int] = {}
        for node, index in found.values():
            top[node] = max(index, top.get(node, -1))
        for run in (run for job in jobs for run in job.runs):
            for uuid in (split_device_id(device)[0] for device in run.devices):
                if uuid not in found:
                    top[run.node] = top.get(run.node, -1) + 1
                    found[uuid] = run.node, top[run.node]
        return Places(found)


@dataclass(frozen=True, slots=True)
class Window:
    """A period, seconds since 1970."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


def window_of(jobs: Sequence[JobView], now_s: float, since_s: float | None) -> Window:
    """From the first submission to the last end (now, while a job runs); with `since_s` only the last `since_s` seconds."""
    going = any(job.phase not in FINAL for job in jobs)
    ends = [run.to_s for job in jobs for run in job.stays if run.to_s is not None]
    ends += [job.finished_s for job in jobs if job.finished_s is not None]
    end_s = now_s if going or not ends else max(ends)
    begin_s = min((job.submitted_s for job in jobs if job.submitted_s is not None), default=end_s)
    if since_s is not None:
        end_s = max(end_s, now_s - since_s)
        begin_s = max(begin_s, now_s - since_s)
    return Window(begin_s, max(end_s, begin_s + 1e-3))


def clipped(job: JobView, window: Window) -> list[tuple[RunView, float, float]]:
    """The runs within the window, in seconds from its beginning; running ones end with the window."""
    found = []
    for run in job.stays:
        begin_s, end_s = (
            max(run.from_s, window.begin_s),
            min(window.end_s if run.to_s is None else run.to_s, window.end_s),
        )
        if end_s >= begin_s and run.from_s < window.end_s and (run.to_s is None or run.to_s > window.begin_s):
            found.append((run, begin_s - window.begin_s, end_s - window.begin_s))
    return found


def spans_of(jobs: Iterable[JobView], places: Places, window: Window) -> list[Span]:
    """One span per run and device; for CPUs alone or unknown devices, one per run without a device."""
    found = []
    for job in jobs:
        for run, begin_s, end_s in clipped(job, window):
            spots: list[tuple[str, int | None]] = [*places.of(run)]
            found += [Span(job.key, node, index, begin_s, end_s) for node, index in spots or [(run.node, None)]]
    return found


def live_record(jobs: Sequence[JobView], places: Places, window: Window) -> RunRecord:
    """The present state as a run of its own for the page with the chart: running jobs end with the window.

    It is a picture and no result: no figure may be computed from it.
    """
    spans = spans_of(jobs, places, window)
    records = tuple(
        JobRecord(
            job_id=job.key,
            user=job.tenant,
            row=row,
            submit_s=max(0.0, (job.submitted_s or window.begin_s) - window.begin_s),
            start_s=None if job.started_s is None else max(0.0, job.started_s - window.begin_s),
            finish_s=max(0.0, (job.finished_s or window.end_s) - window.begin_s),
            preemptions=job.preemptions,
            devices=(),
            status={"Failed": "failed", "Succeeded": "finished"}.get(job.phase, RUNNING),
            reason="",
        )
        for row, job in enumerate(jobs)
    )
    nodes = tuple(sorted({span.node for span in spans}))
    gpus = len({(span.node, span.device) for span in spans if span.device is not None})
    return RunRecord(LIVE, LIVE, 1, gpus, nodes, records, tuple(spans))


def shortened(jobs: Sequence[JobView]) -> list[JobView]:
    """If all jobs are of one namespace, keys don't name it."""
    one = len({job.namespace for job in jobs}) <= 1
    return [replace(job, namespace="") if one else job for job in jobs]
