from __future__ import annotations

import asyncio
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from operators.experiments.cluster_state import read_cluster_state
from operators.kube.api import NODE, POD, POOL, NotThereError

POOL_DOCUMENT = {
    "metadata": {"name": "v100", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "nodeSelector": {"matchLabels": {"pool": "v100"}},
        "gpus": [{"type": "V100", "count": 2}],
        "emulated": {"cpu": 96, "memory": "500Gi"},
    },
}


def node(name: str, ready: str = "True") -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}], "capacity": {"cpu": "2", "memory": "8Gi"}}
    return {"metadata": {"name": name, "uid": name, "labels": {"pool": "v100"}}, "status": status}


def pod(name: str, phase: str = "Running", **limits: str) -> dict[str, Any]:
    container = {"name": "train", "resources": {"limits": {f"emugpu.dev/{k}": v for k, v in limits.items()}}}
    return {
        "metadata": {"name": name, "namespace": "lab"},
        "spec": {"containers": [container]},
        "status": {"phase": phase},
    }


def test_the_pools_nodes_with_their_emulated_amounts(world: Any) -> None:
    world.put(POOL, POOL_DOCUMENT)
    for name in ("w2", "w1"):
        world.put(NODE, node(name))
    present = asyncio.run(read_cluster_state(world.api()))
    present.check_idle("--on kubernetes")
    assert [(n.name, n.cpu_milli, len(n.devices)) for n in present.spec.nodes] == [("w1", 96_000, 2), ("w2", 96_000, 2)]


def test_a_cluster_that_somebody_uses_is_refused(world: Any) -> None:
    world.put(POOL, POOL_DOCUMENT)
    world.put(NODE, node("w1"))
    for document in (pod("done", "Succeeded", emuGPU="1"), pod("none", emuGPU="0"), pod("other")):
        world.put(POD, document)
    asyncio.run(read_cluster_state(world.api())).check_idle("--on kubernetes")
    world.put(POD, pod("busy", emuGPU="1"))
    world.put(POD, pod("waits", "Pending", host="1"))
    with pytest.raises(InputError, match="lab/busy, lab/waits use emulated devices; an experiment needs"):
        asyncio.run(read_cluster_state(world.api())).check_idle("--on kubernetes")


def test_a_node_that_does_not_answer_is_reported(world: Any) -> None:
    world.put(POOL, POOL_DOCUMENT)
    world.put(NODE, node("w1", "Unknown"))
    with pytest.raises(InputError, match="nodes that are not ready: w1"):
        asyncio.run(read_cluster_state(world.api())).check_idle("--on kubernetes")


def test_a_cluster_without_emugpu_is_reported(world: Any) -> None:
    world.failures["list"] = [NotThereError("the server could not find the requested resource")]
    with pytest.raises(InputError, match="doesn't know EmuJobs; install the chart"):
        asyncio.run(read_cluster_state(world.api()))
