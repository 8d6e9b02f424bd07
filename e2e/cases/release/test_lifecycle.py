"""Installation and upgrade: messages name misspelt values, unknown GPU types and conflicts; no job fails during an upgrade."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from e2e.cases.conftest import CHART
from e2e.cases.kube import Kubectl, Node, eventually, train_job
from e2e.cases.ledger import Ledger, check_every_step_once


def test_a_misspelt_value_is_refused(helm: Callable[..., str]) -> None:
    said = helm(
        "upgrade", "emugpu", str(CHART), "--reuse-values", "--dry-run=client", "--set", "imgae.tag=1", check=False
    )
    assert "imgae" in said
    assert "not allowed" in said or "additional" in said.lower()


def test_an_unknown_gpu_type_is_reported(admin: Kubectl) -> None:
    pool = {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuGPUPool",
        "metadata": {"name": "unknown"},
        "spec": {"nodeSelector": {"matchLabels": {"none": "none"}}, "gpus": [{"type": "V1000", "count": 1}]},
    }
    admin.apply(pool)
    try:

        def ready() -> str | None:
            conditions = admin.get("emugpupool", "unknown").get("status", {}).get("conditions", [])
            return next((c["message"] for c in conditions if c["type"] == "Ready" and c["status"] == "False"), None)

        said = eventually("Ready is False", ready)
        assert "spec.gpus[0].type" in said
        assert "V100" in said
    finally:
        admin("delete", "emugpupool", "unknown")


def test_two_pools_on_one_node(admin: Kubectl, workers: list[Node]) -> None:
    pool = {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuGPUPool",
        "metadata": {"name": "second"},
        "spec": {
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": workers[0].name}},
            "gpus": [{"type": "A100", "count": 2}],
        },
    }
    admin.apply(pool)
    try:

        def conflicted() -> str | None:
            conditions = admin.get("emugpupool", "second").get("status", {}).get("conditions", [])
            return next((c["message"] for c in conditions if c["type"] == "Conflicted" and c["status"] == "True"), None)

        said = eventually("Conflicted", conflicted)
        assert workers[0].name in said
        assert "default" in said
        assert admin.get("node", workers[0].name)["metadata"]["labels"]["emugpu.dev/pool"] == "default"
    finally:
        admin("delete", "emugpupool", "second")


@pytest.mark.alone
def test_an_upgrade_in_mid_run(kubectl: Kubectl, admin: Kubectl, helm: Callable[..., str], ledger: Ledger) -> None:
    """All pods of emugpu are replaced; the job reconnects and loses no step."""
    steps = 220
    kubectl.create(train_job("through", "--step-time-s", "0.1", "--memory", "1GiB", "--steps", str(steps), pods=4))
    eventually("all run", lambda: sum(p["status"]["phase"] == "Running" for p in kubectl.list("pods")) == 4)
    before = {p["metadata"]["uid"] for p in kubectl.list("pods")}
    stamp = json.dumps({"emugpu.dev/upgrade": "1"})
    helm(
        "upgrade",
        "emugpu",
        str(CHART),
        "--reuse-values",
        *("--set-json", f"node.podAnnotations={stamp}"),
        *("--set-json", f"controller.podAnnotations={stamp}"),
        "--wait",
        "--timeout",
        "180s",
    )
    kubectl.wait_jobs(["through"], within_s=120)
    assert {p["metadata"]["uid"] for p in kubectl.list("pods")} == before
    uid = kubectl.get("job", "through")["metadata"]["uid"]
    eventually("all ends are reported", lambda: sum(e.kind == "finished" for e in ledger.of(uid)) == 4)
    for rank in range(4):
        check_every_step_once(ledger.of(f"{uid}/{rank}"), steps)


def test_helm_test(helm: Callable[..., str]) -> None:
    assert "Succeeded" in helm("test", "emugpu", "--timeout", "120s")
