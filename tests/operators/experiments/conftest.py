"""A run's jobs, the cluster that they ran on, and EmuJobs as their controller leaves them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from emulator_runtime.timing.host import wall_ns
from operators.kube.api import EMUJOB, NAMESPACE, Resource
from operators.kube.timestamps import rfc3339_micro
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from tests.support.fake_api import FakeApi

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


class World(FakeApi):
    """A cluster in miniature: who is submitted runs for `job_s` and is told of, a namespace goes with all that is in it."""

    def __init__(self, job_s: float = 0.05) -> None:
        super().__init__()
        self.job_s = job_s
        self.submitted: list[str] = []
        self.stays = False
        """Whether namespaces can't be deleted."""
        self.silent: set[str] = set()
        """EmuJobs whose end the event log never tells."""

    def api(self) -> World:
        """The same cluster, for another event loop."""
        self._news = asyncio.Condition()
        return self

    async def create(self, resource: Resource, document: dict[str, Any], manager: str = "") -> dict[str, Any]:
        made = await super().create(resource, document, manager)
        if resource is EMUJOB:
            name = document["metadata"]["name"]
            self.submitted.append(name)
            now_ns = wall_ns()
            self.tell(made, phase="Queued", submittedAt=rfc3339_micro(now_ns))
            asyncio.get_running_loop().call_later(self.job_s, self._finish, made, now_ns)
        await self.wake()
        return made

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        if resource is NAMESPACE and self.stays:
            return
        await super().delete(resource, name, namespace, uid=uid)

    def tell(self, document: dict[str, Any], **status: Any) -> None:
        """Its status has these members from now on."""
        namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
        found = self._all(EMUJOB).get(f"{namespace}/{name}")
        if found is not None:  # else: deleted meanwhile
            self.put(EMUJOB, {**found, "status": {**found.get("status", {}), **status}})

    def _finish(self, document: dict[str, Any], begun_ns: int) -> None:
        steps, begin, end = document["spec"]["steps"], rfc3339_micro(begun_ns), rfc3339_micro(wall_ns())
        run = {
            "node": "w1",
            "devices": [],
            "from": begin,
            "to": end,
            "fromStep": 0,
            "toStep": steps,
            "ended": "finished",
        }
        told = {} if document["metadata"]["name"] in self.silent else {"runs": [run]}
        self.tell(document, phase="Succeeded", startedAt=begin, finishedAt=end, **told)
        asyncio.get_running_loop().create_task(self.wake())


@pytest.fixture
def world() -> World:
    return World()


SCHEDULER = """
import json, os, signal, sys, time
print(json.dumps({"at": "2026-01-01T00:00:00.000000Z", "scheduler": "s", "policy": "p", "namespace": ""}), flush=True)
print("scheduler: arguments", *sys.argv[1:], file=sys.stderr, flush=True)
%s
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Callable[[str], list[str]]:
    """`scheduler(code)`: the command of a program that is ready as a scheduler is, and then does this."""

    def scheduler(code: str = "time.sleep(600)") -> list[str]:
        path = tmp_path / "scheduler.py"
        path.write_text(SCHEDULER % code)
        return [sys.executable, str(path)]

    return scheduler
