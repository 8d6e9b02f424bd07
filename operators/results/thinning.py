"""Makes few ranges of progress of many: managers tell of a running job five times a second, and who looks back needs less.

What is older may be coarser: a range gets no longer than 5 s, or a hundredth of its age. So a job has some hundred events,
however long it runs, and no result changes by it. Nothing is merged that isn't told of one after the other by one node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from operators.results.events import PROGRESS, JobEvent
from operators.results.runs import told_once

FINEST_NS = 5_000_000_000
_OF_AGE = 100


@dataclass(frozen=True, slots=True)
class Thinned:
    """`changed` take the place of the events at the same place, `gone` disappear."""

    changed: tuple[JobEvent, ...]
    gone: tuple[JobEvent, ...]


def thinned(events: Iterable[JobEvent], now_ns: int) -> Thinned:
    """Of the events of one job. What is told twice goes too: ranges of two stories must not overlap."""
    told = [event for event in events if not event.from_kubernetes]
    once = told_once(told)
    kept: dict[tuple[str, int, int], JobEvent] = {}
    for story in _stories(once).values():
        merged = _merged(story, now_ns)
        kept |= {event.place: event for event in merged}
    return Thinned(
        tuple(kept[e.place] for e in told if e.place in kept and kept[e.place] != e),
        tuple(e for e in told if e.place not in kept),
    )


def _stories(events: Iterable[JobEvent]) -> dict[tuple[str, int, str], list[JobEvent]]:
    found: dict[tuple[str, int, str], list[JobEvent]] = {}
    for event in sorted(events, key=lambda event: event.place):
        found.setdefault((event.stream, event.epoch, event.job_key), []).append(event)
    return found


def _merged(story: Iterable[JobEvent], now_ns: int) -> list[JobEvent]:
    """The first range after anything else stays as it is: where the beginning of a run was lost, it is the first word."""
    done: list[JobEvent] = []
    for event in story:
        if len(done) > 1 and done[-2].kind == PROGRESS and _follows(done[-1], event, now_ns):
            event = _both(done.pop(), event)
        done.append(event)
    return done


def _follows(before: JobEvent, event: JobEvent, now_ns: int) -> bool:
    """They are of one run, touch, go forward, and the range of both isn't too long."""
    if not before.kind == event.kind == PROGRESS or not before.wall_ns or not before.number < event.number:
        return False
    same = (before.node, before.pod, before.namespace, before.detail) == (
        *(event.node, event.pod, event.namespace, event.detail),
    )
    forward = before.from_step <= before.steps_done == event.from_step <= event.steps_done
    begun_ns = before.since_ns or before.wall_ns
    longest_ns = max(FINEST_NS, (now_ns - event.wall_ns) // _OF_AGE)
    return same and forward and before.wall_ns <= event.wall_ns <= begun_ns + longest_ns


def _both(before: JobEvent, event: JobEvent) -> JobEvent:
    return replace(
        event,
        from_step=before.from_step,
        absorbed=before.absorbed + 1 + event.absorbed,
        since_number=before.since_number or before.number,
        since_ns=before.since_ns or before.wall_ns,
    )
