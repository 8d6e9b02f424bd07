"""Routes between the pods of different nodes, for our node image; kind's stock image has a daemon for this."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cluster_harness.nodes.kubectl import Kubectl, Node
from cluster_harness.shell import Shell

ROUTES_FILE = "/etc/emugpu-routes"
_REGISTERED_TIMEOUT_S = 120.0


def connect(kubectl: Kubectl, engine_shell: Shell, count: int) -> None:
    """Sets the routes on each of the `count` nodes, and a CoreDNS configuration that needs no other resolver.

    Raises ClusterError, for example if a node has no pod range after two minutes.
    """

    def missing() -> str | None:
        nodes = kubectl.nodes()
        without = [node.name for node in nodes if not (node.pod_range and node.address)]
        return None if len(nodes) == count and not without else f"{len(nodes)} of {count} nodes, no range: {without}"

    kubectl.wait("pod ranges", missing, _REGISTERED_TIMEOUT_S)
    nodes = kubectl.nodes()
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(lambda node: _route(node, nodes, engine_shell), nodes))
    patch_dns(kubectl)


def routes(node: Node, nodes: Sequence[Node]) -> str:
    """Lines for `ip -batch`: a route to every other node's pods."""
    return "".join(f"route replace {n.pod_range} via {n.address}\n" for n in nodes if n.name != node.name)


def _route(node: Node, nodes: Sequence[Node], shell: Shell) -> None:
    script = f"cat > {ROUTES_FILE} && systemctl restart emugpu-routes"
    shell.run("docker", "exec", "-i", node.name, "sh", "-ec", script, stdin=routes(node, nodes))


def patch_dns(kubectl: Kubectl) -> None:
    """Removes `forward` (pods can't reach Docker's resolver at 127.0.0.11) and `loop`, which ends CoreDNS then."""
    configuration = kubectl.get("-n", "kube-system", "configmap", "coredns")
    before = configuration["data"]["Corefile"]
    after = local_corefile(before)
    if after == before:
        return
    configuration["data"]["Corefile"] = after
    kubectl("replace", "-f", "-", stdin=json.dumps(configuration))
    kubectl("-n", "kube-system", "delete", "pods", "-l", "k8s-app=kube-dns", "--wait=false")


def local_corefile(corefile: str) -> str:
    """A Corefile without its `forward` block or line and without `loop`."""
    kept, depth = [], 0
    for line in corefile.splitlines():
        words = line.split()
        if depth or (words and words[0] == "forward"):
            depth += line.count("{") - line.count("}")
            continue
        if words != ["loop"]:
            kept.append(line)
    return "\n".join(kept) + "\n"
