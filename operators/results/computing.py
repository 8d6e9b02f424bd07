"""Computes the result of one job from the events of its nodes and from Kubernetes' reports of its pods. Pure.

The completion time ends with the last step in the event log, not with the pod: images are cleaned up and containers are removed
after it. Kubernetes' own times (whole seconds) are the cross check, and the only times of jobs without a device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from emulator_runtime.domain.units import to_s
from operators.results.events import ENDS, FAILED, FINISHED, PREEMPTED, JobEvent
from operators.results.facts_and_result import (
    DELETED,
    EMUJOB,
    EVENT_LOG,
    FLAG_NS,
    KUBERNETES,
    CrossCheck,
    JobFacts,
    JobResult,
)
from operators.results.runs_from_events import UNREPORTED, Run, runs_of, time_of, union_length, without_repetitions

MOST_NAMED = 3
"""Nodes or pods that one note names: a gang may have hundreds, and a condition's message is short."""


def job_result(facts: JobFacts, events: Iterable[JobEvent]) -> JobResult:
    """The result according to these events, which must all be of this job."""
    given = own_events(facts, events)
    logged = without_repetitions(given)
    once = [_bounded(event, facts) for event in logged]
    outcome, finished_ns, told_by = _end(facts, once, [_bounded(event, facts) for event in given])
    covered, repeated = _coverage(once)
    missing = sum(max(0, top - seen) for top, seen in covered)
    if told_by == EVENT_LOG and not missing:  # a pod without a manager's events was taken away before it had a device
        once = [event for event in once if not event.from_kubernetes]
    runs = [_closed(run, outcome, finished_ns) for run in runs_of(once)]
    started_ns = min((run.begin_ns for run in runs), default=None)
    check = _cross_check(given)
    done = _steps_done(facts, once, outcome)
    notes = [
        *_contradictions(check, runs, finished_ns, given),
        *_clock_notes(logged, facts),
        *_resolution(once),
        *_gap(outcome, missing),
    ]
    return JobResult(
        facts=facts,
        first_started_ns=started_ns,
        finished_ns=finished_ns,
        outcome=outcome,
        told_by=told_by,
        runs=tuple(runs),
        preemptions=_most(runs, PREEMPTED),
        interruptions=_most(runs, {FAILED, UNREPORTED}),
        steps_done=done,
        steps_missing=missing,
        steps_repeated=repeated,
        check=check,
        notes=tuple(notes),
        heard_ns=_heard_ns(facts, once, over=bool(outcome)),
    )


def own_events(facts: JobFacts, events: Iterable[JobEvent]) -> list[JobEvent]:
    """Without those of pods of another namespace: a pod's label may name any job, but a job's pods are in its namespace.

    The namespace of an event isn't the pod's claim: the manager has it from the API server.
    """
    return [event for event in events if event.namespace in ("", facts.namespace)]


# --- how it ended -------------------------------------------------------------------------------------------------------


def _end(facts: JobFacts, once: Iterable[JobEvent], given: Iterable[JobEvent]) -> tuple[str, int | None, str]:
    """Outcome, time and source of the end. A job is finished when each of its pods is: a step is done when all ranks have done
    it."""
    logged = _finishes(facts, (event for event in once if not event.from_kubernetes))
    reported = _finishes(facts, (event for event in given if event.from_kubernetes))
    ended = {**reported, **logged}
    if len(ended) >= facts.tasks:
        return FINISHED, max(ended.values()), EVENT_LOG if len(logged) >= facts.tasks else KUBERNETES
    if facts.completed_ns is not None:
        return FINISHED, max([facts.completed_ns, *ended.values()]), KUBERNETES
    if facts.failed_ns is not None:
        return FAILED, facts.failed_ns, KUBERNETES
    return ("", None, "") if facts.deleted_ns is None else (DELETED, facts.deleted_ns, KUBERNETES)


def _finishes(facts: JobFacts, events: Iterable[JobEvent]) -> dict[str, int]:
    """Per job key, when it had done all its steps for the first time."""
    ended: dict[str, int] = {}
    for event in events:
        if event.kind == FINISHED or (facts.steps and event.steps_done >= facts.steps):
            at_ns = time_of(event)
            ended[event.job_key] = min(at_ns, ended.get(event.job_key, at_ns))
    return ended


def _closed(run: Run, outcome: str, finished_ns: int | None) -> Run:
    """No run continues after the job's end, whether the end of this run was reported or not."""
    if run.end_ns is not None or not outcome or finished_ns is None:
        return run
    return run.closed(FINISHED, finished_ns) if outcome == FINISHED else run.closed_unreported()


def _most(runs: Iterable[Run], kinds: Collection[str]) -> int:
    """Ends of these kinds of the job key that has most of them: the pods of a job are preempted together, which counts once."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.job_key] = counts.get(run.job_key, 0) + (run.ended in kinds)
    return max(counts.values(), default=0)


# --- steps --------------------------------------------------------------------------------------------------------------


def _steps_done(facts: JobFacts, events: Iterable[JobEvent], outcome: str) -> int:
    """The steps of the slowest pod; a pod without events has done none."""
    if outcome == FINISHED and facts.steps:
        return facts.steps
    most: dict[str, int] = {}
    for event in events:
        most[event.job_key] = max(event.steps_done, most.get(event.job_key, 0))
    return min(most.values()) if len(most) >= facts.tasks else 0


def _heard_ns(facts: JobFacts, events: Iterable[JobEvent], *, over: bool) -> int | None:
    """The newest event's time; of several pods that of the slowest one, because its steps are the job's."""
    newest: dict[str, tuple[int, int]] = {}
    for event in events:
        at_ns = time_of(event)
        steps, known_ns = newest.get(event.job_key, (0, at_ns))
        newest[event.job_key] = max(steps, event.steps_done), max(known_ns, at_ns)
    if over or facts.tasks < 2 or len(newest) < facts.tasks:
        return max((at_ns for _, at_ns in newest.values()), default=None)
    least = min(steps for steps, _ in newest.values())
    return min(at_ns for steps, at_ns in newest.values() if steps == least)


def _coverage(events: Iterable[JobEvent]) -> tuple[list[tuple[int, int]], int]:
    """Per job key the furthest step and how many up to there are covered; and how many steps were reported more than once."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if not event.from_kubernetes:
            ranges.setdefault(event.job_key, []).append((event.from_step, event.steps_done))
    forward = {key: [(a, b) for a, b in found if b > a] for key, found in ranges.items()}
    covered = {key: union_length(found) for key, found in forward.items()}
    repeated = sum(b - a for found in forward.values() for a, b in found) - sum(covered.values())
    return [(max(b for _, b in found), covered[key]) for key, found in ranges.items()], repeated


# --- what may distort the result ------------------------------------------------------------------------------------------------


def _cross_check(events: Iterable[JobEvent]) -> CrossCheck:
    """From all reports of Kubernetes, including pods whose managers report events. The end counts once the containers that were
    started last have ended."""
    reported = [event for event in events if event.from_kubernetes]
    begun = [event for event in reported if event.kind not in ENDS]
    ends = {
        (event.stream, event.epoch): event.wall_ns for event in sorted(reported, key=_wall_ns) if event.kind in ENDS
    }
    last = {event.job_key: (event.stream, event.epoch) for event in sorted(begun, key=_wall_ns)}
    over = all(place in ends for place in last.values())
    return CrossCheck(
        min((event.wall_ns for event in begun), default=None), max(ends.values(), default=None) if over else None
    )


def _contradictions(
    check: CrossCheck, runs: Sequence[Run], finished_ns: int | None, given: Iterable[JobEvent]
) -> list[str]:
    """Of the pods that Kubernetes reports: it forgets pods that are gone, and so does an operator that lost its store."""
    created_ns = {event.pod: event.at_ns for event in given if event.from_kubernetes}
    begun = min((run.begin_ns for run in runs if run.pod in created_ns), default=None)
    last = max(runs, key=lambda run: (run.begin_ns, run.job_key), default=None)
    notes = check.contradictions(begun, finished_ns if last is not None and last.pod in created_ns else None)
    early = [(created_ns.get(run.pod, 0) - run.begin_ns, run) for run in runs]
    worst_ns, run = max(early, key=lambda each: (each[0], each[1].pod), default=(0, None))
    if run is not None and worst_ns > FLAG_NS:
        notes.append(
            f"a run on node {run.node} begins {to_s(worst_ns):.3f} s before the API server created its pod; compare the clocks"
        )
    return notes


def _wall_ns(event: JobEvent) -> tuple[int, tuple[str, int, int]]:
    return event.wall_ns, event.place


def _bounded(event: JobEvent, facts: JobFacts) -> JobEvent:
    """The event with a time that is possible, whatever its clock says: from the job's submission to its own reception."""
    wall_ns = max(time_of(event), facts.submitted_ns)
    return event if wall_ns == event.wall_ns else replace(event, wall_ns=wall_ns)


def _clock_notes(events: Iterable[JobEvent], facts: JobFacts) -> list[str]:
    """Nodes whose clock contradicts the operator's by more than FLAG_NS at any event of this job, the worst ones first.

    A plain Pod may have begun shortly before the operator saw it; the pods of an EmuJob are made after that.
    """
    off_ns: dict[str, int] = {}
    for event in events:
        if event.wall_ns and not event.from_kubernetes:
            ahead_ns = max(0, event.wall_ns - event.received_ns) if event.received_ns else 0
            behind_ns = max(0, facts.submitted_ns - event.wall_ns) if facts.kind == EMUJOB else 0
            wrong_ns = ahead_ns or -behind_ns
            off_ns[event.node] = max(off_ns.get(event.node, 0), wrong_ns, key=abs)
    worst = sorted(
        (node for node in off_ns if abs(off_ns[node]) > FLAG_NS), key=lambda node: (-abs(off_ns[node]), node)
    )
    notes = [_clock_note(node, off_ns[node]) for node in worst[:MOST_NAMED]]
    more = len(worst) - len(notes)
    return [*notes, f"the clocks of {more} more nodes are wrong too"] if more else notes


def _clock_note(node: str, off_ns: int) -> str:
    way, limit = ("ahead", "reception") if off_ns > 0 else ("behind", "submission")
    amount = f"at least {abs(off_ns) / 1e6:.0f} ms {way}"
    return f"the clock of node {node} was {amount}; its times are cut to the {limit}: synchronise its clock (NTP)"


def _resolution(events: Iterable[JobEvent]) -> list[str]:
    pods = sorted({event.pod for event in events if event.from_kubernetes})
    if not pods:
        return []
    named = ", ".join(pods[:MOST_NAMED]) + (
        f" and {len(pods) - MOST_NAMED} more pods" if len(pods) > MOST_NAMED else ""
    )
    return [f"times of {named} are Kubernetes' own, in whole seconds: no manager reported them"]


def _gap(outcome: str, missing: int) -> list[str]:
    """Steps without an event, once the job has finished; before that the events may still arrive."""
    return [f"no event covers {missing} of its steps"] if outcome == FINISHED and missing else []
