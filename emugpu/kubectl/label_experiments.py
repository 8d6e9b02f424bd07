"""Experiments found in the cluster: EmuJobs with one label, a run for each namespace and scheduler among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from emugpu.kubectl.job_views import JobView, job_view
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.profiles.table import ProfileTable
from operators.experiments.records import RunInfo, observed_job, run_record
from operators.fitting.offers import NodeOffer, offers_of
from operators.fitting.workload import cluster_spec, job_spec
from operators.kube.api import Json
from operators.kube.documents import object_at, text_at, texts_of
from operators.objects.emujob import EmuJobSpec, parse_spec
from operators.objects.names import DEFAULT_SCHEDULER, POLICY
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.scheduling.names import ROW
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import RunRecord

UNFINISHED = ("", "Pending", "Queued", "Starting", "Running", "Preempted")


@dataclass(frozen=True, slots=True)
class Member:
    """An EmuJob of an experiment, as a view and as the API server sent it."""

    job: JobView
    document: Json


@dataclass(frozen=True, slots=True)
class Run:
    """The EmuJobs of one policy, once, in order of submission. `repeat` counts runs of the same policy from 1.

    `experiment` is their label; `emugpu compare` gives each run of an experiment X a label of its own, X-1, X-2 and so on.
    """

    experiment: str
    namespace: str
    policy: str
    repeat: int
    members: tuple[Member, ...]

    @property
    def begun_s(self) -> float:
        """The first submission, seconds since 1970."""
        return min((m.job.submitted_s for m in self.members if m.job.submitted_s is not None), default=0.0)

    @property
    def unfinished(self) -> int:
        """Number of jobs that haven't ended."""
        return sum(member.job.phase in UNFINISHED for member in self.members)

    def belongs_to(self, experiment: str) -> bool:
        """Whether this is the named experiment, or one of its runs."""
        return self.experiment == experiment or self.family == experiment

    @property
    def family(self) -> str:
        """The experiment of this run, by the label without its number; the label if it has none."""
        return re.sub(r"-\d+$", "", self.experiment)

    @property
    def predicted_mean_jct_s(self) -> float | None:
        """The mean of the jobs' predicted JCTs, which the EmuJobs' author claims; None if no job has one."""
        predicted = [member.job.predicted_jct_s for member in self.members if member.job.predicted_jct_s is not None]
        return mean(predicted) if predicted else None

    def count(self, *phases: str) -> int:
        return sum(member.job.phase in phases for member in self.members)


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """The present state of the cluster on which the jobs ran: its nodes and what they offer."""

    cluster: ClusterSpec
    offers: tuple[NodeOffer, ...]

    @classmethod
    def of(cls, pools: Sequence[Pool], nodes: Sequence[Node]) -> ClusterNow:
        return cls(cluster_spec(pools, nodes), offers_of(pools, nodes))


def runs_of(documents: Iterable[Json]) -> list[Run]:
    """The runs of all experiments: by experiment, then in order of their beginning."""
    groups: dict[tuple[str, str, str], list[Member]] = {}
    for document in documents:
        job = job_view(document)
        if job.experiment:
            scheduler = job.scheduler or f"{_pod_scheduler(document)} (Kubernetes)"
            groups.setdefault((job.experiment, job.namespace, scheduler), []).append(Member(job, document))
    found = []
    for (experiment, namespace, scheduler), members in groups.items():
        ordered = sorted(members, key=lambda member: (member.job.submitted_s or 0.0, member.job.name))
        found.append(Run(experiment, namespace, _policy(ordered, scheduler), 1, tuple(ordered)))
    found.sort(key=lambda run: (run.experiment, run.begun_s, run.namespace))
    return numbered(found)


def record_of(run: Run, cluster_now: ClusterNow, now_s: float) -> RunRecord:
    """The run's record for reports. A job that hasn't ended counts as failed at `now_s`, with a note."""
    profiles, notes, jobs = ProfileTable.bundled(), list[str](), list[JobSpec]()
    for row, member in enumerate(run.members):
        try:
            jobs.append(_job(member, run.begun_s, _row(member, row), cluster_now, profiles))
        except EmuGpuError as error:
            notes.append(f"{member.job.key} is left out: {error}")
    info = RunInfo(run.policy, run.repeat, round(now_s * 1e9), notes=tuple(notes))
    record = run_record(info, jobs, [observed_job(member.document) for member in run.members], cluster_now.cluster)
    return replace(record, lag={})  # when a job should have been submitted isn't known here


def finished_only(record: RunRecord) -> RunRecord:
    """The record without unfinished jobs, for figures while a run continues."""
    done = tuple(job for job in record.jobs if job.status == "finished")
    return replace(record, jobs=done, spans=(), host_spans=())


def _job(member: Member, begun_s: float, row: int, cluster_now: ClusterNow, profiles: ProfileTable) -> JobSpec:
    """Raises what parsing an invalid spec raises."""
    job = member.job
    spec: EmuJobSpec = parse_spec(job.namespace, job.name, object_at(member.document, "spec"))
    submit_s = max(0.0, (job.submitted_s or begun_s) - begun_s)
    return job_spec(job.job_id, spec, submit_s, row, cluster_now.offers, profiles)


def _row(member: Member, otherwise: int) -> int:
    text = _annotation(member, ROW)
    return int(text) if text.isascii() and text.isdecimal() else otherwise


def _pod_scheduler(document: Json) -> str:
    return text_at(object_at(document, "spec", "scheduler"), "schedulerName") or DEFAULT_SCHEDULER


def _policy(members: Sequence[Member], scheduler: str) -> str:
    """The policy that all EmuJobs name in their annotation (`emugpu compare` writes it), else in their predictions; else the
    scheduler."""
    for named in ({_annotation(m, POLICY) for m in members}, {m.job.predicted_by for m in members} - {""}):
        if len(named) == 1 and (name := named.pop()):
            return name
    return scheduler


def _annotation(member: Member, name: str) -> str:
    return texts_of(object_at(member.document, "metadata"), "annotations").get(name, "")


def numbered(runs: Iterable[Run]) -> list[Run]:
    """The runs with `repeat` counted for each policy within its experiment."""
    counts: dict[tuple[str, str], int] = {}
    found = []
    for run in runs:
        key = run.family, run.policy
        counts[key] = counts.get(key, 0) + 1
        found.append(replace(run, repeat=counts[key]))
    return found
