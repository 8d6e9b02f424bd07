"""The status of a SchedulingExperiment from what is seen: pure, and the same for the same things seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from operators.experiments.controller.objects import ArenaFacts, ExperimentFacts, RunnerFacts
from operators.experiments.controller.progress import Told
from operators.experiments.controller.turns import FINAL
from operators.kube.documents import new_condition, objects_in, text_at, whole_at
from operators.kube.timestamps import ns_of
from operators.objects.experiment import ExperimentSpec

Verdict = tuple[str, str, str]
SLOW_S = 60.0
"""A runner's pod that doesn't run after this time is worth a look."""
SILENT_S = 30.0
"""The annotation of a runner that is done may come later than the news that its Job is complete."""
_DOING = {"Predicting": "predicted", "Observing": "observed"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is of one experiment. `turn`: it may run; `before`: how many are before it."""

    runner: RunnerFacts | None = None
    arenas: Sequence[ArenaFacts] = ()
    turn: bool = False
    before: int = 0

    @property
    def still(self) -> bool:
        """Whether nothing of it touches the cluster."""
        return not self.arenas and (self.runner is None or not self.runner.works)


@dataclass(frozen=True, slots=True)
class End:
    """How it ended. `reason` empty: it has succeeded."""

    reason: str = ""
    message: str = ""


def silent_left_s(runner: RunnerFacts, now_ns: int) -> float:
    """How long a runner that is complete, but has not said what it found, is still listened to."""
    return SILENT_S - (now_ns - (ns_of(runner.ended) or now_ns)) / 1e9


def end_of(told: Told, runner: RunnerFacts | None, now_ns: int) -> End | None:
    """None: it goes on."""
    if runner is None or runner.deleting or not runner.finished:
        return None
    if runner.complete:
        if told.is_done:
            return End()
        if silent_left_s(runner, now_ns) > 0:
            return None
        return End("RunnerSilent", "the runner ended without saying what it found; see the log of its pod")
    if told.problem:
        return End("RunnerFailed", told.problem)
    where = doing(told)
    return End(
        "RunnerDied", f"the runner died {runner.died} times{f' (last: {where})' if where else ''}: {runner.failure}"
    )


def status_of(
    facts: ExperimentFacts, spec: ExperimentSpec | None, seen: Seen, accepted: Verdict, now: str, now_ns: int
) -> dict[str, Any]:
    """What to write. `spec` None: it can't be read, `accepted` says why."""
    before, told = facts.status, facts.told
    end = end_of(told, seen.runner, now_ns) if facts.phase not in FINAL else None
    phase = _phase(facts, spec, seen, end)
    members: dict[str, Any] = {
        "observedGeneration": facts.generation,
        "phase": phase,
        "policies": len(spec.columns) if spec is not None else None,
        "done": told.done,
        "doing": _slow_start(phase, seen, now_ns) or _sentence(phase, told, seen),
        "progress": _progress(told) if phase == "Running" else None,
        "attempts": told.attempt,
        "runner": seen.runner.key.name if seen.runner is not None else text_at(before, "runner"),
        "nodes": told.nodes,
        "gpus": told.gpus,
        "best": told.best,
        "error": told.error,
        "calibration": dict(told.calibration),
        "results": [dict(each) for each in told.results],
        "report": dict(told.report),
        "startedAt": text_at(before, "startedAt") or (now if phase == "Running" else ""),
        "finishedAt": text_at(before, "finishedAt") or (now if phase in FINAL else ""),
    }
    conditions = _conditions(facts, seen, accepted, (phase, end), now)
    kept = {"done"} if spec is not None else set()
    shown = {name: value for name, value in members.items() if value not in (None, "", {}, [], 0) or name in kept}
    return {**shown, "conditions": conditions}


def _slow_start(phase: str, seen: Seen, now_ns: int) -> str:
    """Why a runner tells nothing: the usual reason is an image that isn't there, which a Job doesn't say."""
    runner = seen.runner
    started_ns = ns_of(runner.started) if runner is not None else None
    if phase != "Starting" or runner is None or runner.ready or started_ns is None:
        return ""
    if now_ns - started_ns < SLOW_S * 1e9:
        return ""
    look = f"kubectl -n {runner.key.namespace} describe pods -l job-name={runner.key.name}"
    return f"its runner's pod does not start (is its image on the nodes?); {look}"


def doing(told: Told) -> str:
    """What a runner is at, for people."""
    if told.stage == "Calibrating":
        return f"calibrating, {told.ended} of {told.jobs} probe jobs"
    if told.stage not in _DOING:
        return ""
    again = f" (repeat {told.repeat})" if told.repeat > 1 else ""
    return f"{told.column}: {_DOING[told.stage]}{again}, {told.ended} of {told.jobs} jobs"


def _phase(facts: ExperimentFacts, spec: ExperimentSpec | None, seen: Seen, end: End | None) -> str:
    if facts.phase in FINAL:
        return facts.phase
    if end is not None:
        return "Failed" if end.reason else "Succeeded"
    if spec is None:
        return "Failed"
    if spec.suspend:
        return "Suspended"
    if seen.runner is None or seen.runner.suspended or not seen.turn:
        return "Queued"
    return "Running" if facts.told.stage else "Starting"


def _sentence(phase: str, told: Told, seen: Seen) -> str:
    if phase == "Queued":
        return (
            "next"
            if seen.turn
            else f"waits for its turn, {seen.before} before it"
            if seen.before
            else "waits for its turn"
        )
    if phase == "Suspended":
        return "held by spec.suspend" if seen.still else "is being stopped"
    if phase == "Starting":
        return "its runner is being started"
    return (doing(told) or "preparing") if phase == "Running" else ""


def _progress(told: Told) -> dict[str, Any]:
    members = {"stage": told.stage, "policy": told.column, "repeat": told.repeat, "at": told.at}
    counts = {"jobsEnded": told.ended, "jobs": told.jobs} if told.jobs else {}
    return {name: value for name, value in members.items() if value} | counts


def _conditions(
    facts: ExperimentFacts, seen: Seen, accepted: Verdict, outcome: tuple[str, End | None], now: str
) -> list[dict[str, Any]]:
    phase, end = outcome
    verdicts: dict[str, Verdict] = {"Accepted": accepted}
    if phase == "Running":
        verdicts["Running"] = "True", facts.told.stage, doing(facts.told)
    else:
        verdicts["Running"] = "False", phase, _sentence(phase, facts.told, seen)
    if facts.phase not in FINAL:  # an end stays as it was
        failed = _failed_jobs(facts.told)
        message = f"{failed} jobs did not finish; the report names them" if failed else ""
        done = phase == "Succeeded"
        verdicts["Complete"] = (
            ("True", "JobsFailed" if failed else "AllDone", message) if done else ("False", "NotDone", "")
        )
        verdicts["Failed"] = (
            ("True", end.reason, end.message) if end is not None and end.reason else _not_failed(accepted, phase)
        )
    made = [new_condition(facts.status, kind, verdict, facts.generation, now) for kind, verdict in verdicts.items()]
    return [*made, *(dict(c) for c in objects_in(facts.status, "conditions") if c.get("type") not in verdicts)]


def _not_failed(accepted: Verdict, phase: str) -> Verdict:
    return ("True", accepted[1], accepted[2]) if phase == "Failed" else ("False", "NotFailed", "")


def _failed_jobs(told: Told) -> int:
    return sum(whole_at(each, "failedJobs") for each in told.results)
