"""Training from whole steps: the model of a step, its derivatives, the fit, and what is left out of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emugpu.learning.measured_steps import Copied, MeasuredStep, StepPart, read_measured_steps, step_parts
from emugpu.learning.step_fit import step_times
from emugpu.learning.step_training import START, learned_of, left_out_errors, start, task_of, train_steps
from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.prediction.estimators import Estimator, Roofline
from emulator_runtime.prediction.learned.estimator import Learned
from emulator_runtime.prediction.learned.estimator_file import STEP
from emulator_runtime.prediction.records import RankTrace, Trace, Work, WorkKind
from emulator_runtime.prediction.steps import step_ns
from tests.support.published_steps import step_works
from tests.support.traces import Host

A100, V100 = "NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB"


def random_work(source: random.Random) -> Work:
    kind = source.choice(list(WorkKind))
    if kind in (WorkKind.KERNEL, WorkKind.MEMORY_BOUND):
        return Work("batch_norm_forward", kind, bytes=10 ** source.uniform(3, 9))
    name = source.choice(["convolution_forward", "convolution_backward_filter"])
    flops, amount_bytes = 10 ** source.uniform(6, 11), 10 ** source.uniform(4, 8)
    return Work(name, kind, flops, amount_bytes, 1, source.choice([0.0, 32.0, 512.0]), source.choice([64.0, 1152.0]))


def random_parts(source: random.Random, count: int = 40) -> list[StepPart]:
    works: list[Work | Copied] = [random_work(source) for _ in range(count // 2)]
    works.append(Copied(10**6))
    waits = source.choice([0.0, 0.05])
    chosen = [source.choice(works) for _ in range(count)]
    return [
        StepPart(work, isinstance(work, Work) and source.random() < 0.9, source.random() < waits) for work in chosen
    ]


def steps_by(estimator: Estimator, programs: int, seed: str = "steps") -> list[MeasuredStep]:
    """Two steps of each program, with the times of an estimator."""
    source = random.Random(seed)
    found = []
    for number in range(programs):
        for _ in range(2):
            step = MeasuredStep(f"program {number}", random_parts(source), 1.0)
            found.append(replace(step, ns=step_ns(step_works(step, estimator))))
    return found


def errors_of(steps: Sequence[MeasuredStep], estimator: Estimator) -> list[float]:
    return [step_ns(step_works(step, estimator)) / step.ns - 1 for step in steps]


def test_the_model_of_a_step_is_that_of_predictions() -> None:
    """With any parameters, the model that is fitted gives what the estimator that comes of it gives."""
    steps = steps_by(Roofline(A100), 6)
    task = task_of(steps, A100)
    source = np.random.default_rng(4)
    parameters = start() + source.normal(0, 0.3, len(start()))
    times, _ = step_times(task.model, task.steps, parameters)
    estimator = Learned(A100, learned_of(task, parameters, {}, "a test"), Roofline(A100))
    assert times.tolist() == pytest.approx([step_ns(step_works(step, estimator)) for step in steps], rel=1e-4)


def test_derivatives_are_those_of_the_times() -> None:
    task = task_of(steps_by(Roofline(A100), 4), A100)
    source = np.random.default_rng(5)
    parameters = start() + source.normal(0, 0.3, len(start()))
    _, slopes = step_times(task.model, task.steps, parameters)
    for number in range(len(parameters)):
        width = np.zeros(len(parameters))
        width[number] = 1e-6
        after, _ = step_times(task.model, task.steps, parameters + width)
        before, _ = step_times(task.model, task.steps, parameters - width)
        measured = (np.log(after) - np.log(before)) / 2e-6
        assert slopes[:, number] == pytest.approx(measured, abs=1e-5), number


def test_a_device_that_is_unlike_the_start_is_learned() -> None:
    device = Roofline(A100, constants=replace(START, convolution_part=1.5, memory_part=0.4, kernel_ns=9000.0))
    steps = steps_by(device, 20)
    before = errors_of(steps, Roofline(A100, constants=START))
    learned = train_steps(steps, A100, "a test")
    after = errors_of(steps_by(device, 10, "others"), Learned(A100, learned, Roofline(A100)))
    assert np.median(np.abs(before)) > 0.15
    assert np.median(np.abs(after)) < 0.03
    assert learned.errors[STEP].samples == 40
    assert learned.errors[STEP].median < 0.05


def test_a_program_that_is_left_out_has_no_part_in_its_own_estimate() -> None:
    steps = steps_by(Roofline(A100), 8)
    spoilt = [replace(step, ns=step.ns * 3) if step.program == "program 2" else step for step in steps]
    honest, wrong = left_out_errors(task_of(steps, A100)), left_out_errors(task_of(spoilt, A100))
    own = [number for number, step in enumerate(steps) if step.program == "program 2"]
    for number in own:  # the same estimate, beside a time that is three times as long
        assert (1 + wrong[number]) * 3 == pytest.approx(1 + honest[number], rel=1e-9)
    others = [number for number in range(len(steps)) if number not in own]
    assert any(abs(wrong[number] - honest[number]) > 1e-3 for number in others)


def test_too_few_programs_are_refused() -> None:
    with pytest.raises(InputError, match="has steps of 4 programs; at least 5 are needed"):
        train_steps(steps_by(Roofline(A100), 4), A100, "a test")


# ---- the CSV file


def a_trace(works: int = 2) -> Trace:
    """Three steps of some kernels, a setting of memory and a copy; the program waits for each step."""
    host = Host()
    for _ in range(3):
        for number in range(works):
            host.launch(100 + number)
        host.launch(50, dispatched=False)
        host.copy(70, to=0, source=0)
        host.synchronize(host.mark())
    return Trace([RankTrace(0, host.records, {}, (A100,))])


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_rows_of_a_gpu_type_with_the_steps_of_their_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(
        tmp_path,
        "trace,gpu,step_time,program",
        "a/16,A100,2ms,a",
        "a/32,V100,9ms,a",
        "a/64,A100-40GB,5ms,a",
        "b,A100,3ms,",
    )
    read: list[Path] = []

    def reader(folder: Path) -> Trace:
        read.append(folder)
        return a_trace()

    monkeypatch.setattr("emugpu.learning.measured_steps.read_trace", reader)
    steps = read_measured_steps(path, A100)
    assert [(step.program, step.ns) for step in steps] == [("a", 2e6), ("a", 5e6), ("b", 3e6)]
    assert read == [tmp_path / "a/16", tmp_path / "a/64", tmp_path / "b"]
    parts = steps[0].parts
    assert [(part.launched, part.waited) for part in parts] == [
        (True, True),
        (True, False),
        (False, False),
        (False, False),
    ]
    assert parts[3].work == Copied(70)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["trace,gpu"], "line 1: must have the columns trace,gpu,step_time and perhaps program, not trace,gpu"),
        (["trace,gpu,step_time,mood"], "line 1: must have the columns"),
        (["trace,gpu,step_time", "a,A100,fast"], "line 2, step_time: must be a time above 0 such as 86ms, not fast"),
        (["trace,gpu,step_time", "a,A100,0ms"], "line 2, step_time: must be a time above 0"),
        (["trace,gpu,step_time", "a,A100,nan"], "line 2, step_time: must be a time above 0"),
        (["trace,gpu,step_time", "a,A100"], "line 2: must have trace, gpu, step_time"),
        (["trace,gpu,step_time", "a,A100,1ms,x"], "line 2: must have trace, gpu, step_time"),
        (["trace,gpu,step_time", "a,V100,1ms"], f"has no step times of a {A100}"),
        (["trace,gpu,step_time"], f"has no step times of a {A100}"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(
    lines: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emugpu.learning.measured_steps.read_trace", lambda folder: a_trace())
    with pytest.raises(InputError, match=message):
        read_measured_steps(table(tmp_path, *lines), A100)


def test_a_gpu_type_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = table(tmp_path, "trace,gpu,step_time", "a,A1000,1ms")
    with pytest.raises(UnknownNameError, match="line 2, gpu"):
        read_measured_steps(path, A100)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="isn't a CSV file"):
        read_measured_steps(path, A100)


def test_traces_of_several_ranks_or_without_steps_are_refused() -> None:
    (rank,) = a_trace().ranks
    with pytest.raises(InputError, match="has 2 ranks"):
        step_parts(Trace([rank, replace(rank, rank=1)]), "there")
    with pytest.raises(InputError, match="nothing in it repeats"):
        step_parts(Trace([replace(rank, records=list(rank.records)[:1])]), "there")
