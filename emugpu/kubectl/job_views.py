"""EmuJobs as this program shows them: typed from the API's JSON. Malformed members read as unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from emugpu.kubectl.cluster import NO_EMUJOBS, listed
from emulator_runtime.domain.errors import ClusterError
from operators.kube.api import EMUJOB, Api, NotThereError
from operators.kube.documents import object_at, objects_in, text_at, texts_of, whole_at
from operators.kube.timestamps import seconds_of
from operators.objects.names import EXPERIMENT_LABEL, JOB_ID

GOING_ON = ("Starting", "Running")
OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class RunView:
    """A stay on a node. Seconds since 1970; `to_s` None: it goes on. `devices`: UUIDs, none if it runs on CPUs alone."""

    node: str
    devices: tuple[str, ...]
    from_s: float
    to_s: float | None
    from_step: int
    to_step: int
    ended: str


@dataclass(frozen=True, slots=True)
class ConditionView:
    """A condition of the status; `since_s`: seconds since 1970, None: unknown."""

    kind: str
    holds: bool
    reason: str
    message: str
    since_s: float | None


@dataclass(frozen=True, slots=True)
class JobView:
    """One EmuJob. Points in time with `_s` are seconds since 1970, None: it hasn't happened; durations are seconds.

    `job_id`: its name in its workload; `reason`: why it runs or waits.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    job_id: str
    tenant: str
    scheduler: str
    actuator: str
    phase: str
    gpus: int
    nodes: str
    steps: int
    steps_done: int
    submitted_s: float | None
    started_s: float | None
    finished_s: float | None
    predicted_jct_s: float | None
    predicted_by: str
    observed_jct_s: float | None
    queueing_delay_s: float | None
    service_s: float | None
    slowdown: float | None
    fairness: float | None
    preemptions: int
    rejections: int
    reason: str
    conditions: tuple[ConditionView, ...]
    runs: tuple[RunView, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def experiment(self) -> str:
        return self.labels.get(EXPERIMENT_LABEL, "")

    def age_s(self, now_s: float) -> float | None:
        """From its submission to its end, or until now."""
        end_s = now_s if self.finished_s is None else self.finished_s
        return None if self.submitted_s is None else max(0.0, end_s - self.submitted_s)


async def jobs_in(api: Api, namespace: str, labels: str = "") -> list[JobView]:
    """All EmuJobs of a namespace (`*`: of all), in order of submission. Raises ClusterError if there are no EmuJobs."""
    try:
        documents = await listed(api, EMUJOB, namespace=namespace, labels=labels)
    except NotThereError as error:
        raise ClusterError(NO_EMUJOBS) from error
    return sorted(map(job_view, documents), key=lambda job: (job.submitted_s or float("inf"), job.namespace, job.name))


def job_view(document: Mapping[str, Any]) -> JobView:
    """An EmuJob as the API server sends it."""
    metadata, spec, status = (object_at(document, part) for part in ("metadata", "spec", "status"))
    conditions = tuple(map(_condition, objects_in(status, "conditions")))
    scheduler, predicted = object_at(spec, "scheduler"), object_at(status, "predictedJCTSeconds")
    name, namespace = text_at(metadata, "name"), text_at(metadata, "namespace")
    return JobView(
        namespace=namespace,
        name=name,
        uid=text_at(metadata, "uid"),
        labels=texts_of(metadata, "labels"),
        job_id=texts_of(metadata, "annotations").get(JOB_ID, name),
        tenant=text_at(spec, "tenant") or namespace,
        scheduler=text_at(scheduler, "name"),
        actuator=text_at(scheduler, "actuator") or "none",
        phase=text_at(status, "phase"),
        gpus=whole_at(status, "gpus"),
        nodes=text_at(status, "node"),
        steps=whole_at(status, "steps") or whole_at(spec, "steps"),
        steps_done=whole_at(status, "stepsDone"),
        submitted_s=seconds_of(text_at(status, "submittedAt") or text_at(metadata, "creationTimestamp")),
        started_s=seconds_of(text_at(status, "startedAt")),
        finished_s=seconds_of(text_at(status, "finishedAt")),
        predicted_jct_s=_figure(predicted, "value"),
        predicted_by=text_at(predicted, "by"),
        observed_jct_s=_figure(status, "observedJCTSeconds"),
        queueing_delay_s=_figure(status, "queueingDelaySeconds"),
        service_s=_figure(status, "serviceSeconds"),
        slowdown=_figure(status, "slowdown"),
        fairness=_figure(status, "fairness"),
        preemptions=whole_at(status, "preemptions"),
        rejections=whole_at(status, "rejections"),
        reason=next((c.reason for c in conditions if c.kind == "Progressing"), ""),
        conditions=conditions,
        runs=_runs(status),
    )


def _figure(document: Mapping[str, Any], name: str) -> float | None:
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        return None
    return float(value)


def _condition(document: Mapping[str, Any]) -> ConditionView:
    return ConditionView(
        kind=text_at(document, "type"),
        holds=document.get("status") == "True",
        reason=text_at(document, "reason"),
        message=text_at(document, "message"),
        since_s=seconds_of(text_at(document, "lastTransitionTime")),
    )


def _runs(status: Mapping[str, Any]) -> tuple[RunView, ...]:
    """In order of their beginning; a run without one is left out."""
    found: list[RunView] = []
    for entry in objects_in(status, "runs"):
        from_s = seconds_of(text_at(entry, "from"))
        if from_s is not None:
            to_s = seconds_of(text_at(entry, "to"))
            steps = whole_at(entry, "fromStep"), whole_at(entry, "toStep")
            devices = _texts(entry.get("devices"))
            found.append(RunView(text_at(entry, "node"), devices, from_s, to_s, *steps, text_at(entry, "ended")))
    return tuple(sorted(found, key=lambda run: (run.from_s, run.node)))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
