"""Translates changes of a job's objects into events of the scheduler loop, with the times and steps that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import NS_PER_S, to_s
from operators.objects.emujob import EmuJob
from operators.scheduling.remember.handover import NEW, AttainedService
from operators.scheduling.see.capacity import ClusterSnapshot
from operators.scheduling.see.job_objects import JobObjects, failure_of, last_run
from operators.scheduling.track.job_reading import held_allocation, holding_job, waiting_job
from operators.scheduling.track.tracked_job import JobChange, LoopPhase, Pace, TrackedJob
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.open import PresentJob, Submitted
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation
from scheduler_sims.loop.checks import PlanRefusedError

_ENDS = {
    JobChange.FINISHED: Happening.FINISHED,
    JobChange.FAILED: Happening.FAILED,
    JobChange.REMOVED: Happening.REMOVED,
}


class LoopEvents:
    """Emulated time is `wall_ns` - `epoch_ns`. `attained`: what a job's objects don't contain, from the last scheduler."""

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
        self._removed: dict[str, AttainedService] = {}
        """Of jobs that left the loop and may return, such as suspended ones."""

    def now_ns(self) -> int:
        return self._wall_ns() - self._epoch_ns

    def remember(self, attained: Mapping[str, AttainedService]) -> dict[str, AttainedService]:
        """Takes the attained service of the jobs in the loop, by uid; returns it with that of jobs that may return."""
        self._attained = {**self._removed, **attained}
        return {**self._attained}

    def forget(self, uid: str) -> None:
        """The job will not return."""
        self._removed.pop(uid, None)

    def steps_done(self, tracked: TrackedJob) -> int:
        """The reported steps, and those that the job should have done since then."""
        return tracked.run.steps_at(self._done(tracked))

    def event(self, tracked: TrackedJob, what: Happening) -> Event:
        """With the progress that was reported last."""
        samples_done = tracked.done if tracked.elastic else None
        return Event(self.now_ns(), what, tracked.job_id, tracked.row, tracked.steps_done, samples_done=samples_done)

    def check_times(self, job: JobSpec, allocation: Allocation) -> None:
        """Raises PlanRefusedError for a number of GPUs or a batch size with which the job's step time isn't known."""
        try:
            self._truth.step_times(job, allocation)
        except EmuGpuError as error:
            size = f"{allocation.gpus} GPUs and steps of {allocation.batch_size or job.batch_size} samples"
            raise PlanRefusedError(
                job.job_id, f"the plan gives job {job.job_id!r} {size}: {error}", never=True
            ) from error

    def arrived(self, tracked: TrackedJob, job_objects: JobObjects, spec: JobSpec, snapshot: ClusterSnapshot) -> Event:
        """A job that holds nothing."""
        attained = self._take_attained(tracked)
        now_s, elastic = to_s(self.now_ns()), tracked.elastic
        return self._submitted(tracked, waiting_job(job_objects, spec, snapshot, attained, now_s, elastic=elastic))

    def adopted(
        self, tracked: TrackedJob, job_objects: JobObjects, spec: JobSpec, snapshot: ClusterSnapshot
    ) -> Event | None:
        """A job that runs already; None if its allocation can't be read."""
        allocation, now_ns = held_allocation(job_objects, spec, snapshot), self.now_ns()
        if allocation is None or not self._is_timed(spec, allocation):
            return None
        attained, now_s = self._take_attained(tracked), to_s(now_ns)
        waiting = waiting_job(job_objects, spec, snapshot, attained, now_s, elastic=tracked.elastic)
        job = replace(
            holding_job(waiting, allocation, attained, now_s),
            started=tracked.phase is not LoopPhase.STARTING,
            stopping=tracked.phase is LoopPhase.STOPPING,
        )
        event = self._submitted(tracked, job)
        tracked.allocation, tracked.since_ns = allocation, round(job.running_since_s * NS_PER_S)
        if job.started:
            tracked.pace = self._pace(tracked, tracked.done, now_ns)
        return event

    def started(self, tracked: TrackedJob) -> Event:
        """The job's allocation took effect."""
        if tracked.spec is not None and tracked.allocation is not None:
            begin_ns = round(self._costs.begin_s(resumed=tracked.done > 0) * NS_PER_S)
            tracked.pace = self._pace(tracked, tracked.done, self.now_ns() + begin_ns)
        return self.event(tracked, Happening.STARTED)

    def resized(self, tracked: TrackedJob, allocation: Allocation) -> None:
        """The job has other CPUs and memory from now on."""
        tracked.allocation = allocation
        if tracked.pace is not None:
            now_ns = self.now_ns()
            tracked.pace = self._pace(tracked, tracked.pace.done_at(now_ns), now_ns)

    def stopped(self, tracked: TrackedJob, emujob: EmuJob | None) -> Event:
        """The progress is that of the status if it knows the run's end; until then what should be done by now."""
        status_done = emujob.status.steps_done if emujob is not None else 0
        anew = tracked.spec is not None and tracked.spec.begins_anew
        exact = anew or (emujob is not None and self._knows_end(tracked, emujob))
        tracked.done = status_done if exact else max(status_done, self._done(tracked))
        tracked.pace = tracked.allocation = None
        return self.event(tracked, Happening.STOPPED)

    def ended(self, tracked: TrackedJob, emujob: EmuJob | None, change: JobChange) -> Event:
        """The job leaves the loop."""
        now_ns = self.now_ns()
        finished_ns = self._emulated(emujob.status.finished_ns) if emujob is not None else None
        at_ns = now_ns if finished_ns is None else min(now_ns, finished_ns)
        finished = change is JobChange.FINISHED
        steps = tracked.run.steps if finished and tracked.spec is not None else tracked.steps_done
        if change is JobChange.REMOVED and tracked.phase is LoopPhase.UNKNOWN:  # such as a suspended job
            attained_gpu_s = self._attained.get(tracked.uid, NEW).until(to_s(now_ns))
            self._removed[tracked.uid] = AttainedService(attained_gpu_s)
        reason = failure_of(emujob) if change is JobChange.FAILED and emujob is not None else ""
        tracked.pace = tracked.allocation = None
        return Event(at_ns, _ENDS[change], tracked.job_id, tracked.row, steps, reason)

    def progress(self, tracked: TrackedJob, emujob: EmuJob) -> list[Event]:
        """Corrects the pace of a running job by its status, and reports new progress of a waiting one."""
        if tracked.spec is None:
            return []
        done = min(emujob.status.steps_done, tracked.run.total - 1)
        if tracked.phase is LoopPhase.RUNNING and tracked.pace is not None:
            tracked.pace = self._corrected(tracked, tracked.pace, emujob, done)
        changed = tracked.phase is LoopPhase.QUEUED and done != tracked.done
        if not changed or (done < tracked.done and not self._knows_end(tracked, emujob)):
            return []
        tracked.done = done
        return [self.event(tracked, Happening.PROGRESS)]

    def _done(self, tracked: TrackedJob) -> int:
        """The progress that was reported last, and what should have been done since then."""
        return tracked.done if tracked.pace is None else tracked.pace.done_at(self.now_ns())

    def _is_timed(self, spec: JobSpec, allocation: Allocation) -> bool:
        """Whether the step time with this allocation is known: a pod's annotation is a claim of whoever may edit the pod."""
        self._truth.add(spec)
        try:
            self.check_times(spec, allocation)
        except PlanRefusedError:
            self._truth.forget(spec)
            return False
        return True

    def _take_attained(self, tracked: TrackedJob) -> AttainedService:
        return self._removed.pop(tracked.uid, None) or self._attained.get(tracked.uid, NEW)

    def _submitted(self, tracked: TrackedJob, job: PresentJob) -> Event:
        self._truth.add(job.spec)
        tracked.done = job.steps_done if job.samples_done is None else job.samples_done
        tracked.begin_run(job.steps_done, tracked.done, job.allocation)
        return Submitted(self.now_ns(), Happening.SUBMITTED, tracked.job_id, tracked.row, job.steps_done, job=job)

    def _pace(self, tracked: TrackedJob, done: int, at_ns: int) -> Pace:
        assert tracked.spec is not None and tracked.allocation is not None
        allocation, run = tracked.allocation, tracked.run
        milli = min((s.milli for task in allocation.tasks for s in task.shares), default=WHOLE_DEVICE_MILLI)
        return Pace(done, at_ns, self._truth.step_times(tracked.spec, allocation, run.steps), run, milli)

    def _corrected(self, tracked: TrackedJob, pace: Pace, emujob: EmuJob, done: int) -> Pace:
        """The pace from the newest fact of the present run: progress at a time, else the run's begin, else the progress alone.

        The status is written every few seconds only, so a status of the preceding run (before `since_ns`) doesn't count.
        """
        now_ns, run = self.now_ns(), last_run(emujob)
        done_ns = self._emulated(emujob.status.steps_done_ns)
        if done_ns is not None and done_ns >= tracked.since_ns:
            return replace(pace, done=done, at_ns=min(now_ns, done_ns))
        began_ns = self._emulated(run.from_ns)
        if began_ns is not None and began_ns >= tracked.since_ns and run.to_ns is None:
            pace = replace(pace, done=run.from_step, at_ns=min(now_ns, began_ns))
        return replace(pace, done=done, at_ns=now_ns) if done > pace.done_at(now_ns) else pace

    def _knows_end(self, tracked: TrackedJob, emujob: EmuJob) -> bool:
        """Whether the status has the end of the last run, and so the exact number of steps."""
        ended_ns = self._emulated(last_run(emujob).to_ns)
        return ended_ns is not None and ended_ns >= tracked.since_ns

    def _emulated(self, wall_ns: int | None) -> int | None:
        return None if wall_ns is None else wall_ns - self._epoch_ns
