"""NVLink domains of a cluster: how its file states them, and which GPUs of a run they join.

Without a statement NVLink joins the GPUs of each node, if their type has it. A domain may be a part of a node (pairs of GPUs
with a bridge) or several nodes (NVIDIA's GB200 NVL72: 18 nodes of 4 GPUs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration
from emulator_runtime.profiles.catalogue import Catalogue
from emulator_runtime.workloads.step_costs.work import Spread
from scheduler_sims.inputs.yaml_file import whole_of

if TYPE_CHECKING:
    from scheduler_sims.inputs.cluster_file import NodeSpec
    from scheduler_sims.interface.plan import Allocation

MOST_JOINED = 100_000


def size_of(fields: Mapping[str, Any], gpus: int, gpu_type: str, place: str, catalogue: Catalogue) -> int:
    """`nvlink_domain` of an entry of nodes with `gpus` GPUs each: how many GPUs NVLink joins. 0: those of each node.

    Raises InputError that names the field.
    """
    if "nvlink_domain" not in fields:
        return 0
    joined = whole_of(fields, "nvlink_domain", place, default=0, least=1, most=MOST_JOINED)
    place = f"{place}.nvlink_domain"
    if not gpus:
        raise InputError(place, "is given, but gpus is 0: set gpus or leave nvlink_domain out")
    if joined > 1 and not catalogue.specs[gpu_type].peer_link_bytes_per_s:
        raise InputError(place, f"is {joined}, but {gpu_type} has no NVLink; leave it out")
    if gpus % joined and joined % gpus:
        raise InputError(place, f"must divide the {gpus} GPUs of a node, or be a multiple of them, not {joined}")
    return 0 if joined == gpus else joined


def domains(entry: str, node: str, position: int, gpus: int, joined: int) -> dict[int, str]:
    """The domain of each GPU of a node, by its index: the node has `position` in its entry of nodes. `joined`: of `size_of`.

    A domain of several nodes is called after the first of them.
    """
    if not joined:
        return {}
    if joined < gpus:
        return {index: f"{node}/nvlink-{index // joined}" for index in range(gpus)}
    before = position % (joined // gpus)
    return dict.fromkeys(range(gpus), f"{f'{entry}-{position - before + 1}' if before else node}/nvlink")


@dataclass(frozen=True)
class Domains:
    """Which devices of a cluster NVLink joins. `by_device`: the domain of each device, by UUID, where it isn't its node."""

    nodes: tuple[NodeSpec, ...]
    by_device: Mapping[str, str]

    @classmethod
    def of(cls, nodes: Iterable[NodeSpec]) -> Domains:
        nodes = tuple(nodes)
        return cls(nodes, {d.uuid: node.domain_of(d) for node in nodes if node.nvlink for d in node.devices})

    def spread(self, allocation: Allocation) -> Spread:
        """The shape of a run, and which of its devices are joined. On nodes without names they are as well as they can be."""
        tasks, by_device = allocation.tasks, self.by_device
        gpus, nodes = len(tasks[0].shares), len(tasks)
        if not by_device or gpus * nodes < 2:
            return Spread(gpus, nodes)
        if not tasks[0].node:
            return self.best(gpus, nodes, allocation.gpu_type)
        of_tasks = [{by_device.get(share.device or "", task.node) for share in task.shares} for task in tasks]
        linked = all(len(of_task) == 1 for of_task in of_tasks)
        return Spread(gpus, nodes, linked, nodes > 1 and len(set().union(*of_tasks)) == 1)

    def best(self, gpus: int, nodes: int, gpu_type: str | None) -> Spread:
        """The same for a run with so many `gpus` on each node of the empty cluster, joined as well as they can be."""
        if not self.by_device or gpu_type is None or gpus * nodes < 2:
            return Spread(gpus, nodes)
        enough = [sum(count >= gpus for count in domain) for domain in self._domains.get(gpu_type, ())]
        return Spread(gpus, nodes, max(enough, default=0) > 0, nodes > 1 and max(enough, default=0) >= nodes)

    def largest(self, configuration: Configuration) -> int:
        """The most GPUs of a domain that the configuration allows."""
        allowed = [
            (node, device) for node in self.nodes for device in node.devices if configuration.allows(device.gpu_type)
        ]
        return max(Counter(node.domain_of(device) or node.name for node, device in allowed).values(), default=0)

    @cached_property
    def _domains(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """By type of GPU: for each domain, how many each of its nodes has."""
        counts: dict[str, dict[str, Counter[str]]] = {}
        for node in self.nodes:
            for device in node.devices:
                domains = counts.setdefault(device.gpu_type, {})
                domains.setdefault(node.domain_of(device) or node.name, Counter())[node.name] += 1
        return {gpu_type: [list(each.values()) for each in domains.values()] for gpu_type, domains in counts.items()}
