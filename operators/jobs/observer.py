"""Reports what the controller sees to the results: jobs, their ends, and the container states of their pods.

This covers EmuJobs, and plain Jobs and Pods that request emulated GPUs. Unchanged objects aren't reported again, so that
observing the whole cluster after each change is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from emulator_runtime.domain.errors import InputError
from emulator_runtime.profiles.table import ProfileTable
from operators.fitting.offers import NodeOffer
from operators.jobs.isolated_time import isolated_s
from operators.jobs.status import prediction_of
from operators.kube.documents import text_at
from operators.kube.timestamps import ns_of
from operators.objects.emujob import EmuJob, EmuJobSpec
from operators.objects.job import BatchJob, submission_ns
from operators.objects.names import FINAL
from operators.objects.pod import Pod
from operators.results.events import ENDS, JobEvent, events_of_pod
from operators.results.facts_and_result import JobFacts, merged
from operators.results.predicted import Prediction
from operators.results.status import Outcome


class Results(Protocol):
    """The part of operators.results.keeper.ResultKeeper that is needed here; no call waits."""

    cluster_gpus: int

    def outcome(self, uid: str) -> Outcome | None: ...
    def note(self, facts: JobFacts, prediction: Prediction | None = None) -> None: ...
    def tell(self, events: Iterable[JobEvent]) -> None: ...
    def open_jobs(self) -> list[JobFacts]: ...
    def gone(self, uid: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All objects that the controller sees, once all were listed; or, not `whole`, those of one name. `now_ns`: wall clock."""

    emujobs: Sequence[EmuJob]
    jobs: Sequence[BatchJob]
    pods: Sequence[Pod]
    offers: Sequence[NodeOffer]
    now_ns: int
    whole: bool = True


class Observer:
    """`look` at each view of the cluster."""

    def __init__(self, results: Results, profiles: ProfileTable) -> None:
        self._results, self._profiles = results, profiles
        self._reported: dict[str, tuple[JobEvent, ...]] = {}
        self._specs: dict[str, tuple[int, EmuJobSpec | None]] = {}
        self._noted: dict[str, JobFacts] = {}
        self._last: dict[str, tuple[EmuJob, BatchJob | None]] = {}

    def look(self, view: ClusterView) -> None:
        if view.whole:
            self._results.cluster_gpus = sum(len(offer.devices) for offer in view.offers)
        owned = {job.owner: job for job in view.jobs if job.owner}
        for emujob in view.emujobs:
            job, before = owned.get(emujob.key.uid), self._last.get(emujob.key.uid)
            if before is None or before[0] is not emujob or before[1] is not job or self._is_open(emujob):
                self._emujob(emujob, job, view)
                self._last[emujob.key.uid] = emujob, job
        plain = [job for job in view.jobs if job.demand.containers]
        for job in plain:
            self._note(_of_job(job))
        for pod in view.pods:
            if pod.demand.containers and pod.work_uid == pod.key.uid:
                self._note(_of_pod(pod, view.now_ns))
        self._events(view.pods)
        if view.whole:
            self._gone(view, plain)

    def _is_open(self, emujob: EmuJob) -> bool:
        """Its isolated time is unknown so far; pools that are created later may make it known."""
        noted = self._noted.get(emujob.key.uid)
        return noted is None or noted.isolated_s is None

    def _emujob(self, emujob: EmuJob, job: BatchJob | None, view: ClusterView) -> None:
        """Noted only after status.submittedAt was written, so that a restarted controller uses the same time."""
        submitted_ns, spec = ns_of(text_at(emujob.status_json, "submittedAt")), self._spec(emujob)
        if submitted_ns is None or spec is None:
            return
        uid, before = emujob.key.uid, self._noted.get(emujob.key.uid)
        isolated = before.isolated_s if before is not None else None
        if isolated is None and emujob.phase not in FINAL:
            isolated = isolated_s(spec, view.offers, self._profiles)
        gpus = spec.configuration(job.configuration).gpus if job is not None else None
        if gpus is None:
            gpus = before.gpus if before is not None else spec.configurations[0].gpus
        failed_ns = ns_of(job.completed) if job is not None and job.failure_reason else None
        facts = JobFacts(
            uid=uid,
            namespace=emujob.key.namespace,
            name=emujob.key.name,
            submitted_ns=submitted_ns,
            tasks=spec.nodes,
            steps=spec.length,
            gpus=gpus,
            isolated_s=isolated,
            policy=emujob.policy,
            failed_ns=failed_ns if emujob.phase == "Failed" else None,
            experiment=emujob.experiment,
            completed_ns=ns_of(job.completed) if job is not None and job.complete else None,
        )
        prediction, _ = prediction_of(emujob)
        self._note(facts, prediction)

    def _spec(self, emujob: EmuJob) -> EmuJobSpec | None:
        known = self._specs.get(emujob.key.uid)
        if known is None or known[0] != emujob.generation:
            try:
                spec = emujob.spec
            except InputError:  # its status reports the error
                spec = None
            known = self._specs[emujob.key.uid] = emujob.generation, spec
        return known[1]

    def _note(self, facts: JobFacts, prediction: Prediction | None = None) -> None:
        before = self._noted.get(facts.uid)
        if before is not None:  # the first observation has the earliest submission
            facts = merged(before, facts)
        self._noted[facts.uid] = facts
        self._results.note(facts, prediction)

    def _events(self, pods: Sequence[Pod]) -> None:
        seen = {pod.key.uid: tuple(events_of_pod(pod)) for pod in pods if pod.runs}
        news = [event for uid, events in seen.items() if self._reported.get(uid, ()) != events for event in events]
        if news:
            self._results.tell(news)
        self._reported |= seen

    def _gone(self, view: ClusterView, plain: Sequence[BatchJob]) -> None:
        """Jobs whose object doesn't exist any more, including those of earlier processes."""
        present = {(emujob.key.namespace, emujob.key.uid) for emujob in view.emujobs}
        present |= {(job.key.namespace, job.key.uid) for job in plain}
        # An orphaned pod doesn't prove that its job exists, but while it runs it holds devices for the job.
        present |= {
            (pod.key.namespace, pod.work_uid)
            for pod in view.pods
            if pod.work_uid == pod.key.uid or pod.phase == "Running"
        }
        pods = {pod.key.uid for pod in view.pods}
        self._reported = {uid: events for uid, events in self._reported.items() if uid in pods}
        for facts in self._results.open_jobs():
            if (facts.namespace, facts.uid) not in present:
                self._results.note(replace(facts, deleted_ns=view.now_ns))
        known = {(facts.namespace, facts.uid) for facts in self._noted.values()}
        known |= {(emujob.key.namespace, emujob.key.uid) for emujob, _ in self._last.values()}
        for _, uid in known - present:
            self._specs.pop(uid, None)
            self._last.pop(uid, None)
            if self._noted.pop(uid, None) is not None:
                self._results.gone(uid)


def _of_job(job: BatchJob) -> JobFacts:
    return JobFacts(
        uid=job.key.uid,
        namespace=job.key.namespace,
        name=job.key.name,
        submitted_ns=submission_ns(job.created, job.seen_ns),
        tasks=job.tasks * len(job.demand.containers),
        gpus=job.demand.devices,
        failed_ns=ns_of(job.completed) if job.failure_reason else None,
        completed_ns=ns_of(job.completed) if job.complete else None,
        kind="Job",
    )


def _of_pod(pod: Pod, now_ns: int) -> JobFacts:
    failed_ns = None
    if pod.phase == "Failed" and not pod.deleting:
        failed_ns = max((event.wall_ns for event in events_of_pod(pod) if event.kind in ENDS), default=now_ns)
    return JobFacts(
        uid=pod.key.uid,
        namespace=pod.key.namespace,
        name=pod.key.name,
        submitted_ns=submission_ns(pod.created, pod.seen_ns),
        tasks=len(pod.demand.containers),
        gpus=pod.demand.devices,
        failed_ns=failed_ns,
        kind="Pod",
    )
