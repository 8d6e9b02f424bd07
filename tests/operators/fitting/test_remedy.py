from __future__ import annotations

from collections.abc import Sequence

import pytest

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from operators.fitting.remedy import remedy
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.interface.costs import ClusterCosts


def node(name: str, cpus: int, *gpus: tuple[str, int]) -> NodeSpec:
    devices = tuple(Device(name, index, gpu_type, gib * GIB) for index, (gpu_type, gib) in enumerate(gpus))
    return NodeSpec(name, cpus * 1000, 64 * GIB, devices)


NODES = (node("cpus", 64), node("small", 16, *[("V100", 16)] * 2), node("large", 8, ("V100", 32), ("A100", 40)))


@pytest.mark.parametrize(
    ("nodes", "wanted", "advice"),
    [
        ((), Configuration("c", 1, 1000), "the pools have no node; "),
        (NODES, Configuration("c", 4, 1000), "small, has 2 V100, 16 CPUs, 64 GiB; run it with fewer GPUs"),
        (
            NODES,
            Configuration("c", 1, 1000, device_memory_bytes=36 * GIB),
            "large, has 1 V100, 1 A100, 8 CPUs, 64 GiB; ",
        ),
        (NODES, Configuration("c", 1, 9000, gpu_types=("A100",)), "`emugpu cluster up --emulated-cpus 9`"),
        (
            NODES,
            Configuration("c", 0, 65_000, 65 * GIB),
            "`emugpu cluster up --emulated-cpus 65 --emulated-memory 65Gi`",
        ),
        (
            NODES,
            Configuration("c", 2, 1000, gpu_types=("A100",)),
            "large, has 1 V100, 1 A100, 8 CPUs, 64 GiB; run it with",
        ),
        (
            NODES,
            Configuration("c", 2, 1000, min_tasks=5),
            "small, has 2 V100, 16 CPUs, 64 GiB; use fewer nodes for the job",
        ),
    ],
)
def test_the_most_suitable_node_and_what_to_change(
    nodes: Sequence[NodeSpec], wanted: Configuration, advice: str
) -> None:
    job = JobSpec("j", "u", 0.0, 100, (wanted,), {"c": TimedWork(10.0)}, 0)
    assert advice in remedy(job, ClusterSpec(tuple(nodes), ClusterCosts()))
