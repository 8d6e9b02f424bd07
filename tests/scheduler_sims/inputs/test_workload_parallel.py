"""The columns `tensor_parallel`, `pipeline_parallel` and `microbatches`: what they make of a row, and what can't be."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.job import TimedWork
from emulator_runtime.domain.parallelism import DATA_PARALLEL, Parallelism
from scheduler_sims.inputs.workload import load_workload

COLUMNS = (
    "job_id,num_gpus,nodes,min_gpus,max_gpus,min_nodes,max_nodes,tensor_parallel,pipeline_parallel,microbatches,"
    "gpu_duration_s,host_s,speedup,fetch_s,model\n"
)


@pytest.fixture
def load(reader):
    return reader(load_workload, "jobs.csv")


def test_a_model_that_is_divided(load):
    job = load(f"{COLUMNS}a,32,4,16,64,2,8,8,2,64,3600,,,,\n").jobs[0]
    (way,) = job.configurations
    assert way.parallelism == Parallelism(8, 2, 64)
    assert (way.gpus, way.min_tasks, way.task_range, way.gpu_range) == (8, 4, range(2, 9), range(16, 65, 16))
    assert (job.batch_size, job.samples) == (1, 100)
    assert job.work_on("gpu", 32) is job.work["gpu"]
    assert job.work_on("gpu", 64) == TimedWork(3600 * 17 / 33)  # 16 microbatches for each replica instead of 32


def test_equal_rows_share_what_they_say(load):
    rows = "".join(f"{name},8,,2,16,,2,2,1,16,{duration},,,,\n" for name, duration in (("a", 100), ("b", 50)))
    first, second = load(COLUMNS + rows).jobs
    assert first.configurations is second.configurations
    assert [job.work_on("gpu", 16).duration_s for job in (first, second)] == [50, 25]


def test_one_number_of_gpus_needs_no_microbatches(load):
    job = load(f"{COLUMNS}a,16,2,,,,,8,2,,3600,,,,\n").jobs[0]
    assert not job.elastic
    assert job.work_on("gpu", 16) == TimedWork(3600)


def test_a_layer_may_be_divided_over_nodes_that_nvlink_joins(load):
    way = load(f"{COLUMNS}a,16,4,8,32,2,8,8,,64,3600,,,,\n").jobs[0].configurations[0]
    assert [(gpus, nodes) for gpus in way.gpu_range for nodes in way.task_range if way.runs_on(gpus, nodes)] == [
        *((8, 2), (16, 2), (16, 4), (24, 3), (24, 6), (32, 2), (32, 4), (32, 8))
    ]  # never on fewer GPUs of a node than the 4 that it was submitted with, unless they are whole layers


def test_others_are_whole_on_each_gpu(load):
    assert load("job_id,gpu_duration_s\na,5\n").jobs[0].configurations[0].parallelism == DATA_PARALLEL


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            "a,8,,,,,,3,,,60,,,,",
            "tensor_parallel: 3 GPUs share each layer, and the 8 GPUs of a node are no multiple and no part of it",
        ),
        (
            "a,12,2,,,,,4,,,60,,,,",
            "tensor_parallel: 4 GPUs share each layer, and the 6 GPUs of a node are no multiple and no part of it",
        ),
        ("a,8,,,,,,2,3,,60,,,,", "num_gpus: 8 GPUs are no multiple of a replica's 2 x 3"),
        ("a,8,,6,,,,2,2,8,60,,,,", "min_gpus: 6 GPUs are no multiple of a replica's 2 x 2"),
        ("a,8,,,14,,,2,2,8,60,,,,", "max_gpus: 14 GPUs are no multiple of a replica's 2 x 2"),
        ("a,16,4,8,,3,,4,1,8,60,,,,", "min_gpus: 8 GPUs can't be split over [3, 4] nodes with 4 for each layer"),
        ("a,8,,,16,,,2,1,4,60,,,,", "microbatches: 4 are too few for 8 replicas of 2 GPUs"),
        ("a,8,,,16,,,2,1,0,60,,,,", "microbatches: must be a whole number from 1 to"),
        ("a,8,,,16,,,2,1,,60,,,,", "min_gpus, max_gpus, min_nodes, max_nodes: are for jobs whose speed"),
        ("a,8,2,4,,3,,2,1,8,60,,,,", "min_nodes: must be at most nodes (2), not 3"),
        ("a,8,2,3,,2,,1,1,8,60,,,,", "min_gpus: 3 can't be split equally over 2 nodes"),
        ("a,8,4,7,,2,,1,1,8,60,,,,", "min_gpus: 7 can't be split equally over 2 to 4 nodes"),
        ("a,8,,,,,,0,,,60,,,,", "tensor_parallel: must be a whole number from 1 to"),
        ("a,8,,,16,,,2,1,8,60,0.1,,,", "host_s: is for jobs on one number of GPUs"),
        ("a,8,,,16,,,2,1,8,60,,,0.1,", "fetch_s: is for jobs on one number of GPUs"),
        ("a,8,,,,,,2,,,,,,,resnet50", "tensor_parallel: belongs to gpu_duration_s"),
        ("a,8,,,,,,,2,,60,,,,synergy/alexnet", "pipeline_parallel: is for jobs whose speed doesn't depend on"),
        ("a,8,,,,,,,2,,,,,,", "pipeline_parallel: is for jobs on GPUs"),
    ],
)
def test_what_can_not_be(refused, row, problem):
    assert refused(f"{COLUMNS}{row}\n").startswith(f"jobs.csv:2: {problem}")


def test_a_speed_by_cpus_holds_for_one_number_of_gpus(refused):
    rows = "job_id,num_gpus,max_gpus,microbatches,gpu_duration_s,speedup,best_cpus\na,4,8,8,60,2,9\n"
    assert refused(rows).startswith("jobs.csv:2: speedup: is for jobs on one number of GPUs")


def test_programs_are_not_divided(refused):
    rows = "job_id,num_gpus,model,batch_size,steps,program,tensor_parallel\na,4,resnet50,64,9,python a.py,2\n"
    assert "tensor_parallel" in refused(rows)
