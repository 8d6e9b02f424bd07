"""A fake machine with state that replaces Docker, kind, kubectl and helm; tests inspect its state and history."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import yaml

from cluster_harness.nodes.kubectl import Kubectl
from cluster_harness.product.chart import POOL_LABEL
from cluster_harness.product.reshape import CONTROLLERS_LABEL
from cluster_harness.shell import Done, Shell
from cluster_harness.steps import Progress, Report
from emulator_runtime.domain.errors import ClusterError

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
COREFILE = ".:53 {\n    errors\n    forward . /etc/resolv.conf {\n       max_concurrent 1000\n    }\n    loop\n}\n"


@dataclass
class FakeNode:
    """A node of a Kubernetes cluster; images and routes are those of a node that is a container."""

    name: str
    labels: dict[str, str] = field(default_factory=dict)
    ready: bool = True
    pod_range: str = ""
    address: str = ""
    allocatable: dict[str, str] = field(default_factory=dict)
    images: list[str] = field(default_factory=list)
    routes: str = ""

    def json(self) -> dict[str, Any]:
        addresses = [{"type": "Hostname", "address": self.name}, {"type": "InternalIP", "address": self.address}]
        conditions = [{"type": "Ready", "status": "True" if self.ready else "False"}]
        status = {"addresses": addresses, "conditions": conditions, "allocatable": self.allocatable}
        return {
            "metadata": {"name": self.name, "labels": self.labels},
            "spec": {"podCIDR": self.pod_range} if self.pod_range else {},
            "status": status,
        }


@dataclass
class Release:
    """An installed chart: its values, `--set` options, whether Helm waited, and the pools of all its versions."""

    values: dict[str, Any]
    settings: list[str]
    waited: bool
    versions: list[list[str]] = field(default_factory=list)


@dataclass
class FakeMachine:
    """The state that programs change and show. `failures`: by operation ("helm upgrade"), the error or the reply instead.

    `operations` counts what was done. `gpus`: devices that a node offers once the chart is installed and a pool has it.
    `helm_records`: of operations of Helm that haven't ended. `answers_at`: the engine answers only shells with this DOCKER_HOST.
    """

    engine_runs: bool = True
    registry: bool = True
    images: dict[str, str] = field(default_factory=dict)
    containers: set[str] = field(default_factory=set)
    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    kubeconfigs: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, FakeNode] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    namespaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    releases: dict[str, Release] = field(default_factory=dict)
    helm_records: list[dict[str, Any]] = field(default_factory=list)
    corefile: str = COREFILE
    dns_restarts: int = 0
    contexts: set[str] = field(default_factory=set)
    gpus: int = 8
    answers_at: str = ""
    failures: dict[str, BaseException | Done] = field(default_factory=dict)
    operations: Counter[str] = field(default_factory=Counter)
    programs: dict[str, Callable[[list[str], str], str | Done]] = field(default_factory=dict)

    def add_nodes(self, *nodes: FakeNode) -> None:
        self.nodes |= {node.name: node for node in nodes}

    def answer(self, words: list[str], stdin: str) -> Done:
        program = Path(words[0]).name
        if program in self.programs:
            answer = self.programs[program](words, stdin)
            return answer if isinstance(answer, Done) else Done(0, answer, "")
        handler = {"docker": self._docker, "kind": self._kind, "kubectl": self._kubectl, "helm": self._helm}.get(
            program
        )
        answer = handler(words[1:], stdin) if handler else ""
        return answer if isinstance(answer, Done) else Done(0, answer, "")

    def _operate(self, operation: str) -> Done | None:
        self.operations[operation] += 1
        failure = self.failures.get(operation)
        if isinstance(failure, BaseException):
            raise failure
        return failure

    def _docker(self, words: list[str], stdin: str) -> str | Done:
        if failed := self._operate(f"docker {words[0]}"):
            return failed
        missing = Done(1, "", "no such image")
        match words:
            case ["version", *_]:
                return "28.0\n" if self.engine_runs else Done(1, "", "Cannot connect to the Docker daemon")
            case ["ps", *_]:
                return "\n".join(self.containers)
            case ["manifest", "inspect", _reference]:
                return "{}" if self.registry else missing
            case ["image", "inspect", *options]:
                found = self.images.get(options[-1])
                return missing if found is None else f"{found}\n"
            case ["images", *_, repository]:
                return "\n".join(name for name in self.images if name.startswith(f"{repository}:"))
            case ["pull", *_, reference]:
                self.images[reference] = "pulled"
                return "aaaaaaaaaaaa: Pulling fs layer\nbbbbbbbbbbbb: Pulling fs layer\naaaaaaaaaaaa: Pull complete\n"
            case ["import", _tar, reference]:
                self.images[reference] = "imported"
            case ["build", *options]:
                self.images[options[options.index("-t") + 1]] = f"built from {options[options.index('-f') + 1]}"
            case ["tag", reference, other]:
                self.images[other] = self.images[reference]
            case ["save", "-o", path, *references]:
                Path(path).write_text(" ".join(references))
            case ["rmi", reference]:
                self.images.pop(reference, None)
            case ["run", "--name", name, *options]:
                self.containers.add(name)
                archives = [word.partition(":")[0] for word in options if ":/archives/" in word]
                self.kubeconfigs[name] = " ".join(Path(archive).name for archive in archives)
                return "emugpu: imported\n" * len(archives)
            case ["commit", *_, name, reference]:
                self.images[reference] = self.kubeconfigs[name]
            case ["rm", "-f", name]:
                self.containers.discard(name)
            case ["exec", "-i", name, "ctr", *_]:
                self.operations["image import"] += 1
                if isinstance(failure := self.failures.get(f"image import on {name}"), Done):
                    return failure
                self.nodes[name].images.append(stdin)
            case ["exec", "-i", name, "sh", *_]:
                self.nodes[name].routes = stdin
        return ""

    def _kind(self, words: list[str], stdin: str) -> str | Done:
        if failed := self._operate(f"kind {words[0]} {words[1]}" if words[0] == "get" else f"kind {words[0]}"):
            return failed
        match words:
            case ["get", "clusters"]:
                return "\n".join(self.clusters)
            case ["get", "nodes", *_]:
                return "\n".join(self.nodes)
            case ["create", "cluster", "--name", name, *_, "--kubeconfig", kubeconfig]:
                self.clusters[name] = yaml.safe_load(stdin)
                self.kubeconfigs[name] = kubeconfig
                for index, node in enumerate(self.clusters[name]["nodes"]):
                    plane = node["role"] == "control-plane"
                    labels = {CONTROL_PLANE: ""} if plane else dict(node.get("labels", {}))
                    range_, address = f"10.244.{index}.0/24", f"172.18.0.{index}"
                    self.add_nodes(FakeNode(f"n{index}", labels, pod_range=range_, address=address))
            case ["delete", "cluster", "--name", name, *_]:
                self.clusters.pop(name, None)
                self.nodes.clear()
                self.releases.clear()
        return ""

    def _kubectl(self, words: list[str], stdin: str) -> str | Done:
        for flag in ("--kubeconfig", "--context", "-n"):
            if flag in words:
                at = words.index(flag)
                if flag == "--context":
                    self.contexts.add(words[at + 1])
                words = words[:at] + words[at + 2 :]
        kind = words[1] if words[0] == "get" else words[0]
        if failed := self._operate(f"kubectl {'get ' if words[0] == 'get' else ''}{kind}"):
            return failed
        match words:
            case ["get", "nodes", *_]:
                self._offer()
                return json.dumps({"items": [node.json() for node in self.nodes.values()]})
            case ["get", "pods", *_]:
                return json.dumps({"items": self.pods})
            case ["get", "emugpupools.emugpu.dev", *_]:
                metadata = {"name": "p", "generation": 2}
                return json.dumps({"items": [{"metadata": metadata, "status": {"observedGeneration": 2}}]})
            case ["get", "configmap", "coredns", *_]:
                return json.dumps({"data": {"Corefile": self.corefile}})
            case ["get", "namespace", name, *_]:
                return str(self.namespaces.get(name, {}).get("uid", ""))
            case ["replace", *_]:
                self.corefile = json.loads(stdin)["data"]["Corefile"]
            case ["delete", "pods", "-l", "k8s-app=kube-dns", *_]:
                self.dns_restarts += 1
            case ["get", "secrets", *_]:
                return json.dumps({"items": self.helm_records})
            case ["delete", "secret", name, *_]:
                self.helm_records = [record for record in self.helm_records if record["metadata"]["name"] != name]
            case ["delete", "namespace", name, *_]:
                self.namespaces.pop(name, None)
            case ["create" | "apply" as verb, *_]:
                metadata = yaml.safe_load(stdin)["metadata"]
                uid = self.namespaces.get(metadata["name"], {}).get("uid", f"uid-{self.operations.total()}")
                self.namespaces[metadata["name"]] = {"uid": uid, "labels": metadata["labels"]}
                return uid if verb == "create" else ""
            case ["label", "nodes", *rest]:
                *names, change = [word for word in rest if not word.startswith("--")]
                for name in names:
                    self._label(self.nodes[name], change)
        return ""

    def _label(self, node: FakeNode, change: str) -> None:
        if change.endswith("-"):
            node.labels.pop(change[:-1], None)
        else:
            key, _, value = change.partition("=")
            node.labels[key] = value

    def _offer(self) -> None:
        """What the controller and the kubelets do once the chart is installed."""
        pools = {pool["name"] for release in self.releases.values() for pool in release.values["pools"]}
        for node in self.nodes.values():
            if (pool := node.labels.get(POOL_LABEL)) in pools:
                node.labels[CONTROLLERS_LABEL] = str(pool)
                node.allocatable = node.allocatable or {"emugpu.dev/emuGPU": str(self.gpus)}

    def _helm(self, words: list[str], stdin: str) -> str | Done:
        if failed := self._operate(f"helm {words[0]}"):
            return failed
        match words:
            case ["list", *_]:
                return "\n".join(self.releases)
            case ["upgrade", *_] if self.helm_records:
                return Done(1, "", "Error: UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress")
            case ["upgrade", "--install", name, *options]:
                values = yaml.safe_load(stdin)
                settings = [options[at + 1] for at, word in enumerate(options) if word == "--set"]
                versions = self.releases[name].versions if name in self.releases else []
                pools = [pool["name"] for pool in values["pools"]]
                self.releases[name] = Release(values, settings, "--wait" in options, [*versions, pools])
            case ["uninstall", name, *_]:
                self.releases.pop(name, None)
        return ""


class FakeShell(Shell):
    """Runs the fake machine's programs. Shells of one machine share it, each with its own environment."""

    def __init__(self, machine: FakeMachine, environ: dict[str, str] | None = None) -> None:
        super().__init__(Path("/dev/null"), environ or {})
        self.machine = machine

    def with_env(self, **variables: str) -> Shell:
        return FakeShell(self.machine, self.environ | variables)

    def attempt(
        self,
        *argv: str | Path,
        stdin: str | BinaryIO | None = None,
        cwd: Path | None = None,
        timeout_s: float = 0,
    ) -> Done:
        text = stdin if isinstance(stdin, str) else stdin.read().decode() if stdin else ""
        words = [str(word) for word in argv]
        if words[:2] == ["docker", "version"] and self.machine.answers_at not in ("", self.environ.get("DOCKER_HOST")):
            return Done(1, "", "Cannot connect to the Docker daemon")
        return self.machine.answer(words, text)

    def stream(
        self,
        *argv: str | Path,
        on_line: Callable[[str], None],
        on_idle: Callable[[], None] = lambda: None,
        cwd: Path | None = None,
        timeout_s: float = 0,
    ) -> None:
        done = self.attempt(*argv, cwd=cwd)
        for line in (done.stdout + done.stderr).splitlines():
            on_line(line)
        if not done.ok:
            raise ClusterError(done.stderr)


class RecordedSteps:
    """Records the titles, progress and messages of steps."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float]] = []
        self.said: list[str] = []
        self.progress: dict[str, list[Progress]] = {}

    @property
    def titles(self) -> Sequence[str]:
        return list(self.progress)

    @contextmanager
    def step(self, title: str) -> Iterator[Report]:
        reports = self.progress.setdefault(title, [])
        yield reports.append
        self.taken.append((title, 0.0))

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def machine() -> FakeMachine:
    return FakeMachine()


@pytest.fixture
def shell(machine: FakeMachine, path: str) -> FakeShell:
    return FakeShell(machine, {"PATH": path})


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which docker exists: whether it answers is the machine's state."""
    directory = tmp_path / "path"
    directory.mkdir()
    (directory / "docker").write_text("#!/bin/sh\nexit 1\n")
    (directory / "docker").chmod(0o755)
    return str(directory)


@pytest.fixture
def kubectl(shell: FakeShell) -> Kubectl:
    return Kubectl(shell, Path("kubectl"), Path("kubeconfig"))


@pytest.fixture
def steps() -> RecordedSteps:
    return RecordedSteps()


@pytest.fixture
def make_node() -> type[FakeNode]:
    return FakeNode
