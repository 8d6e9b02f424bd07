"""Experiments found in the cluster: EmuJobs with the label emugpu.dev/experiment and their runs, as the API groups them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from emugpu.kubectl.job_views import JobView, job_view
from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.profiles.table import ProfileTable
from operators.experiments.records import ObservedJob, RunInfo, observed_job, run_record
from operators.fitting.offers import NodeOffer, offers_of
from operators.fitting.workload import cluster_spec, job_spec
from operators.kube.api import Json
from operators.objects.emujob import EmuJob
from operators.objects.names import ENDED, membership
from operators.objects.node import Node
from operators.objects.pool import Pool
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import RunRecord


@dataclass(frozen=True, slots=True)
class Member:
    """An EmuJob of an experiment: as shown, as specified and as reports need it."""

    job: JobView
    emujob: EmuJob
    observed: ObservedJob


@dataclass(frozen=True, slots=True)
class Run:
    """The EmuJobs of one policy, once, in order of submission. `repeat` counts runs of the same policy from 1.

    `experiment`: its id (names.membership). `label`: that of the EmuJobs; `emugpu compare` gives each run of an experiment X a
    label of its own, X-1, X-2 and so on.
    """

    experiment: str
    label: str
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
        return sum(member.job.phase not in ENDED for member in self.members)

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
    """The runs of all experiments by label, then in order of their beginning."""
    groups: dict[tuple[str, str], list[Member]] = {}
    for document in documents:
        job, emujob = job_view(document), EmuJob.read(document)
        experiment, run = membership(job.namespace, job.experiment, _policy(emujob))
        if experiment:
            groups.setdefault((experiment, run), []).append(Member(job, emujob, observed_job(document)))
    runs = []
    for (experiment, _), members in groups.items():
        first, *_ = ordered = sorted(members, key=lambda member: (member.job.submitted_s or 0.0, member.job.name))
        job = first.job
        runs.append(Run(experiment, job.experiment, job.namespace, _policy(first.emujob), 1, tuple(ordered)))
    return sorted(numbered(runs), key=lambda run: run.label)


def runs_named(runs: Sequence[Run], name: str) -> list[Run]:
    """The runs of the experiment with this id, else those with this label; none if there is no such experiment.

    Raises InputError for the label of several experiments.
    """
    own = [run for run in runs if run.experiment == name] or [run for run in runs if run.label == name]
    several = list(dict.fromkeys(run.experiment for run in own))
    if len(several) > 1:
        problem = (
            f"{name} is the label of experiments {', '.join(several)}; give one of these names, or a namespace with -n"
        )
        raise InputError("experiment report", problem)
    return numbered(own)


def record_of(run: Run, cluster_now: ClusterNow, now_s: float) -> RunRecord:
    """The run's record for reports. A job that hasn't ended counts as failed at `now_s`, with a note."""
    profiles, notes, jobs = ProfileTable.bundled(), list[str](), list[JobSpec]()
    for row, member in enumerate(run.members):
        try:
            jobs.append(_job(member, run.begun_s, row, cluster_now, profiles))
        except EmuGpuError as error:
            notes.append(f"{member.job.key} is left out: {error}")
    info = RunInfo(run.policy, run.repeat, round(now_s * 1e9), notes=tuple(notes))
    record = run_record(info, jobs, [member.observed for member in run.members], cluster_now.cluster)
    return replace(record, lag={})  # when a job should have been submitted isn't known here


def finished_only(record: RunRecord) -> RunRecord:
    """The record without unfinished jobs, for figures while a run continues."""
    done = tuple(job for job in record.jobs if job.status == "finished")
    return replace(record, jobs=done, spans=(), host_spans=())


def _job(member: Member, begun_s: float, row: int, cluster_now: ClusterNow, profiles: ProfileTable) -> JobSpec:
    """`row`: if the EmuJob has none. Raises what parsing an invalid spec raises."""
    job, emujob = member.job, member.emujob
    submit_s = max(0.0, (job.submitted_s or begun_s) - begun_s)
    row = row if emujob.row is None else emujob.row
    return job_spec(job.job_id, emujob.spec, submit_s, row, cluster_now.offers, profiles)


def _policy(emujob: EmuJob) -> str:
    return emujob.policy or f"{emujob.pod_scheduler} (Kubernetes)"


def numbered(runs: Iterable[Run]) -> list[Run]:
    """The runs in order of their beginning, with `repeat` counted for each policy within its experiment."""
    counts = Counter[tuple[str, str]]()
    found = []
    for run in sorted(runs, key=lambda run: (run.begun_s, run.namespace)):
        counts[run.experiment, run.policy] += 1
        found.append(replace(run, repeat=counts[run.experiment, run.policy]))
    return found
