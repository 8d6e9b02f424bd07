"""The node directory, and the names in a job container, which programs share instead of importing each other.

    run/            0755  manager.sock (0666)             mounted read-only at /run/emugpu
    admin/          0700  admin.sock (0600)
    grants/<id>/    0755  grant.json (0600), edev/<n>     edev/ is mounted read-only at /edev; beside <id>/: .last-minted
                          cuda/settings                   cuda/ is mounted read-only at /run/emugpu-cuda
    tools/          0755  nvidia-smi, python/             mounted read-only at /usr/bin/nvidia-smi and /usr/local/emugpu
                          python/lib/                     the emulated CUDA libraries
    state/          0700  manager.db, leases, lock
    inventory.json  0644  published by the manager, read by the device plugin

Containers get sockets and device files as mounted directories. A mounted socket *file* would be a stale inode after the
daemon's restart, and the container runtime would create a directory for a missing file.
"""

from __future__ import annotations

import re
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
CONTAINER_CUDA_DIR = "/run/emugpu-cuda"
CUDA_LIBRARIES = "lib"
"""The directory of the emulated CUDA libraries in the tools' directory, on the node and in containers."""
CUDA_SETTINGS = "settings"
"""The file that tells these libraries which devices the container has."""

TOKEN_VARIABLE = "EMUGPU_TOKEN"
HOST_TOKEN_VARIABLE = "EMUGPU_HOST_TOKEN"
"""The token of a host slot. It has its own name: for a container with a GPU and a host slot, the kubelet would keep the
EMUGPU_TOKEN of either reply at random (kubernetes, pkg/kubelet/cm/devicemanager/pod_devices.go)."""
MANAGER_SOCKET_VARIABLE = "EMUGPU_MANAGER_SOCKET"
VISIBLE_DEVICES_VARIABLE = "EMUGPU_VISIBLE_DEVICES"
RESOURCE_VARIABLE = "EMUGPU_RESOURCE"
NVIDIA_VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Also set, to the UUIDs of the devices, if the inventory's compat.nvidiaEnv is true."""

JOB_LABEL = "emugpu.dev/job"
"""A label of pods: the name of their EmuJob."""
JOB_UID_LABEL = "emugpu.dev/job-uid"
"""A label of pods: the uid of their EmuJob. An EmuJob may have several Jobs, so managers track its progress by this uid."""
_CONTROLLER_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
"""Labels of the pods of a batch Job: its uid. Kubernetes up to 1.26 has the last."""
_INDEX = "batch.kubernetes.io/job-completion-index"
"""A label of the pods of an indexed batch Job; Kubernetes up to 1.27 has it as an annotation only."""
_UID_FORM = re.compile("[0-9A-Za-z_.-]{1,64}")
"""A uid of Kubernetes has 36 characters; these are all that a label's value may have."""
_INDEX_FORM = re.compile("[0-9]{1,10}")
"""A completion index is an int32."""

GPU_RESOURCE = "emugpu.dev/emuGPU"
"""The resource of emulated GPUs, unless a pool names another."""
HOST_RESOURCE = "emugpu.dev/host"
"""The resource of host slots, for containers that need no GPU: they get a token and no devices."""

INVENTORY_ANNOTATION = "emugpu.dev/inventory"
"""The annotation of a Kubernetes Node that contains its inventory, in the format of inventory.py."""


def work_uid(labels: Mapping[str, str], batch_job_uid: str) -> str:
    """The uid of the EmuJob, else of the batch Job, that a pod works for; empty if it works for neither.

    `batch_job_uid`: the uid of the batch Job that controls the pod, from its owner references. Any user who may create pods in
    the namespace can set all of these values, so a job must be identified by the namespace and this uid together. A value that
    isn't a uid doesn't count: the API server takes any text of any length in owner references.
    """
    claims = (labels.get(JOB_UID_LABEL), batch_job_uid, *(labels.get(label) for label in _CONTROLLER_UID_LABELS))
    return next((uid for uid in claims if uid and _UID_FORM.fullmatch(uid)), "")


def completion_index(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The completion index of a pod of an indexed batch Job, else "0". It is its creator's claim, as `work_uid` is; an annotation
    can have 256 KiB."""
    claims = (labels.get(_INDEX), annotations.get(_INDEX))
    return next((index for index in claims if index and _INDEX_FORM.fullmatch(index)), "0")


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Paths in the node directory `root`."""

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
    def cuda_libraries(self) -> Path:
        return self.python_dir / CUDA_LIBRARIES

    @property
    def state_dir(self) -> Path:
        return self.root / "state"

    @property
    def inventory_file(self) -> Path:
        return self.root / "inventory.json"

    def make(self) -> None:
        """Create the missing directories and set the modes of all directories, independent of the umask.

        Both daemons call it, because either may start first. Raises InputError naming the directory.
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
