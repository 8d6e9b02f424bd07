"""The manager's settings: one frozen class. Each field has a variable and a sentence, from which `--help` is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.layout import NodeLayout
from emulator_runtime.node.settings import EnvSettings, setting
from emulator_runtime.sharing.modes import MODES

FROM_NODE = "kubernetes"
"""Value of `inventory` that means the annotation of the Kubernetes Node."""
LEAST_STREAM_LENGTH = 1000
"""Number of entries that stay even if Redis is out of memory: some seconds of a busy node."""


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_MANAGER_<FIELD>. With `node_dir` this is the daemon of a cluster's
    node, else of a local cluster. Raises InputError for missing or contradictory values."""

    PREFIX: ClassVar[str] = "EMUGPU_MANAGER_"

    node: str = setting("name of this node; device UUIDs derive from it")
    inventory: str = setting(
        "JSON file with the node's devices; with NODE_DIR also kubernetes: the Node's annotation emugpu.dev/inventory",
        "",
    )
    node_dir: str = setting("directory that the node's programs share; empty: SOCKET_DIR and STATE_DIR say where", "")
    socket_dir: str = setting("directory of the sockets: manager.sock for jobs, admin.sock for the node's owner", "")
    state_dir: str = setting("directory of what survives a restart (grants, events)", "")
    clock: str = setting("file of the shared clock; empty: the host's monotonic clock", "")
    sharing: str = setting(
        f"sharing mode of the devices of an inventory that is a list: {', '.join(MODES)}", "exclusive"
    )
    resources: str = setting(
        'JSON list of what jobs share beside devices: [{"name": "storage", "speed": 1}, {"name": "link-0", "devices": [UUID]}]; '
        "empty: nothing",
        "",
    )
    sharing_config: str = setting(
        "sharing file as NVIDIA's device plugin takes it (YAML: timeSlicing or mps); empty: none", ""
    )
    kubernetes: bool = setting(
        "1: get the inventory and pods from the API server, and send it Events; 0: don't", default=False
    )
    pod_resources: str = setting(
        "the kubelet's PodResources socket, which lists the pods' devices; empty: not used", ""
    )
    pod: str = setting("name of this manager's own pod, which the kubelet lists as soon as it knows its pods", "")
    placement: bool = setting(
        "1: pods get the devices and shares that their annotation emugpu.dev/allocation names; only where admission lets nobody "
        "but schedulers write it, as the chart's guards do",
        default=False,
    )
    redis_url: str = setting(
        "Redis for the events and job progress of the whole cluster; empty: they stay on this node", ""
    )
    outbox_bytes: int = setting(
        "bytes of events that may wait for Redis before ranges of progress are merged", 64 * 1024 * 1024, least=4096
    )
    stream_length: int = setting(
        "events of this node that stay in Redis, unless a consumer group needs more", 60_000, least=LEAST_STREAM_LENGTH
    )
    """An entry takes about 250 bytes in Redis with a real cluster's names: a node has at most 17 MB (a stream may exceed its
    length by a tenth), so 256 MB are enough for a dozen nodes."""
    ranks_key: str = setting(
        "key from which the ranks of a Job get a common secret, the same on all nodes; empty: anybody may be a rank", ""
    )
    metrics_port: int = setting("port of /metrics, /healthz and /readyz; 0: none", 0, most=65535)
    tools: str = setting("directory whose content is copied to tools/ in NODE_DIR at the start; empty: none", "")
    lifeline_fd: str = setting("descriptor of a socket that is closed when the parent process ends; empty: none", "")

    def __post_init__(self) -> None:
        for name in ("inventory",) if self.node_dir else ("inventory", "socket_dir", "state_dir"):
            if not getattr(self, name):
                raise InputError(self.variable(name), f"is missing: {self._help_of(name)}")
        for name in ("socket_dir", "state_dir", "resources") if self.node_dir else ("tools",):
            if getattr(self, name):
                given = "without" if name == "tools" else "with"
                raise InputError(
                    self.variable(name), f"has no meaning {given} {self.variable('node_dir')}; leave it out"
                )
        if self.inventory == FROM_NODE and not (self.kubernetes and self.node_dir):
            both = f"{self.variable('kubernetes')}=1 and {self.variable('node_dir')}"
            raise InputError(self.variable("inventory"), f"is {FROM_NODE}, which needs {both}")

    def _help_of(self, name: str) -> str:
        return str(type(self).__dataclass_fields__[name].metadata["help"])

    @property
    def layout(self) -> NodeLayout | None:
        """The node directory of a cluster's node; None in a local cluster."""
        return NodeLayout(Path(self.node_dir)) if self.node_dir else None

    @property
    def job_socket(self) -> Path:
        return self.layout.manager_socket if self.layout else Path(self.socket_dir) / "manager.sock"

    @property
    def admin_socket(self) -> Path:
        return self.layout.admin_socket if self.layout else Path(self.socket_dir) / "admin.sock"

    @property
    def _state(self) -> Path:
        return self.layout.state_dir if self.layout else Path(self.state_dir)

    @property
    def state_file(self) -> Path:
        return self._state / "manager.db"

    @property
    def lease_file(self) -> Path:
        return self._state / "leases"

    @property
    def piece_file(self) -> Path:
        return self._state / "pieces"

    @property
    def half_served_file(self) -> Path:
        return self._state / "half-served"

    @property
    def lock_file(self) -> Path:
        return self._state / "lock"
