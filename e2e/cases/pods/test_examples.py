"""The examples, unchanged. The example of time slicing is tested in test_sharing.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cases.conftest import EXAMPLES, allocatable
from e2e.cases.kube import RESOURCE, Kubectl, Node, Object, eventually
from e2e.cases.ledger import Ledger, check_every_step_once

Pools = Callable[[Path], None]


def apply(kubectl: Kubectl, name: str) -> None:
    kubectl("apply", "-f", str(EXAMPLES / name))


def test_one_pod(kubectl: Kubectl) -> None:
    apply(kubectl, "one-pod/pod.yaml")
    kubectl.wait_phase("one-pod", "Succeeded", within_s=120)
    assert "finished: 100 steps" in kubectl.logs("one-pod")


def test_data_parallel(kubectl: Kubectl) -> None:
    apply(kubectl, "data-parallel/job.yaml")
    kubectl.wait_jobs(["data-parallel"], within_s=120)


def test_emujob(kubectl: Kubectl) -> None:
    apply(kubectl, "emujob/emujob.yaml")

    def seen() -> Object:
        found: Object = kubectl.get("emujob", "resnet50").get("status", {})
        return found

    eventually("its end", lambda: seen().get("phase") == "Succeeded", within_s=120)
    assert seen()["progress"] == "100/100"


@pytest.mark.alone
@pytest.mark.long
def test_experiment(kubectl: Kubectl, admin: Kubectl) -> None:
    """Needs the runner's image on the nodes: `emugpu cluster load emugpu-scheduler`."""
    apply(kubectl, "experiment/experiment.yaml")

    def seen() -> Object:
        found: Object = kubectl.get("schedulingexperiment", "short-and-long").get("status", {})
        return found

    ended = ("Succeeded", "Failed")
    eventually("its end", lambda: seen().get("phase") in ended, within_s=900)
    assert seen()["phase"] == "Succeeded", seen()["conditions"]
    assert [(one["name"], "failedJobs" in one) for one in seen()["results"]] == [("fifo", False), ("srtf", False)]
    for one in seen()["results"]:
        assert abs(float(one["errors"]["meanJCT"])) < 0.1, one
    assert kubectl.exists("configmap", "short-and-long-report")
    left = [item["metadata"]["name"] for item in admin.list("namespaces")]
    assert not [name for name in left if name.startswith("emugpu-exp-")]


def test_ddp(kubectl: Kubectl, ledger: Ledger) -> None:
    apply(kubectl, "ddp/job.yaml")
    kubectl.wait_jobs(["ddp"], within_s=180)
    uid = kubectl.get("job", "ddp")["metadata"]["uid"]
    for rank in range(2):
        key = f"{uid}/{rank}"
        done = eventually(
            f"rank {rank} is reported",
            lambda key=key: list(ledger.of(key)) if any(e.kind == "finished" for e in ledger.of(key)) else None,
        )
        check_every_step_once(done, 100)


@pytest.mark.alone  # it needs all GPUs of a node
def test_own_program(kubectl: Kubectl, ledger: Ledger, workers: list[Node]) -> None:
    """Eight processes, each killed once: no step is lost or done twice, no device is lost, and nobody is delayed."""
    apply(kubectl, "own-program/pod.yaml")

    kubectl.wait_phase("own-program", "Running", within_s=120)

    def started() -> int:
        return kubectl.logs("own-program").count(", from step")

    eventually("all processes", lambda: started() == 8, within_s=60)
    node = next(node for node in workers if node.name == kubectl.get("pod", "own-program")["spec"]["nodeName"])
    ranks = node.pids("python3[^ ]* [/]program/train.py")
    assert len(ranks) == 8
    for killed, pid in enumerate(ranks, start=1):
        node.sh(f"kill -9 {pid}")
        eventually(f"process {killed} again", lambda wanted=8 + killed: started() == wanted, within_s=30)
    kubectl.wait_phase("own-program", "Succeeded", within_s=120)
    logs = kubectl.logs("own-program")
    assert logs.count(": 200 steps") == 8, logs
    uid = kubectl.get("pod", "own-program")["metadata"]["uid"]
    eventually("its end is reported", lambda: any(event.kind == "finished" for event in ledger.of(uid)))
    check_every_step_once(ledger.of(uid), 200)


def test_out_of_memory(kubectl: Kubectl) -> None:
    apply(kubectl, "out-of-memory/pod.yaml")
    kubectl.wait_phase("out-of-memory", "Failed")
    assert "CUDA out of memory" in kubectl.logs("out-of-memory")
    events = eventually(
        "an Event on the pod",
        lambda: [e for e in kubectl.events_of("Pod", "out-of-memory") if "emory" in e["reason"]],
    )
    assert "500" in events[0]["message"] or "GiB" in events[0]["message"]


def test_quota(kubectl: Kubectl) -> None:
    apply(kubectl, "quota/quota.yaml")
    refused = eventually(
        "the third pod is refused by the quota",
        lambda: [e for e in kubectl.events_of("Job", "quota") if "exceeded quota: two-gpus" in e["message"]],
    )
    assert f"requests.{RESOURCE}=1" in refused[0]["message"]
    kubectl.wait_jobs(["quota"], within_s=180)


@pytest.mark.alone
def test_mixed_cluster(kubectl: Kubectl, pools: Pools, admin: Kubectl, workers: list[Node]) -> None:
    try:
        admin("label", "node", workers[0].name, "example.com/gpu=v100", "--overwrite")
        admin("label", "node", workers[1].name, "example.com/gpu=a100", "--overwrite")
        pools(EXAMPLES / "mixed-cluster/values.yaml")
        eventually("4 V100", lambda: allocatable(admin, workers[0].name) == 4)
        eventually("8 A100", lambda: allocatable(admin, workers[1].name) == 8)
        eventually("the third node is in no pool", lambda: allocatable(admin, workers[2].name) == 0)
        apply(kubectl, "mixed-cluster/pods.yaml")
        for pod, worker in (("on-v100", workers[0]), ("on-a100", workers[1])):
            kubectl.wait_phase(pod, "Succeeded", within_s=120)
            assert kubectl.get("pod", pod)["spec"]["nodeName"] == worker.name
    finally:
        for worker in workers[:2]:
            admin("label", "node", worker.name, "example.com/gpu-")


@pytest.mark.alone
def test_nvidia_compatibility(kubectl: Kubectl, pools: Pools, admin: Kubectl, workers: list[Node]) -> None:
    pools(EXAMPLES / "nvidia-compatibility/values.yaml")
    eventually("4 nvidia.com/gpu", lambda: allocatable(admin, workers[0].name, "nvidia.com/gpu") == 4)
    assert admin.get("node", workers[0].name)["metadata"]["labels"]["nvidia.com/gpu.product"] == "Tesla-V100-PCIE-32GB"
    apply(kubectl, "nvidia-compatibility/deployment.yaml")
    kubectl("rollout", "status", "deployment/nvidia-smi", "--timeout=60s")
    log = eventually("output", lambda: kubectl("logs", "deployment/nvidia-smi"))
    assert "V100" in log


@pytest.mark.alone
def test_mig(kubectl: Kubectl, pools: Pools, admin: Kubectl, workers: list[Node]) -> None:
    pools(EXAMPLES / "mig/values.yaml")
    for resource in ("nvidia.com/gpu", "nvidia.com/mig-3g.20gb", "nvidia.com/mig-4g.20gb"):
        eventually(f"one {resource}", lambda r=resource: allocatable(admin, workers[0].name, r) == 1)
    labels = admin.get("node", workers[0].name)["metadata"]["labels"]
    assert labels["nvidia.com/mig-3g.20gb.product"] == "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"
    apply(kubectl, "mig/pod.yaml")
    kubectl.wait_phase("mig", "Succeeded", within_s=120)
    assert "finished: 100 steps" in kubectl.logs("mig")
