from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.inputs.fit import DoesNotFitError, check_fits, misfit
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.testing import Job, Node

V100, K80 = "Tesla_V100-PCIE-32GB", "Tesla_K80"
NODES = [Node("a", gpus=2, cpus=8, memory_gib=16), Node("b", gpus=1, cpus=32, gpu_type=V100, gpu_memory_gib=32)]


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
def test_a_job_fits_where_one_of_its_configurations_fits_an_empty_node(job_specs, cluster_spec, job):
    check(job_specs, cluster_spec, job)
    assert misfit(job_specs([job])[0], cluster_spec(NODES)) == ""


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (Job("j", gpu_s=1, gpus=3), "needs 3 GPUs on one node; the largest node has 2"),
        (
            Job("j", gpu_s=1, gpus=2, gpu_types=(V100,)),
            f"needs 2 GPUs of type {V100} on one node; the largest node has 1",
        ),
        (Job("j", gpu_s=1, gpu_types=(K80,)), f"needs 1 GPU of type {K80} on one node; the largest node has 0"),
        (Job("j", gpu_s=1, gpus=2, cpus=9), "needs 9 CPUs on one node; the largest node with 2 GPUs has 8"),
        (Job("j", gpu_s=1, cpus=33), "needs 33 CPUs on one node; the largest node with 1 GPU has 32"),
        (
            Job("j", gpu_s=1, memory_gib=17),
            "needs 17 GiB of memory on one node; the largest node with 1 GPU has 16 GiB",
        ),
        (
            Job("j", gpu_s=1, gpu_memory_gib=30),
            "needs 1 GPU with 30.0 GiB on one node; the largest GPU has 29.6 GiB usable",
        ),
        (Job("j", cpu_s=1, cpu_cpus=33), "needs 33 CPUs on one node; the largest node has 32"),
    ],
)
def test_the_reason_names_the_resource_the_need_and_the_largest_node(job_specs, cluster_spec, job, reason):
    assert misfit(job_specs([job])[0], cluster_spec(NODES)) == reason
    with pytest.raises(DoesNotFitError) as caught:
        check(job_specs, cluster_spec, Job("small", gpu_s=1), job)
    assert str(caught.value) == f"jobs.csv: job 'j' is larger than the cluster: {reason}"


def test_each_configuration_has_its_reason(job_specs, cluster_spec):
    with pytest.raises(InputError, match=r"configuration gpu needs 9 GPUs.*; configuration cpu needs 99 CPUs on one"):
        check(job_specs, cluster_spec, Job("j", gpu_s=1, gpus=9, cpu_s=1, cpu_cpus=99))


def test_clusters_without_gpus_and_without_nodes(job_specs, cluster_spec):
    (job,) = job_specs([Job("j", gpu_s=1)])
    assert misfit(job, cluster_spec([Node("n", cpus=4)])) == "needs 1 GPU on one node; the largest node has 0"
    assert misfit(job, cluster_spec([])) == "needs a node; the cluster has none"
