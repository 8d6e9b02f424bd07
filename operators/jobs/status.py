"""The status of an EmuJob: phase, place, figures and conditions, from the observed objects and the previous status.

The previous status is memory for what can't be observed later: when the job was submitted and how often it was preempted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.exit_codes import EXIT_STOPPED
from operators.controllers.actions import NOT_CARRIED_OUT
from operators.jobs.resizing import Refusal, resized
from operators.kube.documents import new_condition, object_at, objects_in, text_at, whole_at
from operators.kube.timestamps import rfc3339_micro, seconds_of
from operators.objects.emujob import EmuJob, EmuJobSpec
from operators.objects.job import BatchJob, submission_ns
from operators.objects.names import FINAL, HOLDING
from operators.objects.pod import Pod
from operators.objects.scheduler_notes import allocation_status, read_allocation, read_problem
from operators.results.facts_and_result import EVENT_LOG
from operators.results.predicted import Prediction
from operators.results.status import Outcome, members_of

ORPHANED_POD = "PodLeft"
"""Reason: the Job can't be created while a pod of an earlier one lives."""
LAST_LINE_CHARACTERS = 300
Verdict = tuple[str, str, str]
"""A condition's status, reason and message."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The same time as RFC 3339 in seconds, for conditions, and in microseconds."""

    seconds: str
    micro: str


@dataclass(frozen=True, slots=True)
class JobObjects:
    """The objects of an EmuJob. `job`: its own Job; `pods`: those of this Job.

    `awaits_log`: the Job is complete, and the event of the last step's end may arrive any moment. `refusals`: of resizes, by uid
    of a pod. `refused_creation`: why the API server refuses the Job or the Service; empty: it doesn't, or wasn't asked.
    `orphaned`: live pods of a Job that is gone.
    """

    job: BatchJob | None = None
    pods: Sequence[Pod] = ()
    outcome: Outcome | None = None
    awaits_log: bool = False
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    refused_creation: str = ""
    orphaned: Sequence[Pod] = ()

    @property
    def live(self) -> list[Pod]:
        return [pod for pod in self.pods if not pod.over]

    @property
    def staying(self) -> list[Pod]:
        return [pod for pod in self.live if not pod.deleting]

    @property
    def finished_unreported(self) -> bool:
        """Whether its last step ended while it was being stopped: the event log has the end, and no pod remained to report it to
        Kubernetes."""
        in_log = self.outcome is not None and self.outcome.result.finished and self.outcome.result.told_by == EVENT_LOG
        if not in_log or self.job is None or self.job.finished or any(pod.node for pod in self.live):
            return False
        return self.job.suspended or bool(self.live)  # else its own end, or another pod, will follow

    @property
    def rejected(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.rejected]


def status_of(
    emujob: EmuJob, spec: EmuJobSpec | None, seen: JobObjects, accepted: Verdict, now: Moment
) -> dict[str, Any]:
    """The whole status; `spec` None: it can't be read."""
    before = emujob.status_json
    status: dict[str, Any] = {
        "observedGeneration": emujob.generation,
        "submittedAt": text_at(before, "submittedAt") or _submitted(emujob, now),
        "preemptions": _preemptions(before, seen.job),
        "rejections": _rejections(before, seen),
    }
    status["phase"] = phase = _phase(before, spec, seen, accepted)
    known = _known(before, seen.outcome)
    status |= _times(before, seen, known)
    if spec is not None or "steps" in before:
        status |= _progress(before, whole_at(before, "steps") if spec is None else spec.length, known, phase)
        unit = text_at(before, "progressUnit") if spec is None else spec.unit
        status |= {"progressUnit": unit} if unit == "samples" else {}
    if spec is not None:
        status |= _place(before, emujob, spec, seen, phase)
    else:
        status |= {name: before[name] for name in ("gpus", "allocation", "node") if name in before}
    if seen.job is not None:
        status["jobName"] = seen.job.key.name
        status["job"] = {"uid": seen.job.key.uid, "run": seen.job.run, "rejected": bool(seen.rejected)}
        status["failures"] = max(0, seen.job.failed - len(seen.rejected))
    else:
        status |= {name: before[name] for name in ("jobName", "job", "failures") if name in before}
    status |= _numbers(before, emujob, status, known)
    prediction, _ = prediction_of(emujob)
    if "predictedJCTSeconds" in before:  # the one made at submission stays: a later one would know more
        status["predictedJCTSeconds"] = before["predictedJCTSeconds"]
    elif prediction is not None:
        status["predictedJCTSeconds"] = prediction.to_status()
    status["conditions"] = _conditions(emujob, spec, seen, accepted, phase=phase, now=now.seconds)
    return status


def _phase(before: Mapping[str, Any], spec: EmuJobSpec | None, seen: JobObjects, accepted: Verdict) -> str:
    old, job = text_at(before, "phase"), seen.job
    if old in FINAL and (job is None or job.finished):
        return old
    if job is not None and (seen.finished_unreported or (old == "Succeeded" and job.suspended)):
        return "Succeeded"
    if job is None:
        return "Pending" if accepted[0] == "True" else "Rejected"
    if job.complete and not seen.rejected and seen.awaits_log:
        return "Running"
    if job.finished and not seen.rejected:
        return "Succeeded" if job.complete else "Failed"
    if job.deleting or job.finished:
        return "Queued"
    if job.suspended:
        if accepted[0] != "True":
            return "Rejected"
        return "Preempted" if text_at(before, "startedAt") else "Queued"
    if sum(pod.phase == "Running" for pod in seen.live) >= _nodes(spec, job):
        return "Running"
    if any(pod.phase in ("Running", "Succeeded") for pod in seen.pods) and old == "Running":
        return "Running"  # some pods of the job are done already
    if job.allocation and spec is not None and spec.actuator == "jobs":
        return "Starting"
    return "Starting" if any(pod.node for pod in seen.live) else "Queued"


def _nodes(spec: EmuJobSpec | None, job: BatchJob | None) -> int:
    """Number of pods of the job; if its specification can't be read any more, those for which its Job was created."""
    if spec is not None:
        return spec.nodes
    return 0 if job is None else job.tasks


def _preemptions(before: Mapping[str, Any], job: BatchJob | None) -> int:
    """One more if an observed run has ended without the Job's end: the Job is suspended now, or another run began.

    A Job that was created again is another one: its pods were rejected, nothing was preempted.
    """
    count, last = whole_at(before, "preemptions"), object_at(before, "job")
    same = job is not None and text_at(last, "uid") == job.key.uid and not job.finished
    ended = bool(text_at(last, "run")) and job is not None and text_at(last, "run") != job.run
    return count + (same and ended)


def _rejections(before: Mapping[str, Any], seen: JobObjects) -> int:
    """One more for each Job with a rejected pod."""
    last = object_at(before, "job")
    known = seen.job is not None and text_at(last, "uid") == seen.job.key.uid and last.get("rejected") is True
    new = seen.job is not None and not seen.job.complete and bool(seen.rejected) and not known
    return whole_at(before, "rejections") + new


def _submitted(emujob: EmuJob, now: Moment) -> str:
    return rfc3339_micro(submission_ns(emujob.created, emujob.seen_ns)) if emujob.seen_ns else now.micro


def prediction_of(emujob: EmuJob) -> tuple[Prediction | None, str]:
    """The prediction in its annotation, else why it can't be read; neither if there is none."""
    try:
        found = Prediction.from_json(emujob.predicted, f"EmuJob {emujob.key}: annotation") if emujob.predicted else None
    except InputError as error:
        return None, str(error)
    return found, ""


def _known(before: Mapping[str, Any], outcome: Outcome | None) -> dict[str, Any]:
    """The members that the results provide. After the job's end they only improve: a store that was lost may know less than the
    status."""
    if outcome is None:
        return {}
    found, runs_before = members_of(outcome), len(objects_in(before, "runs"))
    phase = text_at(before, "phase")
    over = phase in FINAL and bool(text_at(before, "finishedAt"))
    worse = phase == "Succeeded" and outcome.result.told_by != EVENT_LOG  # the event log has no ends of failures
    return {} if over and (worse or len(found["runs"]) < runs_before) else found


def _times(before: Mapping[str, Any], seen: JobObjects, known: Mapping[str, Any]) -> dict[str, Any]:
    started = min((pod.started for pod in seen.pods if pod.started), default="")
    finished = seen.job.completed if seen.job is not None and seen.job.finished and not seen.rejected else ""
    complete = seen.job is not None and seen.job.complete
    awaited = complete and seen.outcome is not None and not seen.outcome.exact  # a better time may arrive
    times = {
        "startedAt": text_at(known, "startedAt") or text_at(before, "startedAt") or started,
        "finishedAt": text_at(known, "finishedAt") or text_at(before, "finishedAt") or ("" if awaited else finished),
    }
    return {name: time for name, time in times.items() if time}


def _progress(before: Mapping[str, Any], steps: int, known: Mapping[str, Any], phase: str) -> dict[str, Any]:
    """Steps as of the newest event, and its time; they never decrease."""
    reported, previous = whole_at(known, "stepsDone"), whole_at(before, "stepsDone")
    done = steps if phase == "Succeeded" else min(steps, max(reported, previous))
    progress = {"steps": steps, "stepsDone": done, "progress": f"{done}/{steps}"}
    newest = text_at(known if reported >= previous else before, "stepsDoneAt") or text_at(before, "stepsDoneAt")
    return progress | ({"stepsDoneAt": newest} if newest else {})


def _place(before: Mapping[str, Any], emujob: EmuJob, spec: EmuJobSpec, seen: JobObjects, phase: str) -> dict[str, Any]:
    """The allocation by its scheduler's annotation or by the pods; that of a finished job stays."""
    job, kept = seen.job, {name: before[name] for name in ("allocation", "node") if name in before}
    configuration = spec.configuration(job.configuration if job is not None else "")
    gpus = configuration.gpus * spec.nodes
    if job is None or phase not in HOLDING:
        return {"gpus": whole_at(before, "gpus") or gpus, **kept} if phase in FINAL else {"gpus": gpus}
    latest = next((pod.allocation for pod in seen.staying if pod.allocation), job.allocation)
    allocation = read_allocation(latest, f"Job {emujob.key}: {emujob.key.name}")
    nodes = sorted({pod.node for pod in seen.pods if pod.node and not pod.rejected})
    if allocation is not None and spec.actuator != "none":
        configuration = spec.configuration(allocation.configuration)
        each = allocation.gpus if allocation.gpus in configuration.gpu_range else configuration.gpus
        gpus, batch_size = each * spec.nodes, allocation.batch_size or configuration.batch_size
        found = allocation_status(allocation, gpus, batch_size if spec.elastic else 0)
    elif nodes:
        amounts = {"cpu": f"{configuration.cpu_milli}m", "memory": str(configuration.memory_bytes)}
        found = {"configuration": configuration.name, "nodes": nodes, "gpus": gpus, **amounts, "devices": []}
    else:
        return {"gpus": gpus}
    return {"gpus": gpus, "allocation": found, "node": ",".join(nodes or found["nodes"])}


_NUMBERS = ("observedJCTSeconds", "queueingDelaySeconds", "serviceSeconds", "slowdown", "fairness", "runs")


def _numbers(
    before: Mapping[str, Any], emujob: EmuJob, status: Mapping[str, Any], known: dict[str, Any]
) -> dict[str, Any]:
    """Job completion time and related figures: from events if there are any, else in whole seconds."""
    since = seconds_of(text_at(status, "submittedAt"))
    started, finished = (seconds_of(text_at(status, name)) for name in ("startedAt", "finishedAt"))
    api: dict[str, Any] = {}
    if since is not None and started is not None:
        api["queueingDelaySeconds"] = round(max(0.0, started - since), 6)
    if since is not None and finished is not None and status["phase"] == "Succeeded":
        api["observedJCTSeconds"] = round(max(0.0, finished - since), 6)
    kept = {name: before[name] for name in _NUMBERS if name in before}
    return {name: value for name, value in (api | kept | known).items() if name in _NUMBERS}


def _conditions(
    emujob: EmuJob, spec: EmuJobSpec | None, seen: JobObjects, accepted: Verdict, *, phase: str, now: str
) -> list[dict[str, Any]]:
    verdicts: dict[str, Verdict] = {
        "Accepted": accepted,
        "Scheduled": _scheduled(emujob, spec, seen, phase),
        "Progressing": _progressing(spec, seen, accepted, phase),
        "Complete": ("True", "AllStepsDone", "") if phase == "Succeeded" else ("False", "NotFinished", ""),
    }
    if phase != "Failed":
        verdicts["Failed"] = ("False", "NotFailed", "")
    elif seen.job is not None:  # else the Job is gone; its message stays
        verdicts["Failed"] = ("True", seen.job.failure_reason or "JobFailed", seen.job.failure + _last_line(seen))
    if spec is not None and spec.native.follow:
        verdicts["Resized"] = resized(spec, seen.staying, seen.refusals)
    verdicts |= _measured(seen.outcome) | _predicted(emujob)
    made = [new_condition(emujob.status_json, kind, v, emujob.generation, now) for kind, v in verdicts.items()]
    kept = [c for c in emujob.status_json.get("conditions", ()) if c.get("type") not in verdicts]
    return [*made, *kept]


def _last_line(seen: JobObjects) -> str:
    """The last line of the log of a container that failed, such as an error of `emugpu train`; empty if there is none."""
    failed = (run for pod in seen.pods for run in pod.runs if run.exit_code not in (0, EXIT_STOPPED))
    lines = (line.strip() for run in failed for line in reversed(run.message.splitlines()))
    line = next(filter(None, lines), "")
    return f"; its last line: {line[:LAST_LINE_CHARACTERS]}" if line else ""


def _measured(outcome: Outcome | None) -> dict[str, Verdict]:
    """Whether the figures are reliable, once there are any."""
    if outcome is None or not outcome.result.runs:
        return {}
    notes = "; ".join(outcome.result.notes)
    return {"Measured": ("False", "Doubtful", notes) if notes else ("True", "EventLog", "")}


def _predicted(emujob: EmuJob) -> dict[str, Verdict]:
    """Whether the prediction of its scheduler could be read, if it made one."""
    prediction, problem = prediction_of(emujob)
    if problem:
        return {"Predicted": ("False", "Unreadable", problem)}
    return {} if prediction is None else {"Predicted": ("True", "AtSubmission", "")}


def _scheduled(emujob: EmuJob, spec: EmuJobSpec | None, seen: JobObjects, phase: str) -> Verdict:
    if phase in FINAL:
        return "False", "Finished", ""
    if phase == "Rejected":
        return "False", "Rejected", "the job can't run here, as condition Accepted says"
    bound = sum(bool(pod.node) and pod.phase != "Failed" for pod in seen.pods)  # includes pods that are done
    wanted = _nodes(spec, seen.job)
    if seen.job is not None and not seen.job.suspended and bound >= wanted:
        return "True", "PodsBound", ""
    if (held_up := _held_up(seen)) is not None:
        return held_up
    if spec is not None and spec.suspend:
        return "False", "Held", "spec.suspend is true"
    if spec is not None and spec.actuator != "none" and not bound:
        if (problem := read_problem(emujob.scheduling_problem)) is not None:
            return "False", problem.reason, problem.message
        return "False", "WaitingForScheduler", f"scheduler {spec.scheduler} has not allocated anything"
    return "False", "WaitingForNodes", f"{bound} of {wanted} pods have a node"


def _held_up(seen: JobObjects) -> Verdict | None:
    """Why its Job isn't created."""
    if seen.orphaned:
        staying = [pod.key for pod in seen.orphaned if not pod.deleting]
        if not staying:
            return "False", "PodsEnding", f"pod {seen.orphaned[0].key.name} of a Job that is gone is ending"
        names = " ".join(key.name for key in staying[:8])
        why = "belongs to a Job that was deleted without its pods, and two Jobs would train at once"
        fix = f"`kubectl delete pod -n {staying[0].namespace} {names}` lets the job go on"
        return "False", ORPHANED_POD, f"pod {staying[0].name} {why}; {fix}"
    return ("False", NOT_CARRIED_OUT, seen.refused_creation) if seen.refused_creation else None


def _progressing(spec: EmuJobSpec | None, seen: JobObjects, accepted: Verdict, phase: str) -> Verdict:
    if phase == "Running":
        return "True", "Running", ""
    if phase == "Starting":
        return "True", "Starting", ""
    if phase in FINAL:
        return "False", "Finished", ""
    if phase == "Rejected":
        return "False", accepted[1], accepted[2]
    if (held_up := _held_up(seen)) is not None:
        return "False", held_up[1], ""  # Scheduled has the message
    if spec is not None and spec.suspend:
        return "False", "Held", "spec.suspend is true; set it to false to let the job go on"
    if seen.rejected:
        return "False", "NodeRejected", "a node rejected a pod; the Job is created again and keeps its progress"
    return "False", "Preempted" if phase == "Preempted" else "Queued", ""
