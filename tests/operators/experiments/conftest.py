"""A run's jobs, the cluster that they ran on, and EmuJobs as their controller leaves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from operators.clock import rfc3339_micro
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec

V100 = "Tesla_V100-PCIE-32GB"
START_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
S = 1_000_000_000


def at(seconds: float) -> str:
    return rfc3339_micro(START_NS + round(seconds * S))


@pytest.fixture
def time_at() -> Callable[[float], str]:
    return at


def job_spec(
    job_id: str, row: int = 0, submit_s: float = 0.0, gpu_s: float = 40.0, cpu_s: float | None = None
) -> JobSpec:
    ways = [Configuration("gpu", 1, 20_000)]
    work = {"gpu": TimedWork(gpu_s)}
    if cpu_s is not None:
        ways.append(Configuration("cpu", 0, 90_000))
        work["cpu"] = TimedWork(cpu_s)
    return JobSpec(job_id, "ann", submit_s, 100, tuple(ways), work, row)


@pytest.fixture(name="job_spec")
def _job_spec() -> Callable[..., JobSpec]:
    return job_spec


def node_spec(name: str, gpus: int = 1, cpus: int = 96, memory_gib: int = 0, gpu_type: str = V100) -> NodeSpec:
    devices = tuple(Device(name, index, gpu_type, 32 * GIB) for index in range(gpus))
    return NodeSpec(name, cpus * 1000, memory_gib * GIB, devices)


@pytest.fixture(name="node_spec")
def _node_spec() -> Callable[..., NodeSpec]:
    return node_spec


@pytest.fixture
def two_nodes() -> ClusterSpec:
    """One GPU and one CPU node."""
    return ClusterSpec((node_spec("w1"), node_spec("w2", gpus=0)))


def emujob(job_id: str, row: int = 0, **status: Any) -> dict[str, Any]:
    notes = {"emugpu.dev/job-id": job_id, "emugpu.dev/row": str(row)}
    metadata = {"name": job_id.lower(), "namespace": "exp", "annotations": notes}
    return {"metadata": metadata, "spec": {}, "status": status}


@pytest.fixture(name="emujob")
def _emujob() -> Callable[..., dict[str, Any]]:
    return emujob
