"""How a step with many microbatches follows from one with fewer."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.prediction.microbatches import microbatch_ends_ns, microbatch_interval_s, with_microbatches
from emulator_runtime.prediction.prediction import Conditions, Predictor
from emulator_runtime.prediction.records import Launch, Trace, Work, WorkKind
from tests.support.traces import Host, run

STEPS = 3
LOGITS = Work("logits", WorkKind.PRODUCT, flops=8e12, bytes=1e8, precision=4)
LAYER = Work("layer", WorkKind.PRODUCT, flops=4e12, bytes=1e8, precision=4)
UPDATE = Work("update", WorkKind.MEMORY_BOUND, bytes=1e10)


def training(microbatches: int, *, late_ns: int = 0) -> Trace:
    """Steps of two layers and the logits for each microbatch, then an update. The host comes late to each microbatch."""
    host = Host()
    for _ in range(STEPS):
        for _ in range(microbatches):
            host.at += late_ns
            for work in (LAYER, LAYER, LOGITS):
                host.records.append(Launch(host.at, 0, 0, 0, work, False))
        host.records.append(Launch(host.at, 0, 0, 0, UPDATE, False))
        host.synchronize(host.mark())
    return Trace([host.trace()])


@pytest.mark.parametrize("late_ns", [0, 2 * NS_PER_S])
def test_a_step_is_predicted_as_if_all_its_microbatches_were_traced(late_ns: int) -> None:
    few, all_of_them = (Predictor(training(count, late_ns=late_ns)).predict("H100", Conditions()) for count in (2, 8))
    step_s, parts = with_microbatches(few, 2, 8, 1)
    assert step_s == pytest.approx(all_of_them.step_s)
    assert sum(parts.values()) == pytest.approx(step_s)


def test_a_full_pipeline_ends_a_microbatch_at_each_interval() -> None:
    """4 stages, 8 microbatches. While the pipeline fills, they come at other times; the last 4 count."""
    ends_s = [1, 2, 4, 7, 10, 13, 16, 19]
    assert microbatch_interval_s([end * NS_PER_S for end in ends_s], 4) == 3.0


def test_in_the_interleaved_schedule_whole_rounds_count() -> None:
    """2 stages, 9 microbatches: a pair takes 10 s, but its second end comes 1 s after the first."""
    ends_s = [0, 9, 10, 19, 20, 29, 30, 39, 40]
    assert microbatch_interval_s([end * NS_PER_S for end in ends_s], 2) == 5.0
    assert microbatch_interval_s([end * NS_PER_S for end in ends_s[:-2]], 2) == 5.0  # half of 7 is a round and a half


@pytest.mark.parametrize(("stages", "interval_s"), [(2, 3.5), (3, 4.0), (8, 4.0)])
def test_half_of_few_microbatches_counts_if_that_is_no_round(stages: int, interval_s: float) -> None:
    """6 microbatches: of 3 in the second half, 2 are a round of 2 stages; 8 stages have no whole one."""
    ends_s = [0, 1, 3, 8, 12, 15]
    assert microbatch_interval_s([end * NS_PER_S for end in ends_s], stages) == interval_s


def test_one_microbatch_has_no_interval() -> None:
    with pytest.raises(InputError, match="steps of one microbatch"):
        microbatch_interval_s([NS_PER_S], 1)


def test_the_last_step_ends_its_microbatches_with_the_logits() -> None:
    """Steps of 2 microbatches, each of 2 layers (10 ns), logits (5) and loss (1), and an update (4) of 3 parameters."""
    host = Host()
    for _ in range(STEPS):
        for _ in range(2):
            host.launch(10, name="layer", flops=900.0)
            host.launch(10, name="layer", flops=900.0)
            host.launch(1, name="loss", flops=1.0)
            host.launch(5, name="logits", flops=500.0)
        for _ in range(3):
            host.launch(4, name="update", flops=700.0)
    step = 2 * 26 + 3 * 4
    assert microbatch_ends_ns(run(host)[0], (2 * step, 3 * step), 2) == [2 * step + 26, 2 * step + 52]


def test_a_kernel_of_each_microbatch_must_be_in_the_trace() -> None:
    host = Host()
    for _ in range(STEPS):
        host.launch(10)
        host.launch(10)
    with pytest.raises(InputError, match="no kernel that runs once for each of a step's 3 microbatches"):
        microbatch_ends_ns(run(host)[0], (40, 60), 3)


def test_a_trace_without_steps_has_no_step_of_more_microbatches() -> None:
    host = Host()
    host.launch(10)
    with pytest.raises(InputError, match="has no steps"):
        with_microbatches(Predictor(Trace([host.trace()])).predict("H100", Conditions()), 1, 2, 1)
