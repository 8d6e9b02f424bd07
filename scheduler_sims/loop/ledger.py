"""Who holds what on the nodes: the loop's own books, from which views are made and against which plans are checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, TaskPlacement
from scheduler_sims.interface.view import DeviceView, NodeView


class NodeLedger:
    """Free resources of one node; `view` is rebuilt only after a change."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self.free_cpu_milli = spec.cpu_milli
        self.free_memory_bytes = spec.memory_bytes
        self._holders: dict[str, dict[str, tuple[int, int]]] = {device.uuid: {} for device in spec.devices}
        self._types = {device.uuid: device.gpu_type for device in spec.devices}
        self._usable = {device.uuid: device.usable_memory_bytes for device in spec.devices}
        self._view: NodeView | None = None

    def copy(self) -> NodeLedger:
        """An independent copy, to try a plan on."""
        twin = NodeLedger(self.spec)
        twin.free_cpu_milli, twin.free_memory_bytes = self.free_cpu_milli, self.free_memory_bytes
        twin._holders = {uuid: dict(holders) for uuid, holders in self._holders.items()}
        return twin

    def free_milli(self, uuid: str) -> int:
        return WHOLE_DEVICE_MILLI - sum(milli for milli, _ in self._holders[uuid].values())

    def free_device_memory(self, uuid: str) -> int:
        return self._usable[uuid] - sum(memory for _, memory in self._holders[uuid].values())

    def resolve(self, task: TaskPlacement) -> TaskPlacement | None:
        """The task with all devices named, or None if it doesn't fit here now."""
        if task.cpu_milli > self.free_cpu_milli or task.memory_bytes > self.free_memory_bytes:
            return None
        taken: set[str] = set()
        shares = []
        for share in task.shares:
            names = [share.device] if share.device else list(self._types)
            fitting = (
                uuid
                for uuid in names
                if uuid in self._types
                and uuid not in taken
                and self._types[uuid] == share.gpu_type
                and self.free_milli(uuid) >= share.milli
                and self.free_device_memory(uuid) >= share.memory_bytes
            )
            uuid = next(fitting, None)
            if uuid is None:
                return None
            taken.add(uuid)
            shares.append(replace(share, device=uuid))
        return replace(task, shares=tuple(shares))

    def take(self, job_id: str, task: TaskPlacement) -> None:
        self.free_cpu_milli -= task.cpu_milli
        self.free_memory_bytes -= task.memory_bytes
        for share in task.shares:
            assert share.device is not None
            # Tasks of one job may share a device: what they hold adds up.
            milli, memory_bytes = self._holders[share.device].get(job_id, (0, 0))
            self._holders[share.device][job_id] = (milli + share.milli, memory_bytes + share.memory_bytes)
        self._view = None

    def release(self, job_id: str, task: TaskPlacement) -> None:
        self.free_cpu_milli += task.cpu_milli
        self.free_memory_bytes += task.memory_bytes
        for share in task.shares:
            assert share.device is not None
            milli, memory_bytes = self._holders[share.device].pop(job_id)
            if milli > share.milli:
                self._holders[share.device][job_id] = (milli - share.milli, memory_bytes - share.memory_bytes)
        self._view = None

    def view(self) -> NodeView:
        if self._view is None:
            devices = tuple(
                DeviceView(
                    uuid=device.uuid,
                    index=device.index,
                    gpu_type=device.gpu_type,
                    usable_memory_bytes=device.usable_memory_bytes,
                    free_milli=self.free_milli(device.uuid),
                    free_memory_bytes=self.free_device_memory(device.uuid),
                    holders=tuple(self._holders[device.uuid]),
                )
                for device in self.spec.devices
            )
            self._view = NodeView(
                name=self.spec.name,
                cpu_milli=self.spec.cpu_milli,
                memory_bytes=self.spec.memory_bytes,
                free_cpu_milli=self.free_cpu_milli,
                free_memory_bytes=self.free_memory_bytes,
                devices=devices,
                labels=self.spec.labels,
            )
        return self._view


class Ledger:
    """The books of all nodes of a cluster."""

    def __init__(self, nodes: Mapping[str, NodeLedger], borrowed: Iterable[str] = ()) -> None:
        self._nodes = dict(nodes)
        self._borrowed = set(borrowed)  # nodes that a sketch shares with its original until it writes to them

    @classmethod
    def of(cls, cluster: ClusterSpec) -> Ledger:
        return cls({node.name: NodeLedger(node) for node in cluster.nodes})

    def without(self, leaving: Iterable[tuple[str, Allocation]]) -> Ledger:
        """A copy in which these holders are gone: what will be free once they have stopped."""
        sketch = Ledger(self._nodes, borrowed=self._nodes)
        for job_id, allocation in leaving:
            sketch.release(job_id, allocation)
        return sketch

    def resolve(self, allocation: Allocation) -> Allocation | None:
        """The allocation with all devices named, or None if any task doesn't fit now."""
        sketch = self.without([]) if len(allocation.tasks) > 1 else self
        tasks: list[TaskPlacement] = []
        for task in allocation.tasks:
            resolved = sketch._nodes[task.node].resolve(task) if task.node in sketch._nodes else None
            if resolved is None:
                return None
            if sketch is not self:
                sketch._own(task.node).take("", resolved)
            tasks.append(resolved)
        return replace(allocation, tasks=tuple(tasks))

    def take(self, job_id: str, allocation: Allocation) -> None:
        for task in allocation.tasks:
            self._own(task.node).take(job_id, task)

    def release(self, job_id: str, allocation: Allocation) -> None:
        for task in allocation.tasks:
            self._own(task.node).release(job_id, task)

    def resize(self, job_id: str, old: Allocation, new: Allocation) -> None:
        """A holder's CPUs and host memory are divided anew."""
        self.release(job_id, old)
        self.take(job_id, new)

    def views(self) -> dict[str, NodeView]:
        return {name: node.view() for name, node in self._nodes.items()}

    def _own(self, name: str) -> NodeLedger:
        if name in self._borrowed:
            self._nodes[name] = self._nodes[name].copy()
            self._borrowed.discard(name)
        return self._nodes[name]
