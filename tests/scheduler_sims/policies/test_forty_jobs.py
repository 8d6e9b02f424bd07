"""The 40 jobs of the GPEmu study's AlloX experiment: 4 users, 4 nodes with a GPU, 8 without, all submitted at once.

Job types, orders and demands from kubernetes-allox (pods/sched/pytorch). All figures are of exact durations without costs.
"""

from __future__ import annotations

import pytest

from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node

NODES = [*(Node(f"egpu-{i}", gpus=1, cpus=90) for i in range(4)), *(Node(f"cpu-{i}", cpus=90) for i in range(8))]

TYPES = {  # seconds on a GPU, on CPUs
    "alexnet": (10, 57),
    "googlenet": (8, 51),
    "lenet": (7, 9),
    "lenet-2": (14, 18),
    "lenet-3": (21, 27),
    "lenet-4": (28, 36),
    "lenet-5": (21, 27),
    "mobilenet": (13, 103),
    "resnet34": (9, 49),
    "shufflenet": (13, 62),
}
ORDERS = {
    "user1": "alexnet googlenet lenet-3 lenet-5 mobilenet shufflenet lenet-2 lenet-4 lenet resnet34",
    "user2": "shufflenet lenet-2 lenet-4 lenet-3 lenet-5 lenet resnet34 alexnet googlenet mobilenet",
    "user3": "lenet-4 lenet-5 lenet resnet34 alexnet googlenet lenet-3 mobilenet shufflenet lenet-2",
    "user4": "lenet-3 mobilenet resnet34 alexnet shufflenet lenet-2 lenet-4 lenet-5 lenet googlenet",
}
JOBS = [
    Job(f"{user}-{kind}", user=user, gpu_s=TYPES[kind][0], cpu_s=TYPES[kind][1], cpus=20, cpu_cpus=90)
    for user, order in ORDERS.items()
    for kind in order.split()
]


def mean_jct_s(replay, text, jobs=JOBS):
    return replay(resolve_policy(text)[1], NODES, jobs).total_jct_s / len(jobs)


def test_the_workload_is_the_one_described():
    assert len(JOBS) == 40
    assert sum(TYPES[kind][0] for order in ORDERS.values() for kind in order.split()) == 576


def test_allox_reaches_the_static_optimum_with_half_of_the_jobs_on_cpus(replay):
    run = replay(resolve_policy("allox")[1], NODES, JOBS)
    assert run.total_jct_s / 40 == pytest.approx(32.5, abs=0.05)
    assert sum("/" not in run.place(job.job_id) for job in JOBS) == 20


@pytest.mark.parametrize(
    ("policy", "mean_s"), [("sjf", 61.6), ("fifo", 79.1), ("drf-fifo", 83.5), ("drf-sjf", 61.6), ("srtf", 61.6)]
)
def test_policies_on_gpus_only(replay, policy, mean_s):
    assert mean_jct_s(replay, policy) == pytest.approx(mean_s, rel=0.02)
