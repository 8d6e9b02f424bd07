"""NVLink domains of a cluster: which GPUs of a run they join, and which they can join at best.

Without a statement NVLink joins the GPUs of each node, if their type has it. A domain may be a part of a node (pairs of GPUs
with a bridge) or several nodes (NVIDIA's GB200 NVL72: 18 nodes of 4 GPUs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from emulator_runtime.domain.job import Configuration
from emulator_runtime.workloads.step_costs.work import Spread

if TYPE_CHECKING:
    from scheduler_sims.inputs.cluster_file import NodeSpec
    from scheduler_sims.interface.plan import Allocation


@dataclass(frozen=True)
class NvlinkDomains:
    """Which devices of a cluster NVLink joins. `by_device`: the domain of each device, by UUID, where it isn't its node."""

    nodes: tuple[NodeSpec, ...]
    by_device: Mapping[str, str]

    @classmethod
    def of(cls, nodes: Iterable[NodeSpec]) -> NvlinkDomains:
        nodes = tuple(nodes)
        return cls(nodes, {d.uuid: node.domain_of(d) for node in nodes if node.nvlink for d in node.devices})

    def spread(self, allocation: Allocation) -> Spread:
        """The shape of a run, and which of its devices are joined. On nodes without names they are as well as they can be."""
        tasks, by_device = allocation.tasks, self.by_device
        gpus, nodes = len(tasks[0].shares), len(tasks)
        if not by_device or gpus * nodes < 2:
            return Spread(gpus, nodes)
        if not tasks[0].node:
            return self.best_spread(gpus, nodes, allocation.gpu_type)
        of_tasks = [{by_device.get(share.device or "", task.node) for share in task.shares} for task in tasks]
        linked = all(len(of_task) == 1 for of_task in of_tasks)
        return Spread(gpus, nodes, linked, nodes > 1 and len(set().union(*of_tasks)) == 1)

    def best_spread(self, gpus: int, nodes: int, gpu_type: str | None) -> Spread:
        """The same for a run with so many `gpus` on each node of the empty cluster, joined as well as they can be."""
        if not self.by_device or gpu_type is None or gpus * nodes < 2:
            return Spread(gpus, nodes)
        enough = max([sum(count >= gpus for count in counts) for counts in self._by_type.get(gpu_type, ())], default=0)
        return Spread(gpus, nodes, enough > 0, nodes > 1 and enough >= nodes)

    def largest_domain(self, configuration: Configuration) -> int:
        """The most GPUs that the configuration allows and NVLink joins."""
        allowed = [
            (node, device) for node in self.nodes for device in node.devices if configuration.allows(device.gpu_type)
        ]
        return max(Counter(node.domain_of(device) for node, device in allowed).values(), default=0)

    @cached_property
    def _by_type(self) -> Mapping[str, Sequence[Sequence[int]]]:
        """By type of GPU: for each domain, how many each of its nodes has."""
        counts: dict[str, dict[str, Counter[str]]] = {}
        for node in self.nodes:
            for device in node.devices:
                domains = counts.setdefault(device.gpu_type, {})
                domains.setdefault(node.domain_of(device), Counter())[node.name] += 1
        return {gpu_type: [list(each.values()) for each in domains.values()] for gpu_type, domains in counts.items()}
