"""How a step with many microbatches follows from one with fewer, in Megatron's table."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.units import NS_PER_S
from tests.benchmarks.megatron_table import STEPS, microbatch_ends_ns, microbatch_interval_s
from tests.support.traces import Host, run


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
    with pytest.raises(AssertionError, match="no interval"):
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
    assert microbatch_ends_ns(run(host)[0], 2) == [2 * step + 26, 2 * step + 52]


def test_a_kernel_of_each_microbatch_must_be_in_the_trace() -> None:
    host = Host()
    for _ in range(STEPS):
        host.launch(10)
        host.launch(10)
    with pytest.raises(AssertionError, match="no kernel"):
        microbatch_ends_ns(run(host)[0], 3)
