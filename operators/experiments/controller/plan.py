"""Which experiment may run, and what must change for each: pure functions of the observed state, called after every change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.controllers.actions import CommonAction, DeleteJob, Plan, RecordEvent, SuspendJob, report
from operators.controllers.events import Event
from operators.experiments.controller.objects import RunNamespace, RunnerJob
from operators.experiments.controller.runner_job import RunnerSettings, runner_document
from operators.experiments.controller.status import Observed, own_members, silence_left_s, status_of
from operators.kube.documents import Key, condition_of, object_at, objects_in, text_at, whole_at
from operators.kube.timestamps import ns_of, rfc3339
from operators.objects.experiment import Experiment, ExperimentSpec
from operators.objects.names import EXPERIMENT_FINALIZER, FINAL


@dataclass(frozen=True, slots=True)
class SetFinalizer:
    """Replace the finalizers of exactly this version of an experiment."""

    key: Key
    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreateRunner:
    """Create this Job."""

    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteRunNamespace:
    """Delete the EmuJobs in this namespace, then the namespace."""

    key: Key


@dataclass(frozen=True, slots=True)
class DeleteExperiment:
    """Delete an experiment whose ttlSecondsAfterFinished has passed."""

    key: Key


OwnAction = SetFinalizer | CreateRunner | DeleteRunNamespace | DeleteExperiment
"""Actions of this controller only."""
Action = OwnAction | CommonAction


# -- turns -------------------------------------------------------------------------------------------------------------


def wants_to_run(experiment: Experiment) -> bool:
    """Whether it runs as soon as its turn comes."""
    try:
        return not experiment.spec.suspend and not experiment.deleting and experiment.phase not in FINAL
    except InputError:
        return False


def turn(
    experiments: Iterable[Experiment],
    runners: Mapping[str, RunnerJob],
    namespaces: Mapping[str, Sequence[RunNamespace]],
    ready: Collection[str],
) -> str:
    """The uid of the experiment that may run; empty: none may. `runners` and `namespaces` by uid; `ready`: uids that can run.

    Two at once would disturb each other, so one uses the cluster and the others wait, oldest first. An experiment keeps the
    cluster until its runner has stopped and the namespaces of its runs are gone, also when it is suspended or deleted. Runners
    and namespaces of deleted experiments count as well.
    """
    busy = {uid for uid, runner in runners.items() if runner.works} | {uid for uid, left in namespaces.items() if left}
    waiting = [e for e in experiments if e.key.uid in ready and not e.deleting and e.phase not in FINAL]
    waiting.sort(key=_order)
    holders = [e for e in waiting if e.key.uid in busy]
    if holders:
        return holders[0].key.uid
    if busy:
        return ""
    return waiting[0].key.uid if waiting else ""


def number_before(experiment: Experiment, experiments: Iterable[Experiment], ready: Collection[str]) -> int:
    """How many of the `ready` ones run before this one."""
    others = (e for e in experiments if e.key.uid in ready and e.key.uid != experiment.key.uid)
    return sum(_order(other) < _order(experiment) for other in others)


def _order(experiment: Experiment) -> tuple[str, str, str]:
    return experiment.created, experiment.key.namespace, experiment.key.name


# -- plans -------------------------------------------------------------------------------------------------------------


def plan(experiment: Experiment, observed: Observed, settings: RunnerSettings, now_ns: int) -> Plan[Action]:
    """Pure: the same state gives the same plan."""
    if experiment.deleting:
        return Plan(tuple(_deleted(experiment, observed)), owner=experiment.key)
    spec, accepted = None, ("True", "Accepted", "")
    try:
        spec = experiment.spec
    except InputError as error:
        accepted = "False", "InvalidSpec", str(error)
    status = status_of(experiment, spec, observed, accepted, rfc3339(now_ns), now_ns)
    steps: list[Action] = []
    again_s = None
    if spec is not None and status["phase"] in FINAL:
        steps, again_s = _ended(experiment, spec, observed, status, now_ns)
    elif spec is not None:
        steps, again_s = _running(experiment, spec, observed, settings), _silence_s(observed.runner, now_ns)
    reports = report(experiment.key, own_members(experiment.status_json), status, partial(_phase_events, experiment))
    runner_events = (
        RecordEvent(experiment.key, event) for event in _runner_events(observed.previous, experiment.status_json)
    )
    return Plan((*reports, *runner_events, *steps), again_s, experiment.key)


def orphans(uids: Iterable[str], runners: Iterable[RunnerJob], namespaces: Iterable[RunNamespace]) -> list[Action]:
    """Runners and namespaces of experiments that no longer exist, for example because their finalizer was removed."""
    known = set(uids)
    jobs = [_delete(job) for job in runners if job.owner not in known and not job.deleting]
    return [*jobs, *_delete_all([namespace for namespace in namespaces if namespace.owner not in known])]


def _running(
    experiment: Experiment, spec: ExperimentSpec, observed: Observed, settings: RunnerSettings
) -> list[Action]:
    runs = observed.turn and not spec.suspend
    if observed.runner is None:
        if not runs:
            return _delete_all(observed.namespaces)
        if not _has_begun(experiment):  # first, so that a deletion from now on waits for the cleanup
            return [SetFinalizer(experiment.key, _with_ours(experiment))]
        return [CreateRunner(runner_document(experiment, spec, settings))]
    runner = observed.runner
    if runner.deleting or runner.finished:
        return []
    if runs == runner.suspended and not (runs and runner.pods):  # a new pod must not run beside one that is ending
        return [SuspendJob(runner.key, suspend=not runs, label="SuspendRunner")]
    return _delete_all(observed.namespaces) if runner.suspended and not runner.pods else []


def _ended(
    experiment: Experiment, spec: ExperimentSpec, observed: Observed, status: Mapping[str, Any], now_ns: int
) -> tuple[list[Action], float | None]:
    if not observed.idle:
        return _delete_all(observed.namespaces), None
    if _has_begun(experiment):
        return ([SetFinalizer(experiment.key, _without_ours(experiment))] if experiment.phase in FINAL else []), None
    if spec.ttl_s is None:
        return [], None
    left_s = spec.ttl_s - (now_ns - (ns_of(str(status["finishedAt"])) or now_ns)) / 1e9
    return ([DeleteExperiment(experiment.key)], None) if left_s <= 0 else ([], left_s)


def _deleted(experiment: Experiment, observed: Observed) -> Iterator[Action]:
    if not _has_begun(experiment):
        return
    if observed.runner is not None:
        if not observed.runner.deleting:
            yield _delete(observed.runner)
    elif observed.namespaces:
        yield from _delete_all(observed.namespaces)
    else:
        yield SetFinalizer(experiment.key, _without_ours(experiment))


def _has_begun(experiment: Experiment) -> bool:
    return EXPERIMENT_FINALIZER in experiment.finalizers


def _delete(runner: RunnerJob) -> DeleteJob:
    return DeleteJob(runner.key, label="DeleteRunner")


def _delete_all(namespaces: Sequence[RunNamespace]) -> list[Action]:
    return [DeleteRunNamespace(namespace.key) for namespace in namespaces if not namespace.deleting]


def _with_ours(experiment: Experiment) -> tuple[str, ...]:
    return (*experiment.finalizers, EXPERIMENT_FINALIZER)


def _without_ours(experiment: Experiment) -> tuple[str, ...]:
    return tuple(each for each in experiment.finalizers if each != EXPERIMENT_FINALIZER)


def _silence_s(runner: RunnerJob | None, now_ns: int) -> float | None:
    return max(0.1, silence_left_s(runner, now_ns)) if runner is not None and runner.complete else None


def _runner_events(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[Event]:
    """Events about what the runner has written; none about what it wrote before this process looked."""
    if before is None:
        return
    if whole_at(after, "attempts") > max(1, whole_at(before, "attempts")):
        yield Event("Warning", "RunnerRestarted", f"the runner died; attempt {after['attempts']} goes on where it was")
    known = {text_at(each, "name") for each in objects_in(before, "results") if "observed" in each}
    for each in objects_in(after, "results"):
        if "observed" in each and text_at(each, "name") not in known:
            yield Event("Normal", "Observed", _in_words(each))


def _phase_events(experiment: Experiment, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    phase = after["phase"]
    if phase == text_at(before, "phase"):
        return
    if phase == "Failed":
        failed = condition_of(after, "Failed")
        yield Event("Warning", str(failed["reason"]), str(failed["message"]))
    elif phase == "Succeeded":
        status = experiment.status
        best = [f"best: {status.best}"] if status.best else []
        error = [f"largest error of a mean JCT: {status.error}"] if status.error else []
        yield Event("Normal", "Succeeded", "; ".join(["all policies are compared", *best, *error]))
    else:
        yield Event("Normal", phase, text_at(after, "doing"))


def _in_words(result: Mapping[str, Any]) -> str:
    predicted, observed = (text_at(object_at(result, side), "meanJCTSeconds") for side in ("predicted", "observed"))
    figures = f"mean JCT {observed} s observed" + (f", {predicted} s predicted" if predicted else "")
    return f"{text_at(result, 'name')}: {figures}"
