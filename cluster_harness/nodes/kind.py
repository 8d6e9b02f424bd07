"""Nodes as containers: kind's configuration, creation and deletion of a cluster, and images imported into its nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster_harness import versions
from cluster_harness.engine import Engine
from cluster_harness.offline.image_commit import NodeImages
from cluster_harness.offline.node_image import FILES
from cluster_harness.steps import Progress, Report

_IMPORT = ("ctr", "-n", "k8s.io", "images", "import", "--all-platforms", "--digests", "--snapshotter=overlayfs", "-")
_PARALLEL_IMPORTS = 4
_CREATE_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Kind:
    """One kind cluster. `on_the_spot`: its nodes have our own image, so we do here what kind's stock image does itself."""

    program: Path
    engine: Engine
    name: str
    images: NodeImages
    on_the_spot: bool

    def exists(self) -> bool:
        return self.name in self.engine.shell.run(self.program, "get", "clusters").split()

    def node_names(self) -> list[str]:
        return sorted(self.engine.shell.run(self.program, "get", "nodes", "--name", self.name).split())

    def create(self, workers: Sequence[Mapping[str, str]], directory: Path) -> None:
        """Creates the cluster: a worker for each set of labels, which its kubelet registers the node with.

        The kubeconfig and the files that nodes mount are written to `directory`. Raises ClusterError, after kind has
        deleted the nodes.
        """
        memlock = directory / "memlock.conf"
        memlock.write_text((FILES / "memlock.conf").read_text(encoding="utf-8"), encoding="utf-8")
        configuration = yaml.safe_dump(self.configuration(workers, memlock), sort_keys=False)
        (directory / "kind.yaml").write_text(configuration, encoding="utf-8")
        self.engine.shell.run(
            *(self.program, "create", "cluster", "--name", self.name, "--config", "-"),
            *("--kubeconfig", directory / "kubeconfig"),
            stdin=configuration,
            timeout_s=_CREATE_TIMEOUT_S,
        )

    def delete(self, directory: Path) -> None:
        """Deletes the cluster's containers, also unfinished ones. Raises ClusterError."""
        kubeconfig = ("--kubeconfig", directory / "kubeconfig")
        self.engine.shell.run(self.program, "delete", "cluster", "--name", self.name, *kubeconfig)

    def load(self, archives: Sequence[Path], nodes: Sequence[str], report: Report) -> None:
        """Imports image archives into the nodes' containerd, several nodes at a time. Raises ClusterError."""
        pairs = [(archive, node) for archive in archives for node in nodes]
        with ThreadPoolExecutor(max_workers=_PARALLEL_IMPORTS) as pool:
            for done, _ in enumerate(pool.map(lambda pair: self._import(*pair), pairs), start=1):
                report(Progress(done, len(pairs), "copies"))

    def _import(self, archive: Path, node: str) -> None:
        with archive.open("rb") as file:
            self.engine.shell.run("docker", "exec", "-i", node, *_IMPORT, stdin=file)

    def configuration(self, workers: Sequence[Mapping[str, str]], memlock: Path) -> dict[str, Any]:
        """kind's configuration (kind.x-k8s.io/v1alpha4) for one control plane and workers with these labels."""
        unit = "/etc/systemd/system/containerd.service.d/20-memlock.conf"
        mounts = [{"hostPath": str(memlock), "containerPath": unit, "readOnly": True}]
        control_plane = {"role": "control-plane", "image": self.images.control_plane, "extraMounts": mounts}
        worker = {"role": "worker", "image": self.images.worker, "extraMounts": mounts}
        configuration: dict[str, Any] = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [control_plane, *(worker | ({"labels": dict(labels)} if labels else {}) for labels in workers)],
            "kubeadmConfigPatches": [yaml.safe_dump(patch) for patch in self._patches()],
        }
        if self.on_the_spot:
            configuration["networking"] = {"kubeProxyMode": "nftables"}  # our kube-proxy image has nft and no iptables
        return json.loads(json.dumps(configuration))  # type: ignore[no-any-return]  # no objects are shared, so YAML has no anchors

    def _patches(self) -> list[dict[str, Any]]:
        kubelet: dict[str, Any] = {
            "kind": "KubeletConfiguration",
            # a killed container restarts after a second: tests kill many (default: up to 5 minutes)
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
            "failCgroupV1": False,  # the default from Kubernetes 1.35 on would be to refuse
        }
        if not self.on_the_spot:
            return [kubelet]
        return [
            {**kubelet, "cgroupDriver": "cgroupfs"},
            {"kind": "ClusterConfiguration", "imageRepository": versions.IMAGE_REPOSITORY},
        ]
