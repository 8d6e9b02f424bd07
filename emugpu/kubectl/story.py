"""The history of one EmuJob in time order: from its status, its Job and pods, and the events about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from emugpu.kubectl.job_views import ConditionView, JobView, RunView
from emugpu.kubectl.output import counted, duration
from emugpu.kubectl.spans import Places
from operators.kube.api import Json
from operators.kube.documents import condition_of, object_at, objects_in, text_at, whole_at
from operators.kube.timestamps import seconds_of

_WHOSE = ("event", "status", "pod", "pod event")
"""The sources of lines; a Job's events stand before its pods' at the same time."""


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of the history. `at_s`: seconds since 1970. `source`: who reported it; `warning`: something went wrong.

    `order`: within one second, an earlier version of the API server's objects comes first.
    """

    at_s: float
    source: str
    text: str
    warning: bool = False
    order: int = 0

    @property
    def coarse(self) -> bool:
        """Reported in whole seconds, as Kubernetes does for pods and conditions."""
        return self.at_s.is_integer()


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of a job besides its EmuJob. `missing`: what the user may not read, and why."""

    pods: tuple[Json, ...] = ()
    events: tuple[Json, ...] = ()
    places: Places = field(default_factory=lambda: Places({}))
    missing: tuple[str, ...] = ()


def story(job: JobView, objects: Objects) -> list[StoryLine]:
    """All known lines, the oldest first; within one whole second in the order of _WHOSE.

    Lines in whole seconds stand no earlier than the submission, whose time is exact.
    """
    lines = [*_beginning(job), *_runs(job, objects.places), *_end(job)]
    lines += [line for condition in job.conditions for line in _condition(condition)]
    events = [event for event in objects.events if regards(event, job)]
    lines += [line for event in events for line in _event(event)]
    known = {(text_at(object_at(event, "regarding"), "name"), text_at(event, "reason")) for event in events}
    lines += [line for pod in objects.pods for line in _pod(pod, known)]
    first_s = job.submitted_s or 0.0

    def place(line: StoryLine) -> tuple[float, int, int]:
        if line.source in ("job", "run") or not line.coarse:
            return line.at_s, 0, 0
        return max(line.at_s, first_s), 1 + _WHOSE.index(line.source), line.order

    return sorted(lines, key=place)


def regards(event: Mapping[str, Any], job: JobView) -> bool:
    """Whether the event is about the EmuJob, its Job, or one of its pods, which may be gone."""
    about = object_at(event, "regarding")
    kind, name = text_at(about, "kind"), text_at(about, "name")
    if text_at(about, "namespace") != job.namespace:
        return False
    if kind == "EmuJob":
        return text_at(about, "uid") in ("", job.uid)
    if kind == "Job":
        return name == job.name
    return kind == "Pod" and re.fullmatch(rf"{re.escape(job.name)}-\d+-[a-z0-9]{{5}}", name) is not None


def _beginning(job: JobView) -> Iterator[StoryLine]:
    if job.submitted_s is None:
        return
    by = f", for scheduler {job.scheduler} (actuator {job.actuator})" if job.scheduler else ""
    yield StoryLine(job.submitted_s, "job", f"submitted: {counted(job.gpus, 'GPU')}, {job.steps} {job.unit}{by}")
    if job.predicted_jct_s is not None:
        predicted = (
            f"{job.predicted_by or 'the scheduler'} predicts {duration(job.predicted_jct_s)} from submission to end"
        )
        yield StoryLine(job.submitted_s, "job", predicted)


def _end(job: JobView) -> Iterator[StoryLine]:
    if job.finished_s is not None and job.phase == "Failed":
        yield StoryLine(job.finished_s, "job", f"failed, {job.steps_done}/{job.steps} {job.unit} done", warning=True)
    elif job.finished_s is not None:
        yield StoryLine(job.finished_s, "job", f"finished{_took(job)}")


def _took(job: JobView) -> str:
    if job.observed_jct_s is None:
        return ""
    text = f" after {duration(job.observed_jct_s)}"
    if job.predicted_jct_s is None or not job.observed_jct_s:
        return text
    error = (job.predicted_jct_s - job.observed_jct_s) / job.observed_jct_s
    return f"{text}; {duration(job.predicted_jct_s)} were predicted ({100 * error:+.1f}%)"


def _runs(job: JobView, places: Places) -> Iterator[StoryLine]:
    for number, run in enumerate(job.runs, start=1):
        yield StoryLine(run.from_s, "run", f"run {number} begins at step {run.from_step} on {where(run, places)}")
        if run.to_s is not None:
            took = duration(run.to_s - run.from_s)
            bad = run.ended in ("failed", "untold")
            yield StoryLine(
                run.to_s, "run", f"run {number} ends after {took} at step {run.to_step}: {run.ended or 'ended'}", bad
            )


def where(run: RunView, places: Places) -> str:
    """The node, and which of its GPUs."""
    indexes = [str(index) for _, index in places.of(run)] or list(run.devices)
    return f"{run.node} ({'GPU' if len(indexes) == 1 else 'GPUs'} {', '.join(indexes)})" if indexes else run.node


def _condition(condition: ConditionView) -> Iterator[StoryLine]:
    trivial = not condition.holds and (condition.kind in ("Complete", "Failed") or condition.reason == "Finished")
    if condition.since_s is not None and not trivial:
        reason = f" ({condition.reason})" if condition.reason not in ("", condition.kind) else ""
        message = f": {condition.message}" if condition.message else ""
        bad = (condition.kind == "Failed" and condition.holds) or (condition.kind == "Accepted" and not condition.holds)
        word = "" if condition.holds else "not "
        yield StoryLine(condition.since_s, "status", f"{word}{condition.kind}{reason}{message}", bad)


def _pod(pod: Json, known: Collection[tuple[str, str]]) -> Iterator[StoryLine]:
    """Lines for which no event exists (`known`: object and reason of the events that are still kept)."""
    metadata, status = object_at(pod, "metadata"), object_at(pod, "status")
    own = text_at(metadata, "name")
    name = f"pod {own}"
    created_s = seconds_of(text_at(metadata, "creationTimestamp"))
    if created_s is not None and (own, "Scheduled") not in known:
        yield StoryLine(created_s, "pod", f"{name} is made")
    bound = condition_of(status, "PodScheduled")
    bound_s = seconds_of(text_at(bound, "lastTransitionTime"))
    if bound_s is not None and bound.get("status") == "True" and (own, "Scheduled") not in known:
        yield StoryLine(bound_s, "pod", f"{name} gets node {text_at(object_at(pod, 'spec'), 'nodeName')}")
    for container in objects_in(status, "containerStatuses"):
        for state in ("running", "terminated"):
            began_s = seconds_of(text_at(object_at(container, "state", state), "startedAt"))
            if began_s is not None and (own, "Started") not in known:
                yield StoryLine(began_s, "pod", f"{name}: container {text_at(container, 'name')} starts")
        ended = object_at(container, "state", "terminated")
        ended_s = seconds_of(text_at(ended, "finishedAt"))
        if ended_s is not None:
            code = whole_at(ended, "exitCode")
            reason = f" ({text_at(ended, 'reason')})" if text_at(ended, "reason") else ""
            text = f"{name}: container {text_at(container, 'name')} ends with {code}{reason}"
            yield StoryLine(ended_s, "pod", text, code != 0)


def _event(event: Json) -> Iterator[StoryLine]:
    """The last time of a repeated event."""
    series, about = object_at(event, "series"), object_at(event, "regarding")
    times = (
        text_at(series, "lastObservedTime"),
        text_at(event, "deprecatedLastTimestamp"),
        text_at(event, "eventTime"),
        text_at(object_at(event, "metadata"), "creationTimestamp"),
    )
    at_s = next((at for at in map(seconds_of, times) if at is not None), None)
    if at_s is not None:
        count = max(whole_at(series, "count"), whole_at(event, "deprecatedCount"))
        often = f" (x{count})" if count > 1 else ""
        of_pod = text_at(about, "kind") == "Pod"
        whose = f" of pod {text_at(about, 'name')}" if of_pod else ""
        note = " ".join(text_at(event, "note").split())
        text = f"{text_at(event, 'reason')}{whose}: {note}{often}"
        version = text_at(object_at(event, "metadata"), "resourceVersion")
        order = int(version) if version.isascii() and version.isdecimal() else 0
        yield StoryLine(at_s, "pod event" if of_pod else "event", text, text_at(event, "type") == "Warning", order)


def without_repetitions(lines: Iterable[StoryLine]) -> list[StoryLine]:
    """Without repetitions of the same text at the same time."""
    return list(dict.fromkeys(lines))
