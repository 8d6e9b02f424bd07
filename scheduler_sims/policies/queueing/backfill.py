"""Backfill with reservations: a job may overtake others only if it delays none of those that have a reserved start.

EASY (Lifka, The ANL/IBM SP scheduling system, JSSPP 1995) reserves for the first job that doesn't fit, conservative backfill
(Mu'alem and Feitelson, IEEE TPDS 12(6), 2001) for every waiting job. Both plan with estimated run times.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import inf

from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.placing import FreeSpace, main_configuration
from scheduler_sims.policies.waiting import checked_s, wants

_OVERDUE_S = 1e-3
"""A running job that should have ended by its estimate is expected to end after this time."""


class Timeline:
    """The free capacity from now on, as running and reserved jobs come and go: a copy of it for each time at which it changes."""

    def __init__(self, now_s: float, space: FreeSpace) -> None:
        self._times, self._spaces = [now_s], [space]

    def release(self, at_s: float, allocation: Allocation) -> None:
        """`allocation` is free from `at_s` on."""
        for space in self._spaces[self._split(at_s) :]:
            space.release(allocation)

    def reserve(
        self, wanted: Configuration, run_s: float, *, only_now: bool = False
    ) -> tuple[float, Allocation] | None:
        """Places a job at the earliest time at which it fits for all of `run_s`, and takes its place; None if there is none.

        `only_now`: it starts now or isn't placed.
        """
        for index, at_s in enumerate([self._times[0]] if only_now else list(self._times)):
            for node in self._choices(wanted, self._spaces[index]):
                allocation = self._take(wanted, index, at_s + run_s, node)
                if allocation is not None:
                    return at_s, allocation
        return None

    def _choices(self, wanted: Configuration, space: FreeSpace) -> Sequence[str | None]:
        """Where to try, if there is room at all: the best node, then each; a job of several tasks has only the best nodes."""
        room = space.place(wanted)
        if room is None:
            return []
        space.release(room)
        return [None] if wanted.min_tasks > 1 else [None, *space.nodes]

    def _take(self, wanted: Configuration, index: int, end_s: float, node: str | None) -> Allocation | None:
        allocation = self._spaces[index].place(wanted, node=node)
        if allocation is None:
            return None
        end = bisect_left(self._times, end_s) if end_s < inf else len(self._times)
        taken = [self._spaces[index]]
        for space in self._spaces[index + 1 : end]:
            if not space.has(allocation):
                for each in taken:
                    each.release(allocation)
                return None
            space.take(allocation)
            taken.append(space)
        if end_s < inf and (end == len(self._times) or self._times[end] > end_s):
            self._spaces.insert(end, self._spaces[end - 1].copy())
            self._times.insert(end, end_s)
            self._spaces[end].release(allocation)
        return allocation

    def _split(self, at_s: float) -> int:
        """The index of the step that begins at `at_s`, which is made if there is none."""
        index = bisect_left(self._times, at_s)
        if index == len(self._times) or self._times[index] > at_s:
            self._times.insert(index, at_s)
            self._spaces.insert(index, self._spaces[index - 1].copy())
        return index


def backfilled(view: ClusterView, reservations: float) -> Plan:
    """Starts jobs in order of submission; the first `reservations` jobs that don't fit get a reserved start.

    Raises PolicyError for an estimate that isn't a finite time.
    """
    timeline = Timeline(view.now_s, FreeSpace.now(view))
    for end_s, job in sorted(_ends(view), key=lambda end: (end[0], end[1].order)):
        assert job.allocation is not None
        timeline.release(end_s, job.allocation)
    starts: dict[str, Allocation] = {}
    reasons: dict[str, str] = {}
    for job in view.queued():
        wanted = main_configuration(view, job)
        run_s = checked_s(job, view.remaining_s(job, wanted.name))
        placed = timeline.reserve(wanted, run_s, only_now=reservations <= 0)
        if placed is not None and placed[0] == view.now_s:
            starts[job.job_id] = placed[1]
            reasons[job.job_id] = "next in order of submission" if not reasons else "delays no job before it"
        elif reservations > 0:
            reservations -= 1
            when = f"reserved from {placed[0]:g} s" if placed else "it never fits"
            reasons[job.job_id] = f"waits for {wants(view, job)}: {when}"
    return view.plan.evolve(start=starts, reasons=reasons)


def _ends(view: ClusterView) -> list[tuple[float, JobView]]:
    """When each job that holds resources is expected to release them."""
    ends = []
    for job in view.holding():
        left_s = 0.0 if job.phase is Phase.STOPPING else checked_s(job, max(0.0, view.remaining_s(job)))
        ends.append((view.now_s + max(left_s, _OVERDUE_S), job))
    return ends
