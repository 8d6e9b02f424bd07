"""What a cluster shall look like: pools of nodes with GPUs, parsed from the command line's short forms once, at the border."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.profiles.catalogue import gpu_spec

MAX_NODES = 64
"""More node containers than this are no use on one machine: each has a kubelet and a containerd."""

MAX_GPUS_PER_NODE = 64
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?")
_POOL = re.compile(r"(?P<name>[^=]+)=(?P<gpus>\d+)x(?P<type>[^:]+):(?P<nodes>\d+)")
_NODE_GPUS = re.compile(r"(?P<nodes>\d+)x(?P<gpus>\d+)x(?P<type>.+)")
CPU_POOL = "cpu"


@dataclass(frozen=True)
class PoolSpec:
    """Nodes that are alike. `gpus` 0: nodes without GPUs (`gpu_type` is empty then)."""

    name: str
    nodes: int
    gpus: int
    gpu_type: str


@dataclass(frozen=True)
class ClusterSpec:
    """A cluster's name and its worker nodes; one control plane node comes on top."""

    name: str
    pools: tuple[PoolSpec, ...]

    @property
    def workers(self) -> int:
        return sum(pool.nodes for pool in self.pools)

    @property
    def gpu_pools(self) -> tuple[PoolSpec, ...]:
        return tuple(pool for pool in self.pools if pool.gpus)

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


def parse_name(name: str) -> str:
    """A cluster's name; it becomes part of node and container names. Raises InputError."""
    if not _NAME.fullmatch(name):
        raise InputError("--name", f"{name!r} must be lower-case letters, digits and '-', at most 30, a letter first")
    return name


def plan(
    name: str,
    *,
    nodes: int | None,
    gpus: int,
    gpu_type: str,
    pools: Iterable[str] = (),
    node_gpus: Iterable[str] = (),
    cpu_nodes: int = 0,
) -> ClusterSpec:
    """The specification of the flags; `nodes` None: 2 where no other flag asks for nodes. Raises InputError."""
    found: list[PoolSpec] = []

    def add(place: str, pool: str, count: int, per_node: int, gpu: str) -> None:
        if count < 1:
            raise InputError(place, f"a pool has at least one node, got {count}")
        if not (place == "--cpu-nodes" or 1 <= per_node <= MAX_GPUS_PER_NODE):
            raise InputError(place, f"a node has from 1 to {MAX_GPUS_PER_NODE} GPUs, got {per_node}")
        if any(other.name == pool for other in found):
            raise InputError(place, f"the pool {pool!r} is there twice; give each pool a name of its own")
        found.append(PoolSpec(pool, count, per_node, gpu_spec(gpu, place).gpu_type if per_node else ""))

    for text in pools:
        match = _matched(_POOL, "--pool", text, "NAME=4xV100:2 (2 nodes with 4 V100 each)")
        if not _NAME.fullmatch(match["name"]):
            raise InputError("--pool", f"{match['name']!r} must be lower-case letters, digits and '-', a letter first")
        add("--pool", match["name"], int(match["nodes"]), int(match["gpus"]), match["type"])
    for index, text in enumerate(node_gpus):
        match = _matched(_NODE_GPUS, "--node-gpus", text, "4x1xV100 (4 nodes with 1 V100 each)")
        add("--node-gpus", f"gpus-{index + 1}", int(match["nodes"]), int(match["gpus"]), match["type"])
    if nodes is None:
        nodes = 0 if found or cpu_nodes else 2
    if nodes:
        add("--nodes", "default", nodes, gpus, gpu_type)
    if cpu_nodes:
        add("--cpu-nodes", CPU_POOL, cpu_nodes, 0, "")
    spec = ClusterSpec(parse_name(name), tuple(found))
    if not 1 <= spec.workers <= MAX_NODES:
        raise InputError(
            "--nodes", f"a cluster has from 1 to {MAX_NODES} worker nodes, this one would have {spec.workers}"
        )
    return spec


def _matched(pattern: re.Pattern[str], place: str, text: str, form: str) -> Mapping[str, str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise InputError(place, f"{text!r} is not of the form {form}")
    return match.groupdict()
