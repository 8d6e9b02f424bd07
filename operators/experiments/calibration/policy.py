"""The scheduling policy of a calibration: each probe job runs in the place that its tenant names.

The scheduler program of the experiment runs this policy too, so that probes measure what the experiment's policies will meet.
A place is one GPU, or one node without GPUs; places are numbered in the order of the cluster's nodes, GPUs first. The tenant
`p3` means place 3; the tenant `p3/yields` means a job in place 3 that is stopped when another job waits for that place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView, JobView, Phase

YIELDS = "/yields"
_TENANT = re.compile(r"p(\d{1,6})(/yields)?")
MIN_RUN_S = 2.0
"""A yielding job is stopped after this time at the earliest: its first steps, which may be slow, have ended by then."""


@dataclass(frozen=True, slots=True)
class Place:
    """One GPU, or one node without GPUs. `share_milli`: the node's emulated CPUs (thousandths) divided by its places."""

    number: int
    node: str
    gpu: bool
    share_milli: int

    def tenant(self, *, yields: bool = False) -> str:
        """The tenant of a probe job for this place."""
        return f"p{self.number}{YIELDS if yields else ''}"


def places_of(cluster: ClusterSpec) -> list[Place]:
    """All places, one of each node before any node's second one: 2 nodes of 2 GPUs give the places 0, 2, 1, 3."""
    found: list[tuple[int, Place]] = []
    on_gpus = [(node, turn) for node in cluster.nodes for turn in range(len(node.devices))]
    on_cpus = [(node, 0) for node in cluster.nodes if not node.devices]
    for number, (node, turn) in enumerate([*on_gpus, *on_cpus]):
        share_milli = node.cpu_milli // max(1, len(node.devices))
        found.append((turn, Place(number, node.name, bool(node.devices), share_milli)))
    return [place for _, place in sorted(found, key=lambda pair: pair[0])]


class ProbePolicy:
    """Starts each queued probe as soon as its place is free; stops a yielding probe when another one waits for its place."""

    needs_estimates = False

    def plan(self, view: ClusterView) -> Plan:
        places, visited = _places(view), view.state or frozenset()
        holders = {_place(job): job for job in view.holding()}
        start = _next_jobs(view, [place for place in places if place not in holders], visited)
        stop: list[str] = []
        later_s: list[float] = []
        for job in view.queued():
            holder = holders.get(_place(job)) or start.get(_place(job))
            if holder is not None and _gives_way(holder, job):
                at_s = MIN_RUN_S + (view.now_s if holder.running_since_s is None else holder.running_since_s)
                if at_s > view.now_s:
                    later_s.append(at_s)
                else:
                    stop.append(holder.job_id)
        return view.plan.evolve(
            start={job.job_id: _allocation(job, *places[place]) for place, job in start.items()},
            stop=dict.fromkeys(stop),
            wake_at_s=min(later_s, default=None),
            state=frozenset(place for place in visited | start.keys() if not _yields(start.get(place))),
        )


def _next_jobs(view: ClusterView, free: Iterable[int], visited: Collection[int]) -> dict[int, JobView]:
    """The next job of each free place: in order of submission, but visitors before the yielding job, which comes back after
    each visitor (`visited`: the places where the last job was a visitor)."""
    found: dict[int, JobView] = {}
    for place in free:
        waiting = [job for job in view.queued() if _place(job) == place]
        if waiting:
            found[place] = min(waiting, key=lambda job: (_yields(job) != (place in visited), job.order))
    return found


def _gives_way(holder: JobView, waiting: JobView) -> bool:
    return _yields(holder) and not _yields(waiting) and holder.phase is not Phase.STOPPING


def _yields(job: JobView | None) -> bool:
    return job is not None and job.user.endswith(YIELDS)


def _place(job: JobView) -> int:
    match = _TENANT.fullmatch(job.user)
    return int(match[1]) if match else -1


def _places(view: ClusterView) -> Mapping[int, tuple[str, DeviceShare | None]]:
    """Node and device by the place's number (places_of has the same order)."""
    on_gpus = [
        (node.name, DeviceShare(device.uuid, device.gpu_type))
        for node in view.nodes.values()
        for device in node.devices
    ]
    on_cpus = [(node.name, None) for node in view.nodes.values() if not node.devices]
    return dict(enumerate([*on_gpus, *on_cpus]))


def _allocation(job: JobView, node: str, share: DeviceShare | None) -> Allocation:
    configuration = next((c for c in job.configurations if c.on_gpu == (share is not None)), job.configurations[0])
    shares = () if share is None else (share,)
    task = TaskPlacement(node, shares, configuration.cpu_milli, configuration.memory_bytes)
    return Allocation(configuration.name, (task,))
