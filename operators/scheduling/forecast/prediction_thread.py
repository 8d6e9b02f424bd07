"""Foretells at a job's submission when it will be done, beside the decisions: the simulator in a thread of its own.

It must never hold up a decision: it works on a copy, gives up in time, and when many jobs come at once only some are foretold.
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
from operators.scheduling.forecast.prediction import predict_job
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.view import JobView, Phase

GIVE_UP_S = 5.0
"""Host seconds."""
MOST_WAITING = 32
"""More questions are not taken: their jobs would have gone on before they were answered."""
_CLOSE_S = 2.0
"""So long the end of a program waits for a prediction to be given up. Host seconds."""


@dataclass(frozen=True, slots=True)
class Question:
    """When will `job` be done? Times relative to `at_ns` (wall clock); `key`: whose EmuJob it is."""

    key: str
    job: JobSpec
    present: Sequence[PresentJob]
    cluster: ClusterSpec
    at_ns: int


def present_job(spec: JobSpec, view: JobView, steps_done: int, now_s: float) -> PresentJob:
    """A job of the loop's books, at `now_s`, as the simulator begins with it."""
    since_s = None if view.running_since_s is None else min(0.0, view.running_since_s - now_s)
    return PresentJob(
        replace(spec, submit_s=min(0.0, spec.submit_s - now_s)),
        min(steps_done, spec.steps - 1),
        view.allocation,
        running_since_s=since_s or 0.0,
        attained_gpu_s=view.attained_gpu_s,
        preemptions=view.preemptions,
        stopping=view.phase is Phase.STOPPING,
    )


def arriving(job: PresentJob, now_s: float) -> PresentJob:
    """A job that comes at `now_s`, in the same way."""
    since_s = min(0.0, job.running_since_s - now_s) if job.allocation is not None else 0.0
    return replace(job, spec=replace(job.spec, submit_s=min(0.0, job.spec.submit_s - now_s)), running_since_s=since_s)


def annotation(prediction: Prediction) -> str:
    """What an EmuJob says of it."""
    told = {
        "seconds": round(prediction.seconds, 6),
        "by": prediction.by,
        "at": rfc3339_micro(prediction.at_ns),
    }
    return json.dumps(told, separators=(",", ":"))


class PredictionThread:
    """Answers questions one after the other. `answer` gets the key and the annotation; `fail` a sentence where there is none."""

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
        self._questions: deque[Question] = deque()
        self._news = threading.Condition()
        self._ends = False
        self._thread = threading.Thread(target=self._work, name="prediction", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def has_room(self) -> bool:
        """Whether a question would be taken now."""
        return len(self._questions) < MOST_WAITING

    def ask(self, question: Question) -> None:
        """Returns at once; must be called by one thread only."""
        with self._news:
            if self.has_room:
                self._questions.append(question)
                self._news.notify()

    def close(self) -> None:
        """What is being worked out is given up, or left to itself where it doesn't hear that."""
        with self._news:
            self._ends = True
            self._news.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._ends or bool(self._questions))
                if self._ends:
                    return
                question = self._questions.popleft()
            self._try(question)

    def _try(self, question: Question) -> None:
        deadline_ns = self._monotonic_ns() + round(GIVE_UP_S * NS_PER_S)
        try:
            found = predict_job(
                question.job,
                question.present,
                question.cluster,
                self._policy,
                self._profiles,
                at_ns=question.at_ns,
                give_up=lambda: self._ends or self._monotonic_ns() >= deadline_ns,
            )
            self._answer(question.key, annotation(found))
        except EmuGpuError as error:
            self._fail(f"{question.job.job_id} is not foretold: {error}")
        except Exception as error:  # a policy's own; the next question may do better
            self._fail(f"{question.job.job_id} is not foretold: {type(error).__name__}: {error}")
