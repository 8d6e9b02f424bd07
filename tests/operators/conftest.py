from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.timing.host import sleep_ns
from tests.support.api_server import ApiServer
from tests.support.yaml_documents import document_of, documents

NAMESPACED = {
    *("ConfigMap", "DaemonSet", "Deployment", "Job", "NetworkPolicy", "Pod", "PodDisruptionBudget"),
    *("Role", "RoleBinding", "Secret", "Service", "ServiceAccount", "StatefulSet"),
}
APPS = {
    "Deployment": "deployments",
    "ReplicaSet": "replicasets",
    "DaemonSet": "daemonsets",
    "StatefulSet": "statefulsets",
}


@pytest.fixture(scope="session")
def kube_assets() -> Path:
    """The directory with etcd, kube-apiserver and helm; tests that need it are skipped where KUBE_ASSETS isn't set."""
    directory = os.environ.get("KUBE_ASSETS")
    if not directory:
        pytest.skip("KUBE_ASSETS names no directory with kube-apiserver and etcd")
    return Path(directory)


@pytest.fixture(scope="session")
def api_server(kube_assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    accounts = (
        "emugpu-pools",
        "emugpu-jobs",
        "emugpu-api",
        "emugpu-scheduler",
        "emugpu-cleanup",
        "emugpu-prepare",
        "emugpu-node",
        "emugpu-experiments",
        "emugpu-nobody",
    )
    users = {name: f"system:serviceaccount:emugpu:{name}" for name in accounts}
    users |= {"job-controller": "system:serviceaccount:kube-system:job-controller"}
    flags = {"allow-privileged": "true"}  # as clusters have it: whether a pod may be privileged is admission's decision
    with ApiServer(kube_assets, tmp_path_factory.mktemp("api-server"), users, flags) as server:
        yield server


@pytest.fixture(scope="session")
def cluster(api_server: ApiServer, helm: str) -> ApiServer:
    """The API server with everything that the chart installs (its workloads as objects only)."""
    chart = Path(__file__).parents[2] / "charts" / "emugpu"
    command = [helm, "template", "emugpu", str(chart), "--namespace", "emugpu", "--include-crds", "--set", "pools=null"]
    command += ["--set", "scheduler.enabled=true,scheduler.name=s,scheduler.jobNamespace=default"]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    parsed = documents(rendered)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "emugpu"}}
    ranks = {"Namespace": 0, "CustomResourceDefinition": 1}
    for document in sorted(
        [namespace, *parsed], key=lambda d: (ranks.get(d["kind"], 2), "AdmissionPolicy" in d["kind"])
    ):
        install(api_server, document)
    await_policies(api_server)
    return api_server


def install(server: ApiServer, document: dict[str, Any]) -> None:
    group, _, version = document["apiVersion"].rpartition("/")
    plural = document["kind"].lower() + ("" if document["kind"].endswith("s") else "s")
    plural = plural.replace("policys", "policies")
    namespaced = document["kind"] in NAMESPACED
    namespace = document["metadata"].get("namespace", "emugpu")
    path = f"/apis/{group}/{version}" if group else f"/api/{version}"
    path += f"/namespaces/{namespace}/{plural}" if namespaced else f"/{plural}"
    status, reply = server.apply(f"{path}/{document['metadata']['name']}", document, "helm")
    assert status in (200, 201), reply.get("message", reply)


def await_policies(server: ApiServer) -> None:
    """The server compiles policies after it has stored them; a pod tells when they are at work (dry run: none is kept)."""
    pod = _object_of({"kind": "Pod", "resources": {"limits": {"emuGPU": 0.5}}})
    for _ in range(200):
        _, reply = server.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
        patched = server.request("PATCH", "/api/v1/nodes/nobody", {}, content_type="application/merge-patch+json")[0]
        if "counts whole devices" in reply.get("message", "") and patched == 404:
            return
        sleep_ns(50_000_000)
    raise AssertionError(f"the policies are not at work: {reply}")


@pytest.fixture(scope="session")
def helm() -> str:
    """The helm binary, from KUBE_ASSETS or the path."""
    assets = os.environ.get("KUBE_ASSETS")
    found = shutil.which("helm", path=assets) if assets else None
    found = found or shutil.which("helm")
    if found is None:
        pytest.skip("helm is neither in KUBE_ASSETS nor on the path")
    return found


def _alias_cases() -> list[Any]:
    rows = document_of(Path(__file__).with_name("alias_cases.yaml"))
    return [pytest.param(row, id=row["case"].replace(" ", "-")) for row in rows]


@pytest.fixture(params=_alias_cases())
def alias_case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One row of the table that the webhook and the policy share."""
    row: dict[str, Any] = request.param
    return row


def _object_of(case: dict[str, Any], *, old: bool = False) -> dict[str, Any]:
    """A whole, valid object (apart from its resources) for a row of the table, or the one that it takes the place of."""
    kind = case["kind"]
    name = case.get("renamed_from", "train") if old else "train"
    resources = case["old" if old else "resources"]
    containers = {"containers": [{"name": name, "image": "busybox", "resources": resources}]}
    if "init" in case:
        containers["initContainers"] = [{"name": "prepare", "image": "busybox", "resources": case["init"]}]
    labels = {"app": "t"}
    template: dict[str, Any] = {"metadata": {"labels": labels}, "spec": {**containers}}
    meta = {"metadata": {"name": "case", "namespace": "default"}}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, **meta, "spec": template["spec"]}
    if kind == "PodTemplate":
        return {"apiVersion": "v1", "kind": kind, **meta, "template": template}
    if kind == "ReplicationController":
        return {"apiVersion": "v1", "kind": kind, **meta, "spec": {"selector": labels, "template": template}}
    if kind in APPS:
        selector = {"matchLabels": labels}
        return {"apiVersion": "apps/v1", "kind": kind, **meta, "spec": {"selector": selector, "template": template}}
    template["spec"]["restartPolicy"] = "Never"
    if kind == "CronJob":
        spec: dict[str, Any] = {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}}
    else:
        spec = {"template": template}
    return {"apiVersion": "batch/v1", "kind": kind, **meta, "spec": spec}


@pytest.fixture(scope="session")
def object_of() -> Callable[..., dict[str, Any]]:
    return _object_of
