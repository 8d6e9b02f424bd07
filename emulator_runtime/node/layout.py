"""The node directory and the names in a job container: programs that never import each other meet by these.

    run/            0755  manager.sock (0666)             mounted read-only at /run/emugpu
    admin/          0700  admin.sock (0600)
    grants/<id>/    0755  grant.json (0600), edev/<n>     edev/ is mounted read-only at /edev; beside <id>/: .last-minted
    tools/          0755  nvidia-smi, python/             mounted read-only at /usr/bin/nvidia-smi and /usr/local/emugpu
    state/          0700  manager.db, leases, lock
    inventory.json  0644  published by the manager, read by the device plugin

Sockets and device files reach a container as mounted directories: a mounted socket *file* would be a stale inode after the
daemon's restart, and a missing file would be created as a directory by the container runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import InputError

DEFAULT_NODE_DIR = "/var/lib/emugpu"

CONTAINER_RUN_DIR = "/run/emugpu"
CONTAINER_MANAGER_SOCKET = "/run/emugpu/manager.sock"
CONTAINER_EDEV_DIR = "/edev"
CONTAINER_TOOLS_DIR = "/usr/local/emugpu"
CONTAINER_NVIDIA_SMI = "/usr/bin/nvidia-smi"

TOKEN_VARIABLE = "EMUGPU_TOKEN"
HOST_TOKEN_VARIABLE = "EMUGPU_HOST_TOKEN"
"""The token of a place on the node. It has a name of its own: of a container with a GPU and a place, the kubelet would keep
either reply's EMUGPU_TOKEN, by chance (kubernetes, pkg/kubelet/cm/devicemanager/pod_devices.go)."""
MANAGER_SOCKET_VARIABLE = "EMUGPU_MANAGER_SOCKET"
VISIBLE_DEVICES_VARIABLE = "EMUGPU_VISIBLE_DEVICES"
RESOURCE_VARIABLE = "EMUGPU_RESOURCE"
NVIDIA_VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Set as well, to UUIDs, where the inventory's compat.nvidiaEnv is true."""

JOB_UID_LABEL = "emugpu.dev/job-uid"
"""On pods: the uid of their EmuJob, which may need several Jobs one after the other; by it managers know progress."""
_CONTROLLER_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
"""On pods of a batch Job: its uid. The second one is of Kubernetes until 1.26."""

HOST_RESOURCE = "emugpu.dev/host"
"""A place on a node of a pool, for a container that needs no GPU: a token, and none of the node's devices."""

INVENTORY_ANNOTATION = "emugpu.dev/inventory"
"""The annotation of a Kubernetes Node that holds its inventory in the format of inventory.py."""


def work_uid(labels: Mapping[str, str], batch_job_uid: str) -> str:
    """The uid of the EmuJob, else of the batch Job, that a pod works for; empty if it works for neither.

    `batch_job_uid`: of the batch Job that controls the pod, by its owner references. All of these are claims of somebody who may
    create pods in the pod's namespace, so the uid names work of that namespace only: identify it by both.
    """
    claims = (labels.get(JOB_UID_LABEL), batch_job_uid, *(labels.get(label) for label in _CONTROLLER_UID_LABELS))
    return next((uid for uid in claims if uid), "")


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Where things are under the node directory `root`."""

    root: Path

    @property
    def run_dir(self) -> Path:
        return self.root / "run"

    @property
    def manager_socket(self) -> Path:
        return self.run_dir / "manager.sock"

    @property
    def admin_dir(self) -> Path:
        return self.root / "admin"

    @property
    def admin_socket(self) -> Path:
        return self.admin_dir / "admin.sock"

    @property
    def grants_dir(self) -> Path:
        return self.root / "grants"

    @property
    def tools_dir(self) -> Path:
        return self.root / "tools"

    @property
    def nvidia_smi(self) -> Path:
        return self.tools_dir / "nvidia-smi"

    @property
    def python_dir(self) -> Path:
        return self.tools_dir / "python"

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def inventory_file(self) -> Path:
        return self.root / "inventory.json"

    def make(self) -> None:
        """Make the directories that aren't there and give all of them their modes, whatever the umask.

        Either daemon may come first, so both call it. Raises InputError naming the directory.
        """
        open_to_all = (self.root, self.run_dir, self.grants_dir, self.tools_dir)
        for directory, mode in [*((d, 0o755) for d in open_to_all), (self.admin_dir, 0o700), (self.state_dir, 0o700)]:
            try:
                directory.mkdir(parents=True, exist_ok=True)
                directory.chmod(mode)
            except OSError as error:
                problem = (
                    f"can't be made with mode {mode:04o}: {error.strerror}; give a node directory that is writable"
                )
                raise InputError(str(directory), problem) from error
