"""EmuJobs, and results of jobs that have none, as the API's jobs. Pure.

Of an EmuJob its status counts: the controller writes it from the same store, and kubectl shows the same figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator_runtime.domain.units import to_s
from emulator_runtime.node.inventory import split_device_id
from operators.api.model.snapshot import ENDED, HOLDING, KINDS, PHASES, Condition, Job, JobRun, Kind, Phase, Progress
from operators.api.model.statistics import error_of
from operators.api.sources.experiments import membership
from operators.kube.documents import condition_of, object_at, objects_in, text_at, texts_of, whole_at
from operators.kube.timestamps import seconds_of
from operators.objects.names import EXPERIMENT_LABEL, POLICY, RUN_NAMESPACE_PREFIX
from operators.results.events import BEGINS, FINISHED, JobEvent
from operators.results.job import JobResult
from operators.results.predicted import Prediction
from operators.results.runs import Run as StoredRun
from operators.results.runs import time_of

MOST_OF_POLICY = 128
"""Characters of a policy's title; the annotation is a text of any length."""
Places = Mapping[str, str]
"""NODE/INDEX by UUID, of the devices that there are now."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One EmuJob. Devices are UUIDs still, since a job may be seen before its node is."""

    job: Job
    name: str
    runs: tuple[JobRun, ...] = ()
    conditions: tuple[Condition, ...] = ()


def seen(document: Mapping[str, Any]) -> Seen:
    """An EmuJob as the API server sends it; what is odd in it is read as not there."""
    metadata, spec, status = (object_at(document, name) for name in ("metadata", "spec", "status"))
    namespace, labels = text_at(metadata, "namespace"), texts_of(metadata, "labels")
    own = membership(namespace, labels.get(EXPERIMENT_LABEL, ""), _policy(namespace, metadata, spec))
    phase = _phase(status)
    runs = tuple(_run(run) for run in objects_in(status, "runs"))
    allocation, predicted = object_at(status, "allocation"), object_at(status, "predictedJCTSeconds")
    jct_s, predicted_s = _number(status, "observedJCTSeconds"), _number(predicted, "value")
    finished_s = _time(status, "finishedAt") if phase in ENDED else None
    job = Job(
        uid=text_at(metadata, "uid"),
        name=text_at(metadata, "name"),
        run=own.run,
        submitted_s=_time(status, "submittedAt") or _time(metadata, "creationTimestamp") or 0.0,
        phase=phase,
        namespace=namespace,
        tenant=text_at(spec, "tenant") or namespace,
        experiment=own.experiment,
        policy=own.policy,
        reason=_reason(phase, status),
        gpus=whole_at(status, "gpus") if "gpus" in status else None,
        steps=whole_at(spec, "steps") or None,
        steps_done=whole_at(status, "stepsDone"),
        nodes=_texts(allocation, "nodes") or tuple(filter(None, text_at(status, "node").split(","))),
        devices=_holding(runs) or _texts(allocation, "devices") or (runs[-1].devices if runs else ()),
        started_s=_time(status, "startedAt"),
        finished_s=finished_s,
        jct_s=jct_s if phase == "Succeeded" else None,
        predicted_jct_s=predicted_s,
        predicted_by=text_at(predicted, "by"),
        error=error_of(predicted_s, jct_s) if phase == "Succeeded" else None,
        queueing_delay_s=_number(status, "queueingDelaySeconds"),
        service_s=_number(status, "serviceSeconds"),
        slowdown=_number(status, "slowdown"),
        fairness=_number(status, "fairness"),
        preemptions=whole_at(status, "preemptions"),
        suspended=spec.get("suspend") is True,
    )
    conditions = tuple(_condition(condition) for condition in objects_in(status, "conditions"))
    return Seen(job, job.name, runs or _only_run(job), conditions)


def placed(found: Seen, places: Places) -> tuple[Job, tuple[JobRun, ...]]:
    """With NODE/INDEX in the place of UUIDs that are known."""
    job = replace(found.job, devices=_named(found.job.devices, places))
    return job, tuple(replace(run, devices=_named(run.devices, places)) for run in found.runs)


def of_result(result: JobResult, prediction: Prediction | None) -> Seen:
    """A job of which the store alone knows: a plain Job or pod, or one whose EmuJob was deleted."""
    facts = result.facts
    own = membership(facts.namespace, facts.experiment, facts.policy)
    runs = tuple(run_of(run) for run in result.runs)
    jct_s, predicted_s = result.jct_s if result.finished else None, prediction.seconds if prediction else None
    ended: Phase = "Succeeded" if result.finished else "Failed" if result.finished_ns is not None else _unended(runs)
    job = Job(
        uid=facts.uid,
        name=facts.name,
        run=own.run,
        submitted_s=to_s(facts.submitted_ns),
        phase=ended,
        namespace=facts.namespace,
        tenant=facts.namespace,
        experiment=own.experiment,
        policy=own.policy,
        kind=_kind(facts.kind),
        reason="it was deleted before it had ended" if facts.deleted_ns is not None and not result.finished else "",
        gpus=facts.gpus * facts.tasks or None,
        steps=facts.steps or None,
        steps_done=result.steps_done,
        nodes=tuple(dict.fromkeys(run.node for run in runs)),
        devices=_holding(runs) or (runs[-1].devices if runs else ()),
        started_s=None if result.first_started_ns is None else to_s(result.first_started_ns),
        finished_s=None if result.finished_ns is None else to_s(result.finished_ns),
        jct_s=jct_s,
        predicted_jct_s=predicted_s,
        predicted_by=prediction.by if prediction is not None else "",
        error=error_of(predicted_s, jct_s),
        queueing_delay_s=result.queueing_delay_s,
        service_s=result.service_s,
        slowdown=result.slowdown,
        preemptions=result.preemptions,
        deleted=True,
    )
    return Seen(job, facts.name, runs)


def run_of(run: StoredRun) -> JobRun:
    """A run as the store computes it."""
    end_s = None if run.end_ns is None else to_s(run.end_ns)
    steps = run.from_step, run.to_step
    return JobRun(run.node, run.devices, to_s(run.begin_ns), end_s, *steps, run.ended)


def progress_of(events: Iterable[JobEvent]) -> list[Progress]:
    """From the events of one job: between which times it did which steps, each pod by itself."""
    last: dict[tuple[str, str, str], float] = {}
    found = []
    for event in events:
        key, at_s = (event.job_key, event.node, event.pod), to_s(time_of(event))
        if event.kind != BEGINS and event.steps_done > event.from_step:
            since_s = min(last.get(key, at_s), at_s)
            found.append(Progress(since_s, at_s, event.from_step, event.steps_done, event.node))
        last[key] = at_s
    return sorted(found, key=lambda each: (each.from_s, each.from_step))


def progress_of_runs(runs: Sequence[JobRun], now_s: float) -> list[Progress]:
    """Where no events are left: each run as one straight line."""
    return [
        Progress(run.from_s, run.to_s if run.to_s is not None else now_s, run.from_step, run.to_step, run.node)
        for run in runs
        if run.from_step is not None and run.to_step is not None and run.to_step > run.from_step
    ]


def _unended(runs: Sequence[JobRun]) -> Phase:
    return "Running" if any(run.to_s is None for run in runs) else "Preempted" if runs else "Queued"


def _policy(namespace: str, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """In a run's namespace the policy's title, which the program that submits the jobs annotates; else the scheduler's name."""
    title = texts_of(metadata, "annotations").get(POLICY, "") if namespace.startswith(RUN_NAMESPACE_PREFIX) else ""
    return title[:MOST_OF_POLICY] or text_at(object_at(spec, "scheduler"), "name")


def _kind(text: str) -> Kind:
    return next((kind for kind in KINDS if kind == text), "EmuJob")


def _phase(status: Mapping[str, Any]) -> Phase:
    text = text_at(status, "phase")
    return next((phase for phase in PHASES if phase == text), "Pending")


def _reason(phase: Phase, status: Mapping[str, Any]) -> str:
    """The sentence of the condition that says why it is not running, or not any more."""
    kinds = {"Rejected": ("Accepted",), "Failed": ("Failed",), "Succeeded": (), "Running": (), "Starting": ()}
    for kind in kinds.get(phase, ("Progressing", "Scheduled")):
        message = text_at(condition_of(status, kind), "message")
        if message:
            return message
    return ""


def _only_run(job: Job) -> tuple[JobRun, ...]:
    """Without a store nobody tells of runs: then from the start to the end, which is exact for one that was never stopped."""
    if job.started_s is None or (job.phase not in HOLDING and job.finished_s is None):
        return ()
    nodes = job.nodes or ("",)
    ended = FINISHED if job.phase == "Succeeded" else "failed" if job.phase == "Failed" else ""
    exact = job.preemptions == 0
    return tuple(
        JobRun(node, job.devices if len(nodes) == 1 else (), job.started_s, job.finished_s, ended=ended, exact=exact)
        for node in nodes
    )


def _run(document: Mapping[str, Any]) -> JobRun:
    return JobRun(
        node=text_at(document, "node"),
        devices=_texts(document, "devices"),
        from_s=_time(document, "from") or 0.0,
        to_s=_time(document, "to"),
        from_step=whole_at(document, "fromStep"),
        to_step=whole_at(document, "toStep"),
        ended=text_at(document, "ended"),
    )


def _condition(document: Mapping[str, Any]) -> Condition:
    kind, status, reason, message = (text_at(document, name) for name in ("type", "status", "reason", "message"))
    return Condition(kind, status, reason, message, _time(document, "lastTransitionTime"))


def _holding(runs: Iterable[JobRun]) -> tuple[str, ...]:
    return tuple(device for run in runs if run.to_s is None for device in run.devices)


def _named(devices: Iterable[str], places: Places) -> tuple[str, ...]:
    """A shared device's id is its UUID and which replica."""
    return tuple(dict.fromkeys(places.get(split_device_id(device)[0], device) for device in devices))


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = document.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _time(document: Mapping[str, Any], name: str) -> float | None:
    return seconds_of(text_at(document, name))


def _number(document: Mapping[str, Any], name: str) -> float | None:
    value = document.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
