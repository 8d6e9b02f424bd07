"""The product on a cluster: values from the specification, `helm upgrade --install`, and the labels that its pools select by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster_harness.nodes.kubectl import Kubectl, Node
from cluster_harness.request.spec import ClusterSpec, PoolSpec
from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError

RELEASE = "emugpu"
NAMESPACE = "emugpu-system"
POOL_LABEL = "cluster.emugpu.dev/pool"
"""On nodes, by us: which pool of the specification a node belongs to; the chart's pools select by it."""

_TIMEOUT = "5m"


@dataclass(frozen=True)
class Chart:
    """One Helm release. Every method raises ClusterError with Helm's words."""

    shell: Shell
    helm: Path
    kubectl: Kubectl
    directory: Path

    def make_namespace(self) -> str:
        """Makes the namespace with the Pod Security labels that the node pods need, or puts them on the one that is there.

        Answers its UID where it was made now, "" where somebody else's was there before.
        """
        self._must_be_there()
        text = yaml.safe_dump(namespace())
        if self._namespace_uid():
            self.kubectl("apply", "-f", "-", stdin=text)
            return ""
        made = ("create", "--save-config", "-f", "-", "-o", "jsonpath={.metadata.uid}")
        return self.kubectl(*made, stdin=text).strip()  # fails where somebody else was faster: then it is theirs

    def install(self, values: Mapping[str, Any], extra: Sequence[str] = (), *, wait: bool) -> None:
        """Installs or upgrades, into a namespace that is there (`make_namespace`)."""
        self._must_be_there()
        waiting = ("--wait", "--timeout", _TIMEOUT) if wait else ()
        arguments = ("upgrade", "--install", RELEASE, self.directory, "--values", "-", *waiting, *extra)
        self._helm(*arguments, stdin=yaml.safe_dump(dict(values)))

    def is_installed(self) -> bool:
        """Whether there is a release of ours, in whatever state."""
        return RELEASE in self._helm("list", "--short", "--filter", f"^{RELEASE}$").split()

    def uninstall(self, namespace_uid: str) -> bool:
        """Takes the release away, and the namespace if it is the one that `make_namespace` made; True: it is gone."""
        self._helm("uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", _TIMEOUT)
        uid = self._namespace_uid()
        if uid and uid == namespace_uid:
            self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
        return uid in ("", namespace_uid)

    def _namespace_uid(self) -> str:
        """ "" where there is none."""
        asked = ("get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
        return self.kubectl(*asked).strip()

    def _must_be_there(self) -> None:
        if not (self.directory / "Chart.yaml").exists():
            raise ClusterError(f"{self.directory}: has no chart; run this in a checkout, or give --chart")

    def _helm(self, *arguments: str | Path, stdin: str | None = None) -> str:
        context = ("--kube-context", self.kubectl.context) if self.kubectl.context else ()
        where = ("--kubeconfig", self.kubectl.kubeconfig, *context, "--namespace", NAMESPACE)
        return self.shell.run(self.helm, *arguments, *where, stdin=stdin)


def namespace() -> dict[str, Any]:
    """The node pods mount host directories and see host processes: Pod Security level `privileged`."""
    levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": levels}}


def values(spec: ClusterSpec, images: Mapping[str, str]) -> dict[str, Any]:
    """The chart's values for a specification; `images`: references of `emugpu` and `emugpu-redis`."""
    found: dict[str, Any] = {"pools": [_pool(pool) for pool in spec.offering_pools]}
    if "emugpu" in images:
        found["image"] = _image(images["emugpu"])
    if "emugpu-redis" in images:
        found["redis"] = {"image": _image(images["emugpu-redis"])}
    return found


def _pool(pool: PoolSpec) -> dict[str, Any]:
    emulated = {"cpu": pool.emulated_cpus, "memory": pool.emulated_memory}
    given = {name: amount for name, amount in emulated.items() if amount}
    return {
        "name": pool.name,
        "nodeSelector": {"matchLabels": {POOL_LABEL: pool.name}},
        "gpus": [{"type": pool.gpu_type, "count": pool.gpus}] if pool.gpus else [],
    } | ({"emulated": given} if given else {})


def _image(reference: str) -> dict[str, str]:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"}


def assign_pools(spec: ClusterSpec, nodes: Sequence[Node]) -> dict[str, str]:
    """Which pool each worker belongs to; workers that have a pool keep it where it still wants them.

    Raises ClusterError where there are fewer workers than the pools want.
    """
    workers = [node for node in sorted(nodes, key=_natural) if not node.control_plane]
    if len(workers) < spec.workers:
        raise ClusterError(
            f"the pools want {spec.workers} nodes, the cluster has {len(workers)} besides the control plane"
        )
    wanted = {pool.name: pool.nodes for pool in spec.pools}
    assigned: dict[str, str] = {}
    for node in workers:
        pool = node.labels.get(POOL_LABEL, "")
        if wanted.get(pool, 0):
            assigned[node.name] = pool
            wanted[pool] -= 1
    free = [node.name for node in workers if node.name not in assigned]
    for pool, count in wanted.items():
        for _ in range(count):
            assigned[free.pop(0)] = pool
    return assigned


def _natural(node: Node) -> tuple[int, str]:
    return len(node.name), node.name  # worker, worker2, ..., worker10


def worker_labels(spec: ClusterSpec) -> list[dict[str, str]]:
    """The labels of each worker of a new cluster, in the order in which kind numbers them; as assign_pools would choose."""
    return [{POOL_LABEL: pool.name} for pool in spec.pools for _ in range(pool.nodes)]


def label_nodes(kubectl: Kubectl, spec: ClusterSpec) -> None:
    """Puts the pool labels on the nodes, and takes them from nodes that no pool wants any more. Raises ClusterError."""
    nodes = kubectl.nodes()
    assigned = assign_pools(spec, nodes)
    changes: dict[str, list[str]] = {}
    for node in nodes:
        pool = assigned.get(node.name)
        if node.labels.get(POOL_LABEL) != pool:
            changes.setdefault(f"{POOL_LABEL}={pool}" if pool else f"{POOL_LABEL}-", []).append(node.name)
    for change, names in changes.items():
        kubectl("label", "nodes", "--overwrite", *names, change)


def unlabel_nodes(kubectl: Kubectl) -> None:
    names = [node.name for node in kubectl.nodes() if POOL_LABEL in node.labels]
    if names:
        kubectl("label", "nodes", *names, f"{POOL_LABEL}-")
