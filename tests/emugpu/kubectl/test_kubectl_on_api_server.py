"""`kubectl emugpu` on a real API server, as a user of it would: the schema, label selectors, rights, the plugin's files."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from emugpu.kubectl.__main__ import main
from emulator_runtime.domain.gpu import device_uuid
from tests.support.api_server import ApiServer

ROOT = Path(__file__).parents[3]
EMUJOBS = "/apis/emugpu.dev/v1alpha1/namespaces/default/emujobs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    assets = os.environ.get("KUBE_ASSETS")
    if not assets:
        pytest.skip("KUBE_ASSETS names no directory with kube-apiserver and etcd")
    with ApiServer(Path(assets), tmp_path_factory.mktemp("api-server"), {"ann": "ann", "bob": "bob"}) as found:
        yield found


@pytest.fixture(scope="module")
def kubectl(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """`kubectl("emugpu", ..., user="ann")`: the plugin. With `found`, or another first word: the real kubectl, which finds it."""
    directory = tmp_path_factory.mktemp("plugin")
    for program, module in (("kubectl-emugpu", "__main__"), ("kubectl_complete-emugpu", "completion")):
        path = directory / program
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -m emugpu.kubectl.{module} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    assets = os.environ["KUBE_ASSETS"]

    def run(*arguments: str, user: str = "", found: bool = False) -> subprocess.CompletedProcess[str]:
        config = directory / f"config-{user}"
        config.write_text(json.dumps(server.kubeconfig(user) if user else server.kubeconfig()), encoding="utf-8")
        if arguments[0] == "emugpu" and not found:
            return _in_this_process(arguments[1:], config)
        environ = {**os.environ, "PATH": f"{directory}:{assets}:/usr/bin:/bin", "KUBECONFIG": str(config)}
        environ |= {"PYTHONPATH": str(ROOT), "HOME": str(directory)}
        command = [f"{assets}/kubectl", *arguments]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=30)

    return run


def _in_this_process(arguments: Sequence[str], config: Path) -> subprocess.CompletedProcess[str]:
    """The plugin as kubectl would start it; a process of its own takes a second of CPU time for imports."""
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setenv("KUBECONFIG", str(config))
        status = main(list(arguments))
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())


@pytest.fixture(scope="module")
def emujobs(server: ApiServer, kubectl: Kubectl) -> Kubectl:
    """With the definition of EmuJobs, and two of them; before that, what is said where there is none."""
    for command in (["jobs"], ["explain", "x"]):
        without = kubectl("emugpu", *command)
        assert without.returncode == 2
        assert "this cluster has no resource EmuJob: install the chart" in without.stderr
    definition = yaml.safe_load((ROOT / "charts" / "emugpu" / "crds" / "emujobs.yaml").read_text(encoding="utf-8"))
    assert server.apply(f"{CRDS}/emujobs.emugpu.dev", definition)[0] in (200, 201)
    for name, team in (("one", "nlp"), ("two", "vision")):
        document = {
            "apiVersion": "emugpu.dev/v1alpha1",
            "kind": "EmuJob",
            "metadata": {"name": name, "labels": {"team": team}},
            "spec": {"steps": 10, "stepTime": "1s"},
        }
        _until_made(server, document)
    status = {
        "phase": "Succeeded",
        "submittedAt": "2026-01-01T00:00:00.250000Z",
        "finishedAt": "2026-01-01T00:00:12.750000Z",
        "observedJCTSeconds": 12.5,
        "stepsDone": 10,
        "steps": 10,
        "gpus": 1,
        "node": "w1",
    }
    path = f"{EMUJOBS}/one/status"
    assert server.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")[0] == 200
    return kubectl


def _until_made(server: ApiServer, document: dict[str, Any]) -> None:
    for _ in range(200):
        if server.request("POST", EMUJOBS, document)[0] == 201:
            return
    raise AssertionError("the new resource is not served")


def test_kubectl_finds_the_plugin(emujobs: Kubectl) -> None:
    assert "kubectl-emugpu" in emujobs("plugin", "list").stdout
    done = emujobs("emugpu", "jobs", found=True)
    assert (done.returncode, done.stderr) == (0, "")
    heading, one, two = done.stdout.splitlines()
    assert heading.split()[:4] == ["NAME", "PHASE", "GPUS", "PROGRESS"]
    assert one.split()[:7] == ["one", "Succeeded", "1", "10/10", "w1", "-", "12.5s"]
    assert two.split()[:4] == ["two", "-", "0", "0/10"]


def test_label_selectors_are_the_servers(emujobs: Kubectl) -> None:
    for selector, expected in (
        ("team=nlp", ["one"]),
        ("team!=nlp", ["two"]),
        ("team in (nlp, vision)", ["one", "two"]),
        ("team notin (nlp)", ["two"]),
        ("team", ["one", "two"]),
        ("!team", []),
    ):
        done = emujobs("emugpu", "jobs", "-A", "-l", selector, "-o", "json")
        assert [job["name"] for job in json.loads(done.stdout)] == expected, selector


def test_kubectl_completes_names(emujobs: Kubectl) -> None:
    done = emujobs("__complete", "emugpu", "explain", "o")
    assert done.stdout.splitlines() == ["one\tSucceeded", ":4"]
    done = emujobs("__complete", "emugpu", "to")
    assert done.stdout.splitlines() == ["top\temulated GPUs: which pods hold them, load and memory", ":4"]


def test_one_job_is_explained(emujobs: Kubectl) -> None:
    done = emujobs("emugpu", "explain", "one")
    assert done.returncode == 0, done.stderr
    assert "EmuJob default/one: Succeeded, 10/10 steps (100%), 12.5s in all" in done.stdout
    assert "finished after 12.5s" in done.stdout
    done = emujobs("emugpu", "explain", "tow")
    assert (done.returncode, done.stderr) == (
        2,
        "kubectl emugpu: namespace default: unknown EmuJob 'tow'; did you mean two?\n",
    )


def test_who_may_not_look_is_told_what_is_missing(server: ApiServer, emujobs: Kubectl) -> None:
    for command, resource in (("jobs", "emujobs.emugpu.dev"), ("top", "nodes"), ("gantt", "emujobs.emugpu.dev")):
        done = emujobs("emugpu", command, user="ann")
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(
            f'kubectl emugpu: list {resource.partition(".")[0]}: {resource} is forbidden: User "ann"'
        )
        assert line.endswith("docs/kubectl.md lists the rights that each command needs")
    done = emujobs("emugpu", "jobs", user="nobody")
    assert "list emujobs: Unauthorized" in done.stderr


def test_the_rights_of_the_guide_are_enough(server: ApiServer, emujobs: Kubectl) -> None:
    """The ClusterRole in docs/kubectl.md, bound to bob."""
    guide = (ROOT / "docs" / "kubectl.md").read_text(encoding="utf-8")
    role = yaml.safe_load(guide.partition("```yaml\n")[2].partition("```")[0])
    base = "/apis/rbac.authorization.k8s.io/v1"
    assert server.apply(f"{base}/clusterroles/{role['metadata']['name']}", role)[0] in (200, 201)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "bob"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert server.apply(f"{base}/clusterrolebindings/bob", binding)[0] in (200, 201)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}}
    inventory = {
        "version": 1,
        "node": "w1",
        "pool": "p",
        "resources": [
            {"name": "emugpu.dev/emuGPU", "devices": [{"index": 0, "gpu_type": "T4", "memory_bytes": 2**34}]},
        ],
    }
    node["metadata"] = {"name": "w1", "annotations": {"emugpu.dev/inventory": json.dumps(inventory)}}
    assert server.apply("/api/v1/nodes/w1", node)[0] in (200, 201)
    for command in (
        ["jobs", "-A"],
        ["top"],
        ["top", "devices"],
        ["top", "jobs"],
        ["gantt"],
        ["explain", "two"],
        ["smi", "w1"],
    ):
        done = emujobs("emugpu", *command, user="bob")
        assert done.returncode == 0, (command, done.stderr)
        assert "forbidden" not in done.stderr
    devices = json.loads(emujobs("emugpu", "top", "devices", "-o", "json", user="bob").stdout)
    assert [device["uuid"] for device in devices] == [device_uuid("w1", 0)]
