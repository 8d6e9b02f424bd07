"""Which job holds which resources of the nodes. Views are made from this ledger, and plans are checked against it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.units import gib
from scheduler_sims.clusters.open import NodeState
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import DeviceView, NodeTable, NodeView


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why an allocation doesn't fit. `never`: it would not fit an empty cluster either."""

    text: str
    never: bool = False


class NodeLedger:
    """Free resources of one node; `view` and its devices are rebuilt only after a change."""

    __slots__ = (
        "_absent",
        "_devices",
        "_free_memory",
        "_free_milli",
        "_holders",
        "_idle",
        "_specs",
        "_types",
        "_view",
        "free_cpu_milli",
        "free_memory_bytes",
        "spec",
        "state",
    )

    def __init__(self, state: NodeState) -> None:
        self.state = state
        self.spec = spec = state.spec
        self.free_cpu_milli = spec.cpu_milli
        self.free_memory_bytes = spec.memory_bytes
        self._specs = {device.uuid: device for device in spec.devices}
        self._holders: dict[str, dict[str, tuple[int, int]]] = {uuid: {} for uuid in self._specs}
        self._types = {uuid: device.gpu_type for uuid, device in self._specs.items()}
        self._free_milli = dict.fromkeys(self._types, WHOLE_DEVICE_MILLI)
        self._free_memory = {uuid: device.usable_memory_bytes for uuid, device in self._specs.items()}
        self._absent: frozenset[str] | None = None
        self._devices: dict[str, DeviceView] = {}
        self._idle: dict[str, DeviceView] = {}
        """What each device looked like when nobody held it."""
        self._view: NodeView | None = None

    @property
    def held(self) -> bool:
        """Whether any job holds resources of the node."""
        whole = self.free_cpu_milli == self.spec.cpu_milli and self.free_memory_bytes == self.spec.memory_bytes
        return not whole or any(self._holders.values())

    def copy(self) -> NodeLedger:
        """An independent copy on which a plan can be tried."""
        twin = NodeLedger.__new__(NodeLedger)
        twin.state, twin.spec, twin._specs, twin._types = self.state, self.spec, self._specs, self._types
        twin.free_cpu_milli, twin.free_memory_bytes = self.free_cpu_milli, self.free_memory_bytes
        twin._holders = self._holders.copy()  # of what one device has, neither changes an object that the other has too
        twin._free_milli, twin._free_memory = self._free_milli.copy(), self._free_memory.copy()
        twin._absent = self._absent_devices()
        twin._devices, twin._idle, twin._view = self._devices.copy(), self._idle, None
        return twin

    def nvlink_domain(self, uuid: str) -> str:
        """The NVLink domain of a device of the node."""
        return self.spec.domain_of(self._specs[uuid])

    def _fits(self, uuid: str, share: DeviceShare) -> bool:
        """Whether a device of the node has room for the share."""
        return (
            self._types.get(uuid) == share.gpu_type
            and self._free_milli[uuid] >= share.milli
            and self._free_memory[uuid] >= share.memory_bytes
            and (not self.spec.replicas or len(self._holders[uuid]) < self.spec.replicas)
        )

    def resolve(self, task: TaskPlacement, *, held: bool = False) -> TaskPlacement | None:
        """The task with all devices named, or None if it doesn't fit the node now.

        `held`: the task runs there already, so closed nodes and unhealthy devices are accepted.
        """
        if task.cpu_milli > self.free_cpu_milli or task.memory_bytes > self.free_memory_bytes:
            return None
        if self.state.closed and not held:
            return None
        taken = set() if held else self._out_of_use()
        named = True
        shares = []
        for share in task.shares:
            uuid = share.device
            if uuid:
                if uuid in taken or not self._fits(uuid, share):
                    return None
            else:
                named = False
                uuid = next((each for each in self._types if each not in taken and self._fits(each, share)), None)
                if uuid is None:
                    return None
                share = replace(share, device=uuid)
            taken.add(uuid)
            shares.append(share)
        return task if named else replace(task, shares=tuple(shares))

    def shortage(self, task: TaskPlacement) -> Shortage:
        """Why `resolve` returns None for the task."""
        spec = self.spec
        if self.state.closed:
            return Shortage("the node is not ready or cordoned")
        if task.cpu_milli > self.free_cpu_milli:
            free = f"{self.free_cpu_milli / 1000:g} of the node's {spec.cpu_milli / 1000:g}"
            never = task.cpu_milli > spec.cpu_milli
            return Shortage(f"it needs {task.cpu_milli / 1000:g} CPUs, {free} are free", never=never)
        if task.memory_bytes > self.free_memory_bytes:
            free = f"{gib(self.free_memory_bytes)} of the node's {gib(spec.memory_bytes)}"
            never = task.memory_bytes > spec.memory_bytes
            return Shortage(f"it needs {gib(task.memory_bytes)} of memory, {free} are free", never=never)
        of_type = sum(gpu_type == task.gpu_type for gpu_type in self._types.values())
        out_of_use = self._out_of_use()
        free_gpus = sum(
            gpu_type == task.gpu_type and uuid not in out_of_use and self._fits(uuid, task.shares[0])
            for uuid, gpu_type in self._types.items()
        )
        gpus = len(task.shares)
        if free_gpus >= gpus:
            return Shortage("a device that it names is taken, out of use or of another type")
        text = f"it needs {gpus} GPU{'s' * (gpus > 1)} of type {task.gpu_type}, {free_gpus} of the node's {of_type} are free"
        return Shortage(text, never=gpus > of_type)

    def take(self, job_id: str, task: TaskPlacement) -> None:
        self.free_cpu_milli -= task.cpu_milli
        self.free_memory_bytes -= task.memory_bytes
        for share in task.shares:
            uuid = share.device
            assert uuid is not None
            # Tasks of one job may share a device: what they hold adds up.
            holders = self._holders[uuid]
            milli, memory_bytes = holders.get(job_id, (0, 0)) if holders else (0, 0)
            self._holders[uuid] = {**holders, job_id: (milli + share.milli, memory_bytes + share.memory_bytes)}
            self._free_milli[uuid] -= share.milli
            self._free_memory[uuid] -= share.memory_bytes
            self._devices.pop(uuid, None)
            if self._absent and uuid in self._absent:  # the job runs there, so another device is absent
                self._absent = None
                self._devices.clear()
        self._view = None

    def release(self, job_id: str, task: TaskPlacement) -> None:
        self.free_cpu_milli += task.cpu_milli
        self.free_memory_bytes += task.memory_bytes
        for share in task.shares:
            uuid = share.device
            assert uuid is not None
            holders = self._holders[uuid].copy()
            milli, memory_bytes = holders.pop(job_id)
            if milli > share.milli:
                holders[job_id] = (milli - share.milli, memory_bytes - share.memory_bytes)
                memory_bytes = share.memory_bytes
                milli = share.milli
            self._holders[uuid] = holders
            self._free_milli[uuid] += milli
            self._free_memory[uuid] += memory_bytes
            self._devices.pop(uuid, None)
        self._view = None

    def _out_of_use(self) -> set[str]:
        """The devices that no job can get: unhealthy and absent ones."""
        state = self.state
        if state.closed:
            return set(self._types)
        return {*state.unhealthy, *self._absent_devices()} if state.unhealthy or state.absent else set()

    def _absent_devices(self) -> frozenset[str]:
        """The devices that count as absent: the last of the free ones, then the last of the others.

        Example: if the kubelet offers 6 of 8 free devices, `absent` is 2 and the last two are absent. They stay so when other
        devices become free: a plan that was made before must not find other devices absent.
        """
        if not self.state.absent:
            return frozenset()
        if self._absent is None:
            healthy = [uuid for uuid in self._types if uuid not in self.state.unhealthy]
            by_use = sorted(healthy, key=lambda uuid: not self._holders[uuid])  # those with holders first
            self._absent = frozenset(by_use[max(0, len(by_use) - self.state.absent) :])
        return self._absent

    def view(self) -> NodeView:
        if self._view is None:
            out_of_use, closed = self._out_of_use(), self.state.closed
            devices = self._devices
            for uuid in self._specs.keys() - devices.keys():
                devices[uuid] = self._device_view(self._specs[uuid], uuid, healthy=uuid not in out_of_use)
            self._view = NodeView(
                name=self.spec.name,
                cpu_milli=self.spec.cpu_milli - (self.free_cpu_milli if closed else 0),
                memory_bytes=self.spec.memory_bytes - (self.free_memory_bytes if closed else 0),
                free_cpu_milli=0 if closed else self.free_cpu_milli,
                free_memory_bytes=0 if closed else self.free_memory_bytes,
                devices=tuple([devices[uuid] for uuid in self._types]),
                labels=self.spec.labels,
                nvlink_domain=self.spec.nvlink_domain,
            )
        return self._view

    def _device_view(self, device: Device, uuid: str, *, healthy: bool) -> DeviceView:
        held, idle = bool(self._holders[uuid]), self._idle.get(uuid)
        if idle is not None and not held and idle.healthy == healthy:
            return idle
        view = DeviceView(
            uuid=uuid,
            index=device.index,
            gpu_type=device.gpu_type,
            usable_memory_bytes=device.usable_memory_bytes,
            free_milli=self._free_milli[uuid],
            free_memory_bytes=self._free_memory[uuid],
            holders=tuple(self._holders[uuid]),
            healthy=healthy,
            sharing=self.spec.sharing,
            replicas=self.spec.replicas,
            nvlink_domain=self.spec.domain_of(device),
        )
        if not held:
            self._idle[uuid] = view
        return view


class _Nodes(NodeTable):
    """The nodes as policies see them; each view is made when it is asked for."""

    def __init__(self, nodes: Mapping[str, NodeLedger]) -> None:
        super().__init__(constant=not any(node.state.closed for node in nodes.values()))
        self._nodes = nodes

    def __getitem__(self, name: str) -> NodeView:
        return self._nodes[name].view()

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


class Ledger:
    """The ledgers of all nodes of a cluster. `changed`: nodes whose resources were taken or released since it was emptied.

    A ledger with a `base` is a sketch: it has a node of its own where it differs from the base.
    """

    def __init__(self, nodes: Mapping[str, NodeLedger], base: Mapping[str, NodeLedger] | None = None) -> None:
        self._own = dict(nodes)
        self._base = base
        self._views: _Nodes | None = None
        self.changed = set(self._own)

    @classmethod
    def of(cls, cluster: ClusterSpec) -> Ledger:
        return cls.of_states(NodeState(node) for node in cluster.nodes)

    @classmethod
    def of_states(cls, states: Iterable[NodeState]) -> Ledger:
        return cls({state.spec.name: NodeLedger(state) for state in states})

    def renewed(self, states: Iterable[NodeState], holders: Mapping[str, Allocation]) -> Ledger:
        """A ledger of these nodes with the same holders (by job id), which keep their resources until they release them.

        A removed node stays, closed, as long as a job holds resources of it; a removed device stays and counts as unhealthy.
        """
        found = {state.spec.name: state for state in states}
        for allocation in holders.values():
            for task in allocation.tasks:
                state = found.get(task.node)
                devices = {share.device for share in task.shares}
                if state is None:
                    found[task.node] = replace(self._all[task.node].state, closed=True)
                elif lost := devices - {device.uuid for device in state.spec.devices}:
                    found[task.node] = _with_lost(state, self._all[task.node].spec, lost)
        ledger = Ledger.of_states(found.values())
        for job_id, allocation in holders.items():
            ledger.take(job_id, allocation)
        return ledger

    def without(self, leaving: Iterable[tuple[str, Allocation]]) -> Ledger:
        """A copy without these holders: the resources that are free once they have stopped."""
        sketch = Ledger({}, base=self._all)
        for job_id, allocation in leaving:
            sketch.release(job_id, allocation)
        return sketch

    @property
    def _all(self) -> Mapping[str, NodeLedger]:
        return self._own if self._base is None else ChainMap(self._own, self._base)  # type: ignore[arg-type]

    def resolve(self, allocation: Allocation, *, held: bool = False) -> Allocation | None:
        """The allocation with all devices named, or None if any task doesn't fit now.

        `held`: the job runs there already, so the health of devices doesn't matter.
        """
        if len(allocation.tasks) == 1:
            (task,) = allocation.tasks
            node = self._look(task.node)
            resolved = node.resolve(task, held=held) if node is not None else None
            if resolved is None or resolved is task:
                return None if resolved is None else allocation
            return replace(allocation, tasks=(resolved,))
        return self._resolve_gang(allocation, held=held)

    def _resolve_gang(self, allocation: Allocation, *, held: bool) -> Allocation | None:
        sketch = self.without([])
        tasks: list[TaskPlacement] = []
        for task in allocation.tasks:
            node = sketch._look(task.node)
            resolved = node.resolve(task, held=held) if node is not None else None
            if resolved is None:
                return None
            sketch._node(task.node).take("", resolved)
            tasks.append(resolved)
        same = all(resolved is task for resolved, task in zip(tasks, allocation.tasks, strict=True))
        return allocation if same else replace(allocation, tasks=tuple(tasks))

    def shortage(self, allocation: Allocation) -> Shortage:
        """Why `resolve` returns None: the node of the first task that doesn't fit, and the resource that is short there.

        For example: "n1, where it does not fit beside the rest: it needs 8 CPUs, 2 of the node's 2 are free".
        """
        for task in allocation.tasks:
            node = self._look(task.node)
            if node is None:
                return Shortage(f"{task.node!r}, which is no node of the cluster; see ClusterView.nodes", never=True)
            if node.resolve(task) is None:
                lacks = node.shortage(task)
                return Shortage(f"{task.node}, where it does not fit beside the rest: {lacks.text}", never=lacks.never)
        return Shortage(f"{', '.join(allocation.nodes)}, where it does not fit beside the rest")

    def nvlink_domains(self, allocation: Allocation) -> list[str]:
        """The NVLink domain of each device of an allocation that `resolve` has returned."""
        domains: list[str] = []
        for task in allocation.tasks:
            node = self._look(task.node)
            assert node is not None
            domains += [node.nvlink_domain(share.device or "") for share in task.shares]
        return domains

    def take(self, job_id: str, allocation: Allocation) -> None:
        for task in allocation.tasks:
            self._node(task.node).take(job_id, task)

    def release(self, job_id: str, allocation: Allocation) -> None:
        for task in allocation.tasks:
            self._node(task.node).release(job_id, task)

    def resize(self, job_id: str, old: Allocation, new: Allocation) -> None:
        """Change a holder's CPUs and host memory."""
        self.release(job_id, old)
        self.take(job_id, new)

    def open_nodes(self) -> tuple[NodeSpec, ...]:
        """The nodes that are open or have holders."""
        return tuple(node.spec for node in self._all.values() if not node.state.closed or node.held)

    def views(self) -> NodeTable:
        """The present state of all nodes, always the same object."""
        if self._views is None:
            self._views = _Nodes(self._all)
        return self._views

    def _look(self, name: str) -> NodeLedger | None:
        """The node, not to be changed."""
        node = self._own.get(name)
        return node if node is not None or self._base is None else self._base.get(name)

    def _node(self, name: str) -> NodeLedger:
        """The node, to be changed."""
        self.changed.add(name)
        if self._base is not None and name not in self._own:
            self._own[name] = self._base[name].copy()
        return self._own[name]


def _with_lost(state: NodeState, before: NodeSpec, lost: set[str | None]) -> NodeState:
    """The node with its removed devices `lost`, as unhealthy ones."""
    kept = tuple(device for device in before.devices if device.uuid in lost)
    spec = replace(state.spec, devices=(*state.spec.devices, *kept))
    return replace(state, spec=spec, unhealthy=state.unhealthy | {device.uuid for device in kept})
