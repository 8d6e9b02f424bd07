"""What a cluster shall look like: pools of nodes with GPUs, and in what two such wishes differ."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass

from emulator_runtime.domain.errors import InputError

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")


@dataclass(frozen=True)
class PoolSpec:
    """Nodes that are alike. `gpus` 0: nodes without GPUs (`gpu_type` is empty then).

    `emulated_cpus`, `emulated_memory`: what each of them pretends to have for jobs to divide, as quantities of Kubernetes;
    empty: what it really has.
    """

    name: str
    nodes: int
    gpus: int
    gpu_type: str
    emulated_cpus: str = ""
    emulated_memory: str = ""

    @property
    def offers(self) -> bool:
        """Whether emugpu has something to do on its nodes: then there is an EmuGPUPool for it."""
        return bool(self.gpus or self.emulated_cpus or self.emulated_memory)


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster's name and its worker nodes; one control plane node comes on top."""

    name: str
    pools: tuple[PoolSpec, ...]

    @property
    def workers(self) -> int:
        return sum(pool.nodes for pool in self.pools)

    @property
    def offering_pools(self) -> tuple[PoolSpec, ...]:
        """Those that are pools of emugpu as well: with GPUs, or with emulated CPUs and memory alone."""
        return tuple(pool for pool in self.pools if pool.offers)

    @property
    def gpus(self) -> int:
        return sum(pool.nodes * pool.gpus for pool in self.pools)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> ClusterSpec:
        """What `to_json` wrote."""
        content = json.loads(text)
        return cls(content["name"], tuple(PoolSpec(**pool) for pool in content["pools"]))


def parse_name(name: str, flag: str = "--name") -> str:
    """A cluster's or a pool's name; it becomes part of names of nodes, containers and labels. Raises InputError."""
    if not _NAME.fullmatch(name):
        rule = "must be lower-case letters, digits and '-' between them, at most 30, a letter first"
        raise InputError(flag, f"{name!r} {rule}")
    return name


def differences(there: ClusterSpec, wanted: ClusterSpec) -> list[str]:
    """What is another in `wanted`, a line for each pool; none: the same shape (the order of pools is no matter)."""
    before, after = ({pool.name: pool for pool in spec.pools} for spec in (there, wanted))
    return [
        f"pool {name} has {described(before.get(name))}, asked for {described(after.get(name))}"
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    ]


def described(pool: PoolSpec | None) -> str:
    """Such as `2 nodes with 8 x A100 each, each emulates 64 CPUs and 512Gi of memory`."""
    if pool is None:
        return "no nodes"
    nodes = f"{pool.nodes} node{'s' if pool.nodes > 1 else ''}"
    gpus = f"with {pool.gpus} x {pool.gpu_type} each" if pool.gpus else "without GPUs"
    emulated = [f"{pool.emulated_cpus} CPUs"] if pool.emulated_cpus else []
    emulated += [f"{pool.emulated_memory} of memory"] if pool.emulated_memory else []
    machines = [f"each emulates {' and '.join(emulated)}"] if emulated else ["with the CPUs and memory of this machine"]
    return ", ".join([f"{nodes} {gpus}", *machines])
