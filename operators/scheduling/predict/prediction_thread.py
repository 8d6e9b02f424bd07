"""Computes predictions in a thread of its own, one after the other, so that they never delay a decision.

It works on copies, stops after GIVE_UP_S, and refuses requests while MAX_WAITING are waiting.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.profiles.table import ProfileTable
from operators.kube.timestamps import rfc3339_micro
from operators.results.predicted import Prediction
from operators.scheduling.predict.prediction import predict_job
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.view import JobView, Phase

GIVE_UP_S = 5.0
"""Time limit of one prediction. Host seconds."""
MAX_WAITING = 32
"""A request behind so many others would be answered long after its job was submitted."""
_CLOSE_S = 2.0
"""How long `close` waits for the running prediction to stop. Host seconds."""


@dataclass(frozen=True, slots=True)
class Request:
    """Asks for the JCT of `job`. Times are relative to `at_ns` (wall clock); `key`: the EmuJob's uid."""

    key: str
    job: JobSpec
    present: Sequence[PresentJob]
    cluster: ClusterSpec
    at_ns: int


def present_job(spec: JobSpec, view: JobView, steps_done: int, now_s: float) -> PresentJob:
    """A job of the loop's books at `now_s`, with times relative to it."""
    since_s = None if view.running_since_s is None else min(0.0, view.running_since_s - now_s)
    steps_done = min(steps_done, view.samples.steps - 1)
    return PresentJob(
        replace(spec, submit_s=min(0.0, spec.submit_s - now_s)),
        steps_done,
        view.allocation,
        running_since_s=since_s or 0.0,
        attained_gpu_s=view.attained_gpu_s,
        preemptions=view.preemptions,
        stopping=view.phase is Phase.STOPPING,
        samples_done=view.samples_after(steps_done),
    )


def arriving(job: PresentJob, now_s: float) -> PresentJob:
    """A job that arrives at `now_s`, with times relative to it."""
    since_s = min(0.0, job.running_since_s - now_s) if job.allocation is not None else 0.0
    return replace(job, spec=replace(job.spec, submit_s=min(0.0, job.spec.submit_s - now_s)), running_since_s=since_s)


def annotation(prediction: Prediction) -> str:
    """The text of the EmuJob's annotation."""
    document = {
        "seconds": round(prediction.seconds, 6),
        "by": prediction.by,
        "at": rfc3339_micro(prediction.at_ns),
    }
    return json.dumps(document, separators=(",", ":"))


class PredictionThread:
    """`answer` gets the request's key and the annotation's text; `fail` gets a message if there is no prediction."""

    def __init__(
        self,
        policy: str,
        profiles: ProfileTable,
        monotonic_ns: Callable[[], int],
        answer: Callable[[str, str], None],
        fail: Callable[[str], None],
    ) -> None:
        self._policy, self._profiles, self._monotonic_ns = policy, profiles, monotonic_ns
        self._answer, self._fail = answer, fail
        self._requests: deque[Request] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="prediction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """Whether a request would be accepted now."""
        return len(self._requests) < MAX_WAITING

    def submit(self, request: Request) -> None:
        """Returns at once; call it from one thread only."""
        with self._changed:
            if self.has_room:
                self._requests.append(request)
                self._changed.notify()

    def close(self) -> None:
        """Cancels the running prediction; if it doesn't react, the thread is abandoned."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or bool(self._requests))
                if self._closing:
                    return
                request = self._requests.popleft()
            self._predict(request)

    def _predict(self, request: Request) -> None:
        deadline_ns = self._monotonic_ns() + round(GIVE_UP_S * NS_PER_S)
        try:
            prediction = predict_job(
                request.job,
                request.present,
                request.cluster,
                self._policy,
                self._profiles,
                at_ns=request.at_ns,
                give_up=lambda: self._closing or self._monotonic_ns() >= deadline_ns,
            )
            self._answer(request.key, annotation(prediction))
        except EmuGpuError as error:
            self._fail(f"no prediction for {request.job.job_id}: {error}")
        except Exception as error:  # raised by the policy; the next prediction may succeed
            self._fail(f"no prediction for {request.job.job_id}: {type(error).__name__}: {error}")
