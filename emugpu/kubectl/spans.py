"""EmuJobs' runs as the spans that reports know: which job held which device of which node, in seconds since one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from emugpu.kubectl.jobs_seen import GOING_ON, OVER, JobSeen, RunSeen
from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import split_device_id
from operators.kube.api import Json
from operators.objects.node import Node
from scheduler_sims.record import JobRecord, RunRecord, Span

LIVE = "kubernetes"
RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Places:
    """Where devices are: node and index by UUID; empty where nodes can't be looked at."""

    by_uuid: Mapping[str, tuple[str, int]]

    def of(self, run: RunSeen) -> list[tuple[str, int]]:
        """Node and index of each of the run's devices that is known; shares of one device are one."""
        uuids = dict.fromkeys(split_device_id(device)[0] for device in run.devices)
        return [self.by_uuid[uuid] for uuid in uuids if uuid in self.by_uuid]

    @classmethod
    def of_nodes(cls, documents: Iterable[Json]) -> Places:
        """From the inventories of Nodes as the API server sends them."""
        found = {}
        for facts in map(Node.read, documents):
            with suppress(InputError):  # of another version: its devices count as unknown ones
                inventory = facts.inventory()
                for entry in inventory.entries() if inventory is not None else ():
                    found[entry.device.uuid] = facts.name, entry.device.index
        return cls(found)

    def with_unknown(self, jobs: Iterable[JobSeen]) -> Places:
        """Devices that are gone, or that may not be seen, get the next free indexes of their node, in order of first use."""
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
    """A stretch of time, seconds since 1970."""

    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


def stays(job: JobSeen) -> tuple[RunSeen, ...]:
    """The job's runs; where no manager told of any, from its start to its end, on devices that aren't known.

    Of one that was preempted, nobody knows until when it ran.
    """
    if job.runs or job.started_s is None or job.phase not in (*GOING_ON, *OVER):
        return job.runs
    end_s = job.finished_s if job.phase in OVER else None
    nodes = [node for node in job.nodes.split(",") if node] or ["?"]
    return tuple(RunSeen(node, (), job.started_s, end_s, 0, job.steps_done, "") for node in nodes)


def window_of(jobs: Sequence[JobSeen], now_s: float, since_s: float | None) -> Window:
    """From the first submission to the last end (now, while one goes on); with `since_s` only the last so many seconds."""
    going = any(job.phase not in OVER for job in jobs)
    ends = [run.to_s for job in jobs for run in stays(job) if run.to_s is not None]
    ends += [job.finished_s for job in jobs if job.finished_s is not None]
    end_s = now_s if going or not ends else max(ends)
    begin_s = min((job.submitted_s for job in jobs if job.submitted_s is not None), default=end_s)
    if since_s is not None:
        end_s = max(end_s, now_s - since_s)
        begin_s = max(begin_s, now_s - since_s)
    return Window(begin_s, max(end_s, begin_s + 1e-3))


def clipped(job: JobSeen, window: Window) -> list[tuple[RunSeen, float, float]]:
    """The runs that the window shows, with their seconds from its beginning; what goes on ends with the window."""
    found = []
    for run in stays(job):
        begin_s, end_s = (
            max(run.from_s, window.begin_s),
            min(window.end_s if run.to_s is None else run.to_s, window.end_s),
        )
        if end_s >= begin_s and run.from_s < window.end_s and (run.to_s is None or run.to_s > window.begin_s):
            found.append((run, begin_s - window.begin_s, end_s - window.begin_s))
    return found


def spans_of(jobs: Iterable[JobSeen], places: Places, window: Window) -> list[Span]:
    """One span per run and device; on CPUs alone, or where the devices aren't known, one per run without a device."""
    found = []
    for job in jobs:
        for run, begin_s, end_s in clipped(job, window):
            spots: list[tuple[str, int | None]] = [*places.of(run)]
            found += [Span(job.key, node, index, begin_s, end_s) for node, index in spots or [(run.node, None)]]
    return found


def live_record(jobs: Sequence[JobSeen], places: Places, window: Window) -> RunRecord:
    """What there is, as a run of its own for the page with the chart: jobs that go on end with the window.

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


def shortened(jobs: Sequence[JobSeen]) -> list[JobSeen]:
    """Where all jobs are of one namespace, their keys needn't say so."""
    one = len({job.namespace for job in jobs}) <= 1
    return [replace(job, namespace="") if one else job for job in jobs]
