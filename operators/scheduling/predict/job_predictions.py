"""Chooses the new jobs whose JCT is predicted. All jobs of one decision share one snapshot of the cluster."""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.units import to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns
from operators.objects.emujob import EmuJob
from operators.objects.names import PREDICTED
from operators.scheduling.cluster import KubernetesCluster
from operators.scheduling.predict.prediction_thread import PredictionThread, Request, arriving, present_job
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.interface.view import JobView
from scheduler_sims.loop.scheduler_loop import SchedulerLoop


class JobPredictions:
    """Called by the loop's thread. A prediction is written as an annotation of the EmuJob; `fail` gets a message if it fails."""

    def __init__(
        self, policy: str, profiles: ProfileTable, cluster: KubernetesCluster, fail: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._thread = PredictionThread(policy, profiles, monotonic_ns, self._annotate, fail)
        self._snapshot: list[PresentJob] | None = None
        """The jobs before the current events, plus those that arrived with them; built on first use."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def forget(self) -> None:
        """The current events have been processed: the next ones get a new snapshot."""
        self._snapshot = None

    def submitted(self, job: PresentJob, loop: SchedulerLoop) -> None:
        """Requests a prediction for a job that has none, unless too many requests are waiting."""
        now_ns, emujob = self._cluster.now_ns(), self._cluster.emujob_of(job.spec.job_id)
        arrived = arriving(job, to_s(now_ns))
        if emujob is not None and _is_new(job, emujob) and self._thread.has_room:
            present, at_ns = self._present_jobs(loop, to_s(now_ns)), self._cluster.handover.epoch_ns + now_ns
            self._thread.submit(Request(emujob.key.uid, arrived.spec, tuple(present), loop.cluster_spec, at_ns))
        if self._snapshot is not None:
            self._snapshot.append(arrived)

    def _present_jobs(self, loop: SchedulerLoop, now_s: float) -> list[PresentJob]:
        if self._snapshot is None:
            specs, views = loop.books.specs, loop.books.views
            self._snapshot = [present_job(specs[j], view, self._steps_of(view), now_s) for j, view in views.items()]
        return self._snapshot

    def _steps_of(self, view: JobView) -> int:
        return self._cluster.steps_done(view.job_id) if view.running_since_s is not None else view.steps_done

    def _annotate(self, uid: str, text: str) -> None:
        self._cluster.annotate(uid, PREDICTED, text)


def _is_new(job: PresentJob, emujob: EmuJob) -> bool:
    return not (PREDICTED in emujob.annotations or job.allocation is not None or job.steps_done or job.preemptions)
