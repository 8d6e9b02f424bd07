from __future__ import annotations

from math import inf

import pytest

from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.inputs.truth import WorkloadTruth
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
