"""A simulation that starts from a cluster in operation: running jobs continue from their steps, waiting ones keep their waits.

Loop, policy and costs are the scheduler's own; only the initial state differs. Time 0 is now, earlier times are negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_ns
from scheduler_sims.clusters.base import Start
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import Estimates
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.policy import Policy
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Ending, Listeners

_JUST_NOW_NS = -1


@dataclass(frozen=True, slots=True)
class _EarlierStart(Start):
    """The start of a job that runs already: it costs nothing, and the current step began at `step_since_ns`."""

    step_since_ns: int = 0

    def begin_ns(self, costs: ClusterCosts) -> int:
        return self.step_since_ns


class ResumedLoop:
    """Simulates until `awaited` has ended. Rows of the jobs must differ. `give_up` is called between decisions."""

    def __init__(
        self,
        spec: ClusterSpec,
        truth: WorkloadTruth,
        policy: Policy,
        estimates: Estimates,
        present: Sequence[PresentJob],
        awaited: JobSpec,
        *,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        jobs = [*(job.spec for job in present), awaited]
        self._simulated = SimulatedCluster(truth, spec.costs, any_batch=False)
        self._give_up = give_up
        self._truth, self._row = truth, awaited.row
        ending = Ending(lambda books: books.done or books.record(awaited.row) is not None)
        listeners = Listeners(progress=self._check_give_up)
        self._loop = SchedulerLoop(self._simulated, spec, policy, estimates, jobs, ending=ending, listeners=listeners)
        self._loop.books.waiting = [awaited]
        for job in sorted(present, key=lambda job: (job.spec.submit_s, job.spec.row)):
            allocation = self._loop.adopt(job)
            if allocation is not None:
                self._continue(job, allocation)

    def completion_s(self) -> float:
        """When the awaited job ends, in seconds from now. Raises PolicyError as the loop does."""
        self._loop.run()
        record = self._loop.books.record(self._row)
        assert record is not None  # else run() raises
        return record.finish_s

    def _check_give_up(self, ended: int, now_s: float) -> None:
        if self._give_up():
            problem = (
                f"{ended} jobs had ended, {now_s:.0f} s were simulated; a simpler policy or fewer jobs take less time"
            )
            raise PolicyError(f"the prediction takes too long: {problem}")

    def _continue(self, job: PresentJob, allocation: Allocation) -> None:
        spec, done = job.spec, job.steps_done
        if job.samples >= spec.samples:
            done = spec.steps - 1  # the event of the job's end will follow
        samples_done = min(job.samples, spec.samples - 1) if spec.elastic else None
        since_ns = min(_JUST_NOW_NS, to_ns(job.running_since_s))
        start = _EarlierStart(spec, allocation, since_ns, done, samples_done=samples_done)
        self._simulated.start(replace(start, step_since_ns=self._step_since_ns(job, start)))
        self._simulated.wait(_JUST_NOW_NS)  # consumes the STARTED event: the books have it already
        if job.stopping:
            self._simulated.stop(spec.job_id)

    def _step_since_ns(self, job: PresentJob, start: Start) -> int:
        """When the present step began. If it should be over by now, it ends now."""
        times = self._truth.step_times(job.spec, start.allocation, start.samples.steps).going_on(start.steps_done)
        return min(0, max(to_ns(job.step_since_s), -times.end_ns(start.steps_done, 1)))
