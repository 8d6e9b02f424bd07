"""The columns `min_gpus`, `max_gpus`, `min_nodes` and `max_nodes`: what they make of a row, and what can't be."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.job import ModelWork
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.inputs.workload import load_workload

COLUMNS = "job_id,num_gpus,nodes,min_gpus,max_gpus,max_nodes,cpus,model,batch_size,steps\n"


@pytest.fixture
def load(reader):
    return reader(load_workload, "jobs.csv")


def test_a_range_of_gpus(load):
    job = load(f"{COLUMNS}a,4,,1,8,2,12,resnet50,64,100\n").jobs[0]
    (way,) = job.configurations
    assert (way.gpus, way.cpu_milli, way.gpu_range, way.min_tasks, way.max_tasks) == (4, 12000, range(1, 9), 1, 2)
    assert job.work["gpu"] == ModelWork("resnet50", 64, exchanges=True)
    assert (job.batch_size, job.samples) == (256, 25600)


def test_nodes_alone_may_vary(load):
    (way,) = load(f"{COLUMNS}a,4,,,,2,12,resnet50,64,100\n").jobs[0].configurations
    assert (way.elastic, way.gpu_range, way.min_tasks, way.max_tasks) == (True, range(4, 5), 1, 2)
    assert (way.with_gpus(4, 2).gpus, way.with_gpus(4, 2).cpu_milli) == (2, 6000)


def test_memory_is_that_of_the_least_gpus(load):
    """Where each has the most samples."""
    sizes = [
        load(f"{COLUMNS}a,4,,{least},,,,resnet50,64,100\n").jobs[0].configurations[0].device_memory_bytes
        for least in ("", 2)
    ]
    assert sizes == [ProfileTable.bundled().memory("resnet50", batch_size)[0] for batch_size in (64, 128)]


@pytest.mark.parametrize(("row", "gpus", "nodes"), [("a,4,,2,,,", range(2, 5), 1), ("a,4,2,,8,,", range(4, 9), 2)])
def test_what_a_row_leaves_out_stays_as_submitted(load, row, gpus, nodes):
    (way,) = load(f"{COLUMNS}{row},resnet50,64,100\n").jobs[0].configurations
    assert (way.gpu_range, way.min_tasks, way.max_tasks) == (gpus, nodes, nodes)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("a,4,,5,,,,resnet50,64,9", "min_gpus: must be at most num_gpus (4), not 5"),
        ("a,4,,,3,,,resnet50,64,9", "max_gpus: must be at least num_gpus (4), not 3"),
        ("a,4,2,3,,,,resnet50,64,9", "min_gpus: 3 can't be split equally over 2 nodes"),
        ("a,4,2,,,1,,resnet50,64,9", "max_nodes: must be at least nodes (2), not 1"),
        ("a,2,,,9,,,resnet50,4,9", "max_gpus: a step has 8 samples, at most so many GPUs can have one; not 9"),
        ("a,4,,0,,,,resnet50,64,9", "min_gpus: must be a whole number from 1 to"),
        ("a,8,,1,,,,resnet50,64,9", "batch_size: 512 on each of min_gpus is beyond what was measured for resnet50"),
        (
            "a,4,,2,,,,synergy/alexnet,,9",
            "min_gpus, max_gpus, min_nodes, max_nodes: are for jobs whose speed on any number",
        ),
    ],
)
def test_what_can_not_be(refused, row, problem):
    assert refused(f"{COLUMNS}{row}\n").startswith(f"jobs.csv:2: {problem}")


def test_durations_hold_for_one_number_of_gpus(refused):
    message = refused("job_id,num_gpus,max_gpus,gpu_duration_s\na,4,8,60\n")
    assert message.startswith(
        "jobs.csv:2: min_gpus, max_gpus, min_nodes, max_nodes: are for jobs whose speed on any number of GPUs is known"
    )


def test_fewer_nodes_than_submitted(reader):
    rows = "job_id,num_gpus,nodes,min_gpus,min_nodes,model,batch_size,steps\na,4,2,1,1,resnet50,64,100\n"
    (way,) = reader(load_workload, "jobs.csv")(rows).jobs[0].configurations
    assert (way.gpus, way.min_tasks, way.task_range, way.gpu_range) == (2, 2, range(1, 3), range(1, 5))
    assert (way.with_gpus(1).min_tasks, way.with_gpus(4, 2).min_tasks) == (1, 2)
