"""Maps the servers of a round to nodes and devices such that jobs stay where they run.

Each round is packed from scratch, so a job that continues may be packed on another server for no benefit. Equal nodes are
interchangeable: servers are assigned to equal nodes such that many jobs stay, and jobs that stay keep their devices and are
never stopped. (Moves are free in Synergy's simulator, so this doesn't change its figures.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from emulator_runtime.domain.sensitivity import HostShare
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import DeviceView, JobView, NodeView, Phase
from scheduler_sims.policies.placing import device_suits
from scheduler_sims.policies.synergy.servers import Demand, Grant, Server


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
    devices = tuple((d.gpu_type, d.usable_memory_bytes) for d in node.devices if d.healthy)
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
    """Jobs that stay keep their devices; other jobs get the first remaining ones."""
    free = {d.uuid: d for d in sorted(node.devices, key=lambda d: d.index) if d.healthy}
    kept = {g.demand.job.job_id: _keeps(g.demand, node, free) for g in grants}
    for devices in kept.values():
        for device in devices:
            del free[device.uuid]
    placed = {}
    for grant in grants:
        demand = grant.demand
        suiting = (d for d in list(free.values()) if device_suits(d, demand.configuration))
        devices = kept[demand.job.job_id] or [d for d, _ in zip(suiting, range(demand.gpus), strict=False)]
        for device in devices:
            free.pop(device.uuid, None)
        placed[demand.job.job_id] = _allocation(demand, node, grant.host, devices)
    return placed


def _keeps(demand: Demand, node: NodeView, healthy: Mapping[str, DeviceView]) -> list[DeviceView]:
    held = _held(demand.job, node.name)
    if held is None or held.configuration != demand.configuration.name:
        return []
    uuids = [share.device or "" for share in held.tasks[0].shares]
    return [healthy[uuid] for uuid in uuids] if all(uuid in healthy for uuid in uuids) else []


def _allocation(demand: Demand, node: NodeView, host: HostShare, devices: Sequence[DeviceView]) -> Allocation:
    return demand.allocation(node, host, devices)
