"""Which new jobs are asked about, and with which picture of the cluster: a decision is waiting, so one serves all of them."""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.units import to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns
from operators.objects.names import PREDICTED
from operators.scheduling.cluster import KubernetesCluster
from operators.scheduling.forecast.prediction_thread import PredictionThread, Question, arriving, present_job
from operators.scheduling.see.job_objects import ScheduledEmuJob
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.interface.view import JobView
from scheduler_sims.loop.scheduler_loop import SchedulerLoop


class Forecasts:
    """Called by the loop's thread. What is foretold is written on the EmuJob; `fail` gets a sentence where nothing is."""

    def __init__(
        self, policy: str, profiles: ProfileTable, cluster: KubernetesCluster, fail: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._thread = PredictionThread(policy, profiles, monotonic_ns, self._answered, fail)
        self._present: list[PresentJob] | None = None
        """What there was before the events at hand, and the jobs that came with them; made where it is asked for."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def forget(self) -> None:
        """The events at hand are dealt with: the next jobs come into another picture."""
        self._present = None

    def submitted(self, job: PresentJob, loop: SchedulerLoop) -> None:
        """Asks when a job will be done that has never been asked about, where that can be answered in time."""
        now_ns, order = self._cluster.now_ns(), self._cluster.order_of(job.spec.job_id)
        arrived = arriving(job, to_s(now_ns))
        if order is not None and _is_new(job, order) and self._thread.has_room:
            present, at_ns = self._snapshot(loop, to_s(now_ns)), self._cluster.handover.epoch_ns + now_ns
            self._thread.ask(Question(order.key.uid, arrived.spec, tuple(present), loop.cluster_spec, at_ns))
        if self._present is not None:
            self._present.append(arrived)

    def _snapshot(self, loop: SchedulerLoop, now_s: float) -> list[PresentJob]:
        if self._present is None:
            specs, views = loop.books.specs, loop.books.views
            self._present = [present_job(specs[j], view, self._steps_of(view), now_s) for j, view in views.items()]
        return self._present

    def _steps_of(self, view: JobView) -> int:
        return self._cluster.steps_done(view.job_id) if view.running_since_s is not None else view.steps_done

    def _answered(self, uid: str, text: str) -> None:
        self._cluster.annotate(uid, PREDICTED, text)


def _is_new(job: PresentJob, order: ScheduledEmuJob) -> bool:
    return not (PREDICTED in order.annotations or job.allocation is not None or job.steps_done or job.preemptions)
