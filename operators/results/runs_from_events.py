"""Computes runs from events: when and where a job key held devices, and which steps it did there.

Within one node the order of its stream counts, because its wall clock may have been set back; between nodes the wall clocks
count, which Kubernetes requires to be synchronised. Neither the order nor the number of times in which events are given makes
a difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from operators.results.events import BEGINS, ENDS, JobEvent

UNREPORTED = "untold"
"""The kind of end of a run whose end was not reported: the run counts until its newest event."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job on a node. Times are nanoseconds since 1970; `end_ns` None: it continues.

    `heard_ns`: its newest event. `ended`: the kind of its last event (see events.ENDS), UNREPORTED, or "" while it continues.
    """

    job_key: str
    node: str
    pod: str
    devices: tuple[str, ...]
    begin_ns: int
    heard_ns: int
    from_step: int
    to_step: int
    end_ns: int | None = None
    ended: str = ""

    def closed(self, kind: str, end_ns: int) -> Run:
        return replace(self, end_ns=max(end_ns, self.begin_ns), ended=kind)

    def closed_unreported(self) -> Run:
        """The run, ended at its newest event: it must have ended, but its end was not reported."""
        return self if self.end_ns is not None else self.closed(UNREPORTED, self.heard_ns)


def without_repetitions(events: Iterable[JobEvent]) -> list[JobEvent]:
    """Each event once, whatever its place. Events from Kubernetes are left out for pods whose manager reports events."""
    first: dict[tuple[object, ...], JobEvent] = {}
    for event in events:
        known = first.get(event.content)
        if known is None or event.place < known.place:
            first[event.content] = event
    for event in _sent_again(first.values()):
        del first[event.content]
    better = {(event.job_key, event.pod) for event in first.values() if not event.from_kubernetes}
    return sorted(
        (e for e in first.values() if not e.from_kubernetes or (e.job_key, e.pod) not in better),
        key=lambda event: (event.node, event.place),
    )


def _sent_again(events: Iterable[JobEvent]) -> list[JobEvent]:
    """Events that were merged into a range by this store and were sent again under another id, so of another epoch."""
    by_epoch: dict[tuple[str, int], list[JobEvent]] = {}
    for event in events:
        by_epoch.setdefault((event.stream, event.epoch), []).append(event)
    ranges = {place: [e for e in sent if e.since_number] for place, sent in by_epoch.items() if len(by_epoch) > 1}
    return [
        event
        for place, sent in by_epoch.items()
        for event in sent
        if any(r.has(event) for other, rs in ranges.items() if other != place for r in rs)
    ]


def runs_of(events: Iterable[JobEvent]) -> list[Run]:
    """The runs of all job keys among these events (see `without_repetitions`), in order of their beginning."""
    by_pod: dict[tuple[str, str, str], list[JobEvent]] = {}
    for event in events:
        by_pod.setdefault((event.job_key, event.node, event.pod), []).append(event)
    found = [run for reported in by_pod.values() for run in _of_one_pod(reported)]
    found.sort(key=lambda run: (run.begin_ns, run.job_key, run.node, run.from_step, run.pod))
    last = {run.job_key: run for run in found}
    # A job key runs on one node at a time: if it began again somewhere, the preceding run has ended.
    return [run if run is last[run.job_key] else run.closed_unreported() for run in found]


def time_of(event: JobEvent) -> int:
    """When the event happened, by its node's clock: at the latest when it was received, for no event is received before it
    happens. Where the node didn't know the time, it is the time of reception."""
    if event.wall_ns and event.received_ns:
        return min(event.wall_ns, event.received_ns)
    return event.wall_ns or event.received_ns


def _of_one_pod(events: Iterable[JobEvent]) -> list[Run]:
    done: list[Run] = []
    going: Run | None = None
    for event in events:
        at_ns = time_of(event)
        if event.kind == BEGINS:
            if going is not None:
                done.append(going.closed_unreported())
            going = _begun(event, at_ns, event.steps_done)
            continue
        if going is None and event.steps_done != event.from_step:
            going = _begun(event, at_ns, event.from_step)  # the event of the run's beginning was lost
        if going is None:
            continue
        going = replace(going, to_step=event.steps_done, heard_ns=max(at_ns, going.heard_ns))
        if event.kind in ENDS:
            done.append(going.closed(event.kind, at_ns))
            going = None
    return [*done, going] if going is not None else done


def _begun(event: JobEvent, at_ns: int, from_step: int) -> Run:
    devices = tuple(event.detail.split(",")) if event.kind == BEGINS and event.detail else ()
    return Run(event.job_key, event.node, event.pod, devices, at_ns, at_ns, from_step, event.steps_done)


def union_length(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the union of these spans."""
    total, reached = 0, None
    for begin, end in sorted(spans):
        if reached is None or begin > reached:
            total, reached = total + max(0, end - begin), max(begin, end)
        elif end > reached:
            total, reached = total + end - reached, end
    return total
