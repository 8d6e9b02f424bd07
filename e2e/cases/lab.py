"""Access to a cluster that `emugpu cluster up` created, for cases and benchmarks: its programs and its nodes."""

from __future__ import annotations

import os
import time
from pathlib import Path

from cluster_harness.cache import Cache, default_root
from cluster_harness.cluster import Clusters
from cluster_harness.engine import running_engine
from cluster_harness.product.chart import POOL_LABEL
from cluster_harness.programs import Clients, clients
from cluster_harness.request.flags import CPU_POOL
from cluster_harness.shell import Shell
from cluster_harness.steps import PlainSteps
from e2e.cases.kube import Kubectl, Node


class Lab:
    """One cluster. Raises ClusterError if it doesn't exist."""

    def __init__(self, name: str) -> None:
        harness = Clusters(Cache(default_root()), PlainSteps(print, time.monotonic_ns), dict(os.environ))
        shell = Shell(Path(os.devnull), dict(os.environ))
        self.kubeconfig = Path(harness.state(name).kubeconfig)
        self.programs: Clients = clients(harness.cache, shell, harness.steps)
        self.kubectl = Kubectl(self.kubeconfig, program=str(self.programs.kubectl))
        engine = running_engine(harness.cache, shell)
        host = engine.shell.environ.get("DOCKER_HOST") if engine else None
        self.docker = ("docker", "--host", host) if host else ("docker",)

    def nodes(self, selector: str = "") -> list[Node]:
        """Sorted by name."""
        items = self.kubectl.list("nodes", "-l", selector)
        return sorted((Node(n["metadata"]["name"], self.docker) for n in items), key=lambda node: node.name)

    def workers(self) -> list[Node]:
        """The nodes with GPUs."""
        return self.nodes(f"!node-role.kubernetes.io/control-plane,{POOL_LABEL}!={CPU_POOL}")
