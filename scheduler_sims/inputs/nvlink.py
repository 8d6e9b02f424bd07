"""NVLink domains of a cluster: how its file states them, and which GPUs of a run they join.

Without a statement NVLink joins the GPUs of each node, if their type has it. A domain may be a part of a node (pairs of GPUs
with a bridge) or several nodes (NVIDIA's GB200 NVL72: 18 nodes of 4 GPUs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
    """The domain of each GPU of a node, by its index: the node has `position` in its entry of nodes. `joined`: of `size_of`."""
    if not joined:
        return {}
    within, first = (node, 0) if joined < gpus else (entry, position * gpus)
    return {index: f"{within}/nvlink-{(first + index) // joined}" for index in range(gpus)}


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
        """The shape of a run, and which of its devices are joined; one without a name counts as any of its node."""
        tasks, by_device = allocation.tasks, self.by_device
        gpus, nodes = len(tasks[0].shares), len(tasks)
        if not by_device or gpus * nodes < 2:
            return Spread(gpus, nodes)
        of_tasks = [{by_device.get(share.device or "", task.node) for share in task.shares} for task in tasks]
        linked = all(len(of_task) == 1 for of_task in of_tasks)
        return Spread(gpus, nodes, linked, nodes > 1 and len(set().union(*of_tasks)) == 1)

    def best(self, configuration: Configuration, gpu_type: str | None) -> Spread:
        """The same for a run on the empty cluster, on GPUs of one type that are joined as well as they can be."""
        gpus, nodes = configuration.gpus, configuration.min_tasks
        if not self.by_device or gpu_type is None or gpu_type not in self._largest or gpus * nodes < 2:
            return Spread(gpus, nodes)
        on_node, anywhere = self._largest[gpu_type]
        return Spread(gpus, nodes, gpus <= on_node, nodes > 1 and gpus * nodes <= anywhere)

    def largest(self, configuration: Configuration) -> int:
        """The most GPUs of a type that the configuration allows, which NVLink joins."""
        return max(
            [anywhere for gpu_type, (_, anywhere) in self._largest.items() if configuration.allows(gpu_type)], default=0
        )

    @cached_property
    def _largest(self) -> Mapping[str, tuple[int, int]]:
        """By type: how many GPUs a domain joins at most on one node, and on all."""
        on_node, anywhere = Counter[tuple[str, str, str]](), Counter[tuple[str, str]]()
        for node in self.nodes:
            for device in node.devices:
                domain = node.domain_of(device) or node.name
                on_node[device.gpu_type, node.name, domain] += 1
                anywhere[device.gpu_type, domain] += 1
        most: dict[str, tuple[int, int]] = {}
        for (gpu_type, _), count in anywhere.items():
            most[gpu_type] = 0, max(count, most.get(gpu_type, (0, 0))[1])
        for (gpu_type, _, _), count in on_node.items():
            most[gpu_type] = max(count, most[gpu_type][0]), most[gpu_type][1]
        return most
