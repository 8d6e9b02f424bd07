"""Demands of the jobs of a round, and the servers on which they are packed; servers are empty when a round begins."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import filterfalse

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.sensitivity import HostShare
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import ClusterView, DeviceView, JobView, NodeView
from scheduler_sims.policies.node_space import device_suits, joined_devices
from scheduler_sims.policies.placing import main_configuration


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of a server that a job may get.

    `proportional`: CPUs and memory in proportion to the job's GPUs, at least the job's minimum. `ideal`: with which the job
    is fastest, up to the whole server; if that is unknown, the proportional share. `modest`: for each resource the lesser of
    ideal and proportional, with which the job is as fast as with the proportional share.

    Example: on a server with 8 GPUs and 24 CPUs, a one-GPU job that uses up to 9 CPUs has proportional 3, ideal 9, modest 3.
    """

    proportional: HostShare
    ideal: HostShare
    modest: HostShare

    @classmethod
    def of(cls, wanted: Configuration, node: NodeView) -> Shares:
        """The shares of configuration `wanted` on `node`; unhealthy devices count as well."""
        devices = max(1, len(node.devices))
        share = HostShare(
            max(wanted.cpu_milli, node.cpu_milli * wanted.gpus // devices),
            max(wanted.memory_bytes, node.memory_bytes * wanted.gpus // devices),
        )
        ideal = HostShare(
            min(node.cpu_milli, wanted.best_cpu_milli or share.cpu_milli),
            min(node.memory_bytes, wanted.best_memory_bytes or share.memory_bytes),
        )
        modest = HostShare(
            min(share.cpu_milli, ideal.cpu_milli),
            min(share.memory_bytes, ideal.memory_bytes),
        )
        return cls(share, ideal, modest)


Kind = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """A job and its configuration. `kind`: all that decides where it fits. `known`: shares by size of servers, which jobs of a
    kind have in common."""

    job: JobView
    configuration: Configuration
    gpus: int
    kind: Kind
    known: dict[tuple[int, int, int], Shares] = field(compare=False, repr=False)

    @classmethod
    def of(cls, view: ClusterView, job: JobView, known: dict[Kind, dict[tuple[int, int, int], Shares]]) -> Demand:
        """The demand of `job` in its main configuration. Raises PolicyError for a job of several nodes."""
        configuration = main_configuration(view, job)
        if configuration.min_tasks > 1:
            raise PolicyError(
                f"synergy: job {job.job_id!r} runs on {configuration.min_tasks} nodes; Synergy's jobs run on one each, "
                "use another policy for this workload"
            )
        host = (configuration.cpu_milli, configuration.memory_bytes)
        best = (configuration.best_cpu_milli, configuration.best_memory_bytes)
        device = (configuration.gpu_types, configuration.device_memory_bytes, configuration.parallelism.tensor)
        kind = (configuration.gpus, *host, *best, *device)
        return cls(job, configuration, configuration.gpus, kind, known.setdefault(kind, {}))

    def of_view(self, job: JobView) -> Demand:
        """The same demand, of the job as it is now."""
        return self if job is self.job else Demand(job, self.configuration, self.gpus, self.kind, self.known)

    def shares(self, server: Server) -> Shares:
        """The shares on `server`, computed once for servers of the same size."""
        known = self.known.get(server.size)
        if known is None:
            known = self.known[server.size] = Shares.of(self.configuration, server.node)
        return known

    def allocation(self, node: NodeView, host: HostShare, devices: Iterable[DeviceView] = ()) -> Allocation:
        """The allocation on `node` with the CPUs and memory of `host`, on these devices (default: any)."""
        memory = self.configuration.device_memory_bytes
        shares = tuple(DeviceShare(d.uuid, d.gpu_type, memory_bytes=memory) for d in devices)
        any_device = DeviceShare(None, node.gpu_type or "", memory_bytes=memory)
        task = TaskPlacement(node.name, shares or (any_device,) * self.gpus, host.cpu_milli, host.memory_bytes)
        return Allocation(self.configuration.name, (task,))


@dataclass(slots=True)
class Grant:
    """The share of a job on the server on which it is packed."""

    demand: Demand
    host: HostShare


@dataclass(slots=True)
class Server:
    """One server: its node, and its free capacity while a round is packed."""

    node: NodeView
    free_gpus: int
    free_cpu_milli: int
    free_memory_bytes: int
    grants: list[Grant] = field(default_factory=list)
    size: tuple[int, int, int] = (0, 0, 0)
    """CPUs, memory and devices of the node: servers of one size give a job the same shares."""
    position: int = 0
    _usable: dict[tuple[object, ...], int] = field(default_factory=dict)
    _differ: bool | None = None

    @classmethod
    def empty(cls, node: NodeView) -> Server:
        """The whole node, without unhealthy devices."""
        size = (node.cpu_milli, node.memory_bytes, len(node.devices))
        return cls(node, sum(d.healthy for d in node.devices), node.cpu_milli, node.memory_bytes, size=size)

    def suits(self, demand: Demand) -> bool:
        """Whether the server has enough healthy devices that the job can use: beside the jobs that it has been given, where
        its devices differ; elsewhere the number of free ones says so."""
        wanted = demand.configuration
        key = (wanted.gpu_types, wanted.device_memory_bytes, wanted.parallelism.tensor, demand.gpus)
        if key not in self._usable:
            suiting = [d.nvlink_domain for d in self.node.devices if d.healthy and device_suits(d, wanted)]
            self._usable[key] = wanted.parallelism.usable_gpus(suiting, demand.gpus)
        if self._usable[key] < demand.gpus or not self.grants:
            return self._usable[key] >= demand.gpus
        if self._differ is None:
            kinds = {(d.gpu_type, d.usable_memory_bytes) for d in self.node.devices}
            self._differ = len(kinds) > 1 or self.node.nvlink_domain is None
        demands = (*(grant.demand for grant in self.grants), demand)
        return not self._differ or devices_for(self.node, demands) is not None

    def has(self, host: HostShare) -> bool:
        """Whether these CPUs and this memory are free."""
        return self.free_cpu_milli >= host.cpu_milli and self.free_memory_bytes >= host.memory_bytes

    def give(self, demand: Demand, host: HostShare) -> None:
        """Grants the share to the job."""
        self.free_gpus -= demand.gpus
        self._take(host, +1)
        self.grants.append(Grant(demand, host))

    def shrink(self, grant: Grant, host: HostShare) -> None:
        """Replaces the share of a job on this server by `host`."""
        self._take(grant.host, -1)
        self._take(host, +1)
        grant.host = host

    def _take(self, host: HostShare, sign: int) -> None:
        self.free_cpu_milli -= sign * host.cpu_milli
        self.free_memory_bytes -= sign * host.memory_bytes


class Servers:
    """The servers of a round, in the order of nodes, found by their free GPUs."""

    def __init__(self, servers: Iterable[Server]) -> None:
        self.all = tuple(servers)
        self._by_free: list[list[int]] = [[]]
        """By number of free GPUs: the positions of the servers with so many."""
        for position, server in enumerate(self.all):
            server.position = position
            self._by_free += [[] for _ in range(server.free_gpus + 1 - len(self._by_free))]
            self._by_free[server.free_gpus].append(position)
        self._too_small: dict[tuple[object, Kind], set[int]] = {}
        """By share and kind of job: the servers that lacked it. They lack it until a job returns something."""

    def with_room(self, demands: Iterable[Demand]) -> Iterator[Demand]:
        """The demands for whose GPUs a server has room when their turn comes; most jobs of a long queue find none."""
        for demand in demands:
            while len(self._by_free) > 1 and not self._by_free[-1]:
                self._by_free.pop()
            if demand.gpus < len(self._by_free):
                yield demand

    def with_gpus(self, demand: Demand) -> Iterator[Server]:
        """The servers with enough free GPUs, in the order of nodes."""
        return (server for server in self.all if server.free_gpus >= demand.gpus)

    def fullest_first(self, demand: Demand) -> Iterator[Server]:
        """The servers with enough free GPUs, those with the fewest first, to avoid fragmentation; ties: the order of nodes."""
        for positions in self._by_free[demand.gpus :]:
            for position in positions:
                yield self.all[position]

    def place(self, demand: Demand, share: Callable[[Shares], HostShare]) -> bool:
        """Grants this one of the job's shares on the fullest server that has it; False if none has."""
        too_small = self._too_small.setdefault((share, demand.kind), set())
        for positions in self._by_free[demand.gpus :]:
            for position in filterfalse(too_small.__contains__, positions):
                server = self.all[position]
                host = share(demand.shares(server))
                if server.has(host) and server.suits(demand):
                    self.give(server, demand, host)
                    return True
                too_small.add(position)
        return False

    def give(self, server: Server, demand: Demand, host: HostShare) -> None:
        """Grants the share to the job."""
        positions = self._by_free[server.free_gpus]
        del positions[bisect_left(positions, server.position)]
        server.give(demand, host)
        insort(self._by_free[server.free_gpus], server.position)

    def shrink(self, server: Server, grant: Grant, host: HostShare) -> None:
        """Replaces the share of a job on the server by `host`, which is less."""
        server.shrink(grant, host)
        for too_small in self._too_small.values():
            too_small.discard(server.position)


def devices_for(node: NodeView, demands: Sequence[Demand]) -> list[list[DeviceView]] | None:
    """Healthy devices of the node for each of the demands; None if there are too few of some kind.

    Demands that fewer devices suit choose first: that finds devices wherever each demand's devices are among those of the next
    (larger memories suit smaller demands, for example); of equals, those whose layers are divided over the most devices. Of the
    devices that suit, those are taken that suit the fewest others.
    """
    suit = [[d for d in node.devices if d.healthy and device_suits(d, demand.configuration)] for demand in demands]
    popular = Counter(device.uuid for devices in suit for device in devices)
    found: list[list[DeviceView]] = [[] for _ in demands]
    taken: set[str] = set()
    layers = [demand.configuration.parallelism.tensor for demand in demands]
    for number in sorted(range(len(demands)), key=lambda number: (len(suit[number]), -layers[number])):
        free = [device for device in suit[number] if device.uuid not in taken]
        free.sort(key=lambda device: (popular[device.uuid], device.index))
        found[number] = joined_devices(free, demands[number].configuration)
        if len(found[number]) < demands[number].gpus:
            return None
        taken.update(device.uuid for device in found[number])
    return found


def grants_of(servers: Iterable[Server]) -> Iterator[tuple[Server, Grant]]:
    """Every grant with its server."""
    return ((server, grant) for server in servers for grant in server.grants)
