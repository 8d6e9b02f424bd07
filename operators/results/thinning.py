"""Merges ranges of progress: managers report a running job five times a second, and past progress needs less detail.

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
    """`changed` replace the events at the same places; `gone` must be deleted."""

    changed: tuple[JobEvent, ...]
    gone: tuple[JobEvent, ...]


def thinned(events: Iterable[JobEvent], now_ns: int) -> Thinned:
    """Thins the events of one job. Repeated events are deleted too, since ranges of two epochs must not overlap."""
    logged = [event for event in events if not event.from_kubernetes]
    once = without_repetitions(logged)
    kept: dict[tuple[str, int, int], JobEvent] = {}
    for group in _by_stream(once).values():
        merged = _merged(group, now_ns)
        kept |= {event.place: event for event in merged}
    return Thinned(
        tuple(kept[e.place] for e in logged if e.place in kept and kept[e.place] != e),
        tuple(e for e in logged if e.place not in kept),
    )


def _by_stream(events: Iterable[JobEvent]) -> dict[tuple[str, int, str], list[JobEvent]]:
    found: dict[tuple[str, int, str], list[JobEvent]] = {}
    for event in sorted(events, key=lambda event: event.place):
        found.setdefault((event.stream, event.epoch, event.job_key), []).append(event)
    return found


def _merged(group: Iterable[JobEvent], now_ns: int) -> list[JobEvent]:
    """The first range after any other event stays as it is: if the beginning of a run was lost, that range is the first report of
    the run."""
    done: list[JobEvent] = []
    for event in group:
        if len(done) > 1 and done[-2].kind == PROGRESS and _follows(done[-1], event, now_ns):
            event = _both(done.pop(), event)
        done.append(event)
    return done


def _follows(before: JobEvent, event: JobEvent, now_ns: int) -> bool:
    """Both are progress of one run, adjacent, increasing, and short enough together."""
    if not before.kind == event.kind == PROGRESS or not before.wall_ns or not before.number < event.number:
        return False
    one, other = ((e.node, e.pod, e.namespace, e.detail) for e in (before, event))
    same = one == other
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
