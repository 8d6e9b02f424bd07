"""The policy of calibration: each probe job names its place, and one that yields gives it up for whoever comes.

It is run by the same scheduler program as the policies of the experiment, so that what is measured is what they will meet. A
probe's user is its place: `p3` is the fourth of the cluster's places (each GPU, then each node without one, in the cluster's
order), `p3/yields` may be stopped there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView, JobView, Phase

YIELDS = "/yields"
_PLACE = re.compile(r"p(\d{1,6})(/yields)?")


def user_of(place: int, *, yields: bool = False) -> str:
    """What a probe's EmuJob gives as its tenant."""
    return f"p{place}{YIELDS if yields else ''}"


RUNS_S = 2.0
"""So long a probe runs before it yields, so that its first steps are behind it."""


class Probing:
    """Starts each queued probe as soon as its place is free; stops a probe that yields when another one waits for its place."""

    needs_estimates = False

    def plan(self, view: ClusterView) -> Plan:
        places, visited = _places(view), view.state or frozenset()
        holders = {_place(job): job for job in view.holding()}
        start = _nexts(view, [place for place in places if place not in holders], visited)
        stop: list[str] = []
        later_s: list[float] = []
        for job in view.queued():
            holder = holders.get(_place(job)) or start.get(_place(job))
            if holder is not None and _gives_way(holder, job):
                at_s = RUNS_S + (view.now_s if holder.running_since_s is None else holder.running_since_s)
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


def _nexts(view: ClusterView, free: Iterable[int], visited: Collection[int]) -> dict[int, JobView]:
    """Who gets these places: in order of submission, but visitors first, and after one of them who yields (`visited`)."""
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
    match = _PLACE.fullmatch(job.user)
    return int(match[1]) if match else -1


def _places(view: ClusterView) -> Mapping[int, tuple[str, DeviceShare | None]]:
    """Node and device of each place."""
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
