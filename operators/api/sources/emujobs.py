"""Converts EmuJobs, and stored results of jobs without an EmuJob, into the API's jobs. Pure.

Figures of EmuJobs come from their status, which the controller writes from the same store, so that kubectl shows the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from emulator_runtime.domain.units import to_s
from emulator_runtime.node.inventory import split_device_id
from operators.api.model.snapshot import KINDS, Condition, Job, JobRun, Kind, Progress
from operators.api.model.statistics import error_of
from operators.kube.timestamps import seconds_of
from operators.objects.emujob import EmuJob, RunStatus
from operators.objects.forms import Condition as StatusCondition
from operators.objects.forms import condition
from operators.objects.names import FINAL, Phase, membership
from operators.results.events import BEGINS, JobEvent
from operators.results.facts_and_result import JobResult
from operators.results.predicted import Prediction
from operators.results.runs_from_events import Run as StoredRun
from operators.results.runs_from_events import time_of

Places = Mapping[str, str]
"""NODE/INDEX of the present devices, by UUID."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job with its runs and conditions. Devices are UUIDs, since its node may not be known yet (see `with_places`)."""

    job: Job
    name: str
    runs: tuple[JobRun, ...] = ()
    conditions: tuple[Condition, ...] = ()


def record_of(document: Mapping[str, Any]) -> JobRecord:
    """An EmuJob as the API server sends it."""
    emujob = EmuJob.read(document)
    key, status = emujob.key, emujob.status
    experiment, run = membership(key.namespace, emujob.experiment, emujob.policy)
    phase: Phase = status.phase or "Pending"
    runs = tuple(map(_run, status.runs))
    exact = not status.preemptions
    assumed = tuple(replace(_run(run), from_step=None, to_step=None, exact=exact) for run in status.assumed_runs)
    jct_s, predicted_s = status.observed_jct_s, status.predicted.value
    job = Job(
        uid=key.uid,
        name=key.name,
        run=run,
        submitted_s=_seconds(status.submitted_ns) or seconds_of(emujob.created) or 0.0,
        phase=phase,
        namespace=key.namespace,
        tenant=emujob.tenant,
        experiment=experiment,
        policy=emujob.policy,
        reason=_reason(phase, status.conditions),
        gpus=status.gpus,
        steps=status.steps or emujob.steps or None,
        steps_done=status.steps_done,
        unit=status.progress_unit,
        nodes=status.allocation.nodes or tuple(filter(None, status.node.split(","))),
        devices=_holding(runs) or status.allocation.devices or (runs[-1].devices if runs else ()),
        started_s=_seconds(status.started_ns),
        finished_s=_seconds(status.finished_ns) if phase in FINAL else None,
        jct_s=jct_s if phase == "Succeeded" else None,
        predicted_jct_s=predicted_s,
        predicted_by=status.predicted.by,
        error=error_of(predicted_s, jct_s) if phase == "Succeeded" else None,
        queueing_delay_s=status.queueing_delay_s,
        service_s=status.service_s,
        slowdown=status.slowdown,
        fairness=status.fairness,
        preemptions=status.preemptions,
        suspended=emujob.suspended,
    )
    return JobRecord(job, job.name, runs or assumed, tuple(map(_condition, status.conditions)))


def with_places(record: JobRecord, places: Places) -> tuple[Job, tuple[JobRun, ...]]:
    """Job and runs with NODE/INDEX instead of the UUIDs of present devices."""
    job = replace(record.job, devices=_named(record.job.devices, places))
    return job, tuple(replace(run, devices=_named(run.devices, places)) for run in record.runs)


def record_of_result(result: JobResult, prediction: Prediction | None) -> JobRecord:
    """A job that only the results store has: a plain Job or pod, or one whose EmuJob was deleted."""
    facts = result.facts
    experiment, run = membership(facts.namespace, facts.experiment, facts.policy)
    runs = tuple(run_of(run) for run in result.runs)
    jct_s, predicted_s = result.jct_s if result.finished else None, prediction.seconds if prediction else None
    ended: Phase = "Succeeded" if result.finished else "Failed" if result.finished_ns is not None else _unended(runs)
    job = Job(
        uid=facts.uid,
        name=facts.name,
        run=run,
        submitted_s=to_s(facts.submitted_ns),
        phase=ended,
        namespace=facts.namespace,
        tenant=facts.namespace,
        experiment=experiment,
        policy=facts.policy,
        kind=_kind(facts.kind),
        reason="deleted before it had ended" if facts.deleted_ns is not None and not result.finished else "",
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
    return JobRecord(job, facts.name, runs)


def run_of(run: StoredRun) -> JobRun:
    """A run of a stored result."""
    end_s = None if run.end_ns is None else to_s(run.end_ns)
    steps = run.from_step, run.to_step
    return JobRun(run.node, run.devices, to_s(run.begin_ns), end_s, *steps, run.ended)


def progress_of(events: Iterable[JobEvent]) -> list[Progress]:
    """The progress of one job from its events, for each pod separately."""
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
    """The progress of one job without events: each run as one straight line."""
    return [
        Progress(run.from_s, run.to_s if run.to_s is not None else now_s, run.from_step, run.to_step, run.node)
        for run in runs
        if run.from_step is not None and run.to_step is not None and run.to_step > run.from_step
    ]


def _unended(runs: Sequence[JobRun]) -> Phase:
    return "Running" if any(run.to_s is None for run in runs) else "Preempted" if runs else "Queued"


def _kind(text: str) -> Kind:
    return next((kind for kind in KINDS if kind == text), "EmuJob")


def _reason(phase: Phase, conditions: tuple[StatusCondition, ...]) -> str:
    """The message of the condition that says why the job doesn't run, or failed."""
    kinds = {"Rejected": ("Accepted",), "Failed": ("Failed",), "Succeeded": (), "Running": (), "Starting": ()}
    for kind in kinds.get(phase, ("Progressing", "Scheduled")):
        message = condition(conditions, kind).message
        if message:
            return message
    return ""


def _run(run: RunStatus) -> JobRun:
    return JobRun(
        node=run.node,
        devices=run.devices,
        from_s=_seconds(run.from_ns) or 0.0,
        to_s=_seconds(run.to_ns),
        from_step=run.from_step,
        to_step=run.to_step,
        ended=run.ended,
    )


def _condition(found: StatusCondition) -> Condition:
    return Condition(found.type, found.status, found.reason, found.message, _seconds(found.since_ns))


def _holding(runs: Iterable[JobRun]) -> tuple[str, ...]:
    return tuple(device for run in runs if run.to_s is None for device in run.devices)


def _named(devices: Iterable[str], places: Places) -> tuple[str, ...]:
    """Places of devices; the id of a shared device is its UUID and the number of the replica."""
    return tuple(dict.fromkeys(places.get(split_device_id(device)[0], device) for device in devices))


def _seconds(at_ns: int | None) -> float | None:
    return None if at_ns is None else at_ns / 1e9
