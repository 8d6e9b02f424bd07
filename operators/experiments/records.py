"""What the EmuJobs of a run say at its end, as the same record that the local cluster leaves behind.

All times are the operator's clock. The run's epoch is when the first job would have been submitted at 0: a job's submission is
when the operator saw it, so what the submitter was late with moves jobs, and never their completion times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.timing.lag import LagHistogram
from operators.kube.documents import condition_of, object_at, objects_in, text_at, whole_at
from operators.kube.timestamps import ns_of
from operators.objects.names import ENDED, JOB_ID
from operators.results.status import MOST_RUNS
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import JobRecord, LagAccount, RunRecord, Span
from scheduler_sims.reports.formats import list_some

KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class Stay:
    """A job held these devices (UUIDs; none: CPUs only) of `node` and did `steps` there; nanoseconds since 1970."""

    node: str
    devices: tuple[str, ...]
    from_ns: int
    until_ns: int
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What an EmuJob says of itself; nanoseconds since 1970, None: it doesn't say. `reason` why it did not finish."""

    job_id: str
    phase: str = ""
    reason: str = ""
    submitted_ns: int | None = None
    started_ns: int | None = None
    finished_ns: int | None = None
    preemptions: int = 0
    stays: tuple[Stay, ...] = ()
    tasks: int = 1
    """Its pods: each has a run of its own whenever the job runs."""
    logged: bool = True
    """Whether its end is the event log's (that of its last step), not Kubernetes' (of the pod, in whole seconds)."""

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def settled(self) -> bool:
        """Ended, and the event log has told when."""
        return self.ended and (self.phase != "Succeeded" or self.logged)


@dataclass(frozen=True, slots=True)
class About:
    """What a run is called and how it went for those who ran it. `ended_ns`: when nobody waited any longer."""

    policy: str
    repeat: int
    ended_ns: int
    wall_s: float = 0.0
    decisions: int = 0
    notes: Sequence[str] = ()


def told_by(document: Mapping[str, Any]) -> Told:
    """An EmuJob as the API server sends it; what is missing or odd in its status is not there."""
    status, metadata = object_at(document, "status"), object_at(document, "metadata")
    phase, finished_ns = text_at(status, "phase"), ns_of(text_at(status, "finishedAt"))
    stays = [stay for run in objects_in(status, "runs") if (stay := _stay(run)) is not None]
    last_ns = max((stay.until_ns for stay in stays), default=None)
    return Told(
        job_id=text_at(object_at(metadata, "annotations"), JOB_ID) or text_at(metadata, "name"),
        phase=phase,
        reason=_reason(status, phase),
        submitted_ns=ns_of(text_at(status, "submittedAt")),
        started_ns=ns_of(text_at(status, "startedAt")),
        finished_ns=finished_ns,
        preemptions=whole_at(status, "preemptions"),
        stays=tuple(stays),
        tasks=whole_at(object_at(document, "spec"), "nodes") or 1,
        logged=finished_ns is not None and finished_ns == last_ns,
    )


def run_record(about: About, jobs: Sequence[JobSpec], told: Iterable[Told], cluster: ClusterSpec) -> RunRecord:
    """The record of a run of these jobs; one that nobody tells of, or that hasn't ended, is a failed one."""
    by_id = {one.job_id: one for one in told}
    starts = [
        one.submitted_ns - to_ns(job.submit_s) for job in jobs if (one := by_id.get(job.job_id)) and one.submitted_ns
    ]
    books = _Books(cluster, min(starts, default=0), about.ended_ns)
    pairs = [(job, by_id.get(job.job_id, Told(job.job_id))) for job in jobs]
    late = LagHistogram()
    for job, one in pairs:
        if one.submitted_ns is not None:
            late.add(one.submitted_ns - books.epoch_ns - to_ns(job.submit_s))
    return RunRecord(
        policy=about.policy,
        cluster=KUBERNETES,
        repeat=about.repeat,
        gpus=cluster.gpus,
        nodes=tuple(node.name for node in cluster.nodes),
        jobs=tuple(books.job(job, one) for job, one in pairs),
        spans=tuple(span for _, one in pairs for span in books.spans(one)),
        wall_s=about.wall_s,
        decisions=about.decisions,
        lag={"submit": LagAccount.of(late)} if late.count else {},
        notes=(*about.notes, *_notes([one for _, one in pairs])),
    )


@dataclass(frozen=True, slots=True)
class _Books:
    """Turns times since 1970 into seconds of the run. `end_ns`: when nobody waited any longer."""

    cluster: ClusterSpec
    epoch_ns: int
    end_ns: int

    def job(self, job: JobSpec, told: Told) -> JobRecord:
        submit_s = job.submit_s if told.submitted_ns is None else self._s(told.submitted_ns)
        finished = told.phase == "Succeeded" and told.finished_ns is not None
        end_ns = told.finished_ns if told.finished_ns is not None and told.ended else self.end_ns
        return JobRecord(
            job_id=job.job_id,
            user=job.user,
            row=job.row,
            submit_s=submit_s,
            start_s=None if told.started_ns is None else self._s(told.started_ns),
            finish_s=max(submit_s, self._s(end_ns)),
            preemptions=told.preemptions,
            devices=tuple(dict.fromkeys(place for stay in told.stays for place in self._places(stay))),
            status="finished" if finished else "failed",
            reason="" if finished else told.reason or _unfinished(told),
        )

    def spans(self, told: Told) -> Iterator[Span]:
        for stay in told.stays:
            times = self._s(stay.from_ns), self._s(stay.until_ns)
            for index in self._indexes(stay):
                yield Span(told.job_id, stay.node, index, *times)

    def _places(self, stay: Stay) -> list[str]:
        return [f"{stay.node}/{'cpu' if index is None else index}" for index in self._indexes(stay)]

    def _indexes(self, stay: Stay) -> list[int | None]:
        """Which devices of the node; None where it had none. A device that the cluster doesn't have is left out."""
        if not stay.devices:
            return [None]
        known = {device.uuid: device.index for node in self.cluster.nodes for device in node.devices}
        return [known[uuid] for uuid in stay.devices if uuid in known]

    def _s(self, at_ns: int) -> float:
        return to_s(at_ns - self.epoch_ns)


def _stay(run: Mapping[str, Any]) -> Stay | None:
    from_ns, until_ns = ns_of(text_at(run, "from")), ns_of(text_at(run, "to"))
    if from_ns is None or until_ns is None:
        return None
    devices = run.get("devices")
    uuids = tuple(str(uuid) for uuid in devices) if isinstance(devices, list) else ()
    steps = max(0, whole_at(run, "toStep") - whole_at(run, "fromStep"))
    return Stay(text_at(run, "node"), uuids, from_ns, max(from_ns, until_ns), steps)


def _reason(status: Mapping[str, Any], phase: str) -> str:
    """Why it did not finish, in the words of the condition that says so."""
    kind = {"Failed": "Failed", "Rejected": "Accepted"}.get(phase)
    if kind is None:
        return ""
    found = condition_of(status, kind)
    return text_at(found, "message") or text_at(found, "reason") or phase.lower()


def _runs(told: Told) -> int:
    """So many runs its pods had at least."""
    return (told.preemptions + 1) * told.tasks


def _unfinished(told: Told) -> str:
    if told.submitted_ns is None:
        return "the operator never saw it"
    return f"had not ended when the run was given up (phase {told.phase or 'unknown'})"


def _notes(told: Sequence[Told]) -> list[str]:
    coarse = [one.job_id for one in told if one.phase == "Succeeded" and not one.logged]
    cut = [one.job_id for one in told if len(one.stays) >= MOST_RUNS and _runs(one) > MOST_RUNS]
    found = []
    if coarse:
        found.append(f"the event log did not tell the end of {list_some(coarse)}: Kubernetes' times, in whole seconds")
    if cut:
        found.append(f"of {list_some(cut)} only the newest {MOST_RUNS} runs are drawn")
    return found
