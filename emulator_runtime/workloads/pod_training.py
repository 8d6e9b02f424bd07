"""A training run in a pod: go on where the manager says, step by step, together with the other ranks, until told to stop.

As in training.py the program has a time of its own, which moves from deadline to deadline, and a new share of the node's CPUs
and memory counts from the next step that is issued. Different from there, the pod's
manager keeps the progress, there may be other ranks, and SIGTERM may come at any moment: the pod is gone seconds later.

An error doesn't give the grant back: the pod holds its devices until it ends, and its container may be started again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.client import AttachedDevice
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.lag import LagHistogram
from emulator_runtime.workloads.group import Group, Start
from emulator_runtime.workloads.pod import all_linked
from emulator_runtime.workloads.records import StepRecord, StepTimesSeen
from emulator_runtime.workloads.request import Layout, StepPlan, TrainRequest, plan_step
from emulator_runtime.workloads.stopping import PATIENCE_S, StopNow, StopSwitch

SLICE_NS = NS_PER_S // 5
"""A longer wait looks every so often whether it still makes sense."""
PATIENCE_WITH_MANAGER_S = 120.0
"""How long a run waits for a manager that is away, which may be an upgrade with a slow image pull (host seconds)."""
_LAST_WORD_S = 1.5
"""How long a process that was told to stop tries to give its devices back; the manager also learns it from its end."""


class PodManager(Protocol):
    """What a run in a pod needs of the sharing manager (ipc.client.ManagerClient). `attach` sets `devices`."""

    devices: tuple[AttachedDevice, ...]

    @property
    def steps_done(self) -> int: ...
    def attach(self, steps_done: int | None) -> None: ...
    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None: ...
    def lease(self, step: int, duration_ns: int, issue_ns: int) -> Lease: ...
    def release(self, steps_done: int) -> None: ...
    def finish(self, steps_done: int) -> None: ...
    def new_share(self) -> HostShare | None: ...
    def close(self) -> None: ...


class Observer(Protocol):
    """Who is told how a run goes."""

    def planned(self, start: Start, devices: Sequence[AttachedDevice], plan: StepPlan) -> None: ...
    def shared_anew(self, step: int, host: HostShare, plan: StepPlan) -> None: ...
    def stepped(self, record: StepRecord) -> None: ...
    def waiting(self, now_ns: int) -> None: ...


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """How a run ended: finished, or stopped with who wanted it."""

    finished: bool
    steps_done: int
    stopped_by: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run works with. `connect` gives a manager that is waited for so many seconds when it is away; `linked` tells
    whether all of these devices have fast links to each other."""

    connect: Callable[[float], PodManager]
    clock: Clock
    group: Group
    stop: StopSwitch
    observer: Observer
    profiles: ProfileTable
    linked: Callable[[list[str]], bool] = all_linked


class PodTraining:
    """One run. `plan`, `seen` and `lags` tell how it went, also after an error."""

    def __init__(self, request: TrainRequest, around: Surroundings) -> None:
        self._request = request
        self._around = around
        self._manager = around.connect(PATIENCE_WITH_MANAGER_S)
        self._clock, self._group, self._stop, self._observer = around.clock, around.group, around.stop, around.observer
        self._done: int | None = None
        self._layout: Layout | None = None
        self._host = request.host
        self._paced_ns = 0
        self._shared_anew = False
        self.plan: StepPlan | None = None
        self.seen = StepTimesSeen()
        self.lags = LagHistogram()

    @property
    def steps_done(self) -> int:
        """The steps that are done now; 0 where the run ended before it was known."""
        return self._done or 0

    @property
    def devices(self) -> tuple[AttachedDevice, ...]:
        """What the manager gave; none before it has answered."""
        return self._manager.devices

    @property
    def pace_s(self) -> float | None:
        """What a step of this run took by the plans, on average; None where there is but one plan, which says it."""
        return self._paced_ns / len(self.seen) / NS_PER_S if self._shared_anew and len(self.seen) else None

    def run(self) -> PodOutcome:
        """Run until the last step or a stop. Raises errors of the tree; the other ranks are told why."""
        try:
            return self._run()
        except StopNow:
            self._group.leave(f"rank {self._group.rank} was told to stop")
            return self._stopped("this process")
        except EmuGpuError as error:
            self._group.leave(str(error))
            if self._stop.asked:  # the other ranks were told to stop as well, and were faster
                return self._stopped("this process")
            raise
        finally:
            self._group.close()
            self._manager.close()

    def _run(self) -> PodOutcome:
        with self._stop.interruptible():
            self._manager.attach(None)
        self._done = min(self._manager.steps_done, self._request.steps)
        try:
            start = self._group.join(self._done, len(self._manager.devices))
        except ClusterError:
            if self._done < self._request.steps:
                raise
            return self._finish()  # a step counts when all have done it, so nobody has anything left to do
        self._done = start.first
        outcome = self._steps(self._prepare(start))
        if outcome.finished:
            self._group.farewell()
        return outcome

    def _prepare(self, start: Start) -> StepTimes:
        """Everything before the first step: what a step costs, and the memory for it."""
        devices = self._manager.devices
        self._host = self._request.share(self._manager.new_share())
        self._layout = Layout(
            tuple(device.gpu_type for device in devices),
            start.gpus,
            self._group.nodes,
            linked=self._around.linked([device.uuid for device in devices]),
            host=self._host,
        )
        self.plan = plan_step(self._request, self._layout, self._around.profiles)
        self._observer.planned(start, devices, self.plan)
        with self._stop.interruptible():
            if start.first != self._manager.steps_done:  # another rank is behind: the steps between are done again
                self._manager.attach(start.first)
            if self.plan.peak_bytes:
                self._manager.reserve(self.plan.persistent_bytes, self.plan.peak_bytes)
        return self.plan.times(self._request.steps)

    def _steps(self, times: StepTimes) -> PodOutcome:
        assert self._done is not None
        crossing = self._group.barrier(self._done, self._clock.now_ns(), stop=self._stop.asked)
        end_ns, input_ready_ns = crossing.end_ns, crossing.end_ns + times.input_ns
        self.seen.begin(end_ns)
        while self._done < times.steps:
            if crossing.stop:
                return self._stopped(crossing.stop)
            issue_ns = max(end_ns, input_ready_ns)
            self._wait(issue_ns)
            times = self._up_to_date(times)
            input_ready_ns = issue_ns + times.input_ns  # the next input is prepared while the device works
            with self._stop.interruptible():
                lease = self._manager.lease(self._done, times.device_ns(self._done), issue_ns)
            if lease.stop:
                self._group.leave(f"the sharing manager told rank {self._group.rank} to stop")
                return self._stopped("the sharing manager")
            self.lags.add(self._wait(lease.end_ns))
            crossing = self._group.barrier(self._done + 1, lease.end_ns, stop=self._stop.asked)
            end_ns = crossing.end_ns
            self._paced_ns += max(times.device_ns(self._done), times.input_ns)
            self._count(lease)
        return self._finish()

    def _up_to_date(self, times: StepTimes) -> StepTimes:
        """The times of the steps from here on: others where the job has got another share of its node."""
        assert self._done is not None and self._layout is not None
        given = self._manager.new_share()
        if given is None or not self._request.uses_host:
            return times
        host = self._request.share(given)
        if host == self._host:
            return times
        self._host, self._shared_anew = host, True
        self.plan = plan_step(self._request, replace(self._layout, host=host), self._around.profiles)
        self._observer.shared_anew(self._done, host, self.plan)
        return self.plan.times(self._request.steps)

    def _count(self, lease: Lease) -> None:
        """All ranks have done this step."""
        assert self._done is not None
        seen_ns = self._clock.now_ns()
        record = StepRecord(self._done, lease.start_ns, lease.end_ns, seen_ns)
        self._done += 1
        self.seen.add(seen_ns)
        self._observer.stepped(record)

    def _wait(self, deadline_ns: int) -> int:
        """Wait, and answer the lag. Raises StopNow where the process was told to stop and the deadline is not near."""
        while (left_ns := deadline_ns - (now_ns := self._clock.now_ns())) > SLICE_NS:
            if self._stop.asked and left_ns > PATIENCE_S * NS_PER_S:
                raise StopNow
            self._group.check()
            self._observer.waiting(now_ns)
            self._clock.wait_until_ns(now_ns + min(SLICE_NS, left_ns - SLICE_NS // 2))
        return self._clock.wait_until_ns(deadline_ns)

    def _finish(self) -> PodOutcome:
        with self._stop.interruptible():
            self._manager.finish(self._request.steps)
        return PodOutcome(finished=True, steps_done=self._request.steps)

    def _stopped(self, who: str) -> PodOutcome:
        """Give the devices back, on a new connection: on the old one a request may be under way."""
        self._manager.close()
        if self._done is not None:
            manager = self._around.connect(_LAST_WORD_S)
            with contextlib.suppress(EmuGpuError):  # then it learns it when the pod is gone
                manager.attach(self._done)
                manager.release(self._done)
            manager.close()
        return PodOutcome(finished=False, steps_done=self._done or 0, stopped_by=who)
