"""Helpers of the cases: apply objects, wait for conditions, read logs and events, kill daemons on nodes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Object = dict[str, Any]

SYSTEM = "emugpu-system"
RESOURCE = "emugpu.dev/emuGPU"


class NotInTimeError(AssertionError):
    """A condition was not met in time; the message has its last value."""


def eventually(
    what: str, condition: Callable[[], object], *, within_s: float = 120.0, every_s: float = 0.25, show: bool = True
) -> Any:
    """The first true value of `condition`. Raises NotInTimeError after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    last: object = None
    while time.monotonic() < deadline:
        last = condition()
        if last:
            return last
        time.sleep(every_s)
    raise NotInTimeError(f"{what}: not within {within_s:g} s" + (f"; last seen: {last!r}" if show else ""))


@dataclass(frozen=True)
class Kubectl:
    """kubectl with one kubeconfig and one namespace."""

    kubeconfig: Path
    namespace: str = "default"
    program: str = "kubectl"

    def within(self, namespace: str) -> Kubectl:
        return replace(self, namespace=namespace)

    def try_(self, *args: str, stdin: str | None = None, timeout_s: float = 90.0) -> subprocess.CompletedProcess[str]:
        environ = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        command = [self.program, "--namespace", self.namespace, *args]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout_s, env=environ, check=False
        )

    def __call__(self, *args: str, stdin: str | None = None, timeout_s: float = 90.0) -> str:
        done = self.try_(*args, stdin=stdin, timeout_s=timeout_s)
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def apply(self, *objects: Object) -> None:
        listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self("apply", "-f", "-", stdin=json.dumps(listing))

    def create(self, *objects: Object) -> None:
        listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self("create", "-f", "-", stdin=json.dumps(listing))

    def refusal(self, manifest: Object) -> str:
        """The API server's message for an object that it must refuse."""
        done = self.try_("create", "-f", "-", stdin=json.dumps(manifest))
        assert done.returncode, f"accepted, but should not be: {manifest}"
        return done.stderr

    def get(self, kind: str, name: str) -> Object:
        document: Object = json.loads(self("get", kind, name, "-o", "json"))
        return document

    def list(self, kind: str, *args: str) -> list[Object]:
        items: list[Object] = json.loads(self("get", kind, "-o", "json", *args))["items"]
        return items

    def exists(self, kind: str, name: str) -> bool:
        return self.try_("get", kind, name).returncode == 0

    def phase(self, pod: str) -> str:
        done = self.try_("get", "pod", pod, "-o", "jsonpath={.status.phase}")
        return done.stdout if done.returncode == 0 else "Absent"

    def wait_phase(self, pod: str, *phases: str, within_s: float = 120.0) -> str:
        def wanted_phase() -> str | None:
            phase = self.phase(pod)
            if phase in ("Failed", "Succeeded") and phase not in phases:
                raise AssertionError(f"pod {pod} is {phase}\n{self.describe(pod)}")
            return phase if phase in phases else None

        try:
            phase: str = eventually(f"pod {pod} {phases}", wanted_phase, within_s=within_s)
        except NotInTimeError as error:
            raise AssertionError(f"{error}\n{self.describe(pod)}") from None
        return phase

    def describe(self, pod: str) -> str:
        return self.try_("describe", "pod", pod).stdout + self.try_("logs", pod, "--tail=50", "--all-containers").stdout

    def inside(self, pod: str, *command: str) -> str:
        """The output of a command in a pod's container. Retries, because the container may have started only just now."""

        def output() -> str | None:
            done = self.try_("exec", pod, "--", *command)
            return done.stdout if done.returncode == 0 else None

        text: str = eventually(f"{' '.join(command)} in {pod}", output, within_s=15)
        return text

    def logs(self, pod: str, *args: str) -> str:
        return self("logs", pod, *args)

    def summary(self, pod: str) -> Object:
        """The JSON object that `emugpu train --json` prints at the end."""
        lines = [line for line in self.logs(pod).splitlines() if line.startswith("{")]
        assert lines, f"pod {pod} printed no summary:\n{self.describe(pod)}"
        summary: Object = json.loads(lines[-1])
        return summary

    def events_of(self, kind: str, name: str) -> list[Object]:
        return [
            e
            for e in self.list("events")
            if e["involvedObject"]["name"] == name and e["involvedObject"]["kind"] == kind
        ]

    def job_complete(self, job: str) -> bool:
        conditions = self.get("job", job)["status"].get("conditions", [])
        failed = [c for c in conditions if c["type"] == "Failed" and c["status"] == "True"]
        assert not failed, f"job {job} failed: {failed}"
        return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)

    def wait_jobs(self, jobs: Iterable[str], *, within_s: float) -> None:
        for job in jobs:
            eventually(f"job {job} complete", lambda job=job: self.job_complete(job), within_s=within_s, every_s=1.0)


@dataclass(frozen=True)
class Node:
    """A node of the kind cluster: a container of the engine."""

    name: str
    docker: tuple[str, ...] = ("docker",)

    def sh(self, script: str, *, check: bool = True) -> str:
        done = subprocess.run(
            [*self.docker, "exec", self.name, "sh", "-c", script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {script}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def pids(self, pattern: str) -> list[int]:
        """Processes whose command line matches (pgrep -f), without the search itself."""
        return [int(line) for line in self.sh(f"pgrep -f '{pattern}' || true").split() if line]

    def kill9(self, pattern: str) -> int:
        """Kills the processes whose command line matches (SIGKILL); returns their number."""
        pids = [pid for pid in self.pids(pattern) if pid != 1]
        if pids:
            self.sh(f"kill -9 {' '.join(map(str, pids))}", check=False)
        return len(pids)

    def restart(self) -> None:
        """Reboots the node: all its processes end at once, its disk stays."""
        subprocess.run([*self.docker, "kill", self.name], check=True, capture_output=True, timeout=60)
        subprocess.run([*self.docker, "start", self.name], check=True, capture_output=True, timeout=60)


PLUGIN = "[p]ython.* -m deviceplugin"
MANAGER = "[p]ython.* -m sharing_manager"
KUBELET = "^[^ ]*/[k]ubelet "
CONTAINERD = "^[^ ]*/[c]ontainerd( |$)"


def train_pod(name: str, *args: str, gpus: int = 1, resource: str = "emuGPU", **spec: Any) -> Object:
    """A pod that runs `emugpu train` with `args`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": pod_spec(*args, gpus=gpus, resource=resource) | spec,
    }


def command_pod(name: str, *command: str, gpus: int = 1, **spec: Any) -> Object:
    """A pod with devices that runs the given command instead of `emugpu train`."""
    pod = train_pod(name, gpus=gpus, **spec)
    (container,) = pod["spec"]["containers"]
    del container["args"]
    container["command"] = list(command)
    return pod


def pod_spec(*args: str, gpus: int = 1, resource: str = "emuGPU") -> Object:
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {
                "name": "train",
                "image": "emugpu:0.1.0",
                "args": ["train", "--json", *args],
                "resources": {"limits": {resource: gpus}},
            }
        ],
    }


def train_job(name: str, *args: str, gpus: int = 1, pods: int = 1, **spec: Any) -> Object:
    """An Indexed Job of training pods without a limit of failures."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 1000,
            "template": {"spec": pod_spec(*args, gpus=gpus) | spec},
        },
    }
