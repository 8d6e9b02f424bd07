"""The loop knows events, not objects: each piece of news about a job becomes one, with the times and steps that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import NS_PER_S, to_s
from operators.kube.documents import text_at, whole_at
from operators.kube.timestamps import ns_of
from operators.scheduling.remember.handover import NEW, AttainedService
from operators.scheduling.see.capacity import ClusterState
from operators.scheduling.see.job_objects import JobObjects, ScheduledEmuJob
from operators.scheduling.track.job_reading import held_by, present, present_with
from operators.scheduling.track.tracked_job import LoopPhase, News, Pace, TrackedJob
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.open import PresentJob, Submitted
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation

_ENDED = {News.FINISHED: Happening.FINISHED, News.FAILED: Happening.FAILED, News.REMOVED: Happening.REMOVED}


class LoopEvents:
    """Emulated time is `wall_ns` since `epoch_ns`. What jobs have been through and their objects don't tell is kept here."""

    def __init__(
        self,
        truth: OpenTruth,
        costs: ClusterCosts,
        wall_ns: Callable[[], int],
        epoch_ns: int,
        attained: Mapping[str, AttainedService],
    ) -> None:
        self._truth, self._costs = truth, costs
        self._wall_ns, self._epoch_ns = wall_ns, epoch_ns
        self._attained: Mapping[str, AttainedService] = attained
        self._left: dict[str, AttainedService] = {}

    def now_ns(self) -> int:
        return self._wall_ns() - self._epoch_ns

    def remember(self, attained: Mapping[str, AttainedService]) -> dict[str, AttainedService]:
        """What the jobs of the loop have been through, by uid; with that of jobs that may come back to it."""
        self._attained = {**self._left, **attained}
        return {**self._attained}

    def forget(self, uid: str) -> None:
        """It won't come back."""
        self._left.pop(uid, None)

    def steps_done(self, tracked: TrackedJob) -> int:
        """As far as it was told, and how far the job should be since then."""
        return tracked.told_steps if tracked.pace is None else tracked.pace.steps_at(self.now_ns())

    def event(self, tracked: TrackedJob, what: Happening, steps: int = 0) -> Event:
        return Event(self.now_ns(), what, tracked.job_id, tracked.row, steps)

    def waits(self, tracked: TrackedJob, job_objects: JobObjects, spec: JobSpec, cluster_state: ClusterState) -> Event:
        """A job that holds nothing."""
        attained = self._attained_by(tracked)
        return self._submitted(tracked, present(job_objects, spec, cluster_state, attained, to_s(self.now_ns())))

    def holds(
        self, tracked: TrackedJob, job_objects: JobObjects, spec: JobSpec, cluster_state: ClusterState
    ) -> Event | None:
        """A job that is there and holds something; None where nobody can tell what."""
        held, now_ns = held_by(job_objects, spec, cluster_state), self.now_ns()
        if held is None:
            return None
        attained = self._attained_by(tracked)
        job = present_with(
            present(job_objects, spec, cluster_state, attained, to_s(now_ns)), held, attained, to_s(now_ns)
        )
        job = replace(
            job, started=tracked.known is not LoopPhase.STARTING, stopping=tracked.known is LoopPhase.STOPPING
        )
        told = self._submitted(tracked, job)
        tracked.allocation, tracked.since_ns = held, round(job.running_since_s * NS_PER_S)
        if job.started:
            tracked.pace = Pace(job.steps_done, now_ns, self._times(spec, held))
        return told

    def starts(self, tracked: TrackedJob) -> Event:
        """Its allocation took effect."""
        if tracked.spec is not None and tracked.allocation is not None:
            begin_ns = round(self._costs.begin_s(resumed=tracked.told_steps > 0) * NS_PER_S)
            times = self._times(tracked.spec, tracked.allocation)
            tracked.pace = Pace(tracked.told_steps, self.now_ns() + begin_ns, times)
        return self.event(tracked, Happening.STARTED)

    def divided(self, tracked: TrackedJob, allocation: Allocation) -> None:
        """From now on it has other CPUs and memory."""
        if tracked.pace is not None and tracked.spec is not None:
            now_ns = self.now_ns()
            tracked.pace = Pace(tracked.pace.steps_at(now_ns), now_ns, self._times(tracked.spec, allocation))
        tracked.allocation = allocation

    def stops(self, tracked: TrackedJob, order: ScheduledEmuJob | None) -> Event:
        """Its steps are as its status says where that knows the run's end; until then as far as it should be."""
        status = order.steps_done if order is not None else 0
        known = order is not None and self._knows_end(tracked, order)
        tracked.told_steps = status if known else max(status, self.steps_done(tracked))
        tracked.pace = tracked.allocation = None
        return self.event(tracked, Happening.STOPPED, tracked.told_steps)

    def ends(self, tracked: TrackedJob, order: ScheduledEmuJob | None, news: News) -> Event:
        """It leaves the loop."""
        now_ns = self.now_ns()
        finished_ns = self._emulated(order.time("finishedAt")) if order is not None else None
        at_ns = now_ns if finished_ns is None else min(now_ns, finished_ns)
        steps = tracked.spec.steps if news is News.FINISHED and tracked.spec is not None else tracked.told_steps
        if news is News.REMOVED and tracked.known is LoopPhase.NOTHING:  # it may come back
            self._left[tracked.uid] = AttainedService(self._attained.get(tracked.uid, NEW).until(to_s(now_ns)))
        reason = order.failure if news is News.FAILED and order is not None else ""
        tracked.pace = tracked.allocation = None
        return Event(at_ns, _ENDED[news], tracked.job_id, tracked.row, steps, reason)

    def progress(self, tracked: TrackedJob, order: ScheduledEmuJob) -> list[Event]:
        """What its status knows of its steps that the loop doesn't."""
        if tracked.spec is None:
            return []
        steps = min(order.steps_done, tracked.spec.steps - 1)
        if tracked.known is LoopPhase.RUNNING and tracked.pace is not None:
            tracked.pace = self._corrected(tracked, tracked.pace, order, steps)
        waits = tracked.known is LoopPhase.QUEUED and steps != tracked.told_steps
        if not waits or (steps < tracked.told_steps and not self._knows_end(tracked, order)):
            return []
        tracked.told_steps = steps
        return [self.event(tracked, Happening.PROGRESS, steps)]

    def _attained_by(self, tracked: TrackedJob) -> AttainedService:
        return self._left.pop(tracked.uid, None) or self._attained.get(tracked.uid, NEW)

    def _submitted(self, tracked: TrackedJob, job: PresentJob) -> Event:
        self._truth.add(job.spec)
        tracked.told_steps = job.steps_done
        return Submitted(self.now_ns(), Happening.SUBMITTED, tracked.job_id, tracked.row, job.steps_done, job=job)

    def _times(self, spec: JobSpec, allocation: Allocation) -> StepTimes:
        return self._truth.step_times(spec, allocation)

    def _corrected(self, tracked: TrackedJob, pace: Pace, order: ScheduledEmuJob, steps: int) -> Pace:
        """By when that many steps were done, or its run began, where its status says so; else by what was told just now."""
        now_ns, run = self.now_ns(), order.last_run
        told_ns = self._emulated(order.time("stepsDoneAt"))
        if told_ns is not None and told_ns >= tracked.since_ns:
            return Pace(steps, min(now_ns, told_ns), pace.times)
        began_ns = self._emulated(text_at(run, "from"))
        if began_ns is not None and began_ns >= tracked.since_ns and not text_at(run, "to"):
            pace = Pace(whole_at(run, "fromStep"), min(now_ns, began_ns), pace.times)
        return Pace(steps, now_ns, pace.times) if steps > pace.steps_at(now_ns) else pace

    def _knows_end(self, tracked: TrackedJob, order: ScheduledEmuJob) -> bool:
        """Whether its status knows how its last run ended, and so how many steps are done."""
        ended_ns = self._emulated(text_at(order.last_run, "to"))
        return ended_ns is not None and ended_ns >= tracked.since_ns

    def _emulated(self, time: str) -> int | None:
        at_ns = ns_of(time)
        return None if at_ns is None else at_ns - self._epoch_ns
