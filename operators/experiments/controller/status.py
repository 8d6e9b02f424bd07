"""The controller's part of a SchedulingExperiment's status, from the observed state of its runner and its runs. Pure, idempotent.

The other part is the runner's (runner/status_writer.py): progress, figures and the report. Server-side apply keeps the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.experiments.controller.objects import RunNamespace, RunnerJob
from operators.kube.documents import new_condition, objects_in, text_at
from operators.kube.timestamps import ns_of
from operators.objects.experiment import Experiment, ExperimentSpec, Progress
from operators.objects.names import FINAL

Verdict = tuple[str, str, str]
SLOW_S = 60.0
"""After this time without a running pod the status says so."""
SILENT_S = 30.0
"""Maximum wait for the final progress after the runner's Job is complete: the two watches are independent."""
_DOING = {"Predicting": "predicted", "Observing": "observed"}
OWN_MEMBERS = (
    "observedGeneration",
    "phase",
    "policies",
    "doing",
    "runner",
    "startedAt",
    "finishedAt",
    "conditions",
)
"""Members of the status that the controller writes."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state of one experiment. `turn`: it may run; `before`: how many run before it.

    `previous`: its status at the last reconciliation of this process, for events about what its runner has written since.
    """

    runner: RunnerJob | None = None
    namespaces: Sequence[RunNamespace] = ()
    turn: bool = False
    before: int = 0
    previous: Mapping[str, Any] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing of it uses the cluster."""
        return not self.namespaces and (self.runner is None or not self.runner.works)


@dataclass(frozen=True, slots=True)
class End:
    """How it ended. `reason` empty: it has succeeded."""

    reason: str = ""
    message: str = ""


def silence_left_s(runner: RunnerJob, now_ns: int) -> float:
    """Seconds until a complete runner that has not reported Done counts as failed."""
    return SILENT_S - (now_ns - (ns_of(runner.ended) or now_ns)) / 1e9


def end_of(progress: Progress, runner: RunnerJob | None, now_ns: int) -> End | None:
    """None: it goes on."""
    if runner is None or runner.deleting or not runner.finished:
        return None
    if runner.complete:
        if progress.stage == "Done":
            return End()
        if silence_left_s(runner, now_ns) > 0:
            return None
        return End("RunnerSilent", "the runner ended without reporting its results; see the log of its pod")
    if progress.problem:
        return End("RunnerFailed", progress.problem)
    where = doing(progress)
    return End(
        "RunnerDied", f"the runner died {runner.died} times{f' (last: {where})' if where else ''}: {runner.failure}"
    )


def own_members(status: Mapping[str, Any]) -> dict[str, Any]:
    """The controller's part of a whole status."""
    return {name: value for name, value in status.items() if name in OWN_MEMBERS}


def status_of(
    experiment: Experiment, spec: ExperimentSpec | None, observed: Observed, accepted: Verdict, now: str, now_ns: int
) -> dict[str, Any]:
    """The controller's part of the status. `spec` None: it is invalid, `accepted` says why."""
    before, progress = experiment.status_json, experiment.status.progress
    end = end_of(progress, observed.runner, now_ns) if experiment.phase not in FINAL else None
    phase = _phase(experiment, spec, observed, end)
    members: dict[str, Any] = {
        "observedGeneration": experiment.generation,
        "phase": phase,
        "policies": len(spec.columns) if spec is not None else None,
        "doing": _slow_start(phase, observed, now_ns) or _sentence(phase, progress, observed),
        "runner": observed.runner.key.name if observed.runner is not None else text_at(before, "runner"),
        "startedAt": text_at(before, "startedAt") or (now if phase == "Running" else ""),
        "finishedAt": text_at(before, "finishedAt") or (now if phase in FINAL else ""),
    }
    conditions = _conditions(experiment, observed, accepted, (phase, end), now)
    return {**{name: value for name, value in members.items() if value not in (None, "", 0)}, "conditions": conditions}


def _slow_start(phase: str, observed: Observed, now_ns: int) -> str:
    """Why a runner reports no progress: usually a missing image, which the Job's status doesn't show."""
    runner = observed.runner
    started_ns = ns_of(runner.started) if runner is not None else None
    if phase != "Starting" or runner is None or runner.ready or started_ns is None:
        return ""
    if now_ns - started_ns < SLOW_S * 1e9:
        return ""
    look = f"kubectl -n {runner.key.namespace} describe pods -l job-name={runner.key.name}"
    return f"its runner's pod does not start (is its image on the nodes?); {look}"


def doing(progress: Progress) -> str:
    """What the runner is doing, as a sentence for people."""
    if progress.stage == "Calibrating":
        return f"calibrating, {progress.jobs_ended} of {progress.jobs} probe jobs"
    if progress.stage not in _DOING:
        return ""
    again = f" (repeat {progress.repeat})" if progress.repeat > 1 else ""
    return f"{progress.policy}: {_DOING[progress.stage]}{again}, {progress.jobs_ended} of {progress.jobs} jobs"


def _phase(experiment: Experiment, spec: ExperimentSpec | None, observed: Observed, end: End | None) -> str:
    if experiment.phase in FINAL:
        return experiment.phase
    if end is not None:
        return "Failed" if end.reason else "Succeeded"
    if spec is None:
        return "Failed"
    if spec.suspend:
        return "Suspended"
    if observed.runner is None or observed.runner.suspended or not observed.turn:
        return "Queued"
    return "Running" if experiment.status.progress.stage else "Starting"


def _sentence(phase: str, progress: Progress, observed: Observed) -> str:
    if phase == "Queued":
        return (
            "next"
            if observed.turn
            else f"waits for its turn, {observed.before} before it"
            if observed.before
            else "waits for its turn"
        )
    if phase == "Suspended":
        return "suspended by spec.suspend" if observed.idle else "is being stopped"
    if phase == "Starting":
        return "its runner is being started"
    return (doing(progress) or "preparing") if phase == "Running" else ""


def _conditions(
    experiment: Experiment, observed: Observed, accepted: Verdict, outcome: tuple[str, End | None], now: str
) -> list[dict[str, Any]]:
    phase, end = outcome
    verdicts: dict[str, Verdict] = {"Accepted": accepted}
    if phase == "Running":
        progress = experiment.status.progress
        verdicts["Running"] = "True", progress.stage or "", doing(progress)
    else:
        verdicts["Running"] = "False", phase, _sentence(phase, experiment.status.progress, observed)
    if experiment.phase not in FINAL:  # the conditions of an ended experiment are final
        failed = sum(column.failed_jobs for column in experiment.status.results)
        message = f"{failed} jobs did not finish; the report names them" if failed else ""
        done = phase == "Succeeded"
        verdicts["Complete"] = (
            ("True", "JobsFailed" if failed else "AllDone", message) if done else ("False", "NotDone", "")
        )
        verdicts["Failed"] = (
            ("True", end.reason, end.message) if end is not None and end.reason else _not_failed(accepted, phase)
        )
    before, generation = experiment.status_json, experiment.generation
    made = [new_condition(before, kind, verdict, generation, now) for kind, verdict in verdicts.items()]
    return [*made, *(dict(c) for c in objects_in(before, "conditions") if c.get("type") not in verdicts)]


def _not_failed(accepted: Verdict, phase: str) -> Verdict:
    return ("True", accepted[1], accepted[2]) if phase == "Failed" else ("False", "NotFailed", "")
