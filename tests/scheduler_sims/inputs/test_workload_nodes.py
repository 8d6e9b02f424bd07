"""The column `nodes`: what it makes of a row, what a step of such a job takes, and what can't be."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import ModelWork
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import GIB, to_ns
from emulator_runtime.profiles.synergy import SYNERGY_MODELS
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.fit import check_fits
from scheduler_sims.inputs.truth import OpenTruth, WorkloadTruth
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

V100, K80 = "Tesla_V100-PCIE-32GB", "Tesla_K80"
CLUSTER = f"nodes:\n- {{name: n, count: 3, gpus: 4, gpu_type: {V100}, cpus: 16, memory_gib: 64}}\n"


@pytest.fixture
def load(reader):
    return reader(load_workload, "jobs.csv")


@pytest.fixture
def cluster(reader):
    return reader(load_cluster, "cluster.yaml")


def on(*gpu_types, cpu_milli=1000, gpus=4):
    tasks = (
        TaskPlacement(f"n{i}", (DeviceShare(None, gpu_type),) * gpus, cpu_milli) for i, gpu_type in enumerate(gpu_types)
    )
    return Allocation("gpu", tuple(tasks))


def test_what_a_row_states_is_split_equally(load):
    job = load("job_id,num_gpus,nodes,cpus,memory_gib,gpu_duration_s\na,8,2,7,3,60\n").jobs[0]
    (way,) = job.configurations
    assert (way.gpus, way.min_tasks, way.max_tasks, way.total_gpus) == (4, 2, 2, 8)
    assert (way.cpu_milli, way.memory_bytes) == (3500, 3 * GIB // 2)
    assert job.work["gpu"].duration_s == 60


def test_odd_amounts_are_rounded_up(load):
    (way,) = load("job_id,num_gpus,nodes,cpus,gpu_duration_s\na,3,3,1,60\n").jobs[0].configurations
    assert way.cpu_milli == 334


def test_without_it_a_job_is_as_it_was(load):
    way, plain = (
        load(f"job_id,num_gpus{column},cpus,gpu_duration_s\na,8{value},7,60\n").jobs[0]
        for column, value in (("", ""), (",nodes", ","))
    )
    assert way == plain
    assert way.configurations[0].min_tasks == 1


def test_the_curves_of_a_split_job_are_of_each_node(load):
    text = "job_id,num_gpus,nodes,cpus,gpu_duration_s,speedup,best_cpus\na,4,2,8,60,2,24\n"
    job = load(text).jobs[0]
    assert job.work["gpu"].sensitivity.cpu == ((4000, 1.0), (12000, 2.0))
    assert job.configurations[0].best_cpu_milli == 12000
    family = load("job_id,num_gpus,nodes,model,steps\na,4,2,synergy/alexnet,10\n").jobs[0]
    known = SYNERGY_MODELS["synergy/alexnet"]
    assert family.work["gpu"].sensitivity == known.sensitivity.times(2)
    assert family.configurations[0].cpu_milli == known.least(2).cpu_milli


@pytest.mark.parametrize(
    ("row", "place", "problem"),
    [
        ("a,8,3,60,,", "jobs.csv:2: nodes", "num_gpus 8 can't be split equally over 3 nodes"),
        ("a,1,2,60,,", "jobs.csv:2: nodes", "num_gpus 1 can't be split equally over 2 nodes"),
        ("a,,2,60,,", "jobs.csv:2: nodes", r"num_gpus \(not given: 1\) can't be split equally over 2 nodes"),
        ("a,2,0,60,,", "jobs.csv:2: nodes", "must be a whole number from 1 to"),
        ("a,,1,,30,", "jobs.csv:2: nodes", "is for jobs on GPUs"),
        ("a,,2,,30,", "jobs.csv:2: nodes", "is for jobs on GPUs"),
    ],
)
def test_what_can_not_be(load, row, place, problem):
    with pytest.raises(InputError, match=problem) as raised:
        load(f"job_id,num_gpus,nodes,gpu_duration_s,cpu_duration_s,model\n{row}\n")
    assert raised.value.place.endswith(place)


# --- the time of a step ---------------------------------------------------------------------------------------------------

RESNET = "job_id,num_gpus,nodes,model,batch_size,steps\na,{gpus},{nodes},resnet50,64,10\n"


def by_hand(gpus, nodes):
    """A ring over `gpus` GPUs of `nodes` nodes: 12 GB/s within a node, 10 Gbit/s between nodes (communication.py)."""
    profiles = ProfileTable.bundled()
    step, gradients = profiles.step_profile("resnet50", V100, 64), profiles.gradient_bytes("resnet50")
    ring_s = 2 * (gpus - 1) / gpus * gradients / (12e9 if nodes == 1 else 1.25e9)
    if nodes == 1:
        return step.device_s + ring_s  # one process: after the backward pass
    buckets = -(-gradients // (25 * 2**20))
    hidden_until_s = max(step.backward_s + ring_s / buckets, step.backward_s / buckets + ring_s)
    return step.device_s + hidden_until_s - step.backward_s


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (4, 1), (8, 2), (12, 3), (2, 2)])
def test_a_step_contains_the_exchange_of_gradients(load, cluster, gpus, nodes):
    workload = load(RESNET.format(gpus=gpus, nodes=nodes))
    truth = WorkloadTruth(workload, cluster(CLUSTER))
    found = truth.step_times(workload.jobs[0], on(*(V100,) * nodes, gpus=gpus // nodes))
    assert found.total_device_ns == to_ns(by_hand(gpus, nodes)) * 10
    assert truth.duration_s("a", "gpu", None) == pytest.approx(by_hand(gpus, nodes) * 10)


def test_a_step_without_the_column_is_the_profile_s(load, cluster):
    workload = load("job_id,num_gpus,model,batch_size,steps\na,4,resnet50,64,10\n")
    step_s = ProfileTable.bundled().step_profile("resnet50", V100, 64).device_s
    assert WorkloadTruth(workload, cluster(CLUSTER)).duration_s("a", "gpu", None) == pytest.approx(10 * step_s)
    in_pods = workload.exchanging()
    assert in_pods.jobs[0].work["gpu"] == ModelWork("resnet50", 64, exchanges=True)
    assert WorkloadTruth(in_pods, cluster(CLUSTER)).duration_s("a", "gpu", None) == pytest.approx(by_hand(4, 1) * 10)
    timed = load("job_id,num_gpus,gpu_duration_s\na,4,60\n")
    assert timed.exchanging() == timed


def test_the_slowest_task_sets_the_pace(load, cluster):
    truth = OpenTruth(ProfileTable.bundled())
    job = load(RESNET.format(gpus=8, nodes=2)).jobs[0]
    truth.add(job)
    mixed, fast, slow = (truth.step_times(job, on(*types)) for types in ((V100, K80), (V100, V100), (K80, K80)))
    assert mixed == slow
    assert fast.total_device_ns < slow.total_device_ns


def test_each_task_prepares_its_part_of_the_input(load, cluster):
    text = "job_id,num_gpus,nodes,model,batch_size,steps,input_cpu_s\na,8,2,resnet50,64,10,4\n"
    workload = load(text)
    truth = WorkloadTruth(workload, cluster(CLUSTER))
    assert truth.step_times(workload.jobs[0], on(V100, V100, cpu_milli=4000)).input_ns == to_ns(0.5)


def test_a_share_of_nothing_is_one_cpu(load, cluster):
    workload = load(RESNET.format(gpus=8, nodes=2))
    truth = WorkloadTruth(workload, cluster(CLUSTER))
    assert truth.step_times(workload.jobs[0], on(V100, V100, cpu_milli=0)).input_ns == 0
    assert HostShare(0).cpu_milli == 0


# --- what fits ------------------------------------------------------------------------------------------------------------


def test_a_job_for_too_many_nodes_is_refused(load, cluster):
    workload = load("job_id,num_gpus,nodes,gpu_duration_s\nok,12,3,1\na,16,4,1\n")
    with pytest.raises(InputError, match=r"job 'a' is .* needs 4 nodes with the same GPU type; 3 are large enough"):
        check_fits(workload, cluster(CLUSTER), "w")
    wide = load("job_id,num_gpus,nodes,gpu_duration_s\na,10,2,1\n")
    with pytest.raises(InputError, match="needs 5 GPUs on one node; the largest node has 4"):
        check_fits(wide, cluster(CLUSTER), "w")
    mixed = f"{CLUSTER}- {{name: p, count: 2, gpus: 4, gpu_type: {K80}, cpus: 16}}\n"
    with pytest.raises(InputError, match="3 are large enough"):
        check_fits(load("job_id,num_gpus,nodes,gpu_duration_s\na,16,4,1\n"), cluster(mixed), "w")
