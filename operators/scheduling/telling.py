"""What the loop is told: each piece of news about a job becomes an event, with the times and steps that are known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import NS_PER_S, to_s
from operators.clock import ns_of
from operators.documents import text_at, whole_at
from operators.scheduling.objects import Mine, Order
from operators.scheduling.past import NEW, Past
from operators.scheduling.reading import Around, held_by, present, present_with
from operators.scheduling.track import Pace, Track
from operators.scheduling.tracking import Known, News
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.open import PresentJob, Submitted
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation

_ENDED = {News.FINISHED: Happening.FINISHED, News.FAILED: Happening.FAILED, News.REMOVED: Happening.REMOVED}


class Teller:
    """Emulated time is `wall_ns` since `epoch_ns`. What jobs have been through and their objects don't tell is kept here."""

    def __init__(
        self,
        truth: OpenTruth,
        costs: ClusterCosts,
        wall_ns: Callable[[], int],
        epoch_ns: int,
        pasts: Mapping[str, Past],
    ) -> None:
        self._truth, self._costs = truth, costs
        self._wall_ns, self._epoch_ns = wall_ns, epoch_ns
        self._pasts: Mapping[str, Past] = pasts
        self._left: dict[str, Past] = {}

    def now_ns(self) -> int:
        return self._wall_ns() - self._epoch_ns

    def remember(self, pasts: Mapping[str, Past]) -> dict[str, Past]:
        """What the jobs of the loop have been through, by uid; with that of jobs that may come back to it."""
        self._pasts = {**self._left, **pasts}
        return {**self._pasts}

    def forget(self, uid: str) -> None:
        """It won't come back."""
        self._left.pop(uid, None)

    def steps_done(self, track: Track) -> int:
        """As far as it was told, and how far the job should be since then."""
        return track.told_steps if track.pace is None else track.pace.steps_at(self.now_ns())

    def event(self, track: Track, what: Happening, steps: int = 0) -> Event:
        return Event(self.now_ns(), what, track.job_id, track.row, steps)

    def waits(self, track: Track, mine: Mine, spec: JobSpec, around: Around) -> Event:
        """A job that holds nothing."""
        past = self._past_of(track)
        return self._submitted(track, present(mine, spec, around, past, to_s(self.now_ns())))

    def holds(self, track: Track, mine: Mine, spec: JobSpec, around: Around) -> Event | None:
        """A job that is there and holds something; None where nobody can tell what."""
        held, now_ns = held_by(mine, spec, around), self.now_ns()
        if held is None:
            return None
        past = self._past_of(track)
        job = present_with(present(mine, spec, around, past, to_s(now_ns)), held, past, to_s(now_ns))
        job = replace(job, started=track.known is not Known.STARTING, stopping=track.known is Known.STOPPING)
        told = self._submitted(track, job)
        track.allocation, track.since_ns = held, round(job.running_since_s * NS_PER_S)
        if job.started:
            track.pace = Pace(job.steps_done, now_ns, self._times(spec, held))
        return told

    def starts(self, track: Track) -> Event:
        """Its allocation took effect."""
        if track.spec is not None and track.allocation is not None:
            begin_ns = round(self._costs.begin_s(resumed=track.told_steps > 0) * NS_PER_S)
            times = self._times(track.spec, track.allocation)
            track.pace = Pace(track.told_steps, self.now_ns() + begin_ns, times)
        return self.event(track, Happening.STARTED)

    def divided(self, track: Track, allocation: Allocation) -> None:
        """From now on it has other CPUs and memory."""
        if track.pace is not None and track.spec is not None:
            now_ns = self.now_ns()
            track.pace = Pace(track.pace.steps_at(now_ns), now_ns, self._times(track.spec, allocation))
        track.allocation = allocation

    def stops(self, track: Track, order: Order | None) -> Event:
        """Its steps are as its status says where that knows the run's end; until then as far as it should be."""
        status = order.steps_done if order is not None else 0
        known = order is not None and self._knows_end(track, order)
        track.told_steps = status if known else max(status, self.steps_done(track))
        track.pace = track.allocation = None
        return self.event(track, Happening.STOPPED, track.told_steps)

    def ends(self, track: Track, order: Order | None, news: News) -> Event:
        """It leaves the loop."""
        now_ns = self.now_ns()
        finished_ns = self._emulated(order.time("finishedAt")) if order is not None else None
        at_ns = now_ns if finished_ns is None else min(now_ns, finished_ns)
        steps = track.spec.steps if news is News.FINISHED and track.spec is not None else track.told_steps
        if news is News.REMOVED and track.known is Known.NOTHING:  # it may come back
            self._left[track.uid] = Past(self._pasts.get(track.uid, NEW).until(to_s(now_ns)))
        reason = order.failure if news is News.FAILED and order is not None else ""
        track.pace = track.allocation = None
        return Event(at_ns, _ENDED[news], track.job_id, track.row, steps, reason)

    def progress(self, track: Track, order: Order) -> list[Event]:
        """What its status knows of its steps that the loop doesn't."""
        if track.spec is None:
            return []
        steps = min(order.steps_done, track.spec.steps - 1)
        if track.known is Known.RUNNING and track.pace is not None:
            track.pace = self._corrected(track, track.pace, order, steps)
        waits = track.known is Known.QUEUED and steps != track.told_steps
        if not waits or (steps < track.told_steps and not self._knows_end(track, order)):
            return []
        track.told_steps = steps
        return [self.event(track, Happening.PROGRESS, steps)]

    def _past_of(self, track: Track) -> Past:
        return self._left.pop(track.uid, None) or self._pasts.get(track.uid, NEW)

    def _submitted(self, track: Track, job: PresentJob) -> Event:
        self._truth.add(job.spec)
        track.told_steps = job.steps_done
        return Submitted(self.now_ns(), Happening.SUBMITTED, track.job_id, track.row, job.steps_done, job=job)

    def _times(self, spec: JobSpec, allocation: Allocation) -> StepTimes:
        return self._truth.step_times(spec, allocation)

    def _corrected(self, track: Track, pace: Pace, order: Order, steps: int) -> Pace:
        """By when that many steps were done, or its run began, where its status says so; else by what was told just now."""
        now_ns, run = self.now_ns(), order.last_run
        told_ns = self._emulated(order.time("stepsDoneAt"))
        if told_ns is not None and told_ns >= track.since_ns:
            return Pace(steps, min(now_ns, told_ns), pace.times)
        began_ns = self._emulated(text_at(run, "from"))
        if began_ns is not None and began_ns >= track.since_ns and not text_at(run, "to"):
            pace = Pace(whole_at(run, "fromStep"), min(now_ns, began_ns), pace.times)
        return Pace(steps, now_ns, pace.times) if steps > pace.steps_at(now_ns) else pace

    def _knows_end(self, track: Track, order: Order) -> bool:
        """Whether its status knows how its last run ended, and so how many steps are done."""
        ended_ns = self._emulated(text_at(order.last_run, "to"))
        return ended_ns is not None and ended_ns >= track.since_ns

    def _emulated(self, time: str) -> int | None:
        at_ns = ns_of(time)
        return None if at_ns is None else at_ns - self._epoch_ns
