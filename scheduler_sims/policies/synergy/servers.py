"""What the jobs of a round demand, and the servers on which they are packed, empty at the start of every round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.sensitivity import HostShare
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import ClusterView, DeviceView, JobView, NodeView
from scheduler_sims.policies.placing import device_suits, main_configuration


@dataclass(frozen=True, slots=True)
class Demand:
    """A job and the configuration that it runs in."""

    job: JobView
    configuration: Configuration

    @classmethod
    def of(cls, view: ClusterView, job: JobView) -> Demand:
        """What `job` demands in its main configuration."""
        return cls(job, main_configuration(view, job))

    @property
    def gpus(self) -> int:
        return self.configuration.gpus

    def proportional(self, server: Server) -> HostShare:
        """The part of a server's CPUs and memory that its GPUs are of the server's GPUs; never less than it runs with."""
        least, node = self.configuration, server.node
        devices = max(1, len(node.devices))
        return HostShare(
            max(least.cpu_milli, node.cpu_milli * self.gpus // devices),
            max(least.memory_bytes, node.memory_bytes * self.gpus // devices),
        )

    def ideal(self, server: Server) -> HostShare:
        """That with which it is fastest, up to the whole server. Where nobody has measured that: the proportional share."""
        wanted, known = self.proportional(server), self.configuration
        return HostShare(
            min(server.node.cpu_milli, known.best_cpu_milli or wanted.cpu_milli),
            min(server.node.memory_bytes, known.best_memory_bytes or wanted.memory_bytes),
        )

    def modest(self, server: Server) -> HostShare:
        """The ideal, but of nothing more than the proportional share: as fast as that, or faster."""
        most, wanted = self.proportional(server), self.ideal(server)
        return HostShare(min(most.cpu_milli, wanted.cpu_milli), min(most.memory_bytes, wanted.memory_bytes))

    def allocation(self, node: NodeView, host: HostShare, devices: Iterable[DeviceView] = ()) -> Allocation:
        """On `node` with `host`, on these devices (default: any)."""
        memory = self.configuration.device_memory_bytes
        shares = tuple(DeviceShare(d.uuid, d.gpu_type, memory_bytes=memory) for d in devices)
        any_device = DeviceShare(None, node.gpu_type or "", memory_bytes=memory)
        task = TaskPlacement(node.name, shares or (any_device,) * self.gpus, host.cpu_milli, host.memory_bytes)
        return Allocation(self.configuration.name, (task,))


@dataclass(slots=True)
class Grant:
    """What a job gets on the server that it is packed on."""

    demand: Demand
    host: HostShare


@dataclass(slots=True)
class Server:
    """One server: its node, and what is free of it while a round is packed."""

    node: NodeView
    free_gpus: int
    free_cpu_milli: int
    free_memory_bytes: int
    grants: list[Grant] = field(default_factory=list)

    @classmethod
    def empty(cls, node: NodeView) -> Server:
        """The whole node, without devices that aren't healthy."""
        return cls(node, sum(d.healthy for d in node.devices), node.cpu_milli, node.memory_bytes)

    def suits(self, demand: Demand) -> bool:
        """Whether enough healthy devices are of a kind that the job can use, free or not."""
        usable = sum(d.healthy and device_suits(d, demand.configuration) for d in self.node.devices)
        return usable >= demand.gpus

    def fits(self, demand: Demand, host: HostShare) -> bool:
        """Whether that much is free."""
        enough = self.free_cpu_milli >= host.cpu_milli and self.free_memory_bytes >= host.memory_bytes
        return enough and self.free_gpus >= demand.gpus and self.suits(demand)

    def give(self, demand: Demand, host: HostShare) -> None:
        """The job gets it."""
        self.free_gpus -= demand.gpus
        self._take(host, +1)
        self.grants.append(Grant(demand, host))

    def shrink(self, grant: Grant, host: HostShare) -> None:
        """A job of this server gets `host` instead."""
        self._take(grant.host, -1)
        self._take(host, +1)
        grant.host = host

    def _take(self, host: HostShare, sign: int) -> None:
        self.free_cpu_milli -= sign * host.cpu_milli
        self.free_memory_bytes -= sign * host.memory_bytes


def fullest_first(servers: Iterable[Server]) -> list[Server]:
    """Those with the fewest free GPUs first, which keeps large holes whole; ties: the order of nodes."""
    return sorted(servers, key=lambda server: server.free_gpus)


def grants_of(servers: Iterable[Server]) -> Iterator[tuple[Server, Grant]]:
    """Every grant with its server."""
    return ((server, grant) for server in servers for grant in server.grants)
