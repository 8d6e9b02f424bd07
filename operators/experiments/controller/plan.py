"""What must change for an experiment: a pure function of the observed state, called after every change (level-triggered)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.controllers.actions import DeleteJob, Plan, SuspendJob, Tell, WriteStatus, report
from operators.controllers.events import News
from operators.experiments.controller.names import FINALIZER
from operators.experiments.controller.objects import ExperimentFacts, RunNamespace, RunnerFacts
from operators.experiments.controller.runner_job import RunnerSettings, runner_document
from operators.experiments.controller.status import Seen, silence_left_s, status_of
from operators.experiments.controller.turns import FINAL
from operators.kube.documents import Key, condition_of, object_at, objects_in, text_at, whole_at
from operators.kube.timestamps import ns_of, rfc3339
from operators.objects.experiment import ExperimentSpec, parse_spec


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Replace the finalizers of exactly this version of an experiment."""

    key: Key
    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateRunner:
    """Create this Job."""

    document: Mapping[str, Any]


class SuspendRunner(SuspendJob):
    """Of a runner's Job; counted by a name of its own."""

    __slots__ = ()


class DeleteRunner(DeleteJob):
    """Of a runner's Job; counted by a name of its own."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DeleteRunNamespace:
    """Delete the EmuJobs in this namespace, then the namespace."""

    key: Key


@dataclass(frozen=True, slots=True)
class DeleteExperiment:
    """Delete an experiment whose ttlSecondsAfterFinished has passed."""

    key: Key


Action = (
    SetFinalizer
    | CreateRunner
    | SuspendRunner
    | DeleteRunner
    | DeleteRunNamespace
    | DeleteExperiment
    | WriteStatus
    | Tell
)


def plan(facts: ExperimentFacts, seen: Seen, settings: RunnerSettings, now_ns: int) -> Plan[Action]:
    """Pure: the same state gives the same plan."""
    if facts.deleting:
        return Plan(tuple(_deleted(facts, seen)))
    try:
        spec, accepted = parse_spec(facts.spec), ("True", "Accepted", "")
    except InputError as error:
        status = status_of(facts, None, seen, ("False", "InvalidSpec", str(error)), rfc3339(now_ns), now_ns)
        return Plan(tuple(report(facts.key, facts.status, status, _news)))
    status = status_of(facts, spec, seen, accepted, rfc3339(now_ns), now_ns)
    if status["phase"] in FINAL:
        steps, again_s = _ended(facts, spec, seen, status, now_ns)
    else:
        steps, again_s = _running(facts, spec, seen, settings), _silence_s(seen.runner, now_ns)
    return Plan((*report(facts.key, facts.status, status, _news), *steps), again_s)


def orphans(uids: Iterable[str], runners: Iterable[RunnerFacts], namespaces: Iterable[RunNamespace]) -> list[Action]:
    """Runners and namespaces of experiments that no longer exist, for example because their finalizer was removed."""
    known = set(uids)
    jobs = [DeleteRunner(job.key) for job in runners if job.owner not in known and not job.deleting]
    return [*jobs, *_delete_all([namespace for namespace in namespaces if namespace.owner not in known])]


def _running(facts: ExperimentFacts, spec: ExperimentSpec, seen: Seen, settings: RunnerSettings) -> list[Action]:
    runs = seen.turn and not spec.suspend
    if seen.runner is None:
        if not runs:
            return _delete_all(seen.namespaces)
        if not facts.begun:  # first, so that a deletion from now on waits for the cleanup
            return [SetFinalizer(facts.key, _with_ours(facts))]
        return [CreateRunner(runner_document(facts, spec, settings))]
    runner = seen.runner
    if runner.deleting or runner.finished:
        return []
    if runs == runner.suspended and not (runs and runner.pods):  # a new pod must not run beside one that is ending
        return [SuspendRunner(runner.key, suspend=not runs)]
    return _delete_all(seen.namespaces) if runner.suspended and not runner.pods else []


def _ended(
    facts: ExperimentFacts, spec: ExperimentSpec, seen: Seen, status: Mapping[str, Any], now_ns: int
) -> tuple[list[Action], float | None]:
    if not seen.still:
        return _delete_all(seen.namespaces), None
    if facts.begun:
        return ([SetFinalizer(facts.key, _without_ours(facts))] if facts.phase in FINAL else []), None
    if spec.ttl_s is None:
        return [], None
    left_s = spec.ttl_s - (now_ns - (ns_of(str(status["finishedAt"])) or now_ns)) / 1e9
    return ([DeleteExperiment(facts.key)], None) if left_s <= 0 else ([], left_s)


def _deleted(facts: ExperimentFacts, seen: Seen) -> Iterator[Action]:
    if not facts.begun:
        return
    if seen.runner is not None:
        if not seen.runner.deleting:
            yield DeleteRunner(seen.runner.key)
    elif seen.namespaces:
        yield from _delete_all(seen.namespaces)
    else:
        yield SetFinalizer(facts.key, _without_ours(facts))


def _delete_all(namespaces: Sequence[RunNamespace]) -> list[Action]:
    return [DeleteRunNamespace(namespace.key) for namespace in namespaces if not namespace.deleting]


def _with_ours(facts: ExperimentFacts) -> tuple[str, ...]:
    return (*facts.finalizers, FINALIZER)


def _without_ours(facts: ExperimentFacts) -> tuple[str, ...]:
    return tuple(each for each in facts.finalizers if each != FINALIZER)


def _silence_s(runner: RunnerFacts | None, now_ns: int) -> float | None:
    return max(0.1, silence_left_s(runner, now_ns)) if runner is not None and runner.complete else None


def _news(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[News]:
    if whole_at(after, "attempts") > max(1, whole_at(before, "attempts")):
        yield News("Warning", "RunnerRestarted", f"the runner died; attempt {after['attempts']} goes on where it was")
    known = {text_at(each, "name") for each in objects_in(before, "results") if "observed" in each}
    for each in objects_in(after, "results"):
        if "observed" in each and text_at(each, "name") not in known:
            yield News("Normal", "Observed", _in_words(each))
    phase = after["phase"]
    if phase == text_at(before, "phase"):
        return
    if phase == "Failed":
        failed = condition_of(after, "Failed")
        yield News("Warning", str(failed["reason"]), str(failed["message"]))
    elif phase == "Succeeded":
        found = [f"best: {after['best']}"] if "best" in after else []
        error = [f"largest error of a mean JCT: {after['error']}"] if "error" in after else []
        yield News("Normal", "Succeeded", "; ".join(["all policies are compared", *found, *error]))
    else:
        yield News("Normal", phase, text_at(after, "doing"))


def _in_words(result: Mapping[str, Any]) -> str:
    predicted, observed = (text_at(object_at(result, side), "meanJCTSeconds") for side in ("predicted", "observed"))
    figures = f"mean JCT {observed} s observed" + (f", {predicted} s predicted" if predicted else "")
    return f"{text_at(result, 'name')}: {figures}"
