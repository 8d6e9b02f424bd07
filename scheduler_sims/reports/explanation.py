"""Why a job of a run waited: computed from who held which device when (jobs.csv, spans.csv), so for any policy and cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from scheduler_sims.reports.files import JobRow
from scheduler_sims.reports.formats import list_some, seconds
from scheduler_sims.reports.metrics import union
from scheduler_sims.reports.spans_file import SpanRow

FULL, TOO_FEW, APART, ROOM = "full", "too few", "apart", "room"
REASONS: Mapping[str, str] = {
    FULL: "every GPU was held",
    TOO_FEW: "GPUs were free, but fewer than it needs",
    APART: "enough GPUs were free, but not together on as many nodes as it got",
    ROOM: "enough GPUs were free; CPUs or memory were short, NVLink didn't join them, the policy left it waiting, or it began",
}
_AT_ONCE_S = 1e-6
"""Times in the files have six decimals."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A time without devices. `needs`: the GPUs on each node that it got at its end; empty if none, or only CPUs.

    `reasons_s`: seconds by reason. `holders_s`: GPU-seconds of the jobs that held GPUs, the most first. `overtook`: jobs that
    were submitted later and started within this time; `ahead`: jobs that were submitted earlier and waited too at its beginning.
    `freed_by`: jobs that let devices go as it ended.
    """

    start_s: float
    end_s: float
    needs: tuple[int, ...] = ()
    reasons_s: Mapping[str, float] = field(default_factory=dict)
    holders_s: Mapping[str, float] = field(default_factory=dict)
    overtook: tuple[str, ...] = ()
    ahead: int = 0
    freed_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stay:
    """A time with devices. `places`: NODE/INDEX or NODE/cpu. `successors`: jobs that got one of them as it ended, if the job
    hadn't finished."""

    start_s: float
    end_s: float
    places: tuple[str, ...]
    successors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The history of a job: waits and stays in the order of time."""

    job: JobRow
    history: tuple[Wait | Stay, ...]

    @property
    def waited_s(self) -> float:
        return sum(one.end_s - one.start_s for one in self.history if isinstance(one, Wait))

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        parts = [{"kind": type(one).__name__.lower(), **asdict(one)} for one in self.history]
        return {"job": asdict(self.job), "waited_s": self.waited_s, "history": parts}


def explain(job: JobRow, jobs: Sequence[JobRow], spans: Sequence[SpanRow], gpus: int) -> Explanation:
    """The history of `job`. `jobs` and `spans`: of its run, all jobs. `gpus`: of the cluster."""
    own = [span for span in spans if span.job_id == job.job_id]
    stays = union((span.start_s, span.end_s) for span in own)
    capacity = _capacity(spans)
    history: list[Wait | Stay] = []
    since = job.submit_s
    for number, (start_s, end_s) in enumerate(stays):
        at_start = [span for span in own if abs(span.start_s - start_s) <= _AT_ONCE_S]
        if start_s - since > _AT_ONCE_S:
            history.append(_wait(job, (since, start_s), at_start, (jobs, spans), capacity, gpus))
        places = tuple(dict.fromkeys(span.place for span in own if start_s <= span.start_s < end_s))
        last = number == len(stays) - 1 and abs(end_s - job.finish_s) <= _AT_ONCE_S
        history.append(Stay(start_s, end_s, places, () if last else _successors(job, end_s, places, spans)))
        since = end_s
    if job.status != "finished" and job.finish_s - since > _AT_ONCE_S:
        history.append(_wait(job, (since, job.finish_s), [], (jobs, spans), capacity, gpus))
    return Explanation(job, tuple(history))


def _capacity(spans: Iterable[SpanRow]) -> dict[str, int]:
    """GPUs of each node, as far as any job used them."""
    capacity: dict[str, int] = {}
    for span in spans:
        node, _, device = span.place.rpartition("/")
        if device != "cpu":
            capacity[node] = max(capacity.get(node, 0), int(device) + 1)
    return capacity


def _wait(
    job: JobRow,
    time: tuple[float, float],
    got: Sequence[SpanRow],
    run: tuple[Sequence[JobRow], Sequence[SpanRow]],
    capacity: Mapping[str, int],
    gpus: int,
) -> Wait:
    jobs, spans = run
    start_s, end_s = time
    needs = Counter(span.place.rpartition("/")[0] for span in got if not span.place.endswith("/cpu"))
    within = [s for s in spans if s.start_s < end_s and s.end_s > start_s and not s.place.endswith("/cpu")]
    holders: dict[str, float] = {}
    for span in within:
        held_s = min(span.end_s, end_s) - max(span.start_s, start_s)
        holders[span.job_id] = holders.get(span.job_id, 0.0) + held_s
    tasks = tuple(sorted(needs.values(), reverse=True))
    return Wait(
        start_s,
        end_s,
        tasks,
        _reasons(within, time, tasks, capacity, gpus) if tasks else {},
        dict(sorted(holders.items(), key=lambda pair: -pair[1])),
        tuple(
            other.job_id
            for other in jobs
            if other.submit_s > job.submit_s and other.start_s is not None and start_s <= other.start_s < end_s
        ),
        sum(_waits_ahead(other, job, start_s) for other in jobs),
        tuple(dict.fromkeys(span.job_id for span in spans if abs(span.end_s - end_s) <= _AT_ONCE_S)),
    )


def _waits_ahead(other: JobRow, job: JobRow, at_s: float) -> bool:
    started_s = other.finish_s if other.start_s is None else other.start_s
    return other.job_id != job.job_id and other.submit_s < job.submit_s and started_s > at_s


def _reasons(
    spans: Sequence[SpanRow], time: tuple[float, float], tasks: Sequence[int], capacity: Mapping[str, int], gpus: int
) -> dict[str, float]:
    """Seconds by reason: the state between two changes of what is held."""
    changes: list[tuple[float, int, str]] = []
    for span in spans:
        changes += [(max(span.start_s, time[0]), 1, span.place), (min(span.end_s, time[1]), -1, span.place)]
    held: Counter[str] = Counter()
    free = dict(capacity)
    unused = gpus - sum(capacity.values())
    reasons: dict[str, float] = {}
    now = time[0]
    for at_s, change, place in sorted(changes):
        if at_s > now:
            reason = _reason(free, unused, tasks)
            reasons[reason] = reasons.get(reason, 0.0) + at_s - now
            now = at_s
        node = place.rpartition("/")[0]
        before = held[place] > 0
        held[place] += change
        free[node] += before - (held[place] > 0)
    if time[1] > now:
        reason = _reason(free, unused, tasks)
        reasons[reason] = reasons.get(reason, 0.0) + time[1] - now
    return reasons


def _reason(free: Mapping[str, int], unused: int, tasks: Sequence[int]) -> str:
    """`free`: GPUs by node; `unused`: GPUs that no job ever used, wherever they are."""
    total = sum(free.values()) + unused
    if total == 0:
        return FULL
    if total < sum(tasks):
        return TOO_FEW
    largest = sorted(free.values(), reverse=True)
    together = all(task <= there for task, there in zip(tasks, largest, strict=False)) and len(tasks) <= len(largest)
    return ROOM if together or unused >= max(tasks) else APART


def _successors(job: JobRow, at_s: float, places: Iterable[str], spans: Iterable[SpanRow]) -> tuple[str, ...]:
    """Jobs that got a device soonest after it was let go, if that was in the same decision."""
    found = [s for s in spans if s.place in set(places) and s.job_id != job.job_id and s.start_s >= at_s - _AT_ONCE_S]
    first_s = min((span.start_s for span in found), default=0.0)
    return tuple(dict.fromkeys(span.job_id for span in found if span.start_s <= first_s + _AT_ONCE_S))


def sentences(one: Explanation) -> list[str]:
    """The history in words, a line for each time and fact."""
    job = one.job
    replica = job.status == "removed"
    part = f", {one.waited_s / job.jct_s:.0%} of its {'time' if replica else 'JCT'}" if job.jct_s > 0 else ""
    ended = "left, since it wasn't needed any more," if replica else job.status
    lines = [
        f"{job.job_id} of {job.user}, {job.policy} on the {job.cluster} cluster: {ended} after {seconds(job.jct_s)} s; "
        f"it waited {seconds(one.waited_s)} s{part}"
    ]
    for each in one.history:
        lines += _wait_sentences(each) if isinstance(each, Wait) else _stay_sentences(each)
    if job.reason:
        lines.append(f"it failed: {job.reason}")
    return lines


def _wait_sentences(wait: Wait) -> list[str]:
    needs = _needs(wait.needs)
    lines = [f"{_time(wait.start_s)} waits {seconds(wait.end_s - wait.start_s)} s{needs}"]
    for reason in REASONS:
        if reason in wait.reasons_s:
            lines.append(f"    {seconds(wait.reasons_s[reason])} s: {REASONS[reason]}")
    if wait.ahead:
        lines.append(f"    at its beginning {_jobs(wait.ahead)} that came earlier waited too")
    if wait.overtook:
        lines.append(f"    overtaken by {_jobs(len(wait.overtook))} that came later: {list_some(wait.overtook)}")
    if wait.holders_s:
        held = [f"{name} ({seconds(gpu_s)})" for name, gpu_s in wait.holders_s.items()]
        lines.append(f"    GPUs were held by (GPU-seconds): {list_some(held)}")
    if wait.freed_by:
        lines.append(f"    it ended as {list_some(wait.freed_by)} let devices go")
    return lines


def _stay_sentences(stay: Stay) -> list[str]:
    lines = [f"{_time(stay.start_s)} holds {list_some(stay.places, 8)} for {seconds(stay.end_s - stay.start_s)} s"]
    if stay.successors:
        lines.append(f"    stopped; its devices went to {list_some(stay.successors)}")
    return lines


def _needs(tasks: Sequence[int]) -> str:
    if not tasks:
        return ""
    gpus = f"{sum(tasks)} GPU{'s' * (sum(tasks) != 1)}"
    return f" for {gpus} on one node" if len(tasks) == 1 else f" for {gpus} on {len(tasks)} nodes"


def _jobs(number: int) -> str:
    return f"{number:,} job{'s' * (number != 1)}"


def _time(at_s: float) -> str:
    return f"{at_s:12,.3f} s"
