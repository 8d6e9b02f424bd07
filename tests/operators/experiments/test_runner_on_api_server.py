"""The real runner with a real scheduler program under the account that the chart gives them, on a real API server.

No kubelet and no controller manager: the test is the operator that says of each EmuJob that it has run, and takes namespaces
that are deleted to their end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.timing.host import sleep_ns, wall_ns
from operators.kube.timestamps import rfc3339_micro
from operators.objects.experiment import Experiment, ExperimentStatus
from tests.support.api_server import ApiServer

EXPERIMENTS = "/apis/emugpu.dev/v1alpha1/namespaces/default/schedulingexperiments"
MERGE = "application/merge-patch+json"
ACCOUNTS = "/api/v1/namespaces/emugpu/serviceaccounts"
JOB = "experiment-r-ab12"
"""The runner's Job."""
pytestmark = [pytest.mark.processes, pytest.mark.timeout(150)]


class Operator:
    """`hold`: jobs that are submitted from now on don't end. `seen`: namespaces of runs, in order."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.hold = threading.Event()
        self.seen: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _work(self) -> None:
        while not self._stop.wait(0.1):
            for document in self._get("/apis/emugpu.dev/v1alpha1/emujobs"):
                if not document.get("status") and not self.hold.is_set():
                    self._run(document["metadata"])
            for document in self._get("/api/v1/namespaces"):
                name = document["metadata"]["name"]
                if name.startswith("emugpu-exp-") and name not in self.seen:
                    self.seen.append(name)
                if document["status"]["phase"] == "Terminating":
                    whole = {**document, "apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": []}}
                    self._server.request("PUT", f"/api/v1/namespaces/{name}/finalize", whole)

    def _run(self, metadata: Any) -> None:
        path = f"/apis/emugpu.dev/v1alpha1/namespaces/{metadata['namespace']}/emujobs/{metadata['name']}/status"
        begin, end = rfc3339_micro(wall_ns()), rfc3339_micro(wall_ns() + 10**9)
        run = {"node": "gpu1", "devices": [], "from": begin, "to": end, "fromStep": 0, "toStep": 1, "ended": "finished"}
        first: dict[str, Any] = {"phase": "Queued", "submittedAt": begin}
        last = {"phase": "Succeeded", "startedAt": begin, "finishedAt": end, "runs": [run]}
        for status in (first, last):
            self._server.request("PATCH", path, {"status": status}, content_type=MERGE)

    def _get(self, path: str) -> Any:
        return self._server.request("GET", path)[1].get("items", ())


@pytest.fixture
def grounds(cluster: ApiServer) -> Iterator[str]:
    """A node with a V100, and an experiment; its uid."""
    cluster.request(
        "DELETE", "/api/v1/namespaces/emugpu/pods/emugpu-test?gracePeriodSeconds=0"
    )  # `helm test` uses a GPU
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu1"}}
    assert cluster.request("POST", "/api/v1/nodes", node)[0] == 201
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "2", "memory": "8Gi"}}
    assert cluster.request("PATCH", "/api/v1/nodes/gpu1/status", {"status": ready}, content_type=MERGE)[0] == 200
    spec = {"gpus": [{"type": "V100", "count": 1}], "emulated": {"cpu": 8, "memory": "64Gi"}}
    pool = {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuGPUPool", "metadata": {"name": "sexp"}, "spec": spec}
    assert cluster.request("POST", "/apis/emugpu.dev/v1alpha1/emugpupools", pool)[0] == 201
    experiment = {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "SchedulingExperiment",
        "metadata": {"name": "r"},
        "spec": {
            "workload": {"inline": "job_id,gpu_duration_s\na,1\nb,1\n"},
            "policies": ["fifo", "sjf"],
            "costs": {"startSeconds": "0.1"},
        },
    }
    status, reply = cluster.request("POST", EXPERIMENTS, experiment)
    assert status == 201, reply
    by_controller = {"status": {"runner": JOB}}
    assert cluster.request("PATCH", f"{EXPERIMENTS}/r/status", by_controller, content_type=MERGE)[0] == 200
    yield str(reply["metadata"]["uid"])
    cluster.request("DELETE", f"{EXPERIMENTS}/r?propagationPolicy=Background")
    cluster.request("DELETE", "/api/v1/namespaces/default/configmaps/r-report")
    cluster.request("DELETE", "/api/v1/nodes/gpu1")
    cluster.request("DELETE", "/apis/emugpu.dev/v1alpha1/emugpupools/sexp")


@pytest.fixture
def runner(cluster: ApiServer, grounds: str, tmp_path: Path) -> Callable[[], subprocess.Popen[bytes]]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(cluster.kubeconfig(token_of_pod(cluster, f"{JOB}-abcde"))))
    names = {"NAMESPACE": "default", "NAME": "r", "UID": grounds, "ID": "ab12"}
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(Path(__file__).parents[3])}
    environment |= {"TMPDIR": str(tmp_path)} | {f"EMUGPU_EXPERIMENT_{name}": value for name, value in names.items()}

    def start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "operators.experiments.runner"]
        with (tmp_path / "said").open("ab") as said:
            return subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=said)

    return start


def kill_container(process: subprocess.Popen[bytes]) -> None:
    """With its first process all others of a container end."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    others = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    process.kill()
    process.wait()
    for pid in others:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def token_of_pod(server: ApiServer, name: str) -> str:
    """A token of the runners' account that is bound to this pod, as kubelets give it to the pod's container."""
    pods = "/api/v1/namespaces/emugpu/pods"
    server.request("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")
    container = {"name": "runner", "image": "emugpu-scheduler:1"}
    spec = {"serviceAccountName": "emugpu-experiments", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    status, reply = server.request("POST", pods, pod)
    assert status == 201, reply
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": reply["metadata"]["uid"]}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
    status, reply = server.request("POST", f"{ACCOUNTS}/emugpu-experiments/token", request)
    assert status == 201, reply
    return str(reply["status"]["token"])


def written(server: ApiServer) -> ExperimentStatus:
    return Experiment.read(server.request("GET", f"{EXPERIMENTS}/r")[1]).status


def present_run(server: ApiServer) -> tuple[str | None, str]:
    progress = written(server).progress
    return progress.stage, progress.policy


def until(process: subprocess.Popen[bytes], condition: Callable[[], bool], said: Path) -> None:
    limit_ns = wall_ns() + 60 * 10**9
    while not condition():
        assert process.poll() is None and wall_ns() < limit_ns, said.read_text()
        sleep_ns(10**8)


def test_a_runner_that_is_killed_goes_on_where_it_was(
    cluster: ApiServer, runner: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    said = tmp_path / "said"
    with Operator(cluster) as operator:
        first = runner()
        try:
            until(first, lambda: written(cluster).done == 1, said)
            operator.hold.set()
            until(
                first,
                lambda: (written(cluster).progress.stage, written(cluster).progress.policy) == ("Observing", "sjf"),
                said,
            )
        finally:
            kill_container(first)
        operator.hold.clear()
        second = runner()
        try:
            assert second.wait(90) == 0, said.read_text()
        finally:
            kill_container(second)
        found = written(cluster)
    assert found.progress.stage == "Done" and (found.attempts, found.done) == (2, 2)
    assert [(one.name, one.repeats) for one in found.results] == [("fifo", 1), ("sjf", 1)]
    assert operator.seen == ["emugpu-exp-ab12-1", "emugpu-exp-ab12-2", "emugpu-exp-ab12-1001"]
    _, report = cluster.request("GET", "/api/v1/namespaces/default/configmaps/r-report")
    assert sorted([*report["data"], *report["binaryData"]]) == ["jobs.csv.gz", "runs.json.gz", "summary.json"]
    assert "forbidden" not in said.read_text()


def test_a_runner_that_is_told_to_stop_leaves_nothing(
    cluster: ApiServer, runner: Callable[[], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    said = tmp_path / "said"
    with Operator(cluster) as operator:
        operator.hold.set()
        process = runner()
        try:
            until(process, lambda: written(cluster).progress.stage == "Observing" and bool(operator.seen), said)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 143, said.read_text()
        finally:
            kill_container(process)
        names = [item["metadata"]["name"] for item in cluster.request("GET", "/api/v1/namespaces")[1]["items"]]
    assert not [name for name in names if name.startswith("emugpu-exp-ab12")]
    assert written(cluster).progress.problem == "" and said.read_text().endswith("experiment: stopped by a signal\n")
