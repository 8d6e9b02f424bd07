from __future__ import annotations

from math import inf

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.inputs.truth import WorkloadTruth, check_fits
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.testing import Job, Node

V100, K80 = "Tesla_V100-PCIE-32GB", "Tesla_K80"


@pytest.fixture
def truth_of(job_specs, cluster_spec):
    def truth_of(jobs, nodes):
        return WorkloadTruth(Workload("w", job_specs(jobs), ProfileTable.bundled()), cluster_spec(nodes))

    return truth_of


def model_job(input_cpu_s=0.0, cpu_milli=2000):
    configuration = Configuration("gpu", 1, cpu_milli, gpu_types=(K80, V100))
    return JobSpec("m", "u", 0.0, 20, (configuration,), {"gpu": ModelWork("resnet50", 16, input_cpu_s)}, 0)


def on(gpu_type, cpu_milli=2000):
    return Allocation("gpu", (TaskPlacement("n", (DeviceShare("d", gpu_type),), cpu_milli),))


def model_truth(job, cluster_spec, *types):
    nodes = [Node(f"n{i}", gpus=1, gpu_type=gpu_type) for i, gpu_type in enumerate(types)]
    return WorkloadTruth(Workload("w", (job,), ProfileTable.bundled()), cluster_spec(nodes))


def test_a_duration_is_cut_into_the_jobs_steps(truth_of, job_specs):
    job = Job("a", gpu_s=10, cpu_s=30, steps=4)
    truth = truth_of([job], [Node("n", gpus=1)])
    (spec,) = job_specs([job])
    assert truth.step_times(spec, on("Tesla-T4")) == StepTimes(4, to_ns(10))
    assert truth.step_times(spec, Allocation("cpu", (TaskPlacement("n", (), 1000),))) == StepTimes(4, to_ns(30))


def test_a_duration_holds_on_any_gpu_type(truth_of):
    truth = truth_of([Job("a", gpu_s=10, cpu_s=30)], [Node("n", gpus=1)])
    assert truth.duration_s("a", "gpu", "Tesla-T4") == truth.duration_s("a", "gpu", None) == 10
    assert truth.duration_s("a", "cpu", None) == 30


def test_a_models_steps_are_those_of_its_profile_on_the_type_at_hand(cluster_spec):
    job = model_job()
    truth = model_truth(job, cluster_spec, K80, V100)
    for gpu_type in (K80, V100):
        step_s = ProfileTable.bundled().step_profile("resnet50", gpu_type, 16).device_s
        assert truth.step_times(job, on(gpu_type)) == StepTimes(20, to_ns(step_s) * 20)


def test_without_a_type_the_fastest_one_of_the_cluster_counts(cluster_spec):
    job = model_job()
    truth = model_truth(job, cluster_spec, K80, V100)
    assert truth.duration_s("m", "gpu", None) == truth.duration_s("m", "gpu", V100) < truth.duration_s("m", "gpu", K80)
    assert model_truth(job, cluster_spec, K80).duration_s("m", "gpu", None) == truth.duration_s("m", "gpu", K80)


def test_where_the_cluster_has_no_type_for_a_configuration_it_never_ends(cluster_spec):
    assert model_truth(model_job(), cluster_spec, "Tesla-T4").duration_s("m", "gpu", None) == inf


def test_the_input_pipeline_is_as_fast_as_the_cpus_that_a_job_holds(cluster_spec):
    job = model_job(input_cpu_s=2.0)
    truth = model_truth(job, cluster_spec, V100)
    assert truth.step_times(job, on(V100)).input_ns == to_ns(1.0)
    assert truth.step_times(job, on(V100, cpu_milli=8000)).input_ns == to_ns(0.25)
    times = truth.step_times(job, on(V100))
    assert truth.duration_s("m", "gpu", V100) == to_s(20 * to_ns(1.0) + times.device_ns(19))


# --- does it fit? -------------------------------------------------------------------------------------------------------

NODES = [Node("a", gpus=2, cpus=8, memory_gib=16), Node("b", gpus=1, cpus=32, gpu_type=V100, gpu_memory_gib=32)]
MOST = "(most on a node: 2 GPUs with up to 29.6 GiB usable, 32 CPUs, 16 GiB of memory)"


def check(job_specs, cluster_spec, *jobs):
    check_fits(Workload("w", job_specs(jobs), ProfileTable.bundled()), cluster_spec(NODES), "jobs.csv")


@pytest.mark.parametrize(
    "job",
    [
        Job("j", gpu_s=1, gpus=2, cpus=8, memory_gib=16, gpu_memory_gib=14),
        Job("j", gpu_s=1, gpu_memory_gib=29),
        Job("j", gpu_s=1, gpu_types=(V100, K80), cpus=32),
        Job("j", gpu_s=1, gpus=8, cpu_s=1, cpu_cpus=32),
        Job("j", cpu_s=1, cpu_cpus=8, memory_gib=16),
    ],
)
def test_what_fits_an_empty_node_in_one_way_is_accepted(job_specs, cluster_spec, job):
    check(job_specs, cluster_spec, job)


@pytest.mark.parametrize(
    ("job", "wants"),
    [
        (Job("j", gpu_s=1, gpus=3), "3 GPUs, 1 CPUs"),
        (Job("j", gpu_s=1, gpus=2, gpu_types=(V100,)), f"2 GPUs of {V100}, 1 CPUs"),
        (Job("j", gpu_s=1, gpu_types=(K80,)), f"1 GPUs of {K80}, 1 CPUs"),
        (Job("j", gpu_s=1, gpus=2, cpus=9), "2 GPUs, 9 CPUs"),
        (Job("j", gpu_s=1, cpus=33), "1 GPUs, 33 CPUs"),
        (Job("j", gpu_s=1, memory_gib=17), "1 GPUs, 1 CPUs, 17 GiB of memory"),
        (Job("j", gpu_s=1, gpu_memory_gib=30), "1 GPUs, 1 CPUs, 30.0 GiB on each GPU"),
    ],
)
def test_a_job_larger_than_the_cluster_is_told_with_the_reason(job_specs, cluster_spec, job, wants):
    with pytest.raises(InputError) as caught:
        check(job_specs, cluster_spec, Job("small", gpu_s=1), job)
    assert str(caught.value) == (
        f"jobs.csv: job 'j' is larger than the cluster: configuration gpu wants {wants} on one node, "
        f"and no node has that {MOST}"
    )


def test_each_configuration_that_does_not_fit_is_told(job_specs, cluster_spec):
    with pytest.raises(
        InputError, match=r"configuration gpu wants 9 GPUs.*; configuration cpu wants 99 CPUs on one node"
    ):
        check(job_specs, cluster_spec, Job("j", gpu_s=1, gpus=9, cpu_s=1, cpu_cpus=99))


def test_a_cluster_without_gpus_says_so(job_specs, cluster_spec):
    workload = Workload("w", job_specs([Job("j", gpu_s=1, memory_gib=1)]), ProfileTable.bundled())
    with pytest.raises(InputError, match=r"most on a node: 0 GPUs, 4 CPUs, 0 GiB of memory"):
        check_fits(workload, cluster_spec([Node("n", cpus=4)]), "jobs.csv")
