"""What is observed of one job, from the events of its nodes and from Kubernetes' word on its pods. Pure.

The completion time ends with the last step in the event log, not with the pod: images are cleaned up and containers are
reaped after it. Kubernetes' own times (whole seconds) are the cross-check, and all there is for jobs without a device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from math import isfinite

from emulator_runtime.domain.units import NS_PER_S, to_s
from operators.results.clocks import FLAG_NS, Clocks
from operators.results.events import ENDS, FAILED, FINISHED, PREEMPTED, JobEvent
from operators.results.figures import covered_ns, slowdown
from operators.results.runs import UNTOLD, Run, runs_of, time_of, told_once

EMUJOB = "EmuJob"
DELETED = "deleted"
EVENT_LOG = "event log"
KUBERNETES = "Kubernetes"
SETTLE_S = 60.0
"""How long the log's word on a job's end may be on its way after Kubernetes' (a node waits as long for a lost Redis)."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the operator knows of a job beside its events. `uid` is what its job keys begin with: its EmuJob's, which may need
    several batch Jobs one after the other, or the UID of a batch Job without one, or of a pod of neither.

    `submitted_ns`: when the operator saw it first. `tasks`: pods that each do all `steps` (0: nobody knows how many).
    `gpus` of each task. `isolated_s`: run time alone on its devices (None: not known). `policy`: whose queue it is in.
    `failed_ns`, `completed_ns`: when its Job was given up, or complete, as Kubernetes says; `deleted_ns`: when its object was
    found gone before it had ended (None: neither). `kind`: of the object, EmuJob, Job or Pod. `experiment`: the id of the
    experiment that it belongs to.
    """

    uid: str
    namespace: str
    name: str
    submitted_ns: int
    tasks: int = 1
    steps: int = 0
    gpus: int = 0
    isolated_s: float | None = None
    policy: str = ""
    failed_ns: int | None = None
    kind: str = EMUJOB
    experiment: str = ""
    deleted_ns: int | None = None
    completed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """Kubernetes' times of the pods' containers, cut to whole seconds by it; None where it said nothing."""

    started_ns: int | None = None
    finished_ns: int | None = None

    def contradictions(self, started_ns: int | None, finished_ns: int | None) -> list[str]:
        """A container can't compute before it is started nor after it has ended."""
        found = []
        if started_ns is not None and self.started_ns is not None and started_ns < self.started_ns - FLAG_NS:
            early = to_s(self.started_ns - started_ns)
            found.append(
                f"its first run begins {early:.3f} s before Kubernetes started a container; compare the clocks"
            )
        if finished_ns is not None and self.finished_ns is not None:
            late_ns = finished_ns - self.finished_ns - NS_PER_S
            if late_ns > FLAG_NS:
                late = to_s(late_ns)
                found.append(
                    f"its last step ends {late:.3f} s after Kubernetes' last container did; compare the clocks"
                )
        return found


@dataclass(frozen=True, slots=True)
class JobResult:
    """Times are the operator's wall clock since 1970, None: it hasn't happened. `outcome`: "", finished, failed or deleted.

    `told_by`: who told the end, EVENT_LOG or KUBERNETES (to the second, and the log's word may still be on its way).
    `preemptions` and `interruptions` (failures, ends that nobody told) count what happened to the job as a whole, however
    many pods it has. `steps_missing` and `steps_repeated`: of all pods, what no event tells, and what was done again.
    `heard_ns`: when that many steps were known to be done; of a job that has ended, its newest event. `notes` are sentences
    about what may distort the figures.
    """

    facts: JobFacts
    first_started_ns: int | None
    finished_ns: int | None
    outcome: str
    told_by: str
    runs: tuple[Run, ...]
    preemptions: int
    interruptions: int
    steps_done: int
    steps_missing: int
    steps_repeated: int
    check: CrossCheck
    notes: tuple[str, ...] = ()
    heard_ns: int | None = None

    @property
    def finished(self) -> bool:
        """It has done all its steps."""
        return self.outcome == FINISHED

    def settled(self, now_ns: int) -> bool:
        """Its end is known and won't be told better: by the event log, or by Kubernetes SETTLE_S ago."""
        if self.finished_ns is None:
            return False
        return self.told_by == EVENT_LOG or now_ns - self.finished_ns >= SETTLE_S * NS_PER_S

    @property
    def jct_s(self) -> float | None:
        """From submission to the end of the last step, or to the failure; a job that was deleted has none."""
        if self.finished_ns is None or self.outcome == DELETED:
            return None
        return to_s(self.finished_ns - self.facts.submitted_ns)

    @property
    def queueing_delay_s(self) -> float | None:
        """From submission until it held devices for the first time."""
        return None if self.first_started_ns is None else to_s(self.first_started_ns - self.facts.submitted_ns)

    @property
    def service_s(self) -> float:
        """How long it held devices, up to its last word where it still does; pods at the same time count once."""
        ends = ((r.begin_ns, r.end_ns if r.end_ns is not None else r.heard_ns) for r in self.runs)
        return to_s(covered_ns(ends))

    @property
    def slowdown(self) -> float | None:
        """See figures.slowdown; None while it runs, where it failed, and where its isolated time isn't known."""
        if self.jct_s is None or not self.finished or not self.facts.isolated_s:
            return None
        return slowdown(self.jct_s, self.facts.isolated_s) if isfinite(self.facts.isolated_s) else None


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


def merged(known: JobFacts, news: JobFacts) -> JobFacts:
    """Facts of the same job, told twice: what was told first of its submission, its isolated time and its end stays.

    Its isolated time is that on the cluster that it was submitted to; and who sees it again sees it later.
    """
    failed, deleted = _first(known.failed_ns, news.failed_ns), _first(known.deleted_ns, news.deleted_ns)
    isolated_s = news.isolated_s if known.isolated_s is None else known.isolated_s
    kept = replace(news, submitted_ns=known.submitted_ns, isolated_s=isolated_s)
    completed = _first(known.completed_ns, news.completed_ns)
    return replace(kept, failed_ns=failed, deleted_ns=deleted, completed_ns=completed)


def _first(known: int | None, news: int | None) -> int | None:
    return news if known is None else known
