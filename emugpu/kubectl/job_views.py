"""EmuJobs as this program shows them: typed from the API's JSON. Malformed members read as unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from emugpu.kubectl.cluster import NO_EMUJOBS, listed
from emulator_runtime.domain.errors import ClusterError
from operators.kube.api import EMUJOB, Api, NotThereError
from operators.kube.timestamps import seconds_of
from operators.objects.emujob import EmuJob, RunStatus
from operators.objects.forms import condition
from operators.objects.names import EXPERIMENT_LABEL, FINAL


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

    `job_id`: its name in its workload; `unit`: in what `steps` are counted, steps or samples; `reason`: why it runs or waits.
    `assumed_runs`: if there are no `runs`, from its start to its end on unknown devices (EmuJobStatus.assumed_runs).
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
    unit: str
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
    assumed_runs: tuple[RunView, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def experiment(self) -> str:
        return self.labels.get(EXPERIMENT_LABEL, "")

    @property
    def waits(self) -> bool:
        """Whether it doesn't run and may yet; a rejected job may if its specification or the pools are changed."""
        return self.phase not in ("Running", *FINAL)

    @property
    def stays(self) -> tuple[RunView, ...]:
        """The runs, else the assumed ones."""
        return self.runs or self.assumed_runs

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
    job = EmuJob.read(document)
    status = job.status
    submitted_s = _seconds(status.submitted_ns)
    return JobView(
        namespace=job.key.namespace,
        name=job.key.name,
        uid=job.key.uid,
        labels=job.labels,
        job_id=job.job_id,
        tenant=job.tenant,
        scheduler=job.scheduler,
        actuator=job.actuator,
        phase=job.phase,
        gpus=status.gpus or 0,
        nodes=status.node,
        steps=status.steps or job.steps,
        steps_done=status.steps_done,
        unit=status.progress_unit,
        submitted_s=seconds_of(job.created) if submitted_s is None else submitted_s,
        started_s=_seconds(status.started_ns),
        finished_s=_seconds(status.finished_ns),
        predicted_jct_s=status.predicted.value,
        predicted_by=status.predicted.by,
        observed_jct_s=status.observed_jct_s,
        queueing_delay_s=status.queueing_delay_s,
        service_s=status.service_s,
        slowdown=status.slowdown,
        fairness=status.fairness,
        preemptions=status.preemptions,
        rejections=status.rejections,
        reason=condition(status.conditions, "Progressing").reason,
        conditions=tuple(
            ConditionView(each.type, each.holds, each.reason, each.message, _seconds(each.since_ns))
            for each in status.conditions
        ),
        runs=_runs(status.runs),
        assumed_runs=tuple(replace(run, node=run.node or "?", devices=()) for run in _runs(status.assumed_runs)),
    )


def _runs(runs: Iterable[RunStatus]) -> tuple[RunView, ...]:
    """In order of their beginning; a run without one is left out."""
    found = [
        RunView(run.node, run.devices, from_s, _seconds(run.to_ns), run.from_step, run.to_step, run.ended)
        for run in runs
        if (from_s := _seconds(run.from_ns)) is not None
    ]
    return tuple(sorted(found, key=lambda run: (run.from_s, run.node)))


def _seconds(at_ns: int | None) -> float | None:
    return None if at_ns is None else at_ns / 1e9
