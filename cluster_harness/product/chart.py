"""The product on a cluster: the chart's values for a specification, its Helm release, and node labels for its pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from cluster_harness.nodes.kubectl import Kubectl, Node
from cluster_harness.request.spec import ClusterSpec, PoolSpec
from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import wall_ns

RELEASE = "emugpu"
NAMESPACE = "emugpu-system"
POOL_LABEL = "cluster.emugpu.dev/pool"
"""Node label with the name of the node's pool; `up` sets it, and the EmuGPUPools select by it."""

_TIMEOUT = "5m"
_STALE_S = 300.0
"""A Helm operation lasts no longer than its timeout; one that does has been interrupted."""
_OCCUPIED = "another operation (install/upgrade/rollback) is in progress"
"""What Helm says while it has a record of an operation that hasn't ended."""


@dataclass(frozen=True)
class Chart:
    """One Helm release. Every method raises ClusterError with Helm's message."""

    shell: Shell
    helm: Path
    kubectl: Kubectl
    directory: Path

    def make_namespace(self) -> str:
        """Creates the namespace with the Pod Security labels that the node pods need, or labels an existing one.

        Returns the UID of a namespace that was created now, "" for one that existed.
        """
        self._check_directory()
        text = yaml.safe_dump(namespace())
        if self._namespace_uid():
            self.kubectl("apply", "-f", "-", stdin=text)
            return ""
        create = ("create", "--save-config", "-f", "-", "-o", "jsonpath={.metadata.uid}")
        return self.kubectl(*create, stdin=text).strip()  # fails if somebody else creates it at the same moment

    def install(self, values: Mapping[str, Any], extra: Sequence[str] = (), *, wait: bool) -> None:
        """Installs or upgrades the release; the namespace must exist (`make_namespace`)."""
        self._check_directory()
        waiting = ("--wait", "--timeout", _TIMEOUT) if wait else ()
        arguments = ("upgrade", "--install", RELEASE, self.directory, "--values", "-", *waiting, *extra)
        text = yaml.safe_dump(dict(values))
        try:
            self._helm(*arguments, stdin=text)
        except ClusterError as error:
            if _OCCUPIED not in str(error):
                raise
            self._forget_interrupted(error)
            self._helm(*arguments, stdin=text)

    def _forget_interrupted(self, cause: ClusterError) -> None:
        """Deletes Helm's records of operations that began so long ago that they must have been interrupted: Helm lets nobody else
        change the release while such a record exists. Raises ClusterError if one is recent."""
        pending = ("-l", f"owner=helm,name={RELEASE},status in (pending-install,pending-upgrade,pending-rollback)")
        records = self.kubectl.get("secrets", "--namespace", NAMESPACE, *pending)["items"]
        ages = [wall_ns() / NS_PER_S - _created_s(record) for record in records]
        if ages and min(ages) < _STALE_S:
            raise ClusterError(
                f"another Helm operation on the release {RELEASE} began {min(ages):.0f} s ago; wait for its end, or, if it was "
                f"interrupted, repeat this command in {_STALE_S - min(ages):.0f} s"
            ) from cause
        for record in records:
            self.kubectl("delete", "secret", record["metadata"]["name"], "--namespace", NAMESPACE)

    def is_installed(self) -> bool:
        """Whether the release exists, in any state."""
        return RELEASE in self._helm("list", "--short", "--filter", f"^{RELEASE}$").split()

    def uninstall(self, namespace_uid: str) -> bool:
        """Deletes the release, and the namespace if it has this UID; returns whether there is no namespace any more."""
        self._helm("uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", _TIMEOUT)
        uid = self._namespace_uid()
        if uid and uid == namespace_uid:
            self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
        return uid in ("", namespace_uid)

    def _namespace_uid(self) -> str:
        """The namespace's UID; "" if it doesn't exist."""
        query = ("get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")
        return self.kubectl(*query).strip()

    def _check_directory(self) -> None:
        if not (self.directory / "Chart.yaml").exists():
            raise ClusterError(f"{self.directory}: has no chart; run this in a checkout, or give --chart")

    def _helm(self, *arguments: str | Path, stdin: str | None = None) -> str:
        context = ("--kube-context", self.kubectl.context) if self.kubectl.context else ()
        where = ("--kubeconfig", self.kubectl.kubeconfig, *context, "--namespace", NAMESPACE)
        return self.shell.run(self.helm, *arguments, *where, stdin=stdin)


def _created_s(record: Mapping[str, Any]) -> float:
    return datetime.fromisoformat(record["metadata"]["creationTimestamp"]).timestamp()


def namespace() -> dict[str, Any]:
    """The node pods mount host directories and see host processes: Pod Security level `privileged`."""
    levels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": levels}}


def values(spec: ClusterSpec, images: Mapping[str, str]) -> dict[str, Any]:
    """The chart's values for a specification; `images`: references of `emugpu` and `emugpu-redis`."""
    chart_values: dict[str, Any] = {"pools": [_pool(pool) for pool in spec.offering_pools]}
    if "emugpu" in images:
        chart_values["image"] = _image(images["emugpu"])
    if "emugpu-redis" in images:
        chart_values["redis"] = {"image": _image(images["emugpu-redis"])}
    return chart_values


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
    """The pool of each worker. A worker keeps its pool as long as that pool wants nodes.

    Raises ClusterError if there are fewer workers than the pools want.
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
    """The labels of each worker of a new cluster in kind's order; the same choice as that of `assign_pools`."""
    return [{POOL_LABEL: pool.name} for pool in spec.pools for _ in range(pool.nodes)]


def label_nodes(kubectl: Kubectl, spec: ClusterSpec) -> None:
    """Sets the pool label of each node; removes it from nodes that no pool wants. Raises ClusterError."""
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
