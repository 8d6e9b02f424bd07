"""Completion times predicted at submission: from the loop's books to an annotation, without delaying decisions."""

from __future__ import annotations

import json
import threading
from itertools import count
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from operators.results.predicted import Prediction
from operators.scheduling.predict import prediction_thread
from operators.scheduling.predict.prediction import predict_job
from operators.scheduling.predict.prediction_thread import (
    MAX_WAITING,
    PredictionThread,
    Request,
    annotation,
    present_job,
)
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import JobView, Phase

DEVICE = Device("n1", 0, "Tesla-T4", 16 * GIB)
CLUSTER = ClusterSpec((NodeSpec("n1", 8000, 0, (DEVICE,)),))
PLACED = Allocation("gpu", (TaskPlacement("n1", (DeviceShare(DEVICE.uuid, "Tesla-T4"),), 1000),))


def job(name: str, seconds: float, submit_s: float = 0.0, gpus: int = 1) -> JobSpec:
    configuration = Configuration("gpu", gpus, 1000)
    return JobSpec(name, "user", submit_s, 100, (configuration,), {"gpu": TimedWork(seconds)}, 0)


def view(spec: JobSpec, phase: Phase = Phase.QUEUED, **more: Any) -> JobView:
    return JobView(spec.job_id, "user", spec.submit_s, 0, 1.0, phase, spec.configurations, 100, **more)


class Answers:
    """What a PredictionThread says, and a way to wait for it."""

    def __init__(self, **more: Any) -> None:
        self.written: dict[str, Any] = {}
        self.failed: list[str] = []
        self._news = threading.Semaphore(0)
        clock = more.pop("monotonic_ns", lambda: 0)
        self.predictions = PredictionThread("fifo", ProfileTable.bundled(), clock, self._answer, self._fail)

    def _answer(self, key: str, text: str) -> None:
        self.written[key] = json.loads(text)
        self._news.release()

    def _fail(self, problem: str) -> None:
        self.failed.append(problem)
        self._news.release()

    def wait(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._news.acquire(timeout=10)


@pytest.fixture
def answers() -> Any:
    made = Answers()
    made.predictions.start()
    yield made
    made.predictions.close()


def test_it_counts_what_runs_and_what_waits(answers: Answers) -> None:
    running, waiting = job("a", 100, -20), job("b", 7, -5)
    running_view = view(running, Phase.RUNNING, allocation=PLACED, running_since_s=40.0, attained_gpu_s=3.0)
    present = [
        present_job(running, running_view, 60, now_s=50.0),
        present_job(waiting, view(waiting), 0, now_s=50.0),
    ]
    assert (present[0].running_since_s, present[0].spec.submit_s, present[0].attained_gpu_s) == (-10.0, -70.0, 3.0)
    answers.predictions.submit(Request("uid", job("new", 30), present, CLUSTER, 1_767_225_600_000_000_000))
    answers.wait()
    assert answers.written == {"uid": {"seconds": 77.0, "by": "fifo", "at": "2026-01-01T00:00:00.000000Z"}}


def test_the_one_that_is_about_to_start_or_stop_counts_too(answers: Answers) -> None:
    other = job("a", 100)
    starting = present_job(other, view(other, Phase.STARTING, allocation=PLACED), 0, now_s=5.0)
    stopping = present_job(
        other, view(other, Phase.STOPPING, allocation=PLACED, running_since_s=1.0, steps_done=3), 5, now_s=5.0
    )
    assert stopping.stopping and not starting.stopping
    for key, each in (("starting", starting), ("stopping", stopping)):
        answers.predictions.submit(Request(key, job("new", 30), [each], CLUSTER, 0))
    answers.wait(2)
    assert answers.failed == []
    assert answers.written["starting"]["seconds"] == pytest.approx(130, abs=1)
    assert answers.written["stopping"]["seconds"] > 100


def test_a_failed_prediction_is_reported_and_the_next_one_computed(answers: Answers) -> None:
    answers.predictions.submit(Request("large", job("large", 30, gpus=2), [], CLUSTER, 0))
    answers.predictions.submit(Request("small", job("small", 30), [], CLUSTER, 0))
    answers.wait(2)
    assert list(answers.written) == ["small"]
    (problem,) = answers.failed
    assert problem.startswith("no prediction for large: submission: job 'large' is larger than the cluster")


def test_it_gives_up_in_time() -> None:
    ticks = iter(range(0, 10**15, 3 * 10**9))
    answers = Answers(monotonic_ns=lambda: next(ticks))
    answers.predictions.start()
    present = [present_job(other, view(other), 0, 0.0) for other in (job(f"w{n}", 5, -n) for n in range(9))]
    answers.predictions.submit(Request("new", job("new", 30), present, CLUSTER, 0))
    answers.wait()
    answers.predictions.close()
    (problem,) = answers.failed
    assert "the prediction takes too long" in problem


def test_of_too_many_questions_the_last_are_not_taken() -> None:
    answers = Answers()
    for number in range(MAX_WAITING + 3):
        assert answers.predictions.has_room is (number < MAX_WAITING)
        answers.predictions.submit(Request(str(number), job("new", 30), [], CLUSTER, 0))
    answers.predictions.start()
    answers.wait(MAX_WAITING)
    answers.predictions.close()
    assert list(answers.written) == [str(number) for number in range(MAX_WAITING)]


def test_an_error_of_any_kind_is_reported_and_the_next_question_answered(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count()

    def broken_once(*args: Any, **more: Any) -> Any:
        if not next(calls):
            raise KeyError("a")
        return predict_job(*args, **more)

    monkeypatch.setattr(prediction_thread, "predict_job", broken_once)
    for key in ("first", "second"):
        answers.predictions.submit(Request(key, job("new", 30), [], CLUSTER, 0))
    answers.wait(2)
    assert answers.failed == ["no prediction for new: KeyError: 'a'"]
    assert list(answers.written) == ["second"]


def test_the_end_does_not_wait_for_a_policy_that_never_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, hang, answers = threading.Event(), threading.Event(), Answers()

    def never(*_args: Any, **_more: Any) -> Any:
        begun.set()
        hang.wait()
        raise InputError("here", "it ends with the test")

    monkeypatch.setattr(prediction_thread, "predict_job", never)
    monkeypatch.setattr(prediction_thread, "_CLOSE_S", 0.05)
    answers.predictions.start()
    answers.predictions.submit(Request("new", job("new", 30), [], CLUSTER, 0))
    assert begun.wait(10)
    answers.predictions.close()
    assert answers.failed == []
    hang.set()
    answers.wait()


def test_it_can_be_closed_before_it_was_started() -> None:
    Answers().predictions.close()


def test_the_annotation_is_what_the_controller_reads() -> None:
    prediction = Prediction(12.3456789, "las", 1_767_225_600_123_456_000)
    assert Prediction.from_json(annotation(prediction), "here").seconds == 12.345679
