"""Maps the servers of a round to nodes and devices such that jobs stay where they run.

Each round is packed from scratch, so a job that continues may be packed on another server for no benefit. Equal nodes are
interchangeable: servers are assigned to equal nodes such that many jobs stay, and jobs that stay keep their devices and are
never stopped, unless devices of a node differ and others need theirs. (Moves are free in Synergy's simulator, so this doesn't
change its figures.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from emulator_runtime.domain.sensitivity import HostShare
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import DeviceView, JobView, NodeView, Phase
from scheduler_sims.policies.node_space import device_suits, joined_devices
from scheduler_sims.policies.synergy.servers import Demand, Grant, Server, devices_for

_index = attrgetter("index")


def settle(servers: Sequence[Server]) -> dict[str, Allocation]:
    """The allocation of each job on the packed servers, by job id."""
    nodes = _nodes(servers)
    return {
        job_id: allocation
        for server in servers
        for job_id, allocation in _on_node(nodes[server.node.name], server.grants).items()
    }


def _nodes(servers: Sequence[Server]) -> Mapping[str, NodeView]:
    """The node that each server becomes, by the name of the server's node: first where most jobs stay, then in order."""
    by_name = {server.node.name: server.node for server in servers}
    kinds = {name: _kind(node) for name, node in by_name.items()}
    stays = Counter((s.node.name, node) for s in servers for node in _homes(s) if kinds.get(node) == kinds[s.node.name])
    becomes: dict[str, NodeView] = {}
    for name, home in sorted(stays, key=lambda pair: (-stays[pair], pair[0] != pair[1])):
        if name not in becomes and home in kinds:
            becomes[name] = by_name[home]
            del kinds[home]
    for name, node in by_name.items():
        if name not in becomes:
            left = next(each for each, kind in kinds.items() if kind == _kind(node))
            becomes[name] = by_name[left]
            del kinds[left]
    return becomes


def _kind(node: NodeView) -> tuple[object, ...]:
    domains = list(dict.fromkeys(d.nvlink_domain for d in node.devices))
    devices = tuple(
        (d.gpu_type, d.usable_memory_bytes, domains.index(d.nvlink_domain)) for d in node.devices if d.healthy
    )
    return (node.cpu_milli, node.memory_bytes, len(node.devices), devices)


def _homes(server: Server) -> list[str]:
    """The nodes on which the jobs of a server run now."""
    jobs = (grant.demand.job for grant in server.grants)
    return [job.allocation.nodes[0] for job in jobs if job.allocation and job.phase is not Phase.STOPPING]


def _held(job: JobView, node: str) -> Allocation | None:
    """The task of a job on `node`, if the job runs there and isn't stopping."""
    allocation = job.allocation
    return allocation if allocation and job.phase is not Phase.STOPPING and allocation.nodes == (node,) else None


def _on_node(node: NodeView, grants: Sequence[Grant]) -> dict[str, Allocation]:
    """Jobs that stay keep their devices, others get the first remaining ones that suit them; where these don't suffice, since
    the node's devices differ, all jobs get devices anew."""
    free = {d.uuid: d for d in sorted(node.devices, key=_index) if d.healthy}
    kept = {g.demand.job.job_id: held for g in grants if (held := _keeps(g.demand, node, free)) is not None}
    for allocation in kept.values():
        for share in allocation.tasks[0].shares:
            del free[share.device or ""]
    placed = {}
    for grant in grants:
        job_id = grant.demand.job.job_id
        given = _resized(kept[job_id], grant.host) if job_id in kept else _moved(node, grant, free)
        if given is None:
            return _anew(node, grants)
        placed[job_id] = given
    return placed


def _anew(node: NodeView, grants: Sequence[Grant]) -> dict[str, Allocation]:
    found = devices_for(node, [grant.demand for grant in grants])
    assert found is not None  # the server was given these jobs one by one, in this order, as long as there were devices
    return {
        grant.demand.job.job_id: grant.demand.allocation(node, grant.host, devices)
        for grant, devices in zip(grants, found, strict=True)
    }


def _keeps(demand: Demand, node: NodeView, healthy: Mapping[str, DeviceView]) -> Allocation | None:
    held = _held(demand.job, node.name)
    if held is None or held.configuration != demand.configuration.name:
        return None
    return held if all(share.device in healthy for share in held.tasks[0].shares) else None


def _resized(held: Allocation, host: HostShare) -> Allocation:
    """What the job has, with other CPUs and memory."""
    task = held.tasks[0]
    if (task.cpu_milli, task.memory_bytes) == (host.cpu_milli, host.memory_bytes):
        return held
    return replace(held, tasks=(replace(task, cpu_milli=host.cpu_milli, memory_bytes=host.memory_bytes),))


def _moved(node: NodeView, grant: Grant, free: dict[str, DeviceView]) -> Allocation | None:
    """The job on the first devices that suit it, which aren't free any more; None if too few do."""
    suiting = [d for d in free.values() if device_suits(d, grant.demand.configuration)]
    devices = joined_devices(suiting, grant.demand.configuration)
    if len(devices) < grant.demand.gpus:
        return None
    for device in devices:
        del free[device.uuid]
    return grant.demand.allocation(node, grant.host, devices)
