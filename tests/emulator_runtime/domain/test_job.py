from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB, gib, to_ns, to_s


def test_a_configuration_without_gpus_runs_on_cpus():
    assert not Configuration("cpu", 0, 1000).on_gpu
    assert Configuration("gpu", 2, 1000).on_gpu


def test_configurations_are_found_by_name():
    both = (Configuration("gpu", 1, 1000), Configuration("cpu", 0, 4000))
    job = JobSpec("a", "user", 0.0, 10, both, {"gpu": TimedWork(1.0)}, row=0)
    assert job.configuration("cpu") is both[1]
    with pytest.raises(KeyError, match="tpu"):
        job.configuration("tpu")


@settings(deadline=None)
@given(nanoseconds=st.integers(0, 13 * 24 * 3600 * 10**9))
def test_nanoseconds_of_two_weeks_survive_the_way_through_seconds(nanoseconds):
    assert to_ns(to_s(nanoseconds)) == nanoseconds


def test_bytes_are_reported_in_gib():
    assert gib(3 * GIB // 2) == "1.50 GiB"
