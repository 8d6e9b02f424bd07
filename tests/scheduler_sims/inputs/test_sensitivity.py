from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.job import TimedWork
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.synergy import SYNERGY_MODELS
from scheduler_sims.inputs.workload import load_workload


@pytest.fixture
def load(reader):
    return reader(load_workload, "jobs.csv")


def row(**cells):
    return ",".join(["job_id", *cells]) + "\n" + ",".join(["a", *cells.values()]) + "\n"


def shares(job):
    c = job.configurations[0]
    return (c.cpu_milli, c.memory_bytes), (c.best_cpu_milli, c.best_memory_bytes)


def test_a_model_of_the_family_brings_its_needs_and_speeds(load):
    job = load(row(model="synergy/alexnet", steps="100", num_gpus="2")).jobs[0]
    sensitivity = SYNERGY_MODELS["synergy/alexnet"].sensitivity.times(2)
    assert shares(job) == ((6000, 125 * GIB), (24000, 250 * GIB))
    assert job.work == {"gpu": TimedWork(60.0, sensitivity)}
    assert job.steps == 100


def test_a_duration_beside_such_a_model_is_its_run_time_at_speed_1_in_fewer_steps(load):
    job = load(row(model="synergy/alexnet", gpu_duration_s="90", steps="9")).jobs[0]
    assert job.work == {"gpu": TimedWork(90.0, SYNERGY_MODELS["synergy/alexnet"].sensitivity)}
    assert (job.steps, job.configurations[0].best_cpu_milli) == (9, 12000)


def test_a_model_that_needs_little_says_so(load):
    job = load(row(model="synergy/gnmt", steps="100")).jobs[0]
    assert shares(job) == ((1000, 20 * GIB), (1000, 20 * GIB))


def test_what_the_row_states_goes_before_the_profile(load):
    job = load(row(model="synergy/gnmt", steps="100", cpus="2", memory_gib="30")).jobs[0]
    assert shares(job) == ((2000, 30 * GIB), (2000, 30 * GIB))


def test_a_row_can_say_itself_how_much_faster_it_is_with_how_much(load):
    cells = {"gpu_duration_s": "10", "cpus": "3", "memory_gib": "4", "speedup": "2", "best_cpus": "6"}
    job = load(row(**cells, best_memory_gib="8")).jobs[0]
    least, best = HostShare(3000, 4 * GIB), HostShare(6000, 8 * GIB)
    assert shares(job) == ((3000, 4 * GIB), (6000, 8 * GIB))
    assert job.work == {"gpu": TimedWork(10.0, Sensitivity.between(least, best, 2.0))}


def test_a_row_can_say_that_more_is_no_use(load):
    job = load(row(gpu_duration_s="10", cpus="3", best_cpus="3")).jobs[0]
    assert shares(job) == ((3000, 0), (3000, 0))
    assert job.work == {"gpu": TimedWork(10.0)}


def test_a_row_that_does_not_say_leaves_it_open(load):
    assert shares(load(row(gpu_duration_s="10", cpus="3")).jobs[0]) == ((3000, 0), (0, 0))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"model": "synergy/alexnet"}, r"jobs.csv:2: steps: is missing, and so is gpu_duration_s, but model is"),
        ({"gpu_duration_s": "1", "speedup": "0.5"}, r"jobs.csv:2: speedup: must be >= 1, not 0.5"),
        ({"gpu_duration_s": "1", "speedup": "2"}, r"jobs.csv:2: speedup: give best_cpus or best_memory_gib too"),
        ({"gpu_duration_s": "1", "cpus": "4", "best_cpus": "3"}, r"best_cpus and best_memory_gib must be at least"),
        ({"gpu_duration_s": "1", "speedup": "2", "best_memory_gib": "3"}, r"best_memory_gib: give memory_gib too"),
        ({"model": "resnet50", "batch_size": "1", "steps": "1", "speedup": "2"}, r"speedup: belongs to gpu_duration_s"),
        ({"model": "synergy/gnmt", "steps": "1", "best_cpus": "2"}, r"best_cpus: belongs to gpu_duration_s"),
        ({"model": "synergy/gnmt", "gpu_duration_s": "1", "speedup": "2"}, r"speedup: belongs to gpu_duration_s"),
    ],
)
def test_what_does_not_go_together_is_refused(load, cells, message):
    with pytest.raises(InputError, match=message):
        load(row(**cells))


def test_an_unknown_model_of_the_family_lists_the_nearest(load):
    with pytest.raises(UnknownNameError, match=r"jobs.csv:2: model: unknown model 'synergy/alexnett'; did you mean"):
        load(row(model="synergy/alexnett", steps="1"))
