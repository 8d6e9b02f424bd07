"""From the observed state to actions: one pure function per EmuJob, called after every change (level-triggered).

It plans nothing that is already so, and never writes fields that a job-level scheduler owns: with actuator `jobs` a Job is
created suspended, and only its scheduler resumes it. A Job is created if there is none and no pod of an older one lives. A Job
whose pod was rejected by a node is deleted and created again, because Kubernetes counts that as a failure and waits longer each
time. Progress isn't lost: managers store it by the EmuJob's uid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import to_s
from emulator_runtime.profiles.table import ProfileTable
from operators.controllers.actions import NOT_CARRIED_OUT, CommonAction, DeleteJob, Plan, SuspendJob, report
from operators.controllers.events import Event
from operators.fitting.offers import Fit, NodeOffer, first_fit
from operators.jobs.creation_attempts import RefusedCreation
from operators.jobs.manifests import Images, job_document, service_document
from operators.jobs.resizing import TROUBLES, Refusal, Resources, wanted_of
from operators.jobs.status import JobObjects, Moment, Verdict, status_of
from operators.kube.documents import Key, condition_of, text_at, whole_at
from operators.kube.timestamps import rfc3339, rfc3339_micro, seconds_of
from operators.objects.emujob import EmuJob, EmuJobSpec
from operators.objects.job import BatchJob
from operators.objects.names import FINAL
from operators.objects.pod import Pod
from operators.objects.scheduler_notes import REASONS as SCHEDULING_PROBLEMS
from operators.results.status import Outcome

_LONGEST_PAUSE_S = 60.0
_LAST_WORD_S = 5.0
"""Maximum wait for the last event after the Job completes: a reader of Succeeded expects the time of the end beside it."""


@dataclass(frozen=True, slots=True)
class CreateJob:
    """Create this Job; no Job of the same name may exist."""

    key: Key
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreateService:
    """Create this Service."""

    key: Key
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Change the container's real requests and limits in place; it isn't restarted."""

    key: Key
    resources: Resources


OwnAction = CreateJob | CreateService | ResizePod
"""Actions of this controller only."""
Action = OwnAction | CommonAction


@dataclass(frozen=True, slots=True)
class Context:
    """State that all EmuJobs share. `log_connected`: the event log is being read now."""

    offers: Sequence[NodeOffer]
    profiles: ProfileTable
    images: Images
    now_ns: int
    log_connected: bool = True


@dataclass(frozen=True, slots=True)
class Observed:
    """The objects of an EmuJob's name. `job`: the Job of this name, also if another object owns it.

    `pods`: all with the EmuJob's label. `refusals`: the refusal of the last resize by uid of a pod. `refused_creation`: why the
    last attempt to create the Job or the Service failed.
    """

    job: BatchJob | None = None
    pods: Sequence[Pod] = ()
    has_service: bool = False
    outcome: Outcome | None = None
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    refused_creation: RefusedCreation | None = None


def plan(emujob: EmuJob, observed: Observed, context: Context) -> Plan[Action]:
    """Pure: equal observations give equal plans."""
    if emujob.deleting:
        return Plan()  # Kubernetes deletes its Job and Service, whose owner it is
    now = Moment(rfc3339(context.now_ns), rfc3339_micro(context.now_ns))
    own = observed.job if observed.job is not None and observed.job.owner == emujob.key.uid else None
    pods = [pod for pod in observed.pods if own is not None and pod.owner == own.key.uid]
    wait_s = _wait_for_the_log_s(own, observed.outcome, context)
    refused_creation = observed.refused_creation.problem if observed.refused_creation is not None else ""
    orphaned = _orphaned(observed) if observed.job is None else ()
    seen = JobObjects(own, pods, observed.outcome, wait_s > 0, observed.refusals, refused_creation, orphaned)
    try:
        spec = emujob.spec
    except InputError as error:
        accepted = ("False", "InvalidSpec", str(error))
        reports = report(emujob.key, emujob.status_json, status_of(emujob, None, seen, accepted, now), _events)
        return Plan(tuple(reports), wait_s or None)
    is_open = _is_open(emujob, own)
    fit = first_fit(spec, context.offers, context.profiles) if is_open else Fit(spec.configurations[0])
    accepted = _accepted(fit, observed.job if is_open and own is None else None)
    status = status_of(emujob, spec, seen, accepted, now)
    steps, again_s = _steps(emujob, spec, observed, seen, (fit, status, context))
    reports = report(emujob.key, emujob.status_json, status, _events)
    return Plan((*reports, *steps), min(wait_s, again_s or wait_s) if wait_s > 0 else again_s)


def _wait_for_the_log_s(job: BatchJob | None, outcome: Outcome | None, context: Context) -> float:
    """Remaining wait. It counts from when the end was seen here: the API server's clock may differ."""
    if job is None or not job.complete or outcome is None or outcome.exact or not context.log_connected:
        return 0.0
    waited_s = to_s(context.now_ns - job.seen_ns)
    return _LAST_WORD_S - waited_s if 0 <= waited_s < _LAST_WORD_S else 0.0  # below 0: the clock was set back


def _is_open(emujob: EmuJob, job: BatchJob | None) -> bool:
    """Whether it is still to be decided if the job can run: not once it runs or has ended."""
    phase = emujob.phase
    if phase == "Succeeded":
        return False
    if job is None:
        return phase not in FINAL
    return job.suspended and not job.finished and not job.deleting


def _accepted(fit: Fit, foreign: BatchJob | None) -> Verdict:
    if fit.configuration is None:
        return "False", "InvalidProfile" if fit.misstated else "NoNodeFits", fit.problem
    if foreign is not None and not foreign.deleting:
        fix = "delete it, or give the EmuJob another name"
        return "False", "NameTaken", f"there is a Job {foreign.key.name} that isn't this EmuJob's; {fix}"
    return "True", "Accepted", ""


def _steps(
    emujob: EmuJob,
    spec: EmuJobSpec,
    observed: Observed,
    seen: JobObjects,
    rest: tuple[Fit, Mapping[str, Any], Context],
) -> tuple[list[Action], float | None]:
    fit, status, context = rest
    later_s = observed.refused_creation.left_s if observed.refused_creation is not None else 0.0
    if status["phase"] in FINAL:
        return [SuspendJob(seen.job.key, suspend=True)] if seen.job is not None and _would_go_on(seen.job) else [], None
    service: list[Action] = []
    if spec.nodes > 1 and not observed.has_service and status["phase"] != "Rejected" and not later_s:
        service = [CreateService(emujob.key, service_document(emujob))]
    if seen.job is None:
        if observed.job is not None or seen.orphaned or fit.configuration is None:
            return service, None
        if later_s:
            return [], later_s
        document = job_document(emujob, spec, context.images, fit.configuration, fit.gpu_types)
        return [*service, CreateJob(emujob.key, document)], None
    if seen.job.deleting:
        return service, None
    if seen.rejected and not seen.job.complete:
        wait_s = _pause_left_s(status, seen, context.now_ns)
        return (service, wait_s) if wait_s > 0 else ([*service, DeleteJob(seen.job.key)], None)
    held = _hold(spec, seen)
    hold = [SuspendJob(seen.job.key, held)] if held is not None else []
    return [*service, *hold, *_resizes(spec, seen, context.now_ns)], later_s or None


def _orphaned(observed: Observed) -> tuple[Pod, ...]:
    """Live pods of a Job that is gone: another Job's pods would train beside them."""
    return tuple(sorted((pod for pod in observed.pods if not pod.over), key=lambda pod: pod.key.name))


def _would_go_on(job: BatchJob) -> bool:
    """Whether Kubernetes would start another pod of a job that has ended, because the previous one could not report the end."""
    return not (job.finished or job.suspended or job.deleting)


def _resizes(spec: EmuJobSpec, seen: JobObjects, now_ns: int) -> Iterator[ResizePod]:
    for pod in seen.staying if spec.native.follow else ():
        wanted, refusal = wanted_of(spec, pod), seen.refusals.get(pod.key.uid)
        if wanted is not None and (refusal is None or not refusal.of(wanted) or refusal.is_old(now_ns)):
            yield ResizePod(pod.key, wanted)


def _pause_left_s(status: Mapping[str, Any], seen: JobObjects, now_ns: int) -> float:
    """No pause the first time, then 1 s, 2 s, 4 s ... after the pod was created: a node may reject everything."""
    rejections = whole_at(status, "rejections")
    if rejections < 2:
        return 0.0
    pause_s = min(_LONGEST_PAUSE_S, 2.0 ** min(rejections - 2, 30))
    made_s = max(seconds_of(pod.created) or 0.0 for pod in seen.rejected)
    return made_s + pause_s - now_ns / 1e9


def _hold(spec: EmuJobSpec, seen: JobObjects) -> bool | None:
    """The value that spec.suspend of the Job must get; None: it stays.

    A job-level scheduler resumes its Jobs itself. Kubernetes would start new pods beside those that are still ending.
    """
    job = seen.job
    if job is None or job.finished:
        return None
    if spec.suspend:
        return None if job.suspended else True
    if not job.suspended or spec.actuator == "jobs":
        return None
    return None if job.active or job.terminating or seen.live else False


def _events(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    was, accepted = condition_of(before, "Accepted"), condition_of(after, "Accepted")
    if (was.get("status"), was.get("reason")) != (accepted["status"], accepted["reason"]):
        if accepted["status"] == "False":
            yield Event("Warning", accepted["reason"], accepted["message"])
        elif was:
            yield Event("Normal", "Accepted", "the job can run now")
    resized, former = condition_of(after, "Resized"), condition_of(before, "Resized")
    if resized.get("reason") in TROUBLES and resized["reason"] != former.get("reason"):
        yield Event("Warning", f"Resize{resized['reason']}", str(resized["message"]))
    waits, waited = condition_of(after, "Scheduled"), condition_of(before, "Scheduled")
    if waits["reason"] == NOT_CARRIED_OUT and waits["message"] != waited.get("message"):
        yield Event("Warning", NOT_CARRIED_OUT, str(waits["message"]))
    if waits["reason"] in SCHEDULING_PROBLEMS and waits["reason"] != waited.get("reason"):
        yield Event("Warning", str(waits["reason"]), str(waits["message"]))
    predicted = condition_of(after, "Predicted")
    if predicted.get("status") == "False" and condition_of(before, "Predicted").get("status") != "False":
        yield Event("Warning", "PredictionUnreadable", str(predicted["message"]))
    if whole_at(after, "rejections") > whole_at(before, "rejections"):
        yield Event("Warning", "NodeRejected", "a node rejected a pod; the Job is created again and keeps its progress")
    if whole_at(after, "preemptions") > whole_at(before, "preemptions"):
        often = "once" if after["preemptions"] == 1 else f"{after['preemptions']} times"
        yield Event("Normal", "Preempted", f"preempted {often}, {_progress(after)}")
    phase = after["phase"]
    if phase == text_at(before, "phase"):
        return
    if phase == "Running":
        yield Event("Normal", "Running", f"runs on {after.get('node', 'its nodes')}, {_progress(after)}")
    elif phase == "Succeeded":
        observed = after.get("observedJCTSeconds")
        yield Event("Normal", "Complete", _progress(after) + (f", {observed:.6g} s" if observed is not None else ""))
    elif phase == "Failed":
        failed = condition_of(after, "Failed")
        yield Event("Warning", str(failed.get("reason", "Failed")), str(failed.get("message", "")))


def _progress(status: Mapping[str, Any]) -> str:
    return f"{status.get('progress', '')} {status.get('progressUnit', 'steps')} done".strip()
