from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork, TimedWork
from emulator_runtime.domain.parallelism import Parallelism
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


# --- jobs of a range of GPUs -----------------------------------------------------------------------------------------------

ELASTIC = Configuration("gpu", 2, 3000, 7, min_tasks=2, max_tasks=3, min_gpus=2, max_gpus=9)


@pytest.mark.parametrize(
    ("gpus", "tasks", "each"), [(2, 0, (1, 2, 1500, 4)), (4, 0, (2, 2, 3000, 7)), (9, 3, (3, 3, 4500, 11))]
)
def test_an_elastic_configuration_on_so_many_gpus(gpus, tasks, each):
    way = ELASTIC.with_gpus(gpus, tasks)
    assert (way.gpus, way.min_tasks, way.cpu_milli, way.memory_bytes) == each
    assert (way.name, way.total_gpus, way.elastic, way.max_tasks) == ("gpu", gpus, False, way.min_tasks)


@pytest.mark.parametrize(("gpus", "tasks"), [(1, 0), (10, 0), (5, 0), (4, 1), (4, 4), (8, 3)])
def test_numbers_of_gpus_on_which_it_can_not_run(gpus, tasks):
    with pytest.raises(
        PolicyError, match=f"can't run on {gpus} GPUs of {tasks or 2} nodes; it can on 2 to 9 GPUs on 2 to 3"
    ):
        ELASTIC.with_gpus(gpus, tasks)


def test_other_configurations_run_on_one_number():
    for way in (Configuration("gpu", 2, 1000, min_tasks=2, max_tasks=2), Configuration("cpu", 0, 4000)):
        assert (list(way.gpu_range), way.elastic, way.with_gpus(way.total_gpus)) == ([way.total_gpus], False, way)


def spec(work, *ways):
    return JobSpec("a", "u", 0.0, 10, ways or (ELASTIC,), {"gpu": work, "cpu": TimedWork(60)}, 0)


def test_the_samples_of_a_step_are_those_of_all_its_gpus():
    job = spec(ModelWork("resnet50", 64), Configuration("cpu", 0, 1000), ELASTIC)
    assert (job.batch_size, job.samples) == (256, 2560)
    assert (spec(TimedWork(60)).batch_size, spec(TimedWork(60)).samples) == (1, 10)


def test_the_batch_of_each_gpu_follows_from_that_of_a_step():
    work = ModelWork("resnet50", 64, 0.5, exchanges=True)
    job = spec(work, ELASTIC, Configuration("cpu", 0, 1000))
    assert job.work_on("gpu", 4) is job.work_on("gpu", 4, 256) is work
    assert job.work_on("gpu", 8) == replace(work, batch_size=32)
    assert job.work_on("gpu", 6) == replace(work, batch_size=43)  # 4 of them have 43 samples, 2 have 42
    assert job.work_on("gpu", 8, 512) == replace(work, input_cpu_s=1.0)
    assert job.work_on("cpu", 0) == TimedWork(60)


# --- models that are divided over GPUs -------------------------------------------------------------------------------------

DIVIDED = Configuration(
    "gpu",
    8,
    8000,
    min_tasks=4,
    max_tasks=8,
    fewest_tasks=2,
    min_gpus=16,
    max_gpus=64,
    parallelism=Parallelism(8, 2, 32),
)


def test_it_runs_on_whole_replicas_and_layers_of_one_node():
    runs = {(gpus, tasks) for gpus in range(80) for tasks in range(10) if DIVIDED.runs_on(gpus, tasks)}
    assert runs == {(16, 2), (32, 2), (32, 4), (48, 2), (48, 3), (48, 6), (64, 2), (64, 4), (64, 8)}
    way = DIVIDED.with_gpus(48, 3)
    assert (way.gpus, way.min_tasks, way.max_tasks, way.cpu_milli, way.elastic) == (16, 3, 3, 16000, False)
    assert way.total_gpus == 48


@pytest.mark.parametrize(("gpus", "tasks"), [(24, 0), (16, 4), (80, 0), (48, 4)])
def test_what_it_can_not_run_on(gpus, tasks):
    words = "it can on 16 to 64 GPUs in multiples of 16 on 2 to 8 nodes, each a multiple of 8"
    with pytest.raises(PolicyError, match=words):
        DIVIDED.with_gpus(gpus, tasks)


@pytest.mark.parametrize(("gpus", "duration_s"), [(16, 33), (32, 17), (48, 12), (64, 9)])
def test_its_time_is_that_of_the_replica_with_most_microbatches(gpus, duration_s):
    job = JobSpec("a", "u", 0.0, 10, (DIVIDED,), {"gpu": TimedWork(17.0)}, 0)
    assert job.work_on("gpu", gpus).duration_s == pytest.approx(duration_s)
