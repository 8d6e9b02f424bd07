"""Experiments' objects on a real API server; what the operator would write is written by the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from emulator_runtime.domain.job import JobSpec, ModelWork, TimedWork
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.units import GIB
from emulator_runtime.timing.host import wall_ns
from operators.experiments import run_namespace
from operators.experiments.cluster_state import read_cluster_state
from operators.experiments.emujobs import RunTarget, emujob_document, names_of
from operators.experiments.records import ObservedJob
from operators.experiments.run import Hooks, RunJobs, observe
from operators.kube.api import EMUJOB
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import from_document
from operators.kube.timestamps import rfc3339_micro
from tests.support.api_server import ApiServer

Specs = Callable[..., JobSpec]
MERGE = "application/merge-patch+json"


def connect(server: ApiServer) -> KubeApi:
    return KubeApi(from_document(server.kubeconfig()))


def kinds_of_jobs(job_spec: Specs) -> dict[str, JobSpec]:
    job = job_spec("Job A", cpu_s=228.0)
    curves = Sensitivity.between(HostShare(2000, GIB), HostShare(8000, 4 * GIB), 3.0)
    gpu = replace(job.configurations[0], gpu_types=("Tesla_V100-PCIE-32GB",), device_memory_bytes=GIB)
    return {
        "two ways": job,
        "sensitive": replace(job, configurations=(gpu,), work={"gpu": TimedWork(40.0, curves)}),
        "model": replace(job, configurations=(gpu,), work={"gpu": ModelWork("resnet50", 64)}),
        "on CPUs": replace(job, configurations=job.configurations[1:]),
    }


@pytest.mark.parametrize("kind", ["two ways", "sensitive", "model", "on CPUs"])
@pytest.mark.parametrize("scheduler", ["exp-1", ""])
def test_the_schema_takes_every_kind_of_job(cluster: ApiServer, job_spec: Specs, kind: str, scheduler: str) -> None:
    job = kinds_of_jobs(job_spec)[kind]
    if kind == "on CPUs" and not scheduler:
        pytest.skip("has no form there, see test_exp_manifests")
    document = emujob_document(job, "job-a-0", RunTarget("default", "e-1", scheduler, "volcano"))
    status, reply = cluster.request("POST", "/apis/emugpu.dev/v1alpha1/namespaces/default/emujobs?dryRun=All", document)
    assert status == 201, reply


def test_jobs_are_submitted_followed_and_cleared(cluster: ApiServer, job_spec: Specs) -> None:
    jobs = [job_spec("a"), job_spec("B", 1, submit_s=0.3)]
    told = asyncio.run(_whole_run(cluster, jobs))
    assert {one.job_id: (one.phase, one.settled) for one in told} == {
        "a": ("Succeeded", True),
        "B": ("Succeeded", True),
    }
    assert [one.runs[0].steps for one in told] == [100, 100]


async def _whole_run(server: ApiServer, jobs: list[JobSpec]) -> list[ObservedJob]:
    api = connect(server)
    try:
        await read_cluster_state(api)
        await run_namespace.create(api, "exp-run", "1f")
        names = names_of(jobs)
        orders = RunJobs(jobs, names, RunTarget("exp-run", "1f-1", "exp-1"), wall_ns(), 30.0)
        operator = asyncio.create_task(_operate(server, api, list(names.values())))
        told = await observe(api, orders, Hooks(wall_ns, lambda _ended, _now_s: None))
        await operator
        for document in (await api.list(EMUJOB, namespace="exp-run"))[1]:
            await api.delete(EMUJOB, document["metadata"]["name"], "exp-run")
        assert (await api.list(EMUJOB, namespace="exp-run"))[1] == []
        return told
    finally:
        await api.close()


async def _operate(server: ApiServer, api: KubeApi, names: list[str]) -> None:
    """Says of each job that it has run, in two writes."""
    waiting = set(names)
    while waiting:
        for document in (await api.list(EMUJOB, namespace="exp-run"))[1]:
            name = document["metadata"]["name"]
            if name in waiting:
                waiting.remove(name)
                await asyncio.to_thread(_write_status, server, name)
        await asyncio.sleep(0.05)


def _write_status(server: ApiServer, name: str) -> None:
    path = f"/apis/emugpu.dev/v1alpha1/namespaces/exp-run/emujobs/{name}/status"
    begin, end = rfc3339_micro(wall_ns()), rfc3339_micro(wall_ns() + 10**9)
    run = {"node": "w1", "devices": [], "from": begin, "to": end, "fromStep": 0, "toStep": 100, "ended": "finished"}
    first: dict[str, Any] = {"phase": "Queued", "submittedAt": begin}
    last = {"phase": "Succeeded", "startedAt": begin, "finishedAt": end, "runs": [run]}
    for status in (first, last):
        code, reply = server.request("PATCH", path, {"status": status}, content_type=MERGE)
        assert code == 200, reply
