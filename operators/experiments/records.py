"""EmuJob statuses of a run, and the run record made from them: the same record that a simulated and a local run leave.

All times are the operator's clock. Time 0 of the run is the first job's observed submission minus its submission time in the
workload. A job's submission is when the operator saw the EmuJob; so a late submission moves the job, and its completion time
stays what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.timing.lag import LagHistogram
from operators.objects.emujob import EmuJob, EmuJobStatus, RunStatus
from operators.objects.forms import condition
from operators.objects.names import ENDED
from operators.results.status import MOST_RUNS
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import JobRecord, LagAccount, RunRecord, Span
from scheduler_sims.reports.formats import list_some

KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job: it held these devices (UUIDs; none: CPUs only) of `node` and did `steps`. Nanoseconds since 1970."""

    node: str
    devices: tuple[str, ...]
    from_ns: int
    until_ns: int
    steps: int = 0


@dataclass(frozen=True, slots=True)
class ObservedJob:
    """The status of one EmuJob; nanoseconds since 1970, None where it has no such time.

    `reason`: why it did not finish. `waiting`: why its pods have no node, where they have none. `tasks`: its pods, each of which
    has a run of its own whenever the job runs. `logged`: its end comes from the event log (the end of its last step), not from
    Kubernetes (the end of the pod, in whole seconds).
    """

    job_id: str
    phase: str = ""
    reason: str = ""
    waiting: str = ""
    submitted_ns: int | None = None
    started_ns: int | None = None
    finished_ns: int | None = None
    preemptions: int = 0
    steps_done: int = 0
    runs: tuple[JobRun, ...] = ()
    tasks: int = 1
    logged: bool = True

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def settled(self) -> bool:
        """Whether it has ended and, if it succeeded, its end comes from the event log."""
        return self.ended and (self.phase != "Succeeded" or self.logged)


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What else a run record needs. `ended_ns`: when the run was over or was given up."""

    policy: str
    repeat: int
    ended_ns: int
    wall_s: float = 0.0
    decisions: int = 0
    notes: Sequence[str] = ()


def observed_job(document: Mapping[str, Any]) -> ObservedJob:
    """From an EmuJob as the API server sends it; missing or malformed members of its status are ignored."""
    job = EmuJob.read(document)
    status, finished_ns = job.status, job.status.finished_ns
    runs = [found for run in status.runs if (found := _run(run)) is not None]
    last_ns = max((run.until_ns for run in runs), default=None)
    return ObservedJob(
        job_id=job.job_id,
        phase=job.phase,
        reason=_reason(status, job.phase),
        waiting="" if job.phase in ENDED else condition(status.conditions, "Scheduled").message,
        submitted_ns=status.submitted_ns,
        started_ns=status.started_ns,
        finished_ns=finished_ns,
        preemptions=status.preemptions,
        steps_done=status.steps_done,
        runs=tuple(runs),
        tasks=job.nodes,
        logged=finished_ns is not None and finished_ns == last_ns,
    )


def run_record(
    info: RunInfo, jobs: Sequence[JobSpec], observed: Iterable[ObservedJob], cluster: ClusterSpec
) -> RunRecord:
    """The record of a run of these jobs. A job that was not observed, or has not ended, is a failed one."""
    by_id = {job.job_id: job for job in observed}
    starts = [
        seen.submitted_ns - to_ns(job.submit_s)
        for job in jobs
        if (seen := by_id.get(job.job_id)) is not None and seen.submitted_ns
    ]
    timeline = _Timeline(cluster, min(starts, default=0), info.ended_ns)
    pairs = [(job, by_id.get(job.job_id, ObservedJob(job.job_id))) for job in jobs]
    late = LagHistogram()
    for job, seen in pairs:
        if seen.submitted_ns is not None:
            late.add(seen.submitted_ns - timeline.epoch_ns - to_ns(job.submit_s))
    return RunRecord(
        policy=info.policy,
        cluster=KUBERNETES,
        repeat=info.repeat,
        gpus=cluster.gpus,
        nodes=tuple(node.name for node in cluster.nodes),
        jobs=tuple(timeline.job(job, seen) for job, seen in pairs),
        spans=tuple(span for _, seen in pairs for span in timeline.spans(seen)),
        wall_s=info.wall_s,
        decisions=info.decisions,
        lag={"submit": LagAccount.of(late)} if late.count else {},
        notes=(*info.notes, *_notes([seen for _, seen in pairs])),
    )


@dataclass(frozen=True, slots=True)
class _Timeline:
    """Converts times since 1970 into seconds of the run. `epoch_ns` is time 0, `end_ns` the end of the run."""

    cluster: ClusterSpec
    epoch_ns: int
    end_ns: int

    def job(self, job: JobSpec, seen: ObservedJob) -> JobRecord:
        submit_s = job.submit_s if seen.submitted_ns is None else self._s(seen.submitted_ns)
        finished = seen.phase == "Succeeded" and seen.finished_ns is not None
        end_ns = seen.finished_ns if seen.finished_ns is not None and seen.ended else self.end_ns
        return JobRecord(
            job_id=job.job_id,
            user=job.user,
            row=job.row,
            submit_s=submit_s,
            start_s=None if seen.started_ns is None else self._s(seen.started_ns),
            finish_s=max(submit_s, self._s(end_ns)),
            preemptions=seen.preemptions,
            devices=tuple(dict.fromkeys(place for run in seen.runs for place in self._places(run))),
            status="finished" if finished else "failed",
            reason="" if finished else seen.reason or _unfinished(seen),
        )

    def spans(self, seen: ObservedJob) -> Iterator[Span]:
        for run in seen.runs:
            for index in self._indexes(run):
                yield Span(seen.job_id, run.node, index, self._s(run.from_ns), self._s(run.until_ns))

    def _places(self, run: JobRun) -> list[str]:
        return [f"{run.node}/{'cpu' if index is None else index}" for index in self._indexes(run)]

    def _indexes(self, run: JobRun) -> list[int | None]:
        """Indexes of the run's devices on their node; [None] where it had none. Unknown devices are left out."""
        if not run.devices:
            return [None]
        known = {device.uuid: device.index for node in self.cluster.nodes for device in node.devices}
        return [known[uuid] for uuid in run.devices if uuid in known]

    def _s(self, at_ns: int) -> float:
        return to_s(at_ns - self.epoch_ns)


def _run(run: RunStatus) -> JobRun | None:
    if run.from_ns is None or run.to_ns is None:
        return None
    steps = max(0, run.to_step - run.from_step)
    return JobRun(run.node, run.devices, run.from_ns, max(run.from_ns, run.to_ns), steps)


def _reason(status: EmuJobStatus, phase: str) -> str:
    """Why a job did not finish: the message of the condition that says so."""
    kind = {"Failed": "Failed", "Rejected": "Accepted"}.get(phase)
    if kind is None:
        return ""
    found = condition(status.conditions, kind)
    return found.message or found.reason or phase.lower()


def _unfinished(seen: ObservedJob) -> str:
    if seen.submitted_ns is None:
        return "the operator never saw it"
    return f"had not ended when the run was given up (phase {seen.phase or 'unknown'})"


def _notes(observed: Sequence[ObservedJob]) -> list[str]:
    coarse = [job.job_id for job in observed if job.phase == "Succeeded" and not job.logged]
    cut = [job.job_id for job in observed if len(job.runs) >= MOST_RUNS and _min_runs(job) > MOST_RUNS]
    notes = []
    if coarse:
        notes.append(
            f"the event log has no end of {list_some(coarse)}: their times are those of Kubernetes, in whole seconds"
        )
    if cut:
        notes.append(f"the Gantt chart shows only the newest {MOST_RUNS} runs of {list_some(cut)}")
    return notes


def _min_runs(job: ObservedJob) -> int:
    """How many runs its pods have had at least."""
    return (job.preemptions + 1) * job.tasks
