"""The loop's books of jobs: the current view of each job, and the records of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_s
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.node_outages import Interrupted
from scheduler_sims.clusters.open import NodeState, PresentJob
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import JobView, Phase
from scheduler_sims.record import HostSpan, JobRecord, Span


@dataclass(slots=True)
class _History:
    """The history of one job. `held_since_ns`: when it got its resources, None while it holds none. `divided_since_ns`: when
    it got its present CPUs and host memory. `number`: position in order of submission."""

    number: int
    start_ns: int | None = None
    held_since_ns: int | None = None
    divided_since_ns: int = 0
    devices: dict[str, None] = field(default_factory=dict)


class Holdings(Mapping[str, Allocation]):
    """Allocations of jobs by job id, in order of submission, which is computed only when somebody iterates."""

    def __init__(self, history: Mapping[str, _History]) -> None:
        self._history = history
        self._allocations: dict[str, Allocation] = {}
        self._ordered: list[str] | None = None

    def __getitem__(self, job_id: str) -> Allocation:
        return self._allocations[job_id]

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._allocations

    def __len__(self) -> int:
        return len(self._allocations)

    def __iter__(self) -> Iterator[str]:
        if self._ordered is None:
            self._ordered = sorted(self._allocations, key=self.number)
        return iter(self._ordered)

    def get(self, job_id: str, default: Any = None) -> Any:
        return self._allocations.get(job_id, default)

    def number(self, job_id: str) -> int:
        """The position of a job in order of submission."""
        return self._history[job_id].number

    def put(self, job_id: str, allocation: Allocation) -> None:
        """From now on the job has this allocation."""
        if job_id not in self._allocations:
            self._ordered = None
        self._allocations[job_id] = allocation

    def drop(self, job_id: str) -> None:
        """The job has none any more."""
        if self._allocations.pop(job_id, None) is not None:
            self._ordered = None


class Leaving(Holdings):
    """The allocations of stopping jobs, found by their nodes as well: a round may replace hundreds of jobs, and the loop asks at
    each start which of them are in its way."""

    def __init__(self, history: Mapping[str, _History]) -> None:
        super().__init__(history)
        self._on_nodes: dict[str, set[str]] = {}

    def put(self, job_id: str, allocation: Allocation) -> None:
        super().put(job_id, allocation)
        for node in allocation.nodes:
            self._on_nodes.setdefault(node, set()).add(job_id)

    def drop(self, job_id: str) -> None:
        allocation = self.get(job_id)
        super().drop(job_id)
        for node in () if allocation is None else allocation.nodes:
            self._on_nodes[node].discard(job_id)

    def on(self, nodes: Iterable[str]) -> list[tuple[str, Allocation]]:
        """The jobs on these nodes with their allocations, in order of submission."""
        there = {job_id for node in nodes for job_id in self._on_nodes.get(node, ())}
        return [(job_id, self[job_id]) for job_id in sorted(there, key=self.number)]


class JobBooks:
    """Jobs that are in the system (`views`, in order of submission) and the records of those that have ended.

    Three indexes follow from the views, so that no event walks over all jobs: `held` has the allocation of each job that has one,
    `live` those of jobs that aren't stopping, `leaving` those of jobs that are.

    `keeps_records` False: jobs are forgotten when they have ended, for a scheduler that runs for months.
    """

    def __init__(self, jobs: Iterable[JobSpec], cluster: ClusterSpec, *, keeps_records: bool = True) -> None:
        self._keeps_records = keeps_records
        self.waiting = sorted(jobs, key=lambda job: (job.submit_s, job.row), reverse=True)
        self.specs = {job.job_id: job for job in self.waiting}
        self.views: dict[str, JobView] = {}
        self.spans: list[Span] = []
        self.host_spans: list[HostSpan] = []
        self._records: dict[int, JobRecord] = {}
        self._history: dict[str, _History] = {}
        self._submitted = 0
        self.held, self.live, self.leaving = Holdings(self._history), Holdings(self._history), Leaving(self._history)
        self._places = {device.uuid: device for node in cluster.nodes for device in node.devices}

    @property
    def done(self) -> bool:
        return not self.waiting and not self.views

    @property
    def ended(self) -> int:
        return len(self._records)

    def records(self) -> tuple[JobRecord, ...]:
        """The records of all ended jobs, in workload order."""
        return tuple(self._records[row] for row in sorted(self._records))

    def record(self, row: int) -> JobRecord | None:
        """The record of the job in this row of the workload; None if the job has not ended."""
        return self._records.get(row)

    def renew(self, states: Iterable[NodeState]) -> None:
        """Add the devices of these nodes. Those of removed nodes stay known, since jobs may still hold them."""
        self._places |= {device.uuid: device for state in states for device in state.spec.devices}

    def submit(self, job: JobSpec) -> None:
        """Enter a new job, which is queued."""
        self.specs[job.job_id] = job
        self._submitted += 1
        self._history[job.job_id] = _History(self._submitted)
        view = JobView(
            job_id=job.job_id,
            user=job.user,
            submit_s=job.submit_s,
            row=job.row,
            weight=job.weight,
            phase=Phase.QUEUED,
            configurations=job.configurations,
            steps_total=job.steps,
            batch_size=job.batch_size,
            queued_since_s=job.submit_s,
        )
        self.views[job.job_id] = view

    def adopt(self, job: PresentJob) -> None:
        """Enter a job with its history. If it holds an allocation, call `starting` next."""
        self.submit(job.spec)
        self._set(
            replace(
                self.views[job.spec.job_id],
                steps_done=job.steps_done,
                samples_done=job.samples,
                attained_gpu_s=job.attained_gpu_s,
                preemptions=job.preemptions,
            )
        )

    def progressed(self, event: Event) -> None:
        """Correct the progress of a queued job."""
        view = self.views[event.job_id]
        self._set(replace(view, steps_done=event.steps_done, samples_done=_samples_done(view, event)))

    def starting(self, job_id: str, allocation: Allocation) -> None:
        """The loop has asked the cluster to start the job."""
        self._set(_moved(self.views[job_id], Phase.STARTING, allocation, None))

    def stopping(self, job_id: str) -> None:
        """The loop has asked the cluster to stop the job."""
        view = self.views[job_id]
        self._set(_moved(view, Phase.STOPPING, view.allocation, view.running_since_s))

    def resized(self, job_id: str, allocation: Allocation, at_ns: int) -> None:
        """From `at_ns` on the job has the CPUs and host memory of `allocation`."""
        view, history = self.views[job_id], self._history[job_id]
        if history.held_since_ns is not None:
            self._close_division(view, history.divided_since_ns, at_ns)
            history.divided_since_ns = at_ns
        self._set(replace(view, allocation=allocation))

    def not_started(self, job_id: str) -> None:
        """The cluster refused the start for the moment: the job is queued again."""
        self._set(replace(self.views[job_id], phase=Phase.QUEUED, allocation=None))

    def started(self, event: Event) -> None:
        """The allocation took effect at `event.at_ns`."""
        view, history = self.views[event.job_id], self._history[event.job_id]
        history.held_since_ns = history.divided_since_ns = event.at_ns
        if history.start_ns is None:
            history.start_ns = event.at_ns
        phase = Phase.RUNNING if view.phase is Phase.STARTING else view.phase
        self._set(_moved(view, phase, view.allocation, to_s(event.at_ns)))

    def released(self, event: Event) -> None:
        """The job has released its resources: it is queued again (stopped) or has left (finished, failed, removed)."""
        view = self.views[event.job_id]
        attained = self._close_span(view, event.at_ns)
        if event.what is not Happening.STOPPED:
            self._end(event)
            return
        self._set(_queued_again(view, event, attained))

    def _set(self, view: JobView) -> None:
        """Replace the view of a job, and what follows from it."""
        job_id, allocation = view.job_id, view.allocation
        self.views[job_id] = view
        if allocation is None:
            self._forget(job_id)
            return
        self.held.put(job_id, allocation)
        if view.phase is Phase.STOPPING:
            self.live.drop(job_id)
            self.leaving.put(job_id, allocation)
        else:
            self.live.put(job_id, allocation)

    def _forget(self, job_id: str) -> None:
        self.held.drop(job_id)
        self.live.drop(job_id)
        self.leaving.drop(job_id)

    def _close_span(self, view: JobView, end_ns: int) -> float:
        """Record the devices that the job held until `end_ns`; returns its GPU-seconds."""
        history = self._history[view.job_id]
        since_ns, history.held_since_ns = history.held_since_ns, None
        if since_ns is None or view.allocation is None:
            return 0.0
        self._close_division(view, history.divided_since_ns, end_ns)
        for task in view.allocation.tasks:
            indexes: list[int | None] = [self._places[share.device].index for share in task.shares if share.device]
            for index in indexes or [None]:
                self.spans.append(Span(view.job_id, task.node, index, to_s(since_ns), to_s(end_ns)))
                history.devices[f"{task.node}/{'cpu' if index is None else index}"] = None
        return view.allocation.gpus * to_s(end_ns - since_ns)

    def _close_division(self, view: JobView, since_ns: int, end_ns: int) -> None:
        if end_ns > since_ns and view.allocation is not None:
            for task in view.allocation.tasks:
                host = (task.cpu_milli, task.memory_bytes)
                self.host_spans.append(HostSpan(view.job_id, task.node, *host, to_s(since_ns), to_s(end_ns)))

    def _end(self, event: Event) -> None:
        view = self.views.pop(event.job_id)
        self._forget(event.job_id)
        history = self._history.pop(event.job_id)
        self._records[view.row] = JobRecord(
            job_id=view.job_id,
            user=view.user,
            row=view.row,
            submit_s=view.submit_s,
            start_s=None if history.start_ns is None else to_s(history.start_ns),
            finish_s=to_s(event.at_ns),
            preemptions=view.preemptions,
            devices=tuple(history.devices),
            status=str(event.what),
            reason=event.reason,
        )
        if not self._keeps_records:
            self._records.clear()
            self.spans.clear()
            self.host_spans.clear()
            del self.specs[event.job_id]


def _moved(view: JobView, phase: Phase, allocation: Allocation | None, running_since_s: float | None) -> JobView:
    """The view in another phase: what `dataclasses.replace` does, in a third of its time, for what happens at each event."""
    return JobView(
        view.job_id,
        view.user,
        view.submit_s,
        view.row,
        view.weight,
        phase,
        view.configurations,
        view.steps_total,
        view.steps_done,
        view.attained_gpu_s,
        view.queued_since_s,
        running_since_s,
        view.preemptions,
        allocation,
        view.batch_size,
        view.samples_done,
    )


def _queued_again(view: JobView, event: Event, attained_gpu_s: float) -> JobView:
    """The view of a job that was stopped, or interrupted by a failing node, after a run that attained this service."""
    return JobView(
        view.job_id,
        view.user,
        view.submit_s,
        view.row,
        view.weight,
        Phase.QUEUED,
        view.configurations,
        view.steps_total,
        event.steps_done,
        view.attained_gpu_s + attained_gpu_s,
        to_s(event.at_ns),
        None,
        view.preemptions + (not isinstance(event, Interrupted)),
        None,
        view.batch_size,
        _samples_done(view, event),
    )


def _samples_done(view: JobView, event: Event) -> int:
    return view.samples_after(event.steps_done) if event.samples_done is None else event.samples_done
