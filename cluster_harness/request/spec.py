"""The specification of a cluster: pools of nodes with GPUs, and the differences between two specifications."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from emulator_runtime.domain.errors import InputError

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")


@dataclass(frozen=True)
class PoolSpec:
    """A number of identical nodes. `gpus` 0: nodes without GPUs (`gpu_type` is empty then).

    `emulated_cpus`, `emulated_memory`: each node's emulated resources, as Kubernetes quantities; empty: those of the machine.
    """

    name: str
    nodes: int
    gpus: int
    gpu_type: str
    emulated_cpus: str = ""
    emulated_memory: str = ""

    @property
    def offers(self) -> bool:
        """Whether there is an EmuGPUPool for it: its nodes have GPUs or emulated CPUs or memory."""
        return bool(self.gpus or self.emulated_cpus or self.emulated_memory)


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster's name and its worker nodes; a control plane node is added to them."""

    name: str
    pools: tuple[PoolSpec, ...]

    @property
    def workers(self) -> int:
        return sum(pool.nodes for pool in self.pools)

    @property
    def offering_pools(self) -> tuple[PoolSpec, ...]:
        """The pools for which there are EmuGPUPools."""
        return tuple(pool for pool in self.pools if pool.offers)

    @property
    def gpus(self) -> int:
        return sum(pool.nodes * pool.gpus for pool in self.pools)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> ClusterSpec:
        """Parses the output of `to_json`."""
        content = json.loads(text)
        return cls(content["name"], tuple(PoolSpec(**pool) for pool in content["pools"]))


def parse_name(name: str, flag: str = "--name") -> str:
    """A cluster's or a pool's name; it becomes part of names of nodes, containers and labels. Raises InputError."""
    if not _NAME.fullmatch(name):
        rule = "must be lower-case letters, digits and '-' between them, at most 30, a letter first"
        raise InputError(flag, f"{name!r} {rule}")
    return name


def differences(current: ClusterSpec, wanted: ClusterSpec) -> list[str]:
    """A line for each pool that differs; empty if all are equal. The order of pools doesn't matter."""
    before, after = ({pool.name: pool for pool in spec.pools} for spec in (current, wanted))
    return [
        f"pool {name} has {described(before.get(name))}, asked for {described(after.get(name))}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def described(pool: PoolSpec | None) -> str:
    """For example `2 nodes with 8 x A100 each, each emulates 64 CPUs and 512Gi of memory`."""
    if pool is None:
        return "no nodes"
    nodes = f"{pool.nodes} node{'s' if pool.nodes > 1 else ''}"
    gpus = f"with {pool.gpus} x {pool.gpu_type} each" if pool.gpus else "without GPUs"
    emulated = [f"{pool.emulated_cpus} CPUs"] if pool.emulated_cpus else []
    emulated += [f"{pool.emulated_memory} of memory"] if pool.emulated_memory else []
    machines = [f"each emulates {' and '.join(emulated)}"] if emulated else ["with the CPUs and memory of this machine"]
    return ", ".join([f"{nodes} {gpus}", *machines])
