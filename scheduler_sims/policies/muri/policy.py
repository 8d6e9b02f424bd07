"""Muri's policies: groups of jobs with few GPU-seconds left (Muri-S) or attained (Muri-L) share GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.muri.grouping import Candidate, Group, Grouping, load_rustworkx
from scheduler_sims.policies.muri.interleaving import MEASURED, Profile
from scheduler_sims.policies.placing import FreeSpace, main_configuration
from scheduler_sims.policies.queueing.in_order import decides
from scheduler_sims.policies.waiting import checked_s

_FIDELITIES = ("strict", "as_coded")
_MOST = 4
"""Jobs of a group: as many as there are resources."""


@dataclass(frozen=True, slots=True)
class _Memory:
    """Where each job of the last decision runs or will run, and with how many others."""

    target: Mapping[str, Allocation] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


class _Muri:
    """What both policies have in common."""

    needs_estimates: ClassVar[bool] = True
    preemptive: ClassVar[bool] = True

    def __init__(self, fidelity: str = "strict", *, matching: bool = True) -> None:
        if fidelity not in _FIDELITIES:
            raise UnknownNameError("muri: fidelity", "fidelity", fidelity, _FIDELITIES)
        if matching:
            load_rustworkx()
        overheads = MEASURED if fidelity == "as_coded" else (1.0,) * _MOST
        self._grouping = Grouping(overheads=overheads, matched=matching)

    def key(self, view: ClusterView, job: JobView, wanted: Configuration) -> float:
        """Jobs with a smaller key go first."""
        raise NotImplementedError

    def plan(self, view: ClusterView) -> Plan:
        """New groups at each arrival and end; in between, what the last decision still has to start."""
        memory: _Memory = view.state or _Memory()
        if decides(view):
            memory = self._decide(view)
        held = view.plan.allocations
        start = {
            job_id: allocation
            for job_id, allocation in memory.target.items()
            if job_id in view.jobs and (job_id not in held or not allocation.same_place(held[job_id]))
        }
        moves = {job_id for job_id in start if job_id in held}
        stop = [job_id for job_id in held if job_id not in memory.target or job_id in moves]
        reasons = {job_id: memory.reasons[job_id] for job_id in start}
        reasons |= dict.fromkeys(stop, "stopped: other jobs go first, or share devices better")
        starts = {job_id: allocation for job_id, allocation in start.items() if job_id not in moves}
        return view.plan.evolve(start=starts, stop=stop, state=memory, reasons=reasons)

    def _decide(self, view: ClusterView) -> _Memory:
        most = _most_per_device(view)
        grouping = replace(self._grouping, most=min(most, _MOST))
        jobs = sorted(view.jobs.values(), key=lambda job: job.order)
        wanted = {job.job_id: main_configuration(view, job) for job in jobs}
        candidates = [self._candidate(view, job, wanted[job.job_id], number) for number, job in enumerate(jobs)]
        devices = sum(device.healthy for node in view.nodes.values() for device in node.devices)

        def empty() -> Callable[[Candidate], bool]:
            space = FreeSpace.empty(view)
            return lambda candidate: space.place(wanted[candidate.job_id]) is not None

        groups = grouping.groups(candidates, devices, empty)
        return _Placing(view, wanted, WHOLE_DEVICE_MILLI if most == 1 else WHOLE_DEVICE_MILLI // _MOST).place(groups)

    def _candidate(self, view: ClusterView, job: JobView, wanted: Configuration, order: int) -> Candidate:
        stages = view.estimates.stages(job, wanted.name)
        profile = Profile(stages.step_s, (stages.storage_s, stages.cpu_s, stages.gpu_s, stages.network_s))
        kind = (wanted.name, wanted.min_tasks, wanted.gpu_types, wanted.parallelism.tensor)
        return Candidate(job.job_id, wanted.total_gpus, profile, self.key(view, job, wanted), kind, order)


class MuriS(_Muri):
    """Groups of up to four jobs share GPUs while each waits for another resource; the least remaining GPU-time goes first.

    Zhao et al., Muri, SIGCOMM 2022: jobs of as many GPUs are matched (Blossom) by how well their stages interleave, until their
    groups fit the cluster. A step's stages are fetch_s, CPUs and host, GPUs, and exchange_s of the workload. Jobs share only
    where all devices of the cluster are shared (`sharing: fifo` of their nodes); elsewhere this is SRSF. A group stays where most
    of it runs. `fidelity` as_coded: groups take longer by the factors that the authors measured. `matching` false: groups in
    order of the jobs.
    """

    def key(self, view: ClusterView, job: JobView, wanted: Configuration) -> float:
        left_s = checked_s(job, view.remaining_s(job, wanted.name))
        return round(left_s * max(1, wanted.total_gpus), 3)


class MuriL(_Muri):
    """As `muri-s`, but the job that has attained the least GPU-time goes first, for unknown run times.

    Its stages are estimated all the same. Attained time counts continuously, without queues, at each arrival and end.
    """

    def key(self, view: ClusterView, job: JobView, wanted: Configuration) -> float:
        return round(view.attained_gpu_s(job), 3)


class _Placing:
    """Places groups: first those whose members run already, where most of them do; then the others, largest first."""

    def __init__(self, view: ClusterView, wanted: Mapping[str, Configuration], milli: int) -> None:
        self._view, self._wanted, self._milli = view, wanted, milli
        self._space = FreeSpace.empty(view)
        self._target: dict[str, Allocation] = {}
        self._reasons: dict[str, str] = {}

    def place(self, groups: Sequence[Group]) -> _Memory:
        new = [group for group in groups if not self._stays(group)]
        for group in sorted(new, key=lambda group: -group.gpus):
            members = [job.job_id for job in group.jobs]
            while (
                members and (place := self._space.place(_together(self._wanted[job_id] for job_id in members))) is None
            ):
                members.pop()
            if members:
                assert place is not None
                self._give(members, place)
        return _Memory(self._target, self._reasons)

    def _stays(self, group: Group) -> bool:
        """Whether the group could be placed where one of its members runs, that with the most others first."""
        running = [job for job in (self._view.jobs[each.job_id] for each in group.jobs) if _runs(job)]
        places: dict[tuple[tuple[str, str | None], ...], list[JobView]] = {}
        for job in running:
            places.setdefault(_devices(job), []).append(job)
        members = [job.job_id for job in group.jobs]
        together = _together(self._wanted[job_id] for job_id in members)
        for at_home in sorted(places.values(), key=lambda jobs: (-len(jobs), jobs[0].order)):
            allocation = at_home[0].allocation
            assert allocation is not None
            place = _whole(allocation, together)
            if self._space.has(place):
                self._space.take(place)
                self._give(members, place)
                return True
        return False

    def _give(self, members: Sequence[str], place: Allocation) -> None:
        """Each member gets its share of the devices, and its own CPUs and memory."""
        for job_id in members:
            wanted = self._wanted[job_id]
            tasks = tuple(
                TaskPlacement(
                    task.node,
                    tuple(
                        DeviceShare(share.device, share.gpu_type, self._milli, wanted.device_memory_bytes)
                        for share in task.shares
                    ),
                    wanted.cpu_milli,
                    wanted.memory_bytes,
                )
                for task in place.tasks
            )
            self._target[job_id] = Allocation(wanted.name, tasks)
            others = ", ".join(other for other in members if other != job_id)
            self._reasons[job_id] = f"shares its GPUs with {others}" if others else "has its GPUs for itself"


def _together(configurations: Iterable[Configuration]) -> Configuration:
    """What the members of a group need together: the devices of one, the CPUs and memory of all."""
    members = list(configurations)
    return replace(
        members[0],
        cpu_milli=sum(each.cpu_milli for each in members),
        memory_bytes=sum(each.memory_bytes for each in members),
        device_memory_bytes=sum(each.device_memory_bytes for each in members),
    )


def _whole(allocation: Allocation, together: Configuration) -> Allocation:
    """The whole devices of `allocation`, with the CPUs and memory of a group."""
    tasks = tuple(
        TaskPlacement(
            task.node,
            tuple(replace(share, milli=WHOLE_DEVICE_MILLI, memory_bytes=0) for share in task.shares),
            together.cpu_milli,
            together.memory_bytes,
        )
        for task in allocation.tasks
    )
    return Allocation(together.name, tasks)


def _runs(job: JobView) -> bool:
    return job.phase in (Phase.STARTING, Phase.RUNNING) and job.allocation is not None


def _devices(job: JobView) -> tuple[tuple[str, str | None], ...]:
    assert job.allocation is not None
    return tuple((task.node, share.device) for task in job.allocation.tasks for share in task.shares)


def _most_per_device(view: ClusterView) -> int:
    """How many jobs may share a device, whichever it is; 1 if some devices are exclusive."""
    devices = [device for node in view.nodes.values() for device in node.devices]
    each = (1 if device.sharing == "exclusive" else device.replicas or _MOST for device in devices)
    return min(each, default=1)
