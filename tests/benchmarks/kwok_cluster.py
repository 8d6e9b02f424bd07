"""A control plane with hundreds of nodes that are objects only: what a controller costs at a size that no test machine has.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the real programs; kwok plays all kubelets: pods run as
soon as they are bound, and complete when the time in their annotation RUN_TIME is over. Nodes are made ready and stay so:
neither leases nor heartbeats, since nothing here is about nodes. The controllers' limits on their own requests are lifted, so
that none of them waits for anything but the API server.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from cluster_harness.cache import Cache, content_key, default_root
from cluster_harness.programs import module_key
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.node.layout import GPU_RESOURCE
from tests.support.api_server import ADMIN_TOKEN, ApiServer

KWOK = "sigs.k8s.io/kwok/cmd/kwok@v0.8.0"
"""What is built where the cache lacks it: the one place that names its version."""

RUN_TIME = "benchmark/run-time"
"""Annotation of a pod: how long it runs, such as 45s (a Go duration)."""

GPUS = 8
CRDS = Path(__file__).parents[2] / "charts" / "emugpu" / "crds"
FLAGS = {"disable-admission-plugins": "ServiceAccount,TaintNodesByCondition", "event-ttl": "10m"}
"""Without the node life cycle controller nobody would take the taint of a new node away."""
UNLIMITED = {"kube-api-qps": 5000, "kube-api-burst": 10000}
CONTROLLERS = "job-controller,garbage-collector-controller"
START_S = 120.0
_METRIC = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def kube_assets() -> Path:
    """The directory of Kubernetes' programs. Raises ClusterError where they aren't built."""
    given = os.environ.get("KUBE_ASSETS")
    path = Path(given) if given else Cache(default_root()).path("components", module_key())
    if not (path / "kube-scheduler").exists():
        raise ClusterError(f"{path}: has no kube-scheduler; build the programs with `make kube-programs`")
    return path


def kwok_program() -> Path:
    """The kwok binary, built with Go where it isn't in the cache (2 minutes). Raises ClusterError where that fails."""

    def build(path: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise ClusterError(f"{KWOK}: can't be built without Go; install Go 1.26 or later")
        print(f"build {KWOK} ...", flush=True)
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(path)}
        if subprocess.run([go, "install", "-trimpath", KWOK], env=environment, cwd=path.parent).returncode:
            raise ClusterError(f"go install {KWOK} failed; is the Go module proxy reachable?")

    return Cache(default_root()).ensure("kwok", content_key(KWOK), build) / "kwok"


class Connection:
    """One kept connection to the API server as its administrator; not for several threads at once."""

    def __init__(self, server: ApiServer, timeout_s: float = 60.0) -> None:
        context = ssl.create_default_context(cafile=str(server.ca_file))
        self._connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=timeout_s, context=context)
        self._headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"}

    def send(self, method: str, path: str, body: object = None) -> Any:
        """The decoded reply. Raises ClusterError for a refusal, and for a connection that the server has closed."""
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, self._headers)
            reply = self._connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise ClusterError(f"{method} {path}: the API server doesn't answer: {error!r}") from error
        if reply.status >= 300:
            raise ClusterError(f"{method} {path}: {reply.status}: {text.decode(errors='replace')}")
        return json.loads(text)

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of a reply that goes on, until the connection ends."""
        self._connection.request("GET", path, headers=self._headers)
        with self._connection.getresponse() as reply:
            while line := reply.readline():
                yield line

    def close(self) -> None:
        """Also ends `lines` in another thread."""
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self._connection.close()


class KwokCluster:
    """Use it as a context manager: a new cluster, gone at its end. Raises ClusterError where it doesn't come up."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._stack = ExitStack()
        self._ours: dict[str, subprocess.Popen[bytes]] = {}
        self.directory = Path(tempfile.mkdtemp(prefix="emugpu-kwok-"))
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)

    def __enter__(self) -> KwokCluster:
        try:
            self._start(kube_assets(), kwok_program())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def connect(self) -> Connection:
        """A connection that lasts as long as the cluster."""
        connection = Connection(self.server)
        self._stack.callback(connection.close)
        return connection

    def program(self, name: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a module of ours against this cluster; ended with it. Its output goes to <name>.out and <name>.log."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), **variables}
        command = [sys.executable, "-m", *arguments]
        with (self.directory / f"{name}.out").open("wb") as out, (self.directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=out, stderr=log, env=environment, stdin=subprocess.DEVNULL)
        self._stack.callback(end, process)
        self._ours[name] = process
        return process

    def check(self) -> None:
        """Raises ClusterError with what it said where one of our programs has ended by itself."""
        for name, process in self._ours.items():
            if process.poll() is not None:
                raise ClusterError(f"{name} has ended with {process.returncode}: {self.logs(name)}")

    def follow(self, path: str, tell: Callable[[str, Mapping[str, Any], float], None]) -> None:
        """Tell of all changes from now on: kind, object, and when it came here (monotonic seconds)."""
        version = self.admin.send("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        connection = self.connect()

        def watch() -> None:
            try:
                for line in connection.lines(f"{path}?watch=1&resourceVersion={version}"):
                    now_s, event = time.monotonic(), json.loads(line)
                    tell(event["type"], event["object"], now_s)
            except (OSError, ValueError, http.client.HTTPException, AttributeError):
                return  # the cluster ends, and the connection with it

        threading.Thread(target=watch, daemon=True).start()

    def requests(self) -> dict[tuple[str, str], int]:
        """How many requests the API server has answered so far, by verb and resource (`resource/subresource`)."""
        found: dict[tuple[str, str], int] = {}
        for labels, value in _METRIC.findall(self.server.request("GET", "/metrics")[1]):
            label = dict(_LABEL.findall(labels))
            resource = "/".join(part for part in (label["resource"], label["subresource"]) if part)
            key = label["verb"], resource
            found[key] = found.get(key, 0) + int(float(value))
        return found

    def output(self, name: str) -> str:
        """What a program of ours has printed."""
        return (self.directory / f"{name}.out").read_text(encoding="utf-8")

    def logs(self, name: str) -> str:
        """The end of what a program said on stderr."""
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def _start(self, assets: Path, kwok: Path) -> None:
        self.server = self._stack.enter_context(ApiServer(assets, self.directory, flags=FLAGS))
        self.admin = self.connect()
        self.kubeconfig = self.directory / "kubeconfig"
        self.kubeconfig.write_text(json.dumps(self.server.kubeconfig()), encoding="utf-8")
        common = {"kubeconfig": self.kubeconfig, "leader-elect": "false", "secure-port": 0, **UNLIMITED}
        manager, scheduler = "kube-controller-manager", "kube-scheduler"
        self.server.run(manager, assets / manager, {**common, "controllers": CONTROLLERS})
        self.server.run(scheduler, assets / scheduler, common)
        for file in sorted(CRDS.glob("*.yaml")):
            definition = yaml.safe_load(file.read_text(encoding="utf-8"))
            self._apply("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        self._add_nodes()
        stages = self.directory / "stages.yaml"
        stages.write_text("\n---\n".join(json.dumps(stage) for stage in STAGES), encoding="utf-8")
        flags = {"kubeconfig": self.kubeconfig, "config": stages, "manage-all-nodes": "true"}
        self.server.run("kwok", kwok, {**flags, "node-lease-duration-seconds": 0})
        self._add_pool()

    def _add_nodes(self) -> None:
        for number in range(self.nodes):
            self.admin.send("POST", "/api/v1/nodes", node_document(f"n{number:03}"))

    def _add_pool(self) -> None:
        """Nodes become what the pools' controller makes of them; it is over when all have their inventory."""
        path = "/apis/emugpu.dev/v1alpha1/emugpupools"
        self._until(lambda: self._answers(path), "the definitions are not served")
        spec = {"gpus": [{"type": "V100", "count": GPUS}], "emulated": {"cpu": 96, "memory": "512Gi"}}
        self._apply(path, {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuGPUPool", **named("v100"), "spec": spec})
        self.program("pools", "operators.pools", EMUGPU_POOLS_METRICS_PORT="0")
        self._until(self._pool_is_ready, "not all nodes had their devices")
        end(self._ours.pop("pools"))

    def _pool_is_ready(self) -> bool:
        status = self.admin.send("GET", "/apis/emugpu.dev/v1alpha1/emugpupools/v100").get("status", {})
        return (status.get("nodes"), status.get("allocatable")) == (self.nodes, self.nodes * GPUS)

    def _answers(self, path: str) -> bool:
        try:
            return bool(self.admin.send("GET", path))
        except ClusterError:
            return False

    def _apply(self, path: str, document: Mapping[str, Any]) -> None:
        status, reply = self.server.apply(f"{path}/{document['metadata']['name']}", document)
        if status >= 300:
            raise ClusterError(f"{path}: {reply}")

    def _until(self, condition: Callable[[], bool], problem: str) -> None:
        deadline_s = time.monotonic() + START_S
        while not condition():
            self.check()
            if time.monotonic() > deadline_s:
                said = "; ".join(self.logs(name) for name in self._ours)
                raise ClusterError(f"after {START_S:.0f} s {problem}; {said}")
            time.sleep(0.2)


def named(name: str, **members: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **members}}


def node_document(name: str) -> dict[str, Any]:
    """A node with 8 emulated GPUs, as a kubelet with our device plugin would have registered it."""
    amounts = {"cpu": "96", "memory": "512Gi", "pods": "110", GPU_RESOURCE: str(GPUS)}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        **named(name, labels={"kubernetes.io/hostname": name}),
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [condition],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def stage(
    name: str,
    expressions: list[Expression],
    following: Mapping[str, Any],
    *,
    kind: str = "Pod",
    delay: str = "",
) -> dict[str, Any]:
    """A Stage of kwok: what fulfils the expressions becomes `following`, after the time that `delay` points to."""
    wanted = [{"key": k, "operator": o, **({"values": v} if v else {})} for k, o, v in expressions]
    waits = {"delay": {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": delay}}} if delay else {}
    spec = {"resourceRef": {"apiGroup": "v1", "kind": kind}, "selector": {"matchExpressions": wanted}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        **named(name),
        "spec": {**spec, **waits, "next": following},
    }


def pod_status(phase: str, state: str, ready: str) -> dict[str, str]:
    """A template of Go's text/template that yields YAML."""
    condition = "{type: %s, status: '%s', lastTransitionTime: {{ $now | Quote }}}"
    return {
        "statusTemplate": f"""{{{{ $now := Now }}}}
{{{{ $began := or .status.startTime $now }}}}
phase: {phase}
startTime: {{{{ $began | Quote }}}}
conditions:
- {condition % ("Initialized", "True")}
- {condition % ("Ready", ready)}
- {condition % ("ContainersReady", ready)}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  ready: {ready.lower()}
  restartCount: 0
  state: {{{state}}}
{{{{ end }}}}
"""
    }


Expression = tuple[str, str, list[str]]
HERE: Expression = (".metadata.deletionTimestamp", "DoesNotExist", [])
LEAVING: Expression = (".metadata.deletionTimestamp", "Exists", [])
RUNS = "running: {startedAt: {{ $began | Quote }}}"
DONE = "terminated: {exitCode: 0, reason: Completed, startedAt: {{ $began | Quote }}, finishedAt: {{ $now | Quote }}}"
STOPPED = DONE.replace("exitCode: 0, reason: Completed", "exitCode: 143, reason: Error")
STAGES = (
    stage("pod-runs", [HERE, (".status.phase", "In", ["Pending"])], pod_status("Running", RUNS, "True")),
    stage(
        "pod-completes",
        [HERE, (".status.phase", "In", ["Running"])],
        pod_status("Succeeded", DONE, "False"),
        delay=f'.metadata.annotations["{RUN_TIME}"]',
    ),
    # As a kubelet does: the Job controller lets a pod go only after its end.
    stage(
        "pod-stops", [LEAVING, (".status.phase", "In", ["Pending", "Running"])], pod_status("Failed", STOPPED, "False")
    ),
    stage("pod-goes", [LEAVING, (".status.phase", "In", ["Failed", "Succeeded"])], {"delete": True}),
    # No node gets there. Without a Stage for nodes kwok would manage none, and leave their pods alone.
    stage("node-dies", [(".status.phase", "In", ["Terminated"])], {"delete": True}, kind="Node"),
)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and where that doesn't help within 10 s SIGKILL."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
