"""kubectl for one cluster: kubeconfig and context are always given, so the user's current context doesn't matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

_POLL_NS = NS_PER_S // 4
CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True)
class Node:
    """The facts about a Node object that are used here. `pod_range` is empty until the control plane has assigned one."""

    name: str
    address: str
    pod_range: str
    ready: bool
    control_plane: bool
    labels: dict[str, str]
    allocatable: dict[str, str]


@dataclass(frozen=True)
class Kubectl:
    """Runs kubectl against one cluster; every method raises ClusterError if the cluster refuses or doesn't answer."""

    shell: Shell
    program: Path
    kubeconfig: Path
    context: str = ""

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_s: float = 120.0) -> str:
        context = ("--context", self.context) if self.context else ()
        return self.shell.run(
            self.program, "--kubeconfig", self.kubeconfig, *context, *arguments, stdin=stdin, timeout_s=timeout_s
        )

    def get(self, *arguments: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self("get", *arguments, "-o", "json"))
        return content

    def nodes(self) -> list[Node]:
        """All nodes, by name."""
        return sorted((parse_node(item) for item in self.get("nodes")["items"]), key=lambda node: node.name)

    def wait(self, what: str, condition: Callable[[], str | None], timeout_s: float) -> None:
        """Waits until `condition` returns None; until then it returns what is missing. Raises ClusterError with it."""
        deadline_ns = monotonic_ns() + int(timeout_s * NS_PER_S)
        while missing := condition():
            if monotonic_ns() > deadline_ns:
                raise ClusterError(f"{what}: not after {timeout_s:.0f} s: {missing}")
            sleep_ns(_POLL_NS)


def parse_node(item: dict[str, Any]) -> Node:
    """A Node object of the API (core/v1)."""
    status, labels = item.get("status", {}), item["metadata"].get("labels", {})
    addresses = [a["address"] for a in status.get("addresses", ()) if a["type"] == "InternalIP"]
    return Node(
        name=item["metadata"]["name"],
        address=addresses[0] if addresses else "",
        pod_range=item.get("spec", {}).get("podCIDR", ""),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ())),
        control_plane=CONTROL_PLANE_LABEL in labels,
        labels=labels,
        allocatable=status.get("allocatable", {}),
    )
