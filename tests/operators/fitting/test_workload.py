"""An EmuJob and the pools in the words of schedulers and the simulator."""

from __future__ import annotations

from typing import Any

import pytest

from emulator_runtime.domain.job import ModelWork, TimedWork
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from operators.fitting.offers import NodeOffer, first_fit, offers_of
from operators.fitting.workload import cluster_spec, job_spec
from operators.objects.emujob import parse_spec
from operators.objects.node import Node
from operators.objects.pool import Pool
from scheduler_sims.inputs.fit import misfit

V100, A100 = "Tesla_V100-PCIE-32GB", "A100-SXM4-80GB"
PROFILES = ProfileTable.bundled()
OFFERS = (NodeOffer("w1", 24_000, 100 * GIB, ((V100, 32 * GIB),) * 4),)


def seen(**spec: Any) -> Any:
    return job_spec("ns/j", parse_spec("ns", "j", {"steps": 10, **spec}), 5.0, 3, OFFERS, PROFILES)


def test_a_timed_job() -> None:
    job = seen(stepTime="100ms", memory="2Gi", resources={"emuGPU": 2, "cpu": "1500m", "memory": "8Gi"}, tenant="ann")
    (only,) = job.configurations
    assert (job.user, job.submit_s, job.row, job.steps) == ("ann", 5.0, 3, 10)
    assert (only.gpus, only.cpu_milli, only.memory_bytes, only.device_memory_bytes) == (2, 1500, 8 * GIB, 2 * GIB)
    assert only.gpu_types is None
    assert job.work == {"default": TimedWork(1.0)}


def test_a_models_batch_is_divided_and_runs_where_it_was_measured() -> None:
    job = seen(model="resnet50", batchSize=128, resources={"emuGPU": 2})
    assert job.work == {"default": ModelWork("resnet50", 64, exchanges=True)}
    assert job.configurations[0].gpu_types == (V100,)
    assert job.configurations[0].device_memory_bytes > GIB


@pytest.mark.parametrize("other", [True, False])
def test_what_no_pool_can_run_is_left_out(other: bool) -> None:
    lacking = {"name": "a100", "gpuTypes": [A100], "profile": {"stepTime": "1s", "memory": "1Gi"}}
    on_cpu = {"name": "cpu", "resources": {"emuGPU": 0, "cpu": 90}, "profile": {"stepTime": "3s"}}
    job = seen(configurations=[lacking, on_cpu] if other else [lacking])
    assert [c.name for c in job.configurations] == (["cpu"] if other else ["a100"])
    assert not other or (job.configurations[0].on_gpu, job.work["cpu"]) == (False, TimedWork(30.0))


@pytest.mark.parametrize(
    ("gpus", "domains"),
    [
        (
            {"type": "A100", "count": 4, "linkGroupSize": 2},
            {0: "w1/nvlink-0", 1: "w1/nvlink-0", 2: "w1/nvlink-1", 3: "w1/nvlink-1"},
        ),
        ({"type": "A100", "count": 4}, {}),
        ({"type": "T4", "count": 4}, {}),
    ],
)
def test_nvlink_joins_the_devices_of_a_link_group(gpus: dict[str, Any], domains: dict[int, str]) -> None:
    pool = Pool("p", "p", "2026-01-01T00:00:00Z", spec_json={"gpus": [gpus]})
    (node,) = cluster_spec([pool], [Node(name="w1", cpu_milli=2000, memory_bytes=GIB, uid="w1")]).nodes
    assert node.nvlink == domains


def test_the_cluster_is_what_pools_offer() -> None:
    pool = Pool(
        "p", "p", "2026-01-01T00:00:00Z", spec_json={"gpus": [{"type": "V100", "count": 2}], "emulated": {"cpu": 24}}
    )
    nodes = [Node(name, name, cpu_milli=2000, memory_bytes=GIB) for name in ("w2", "w1")]
    first, second = cluster_spec([pool], nodes).nodes
    assert (first.name, second.name) == ("w1", "w2")
    assert (first.cpu_milli, first.memory_bytes) == (24_000, GIB)
    assert [(d.node, d.index, d.gpu_type) for d in second.devices] == [("w2", 0, V100), ("w2", 1, V100)]


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({"stepTime": "1s", "memory": "29Gi"}, True),
        ({"stepTime": "1s", "memory": "31Gi"}, False),  # less than the nominal 31.7 GiB, more than is usable of them
        ({"stepTime": "1s", "memory": "40Gi"}, False),
        ({"stepTime": "1s", "resources": {"emuGPU": 2}}, True),
        ({"stepTime": "1s", "resources": {"emuGPU": 3}}, False),
        ({"stepTime": "1s", "resources": {"cpu": 24}}, True),
        ({"stepTime": "1s", "resources": {"cpu": 25}}, False),
        ({"stepTime": "1s", "nodes": 2}, True),
        ({"stepTime": "1s", "nodes": 3}, False),
    ],
)
def test_the_controller_accepts_what_the_simulator_can_run(spec: dict[str, Any], fits: bool) -> None:
    pool = Pool(
        "p", "p", "2026-01-01T00:00:00Z", spec_json={"gpus": [{"type": "V100", "count": 2}], "emulated": {"cpu": 24}}
    )
    nodes = [Node(name, name, cpu_milli=2000, memory_bytes=64 * GIB) for name in ("w1", "w2")]
    offers, parsed = offers_of([pool], nodes), parse_spec("ns", "j", {"steps": 10, **spec})
    accepted = first_fit(parsed, offers, PROFILES)
    runs = misfit(job_spec("ns/j", parsed, 0.0, 0, offers, PROFILES), cluster_spec([pool], nodes))
    assert ((accepted.configuration is not None), runs == "") == (fits, fits), (accepted.problem, runs)
