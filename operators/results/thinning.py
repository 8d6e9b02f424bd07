"""Merges ranges of progress: managers report a running job five times a second, and a look back needs less detail.

Older ranges may be coarser: a range gets no longer than 5 s or a hundredth of its age, whichever is more. A job has some hundred
events then, however long it runs, and no result changes. Only ranges that one node reported directly after each other are merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from operators.results.events import PROGRESS, JobEvent
from operators.results.runs_from_events import without_repetitions

FINEST_NS = 5_000_000_000
_OF_AGE = 100


@dataclass(frozen=True, slots=True)
class Thinned:
    """`changed` replace the events at the same places, `gone` are deleted."""

    changed: tuple[JobEvent, ...]
    gone: tuple[JobEvent, ...]


def thinned(events: Iterable[JobEvent], now_ns: int) -> Thinned:
    """Of the events of one job. Repeated events are deleted too: ranges of two epochs must not overlap."""
    told = [event for event in events if not event.from_kubernetes]
    once = without_repetitions(told)
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
    """The first range after any other event stays as it is: if the beginning of a run was lost, that range is the first report of
    the run."""
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
