"""kubectl for one cluster: kubeconfig and context are always given, so the user's current context doesn't matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns, sleep_ns
from operators.kube.documents import object_at, objects_in, text_at
from operators.objects import node as nodes

_POLL_NS = NS_PER_S // 4


@dataclass(frozen=True, slots=True)
class Node(nodes.Node):
    """A Node with the addresses that the harness needs. `pod_range` is empty until the control plane has assigned one."""

    address: str = ""
    pod_range: str = ""


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
    addresses = objects_in(object_at(item, "status"), "addresses")
    internal = [text_at(address, "address") for address in addresses if address.get("type") == "InternalIP"]
    return replace(
        Node.read(item),
        address=internal[0] if internal else "",
        pod_range=text_at(object_at(item, "spec"), "podCIDR"),
    )
