"""Profiles from traces: times, memory and parameters, worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import GIB, MIB
from emulator_runtime.prediction.prediction import STANDARD_CONDITIONS, Predictor
from emulator_runtime.prediction.profiles import TracedStep, profile_document, traced_step
from emulator_runtime.prediction.records import Launch, Trace, Work, WorkKind
from emulator_runtime.profiles.table import ProfileTable
from tests.support.traces import Host

A100, V100 = "NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB"


def training(steps: int = 5, *, threads: bool = True) -> Host:
    """Copies 100 MiB of parameters. A step copies 8 MiB, and has a product on the main thread, one twice as large on another
    thread, and an optimizer that reads and writes as much memory as both."""
    host = Host()
    host.memory(GIB)
    host.copy(60 * MIB)
    host.copy(40 * MIB)
    for _ in range(steps):
        host.copy(8 * MIB)
        host.records.append(Launch(0, 0, 0, 0, Work("forward", WorkKind.PRODUCT, 1e12, 1e8)))
        host.records.append(Launch(0, int(threads), 0, 0, Work("backward", WorkKind.PRODUCT, 2e12, 2e8)))
        host.records.append(Launch(0, 0, 0, 0, Work("multi_tensor_apply_kernel", WorkKind.KERNEL, 0, 3e8)))
        host.synchronize(host.mark())
    return host


def traced(*ranks: Host, batch: int = 32, gpus: tuple[str, ...] = (A100,)) -> TracedStep:
    return traced_step(Trace([host.trace() for host in ranks]), batch, gpus, STANDARD_CONDITIONS, "out/trace")


def test_the_step_is_the_predicted_one_in_two_parts() -> None:
    found = traced(training(), gpus=("A100", "V100"))
    for gpu in (A100, V100):
        step_s = Predictor(Trace([training().trace()])).predict(gpu).step_s
        assert found.forward_s[gpu] + found.backward_s[gpu] == pytest.approx(step_s)
        assert found.forward_s[gpu] / step_s == pytest.approx((1 / 3 + 1 / 6) / 2), "of operations and of bytes"


def test_a_program_without_threads_has_a_third_of_its_step_forward() -> None:
    found = traced(training(threads=False))
    assert found.backward_s[A100] == pytest.approx(2 * found.forward_s[A100])


def test_parameters_are_what_is_copied_before_the_steps_and_not_in_each() -> None:
    assert traced(training()).parameter_bytes == 100 * MIB
    without = training()
    del without.records[1:3]
    assert traced(without).parameter_bytes == 0


def test_the_document_is_a_file_of_profiles(tmp_path: Path) -> None:
    steps = [traced(training(), batch=batch, gpus=(A100, V100)) for batch in (16, 32)]
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"models": {"mine": profile_document(steps)}}), encoding="utf-8")
    table = ProfileTable.bundled().with_file(path)
    assert table.measured_batches("mine", "V100") == (16, 32)
    step = table.step_profile("mine", "A100", 32)
    assert step.device_s == pytest.approx(steps[1].forward_s[A100] + steps[1].backward_s[A100]), "copies are in it"
    assert step.peak_bytes == steps[1].memory_bytes >= GIB
    assert table.gradient_bytes("mine") == pytest.approx(100 * MIB, abs=1)


def test_parameters_that_are_larger_than_the_memory_are_cut() -> None:
    document = profile_document([TracedStep(8, 100, 90, {A100: 1.0}, {A100: 2.0})])
    assert document["memory"] == {"knots": [{"batch": 8, "peak_bytes": 100, "persistent_bytes": 100}]}


def test_several_ranks_are_an_error() -> None:
    with pytest.raises(InputError, match=r"^out/trace: has 2 ranks; a profile is of one GPU: trace the program on one"):
        traced(training(), Host(1))


def test_a_trace_without_steps_is_an_error() -> None:
    with pytest.raises(InputError, match=r"^out/trace: nothing in it repeats"):
        traced(training(1))


def started(**times: int) -> TracedStep:
    """Five steps by a program that took half a second to its first use of a device, and a quarter after its last record."""
    trace = replace(training().trace(), before_ns=500_000_000, after_ns=250_000_000)
    return traced_step(Trace([trace]), 32, (A100,), STANDARD_CONDITIONS, "out/trace", **times)


def test_the_start_is_all_that_is_not_a_step() -> None:
    prediction = Predictor(Trace([training().trace()])).predict(A100)
    assert prediction.step_s is not None
    assert started().start_s[A100] == pytest.approx(0.75 + prediction.total_s - 5 * prediction.step_s)
    assert started(steps_done=3).start_s[A100] == pytest.approx(started().start_s[A100] + 2 * prediction.step_s)
    assert started(steps_done=10**6).start_s[A100] == 0, "it is never negative"
    assert traced(training()).start_s == {}, "an older trace doesn't say when its process began"


def test_a_first_step_without_its_optimizer_is_a_step(tmp_path: Path) -> None:
    host = training(6)
    first = next(place for place, record in enumerate(host.records) if getattr(record, "work", None) is not None)
    del host.records[first + 2]  # the optimizer's state isn't there yet
    trace = replace(host.trace(), before_ns=500_000_000)
    step = traced_step(Trace([trace]), 32, (A100,), STANDARD_CONDITIONS, "out/trace")
    again = traced_step(Trace([trace]), 32, (A100,), STANDARD_CONDITIONS, "out/trace", 6)
    assert step.start_s == again.start_s


def test_the_start_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"models": {"mine": profile_document([started()])}}), encoding="utf-8")
    assert ProfileTable.bundled().with_file(path).step_profile("mine", "A100", 32).start_s == started().start_s[A100]
