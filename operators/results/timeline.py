"""What is observed of one job, from the events of its nodes and from Kubernetes' word on its pods. Pure.

The completion time ends with the last step in the event log, not with the pod: images are cleaned up and containers are
reaped after it. Kubernetes' own times (whole seconds) are the cross-check, and all there is for jobs without a device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from operators.results.clocks import FLAG_NS, Clocks
from operators.results.events import ENDS, FAILED, FINISHED, PREEMPTED, JobEvent
from operators.results.figures import covered_ns
from operators.results.job import DELETED, EVENT_LOG, KUBERNETES, CrossCheck, JobFacts, JobResult
from operators.results.runs import UNTOLD, Run, runs_of, time_of, told_once


def job_result(facts: JobFacts, events: Iterable[JobEvent], clocks: Clocks | None = None) -> JobResult:
    """The result as far as these events tell it; events of other jobs must not be among them."""
    given, clocks = list(events), clocks or Clocks()
    once = told_once(given)
    outcome, finished_ns, told_by = _end(facts, once, given, clocks)
    covered, repeated = _coverage(once)
    missing = sum(max(0, top - seen) for top, seen in covered)
    if told_by == EVENT_LOG and not missing:  # a pod that no manager told of was taken away before it had a device
        once = [event for event in once if not event.from_kubernetes]
    runs = [_closed(run, outcome, finished_ns) for run in runs_of(once, clocks)]
    started_ns = min((run.begin_ns for run in runs), default=None)
    check = _cross_check(given)
    done = _steps_done(facts, once, outcome)
    notes = [
        *_contradictions(check, runs, finished_ns, given),
        *_clock_notes(once, clocks),
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
        interruptions=_most(runs, {FAILED, UNTOLD}),
        steps_done=done,
        steps_missing=missing,
        steps_repeated=repeated,
        check=check,
        notes=tuple(notes),
        heard_ns=_heard_ns(facts, once, clocks, over=bool(outcome)),
    )


# --- how it ended -------------------------------------------------------------------------------------------------------


def _end(
    facts: JobFacts, once: Iterable[JobEvent], given: Iterable[JobEvent], clocks: Clocks
) -> tuple[str, int | None, str]:
    """Outcome, when, and who told it. Finished once each pod has: a step is done when all ranks have done it."""
    logged = _finishes(facts, (event for event in once if not event.from_kubernetes), clocks)
    told = _finishes(facts, (event for event in given if event.from_kubernetes), clocks)
    ended = {**told, **logged}
    if len(ended) >= facts.tasks:
        return FINISHED, max(ended.values()), EVENT_LOG if len(logged) >= facts.tasks else KUBERNETES
    if facts.completed_ns is not None:
        return FINISHED, max([facts.completed_ns, *ended.values()]), KUBERNETES
    if facts.failed_ns is not None:
        return FAILED, facts.failed_ns, KUBERNETES
    return ("", None, "") if facts.deleted_ns is None else (DELETED, facts.deleted_ns, KUBERNETES)


def _finishes(facts: JobFacts, events: Iterable[JobEvent], clocks: Clocks) -> dict[str, int]:
    """Per job key, when it had done all its steps for the first time."""
    ended: dict[str, int] = {}
    for event in events:
        if event.kind == FINISHED or (facts.steps and event.steps_done >= facts.steps):
            at_ns = time_of(event, clocks)
            ended[event.job_key] = min(at_ns, ended.get(event.job_key, at_ns))
    return ended


def _closed(run: Run, outcome: str, finished_ns: int | None) -> Run:
    """Nothing runs on after the job's end, whether anybody told the end of this run or not."""
    if run.end_ns is not None or not outcome or finished_ns is None:
        return run
    return run.closed(FINISHED, finished_ns) if outcome == FINISHED else run.untold()


def _most(runs: Iterable[Run], kinds: Collection[str]) -> int:
    """Ends of these kinds of the job key that has most of them: pods of a job are preempted together, that counts once."""
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.job_key] = counts.get(run.job_key, 0) + (run.ended in kinds)
    return max(counts.values(), default=0)


# --- steps --------------------------------------------------------------------------------------------------------------


def _steps_done(facts: JobFacts, events: Iterable[JobEvent], outcome: str) -> int:
    """Of the pod that has come least far; pods that said nothing yet have done nothing."""
    if outcome == FINISHED and facts.steps:
        return facts.steps
    most: dict[str, int] = {}
    for event in events:
        most[event.job_key] = max(event.steps_done, most.get(event.job_key, 0))
    return min(most.values()) if len(most) >= facts.tasks else 0


def _heard_ns(facts: JobFacts, events: Iterable[JobEvent], clocks: Clocks, *, over: bool) -> int | None:
    """The newest event's time; of several pods that of the one that has come least far, since its steps are the job's."""
    newest: dict[str, tuple[int, int]] = {}
    for event in events:
        at_ns = time_of(event, clocks)
        steps, known_ns = newest.get(event.job_key, (0, at_ns))
        newest[event.job_key] = max(steps, event.steps_done), max(known_ns, at_ns)
    if over or facts.tasks < 2 or len(newest) < facts.tasks:
        return max((at_ns for _, at_ns in newest.values()), default=None)
    least = min(steps for steps, _ in newest.values())
    return min(at_ns for steps, at_ns in newest.values() if steps == least)


def _coverage(events: Iterable[JobEvent]) -> tuple[list[tuple[int, int]], int]:
    """Per job key the furthest step and how many up to there are told of; and how many steps were told more than once."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if not event.from_kubernetes:
            ranges.setdefault(event.job_key, []).append((event.from_step, event.steps_done))
    forward = {key: [(a, b) for a, b in found if b > a] for key, found in ranges.items()}
    covered = {key: covered_ns(found) for key, found in forward.items()}
    repeated = sum(b - a for found in forward.values() for a, b in found) - sum(covered.values())
    return [(max(b for _, b in found), covered[key]) for key, found in ranges.items()], repeated


# --- what may distort it ------------------------------------------------------------------------------------------------


def _cross_check(events: Iterable[JobEvent]) -> CrossCheck:
    """From all that Kubernetes told, also of pods whose managers told more. The end counts once the containers that were
    started last have ended."""
    told = [event for event in events if event.from_kubernetes]
    begun = [event for event in told if event.kind not in ENDS]
    ends = {(event.stream, event.epoch): event.wall_ns for event in sorted(told, key=_wall_ns) if event.kind in ENDS}
    last = {event.job_key: (event.stream, event.epoch) for event in sorted(begun, key=_wall_ns)}
    over = all(place in ends for place in last.values())
    return CrossCheck(
        min((event.wall_ns for event in begun), default=None), max(ends.values(), default=None) if over else None
    )


def _contradictions(
    check: CrossCheck, runs: Iterable[Run], finished_ns: int | None, given: Iterable[JobEvent]
) -> list[str]:
    """Of the pods that Kubernetes told of: it forgets those that are gone, and so does an operator that lost its store."""
    told = {event.pod for event in given if event.from_kubernetes}
    begun = min((run.begin_ns for run in runs if run.pod in told), default=None)
    last = max(runs, key=lambda run: (run.begin_ns, run.job_key), default=None)
    return check.contradictions(begun, finished_ns if last is not None and last.pod in told else None)


def _wall_ns(event: JobEvent) -> tuple[int, tuple[str, int, int]]:
    return event.wall_ns, event.place


def _clock_notes(events: Iterable[JobEvent], clocks: Clocks) -> list[str]:
    """Nodes whose clock was found to be off by more than FLAG_NS at any event of this job, by the worst of them."""
    worst: dict[str, tuple[int, str]] = {}
    for event in events:
        if event.wall_ns and not event.from_kubernetes:
            off_ns, told = _off(event, clocks)
            if abs(off_ns) > FLAG_NS:
                worst[event.node] = max(worst.get(event.node, (0, "")), (abs(off_ns), told))
    return [worst[node][1] for node in sorted(worst)]


def _off(event: JobEvent, clocks: Clocks) -> tuple[int, str]:
    """By how much its node's clock was ahead; where that wasn't measured, what the event's arrival before it happened shows."""
    offset = clocks.offset(event.node, event.wall_ns)
    if offset is not None:
        way = "ahead" if offset.ahead_ns > 0 else "behind"
        amount = f"{abs(offset.ahead_ns) / 1e6:.0f} ms (+-{offset.uncertain_ns / 1e6:.0f} ms) {way}"
        return offset.ahead_ns, f"the clock of node {event.node} was {amount}; its times are corrected by that"
    early_ns = event.wall_ns - event.received_ns if event.received_ns else 0
    fix = "measure it or run NTP there"
    told = f"the clock of node {event.node} was at least {early_ns / 1e6:.0f} ms ahead, and nothing is corrected; {fix}"
    return max(0, early_ns), told


def _resolution(events: Iterable[JobEvent]) -> list[str]:
    pods = sorted({event.pod for event in events if event.from_kubernetes})
    if not pods:
        return []
    return [f"times of {', '.join(pods)} are Kubernetes' own, in whole seconds: no manager told of them"]


def _gap(outcome: str, missing: int) -> list[str]:
    """While it runs, what is missing may be on its way."""
    return [f"no event tells of {missing} of its steps"] if outcome == FINISHED and missing else []
