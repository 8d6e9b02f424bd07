"""A training run in a pod: continues where the manager says and runs step by step, together with other ranks, until a stop.

Unlike in training.py, the pod's manager keeps the progress, there may be other ranks, and SIGTERM may arrive at any time, a
few seconds before the pod is killed.

After an error the grant is kept: the pod holds its devices until it ends, and its container may be restarted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.samples import RunSamples
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.client import AttachedDevice
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.lag import LagHistogram
from emulator_runtime.workloads.pod import all_linked
from emulator_runtime.workloads.ranks.group import THIS_PROCESS, Group, Start
from emulator_runtime.workloads.records import ObservedStepTimes, StepRecord
from emulator_runtime.workloads.step_costs.request import Layout, StepPlan, TrainRequest, plan_step
from emulator_runtime.workloads.step_loop import MANAGER, DeviceTime, StepLoop
from emulator_runtime.workloads.stopping import PATIENCE_S, RELEASE_TIMEOUT_S, StopNow, StopSwitch

SLICE_NS = NS_PER_S // 5
"""A longer wait checks at this interval whether it should continue."""
PATIENCE_WITH_MANAGER_S = 120.0
"""How long a run waits for an unavailable manager (host seconds): an upgrade may include a slow image pull."""


class PodManager(DeviceTime, Protocol):
    """The methods of the sharing manager's client (ipc.client.ManagerClient) that a run in a pod uses.

    `attach` sets `devices` and `ranks_secret`.
    """

    devices: tuple[AttachedDevice, ...]
    ranks_secret: str

    @property
    def steps_done(self) -> int: ...
    def attach(self, steps_done: int | None) -> None: ...
    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None: ...
    def release(self, steps_done: int) -> None: ...
    def finish(self, steps_done: int) -> None: ...
    def new_share(self) -> HostShare | None: ...
    def close(self) -> None: ...


class Observer(Protocol):
    """Gets notified of the progress of a run."""

    def planned(self, start: Start, devices: Sequence[AttachedDevice], plan: StepPlan) -> None: ...
    def share_changed(self, step: int, host: HostShare, plan: StepPlan) -> None: ...
    def stepped(self, record: StepRecord) -> None: ...
    def waiting(self, now_ns: int) -> None: ...


@dataclass(frozen=True, slots=True)
class CountedDevices:
    """The manager's device time for steps, each known to it by the progress before it: in samples for an elastic job."""

    manager: DeviceTime
    samples: RunSamples

    def lease(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> Lease:
        return self.manager.lease(self.samples.done(step), duration_ns, issue_ns, remaining_ns)

    def queue(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> None:
        self.manager.queue(self.samples.done(step), duration_ns, issue_ns, remaining_ns)

    def prefetch(self, step: int, times: StepTimes, ready_ns: int) -> None:
        self.manager.prefetch(self.samples.done(step), times, ready_ns)

    def prefetched_ns(self) -> int:
        return self.manager.prefetched_ns()

    def exchange(self, step: int, times: StepTimes, ready_ns: int) -> None:
        self.manager.exchange(self.samples.done(step), times, ready_ns)

    def exchanged_ns(self) -> int:
        return self.manager.exchanged_ns()


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """How a run ended: finished, or stopped and by whom. `steps_done`: the job's progress, in samples if it counts those."""

    finished: bool
    steps_done: int
    stopped_by: str = ""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies of a run. `connect` makes a manager client with the given patience in seconds. `linked` says whether
    all of these devices have fast links to each other."""

    connect: Callable[[float], PodManager]
    clock: Clock
    group: Group
    stop: StopSwitch
    observer: Observer
    profiles: ProfileTable
    linked: Callable[[list[str]], bool] = all_linked


class PodTraining:
    """One run. `plan`, `seen` and `lags` describe it, also after an error."""

    def __init__(self, request: TrainRequest, dependencies: Dependencies) -> None:
        self._request = request
        self._dependencies = dependencies
        self._manager = dependencies.connect(PATIENCE_WITH_MANAGER_S)
        self._clock, self._group = dependencies.clock, dependencies.group
        self._stop, self._observer = dependencies.stop, dependencies.observer
        self._done: int | None = None
        self._samples = request.run_from(0)
        self._step = 0
        self._layout: Layout | None = None
        self._host = request.host
        self._paced_ns = 0
        self._share_changed = False
        self.plan: StepPlan | None = None
        self.seen = ObservedStepTimes()
        self.lags = LagHistogram()

    @property
    def steps_done(self) -> int:
        """The job's progress: finished steps, or samples if it counts those; 0 if the run ended before it was known."""
        return self._done or 0

    @property
    def devices(self) -> tuple[AttachedDevice, ...]:
        """The devices of the grant; empty before the manager has replied."""
        return self._manager.devices

    @property
    def pace_s(self) -> float | None:
        """The average planned step time of this run; None if the plan never changed, since then the plan has it."""
        return self._paced_ns / len(self.seen) / NS_PER_S if self._share_changed and len(self.seen) else None

    def run(self) -> PodOutcome:
        """Run until the last step or a stop. Raises EmuGpuError; the other ranks get the reason."""
        try:
            return self._run()
        except StopNow:
            self._group.leave(f"rank {self._group.rank} was told to stop")
            return self._stopped(THIS_PROCESS)
        except EmuGpuError as error:
            self._group.leave(str(error))
            if self._stop.asked:  # all ranks are being stopped, and another one ended before this one
                return self._stopped(THIS_PROCESS)
            raise
        finally:
            self._group.close()
            self._manager.close()

    def _run(self) -> PodOutcome:
        with self._stop.interruptible():
            self._manager.attach(None)
        self._done = min(self._manager.steps_done, self._request.length)
        try:
            start = self._group.join(self._done, len(self._manager.devices), self._manager.ranks_secret)
        except ClusterError:
            if self._done < self._request.length:
                raise
            return (
                self._finish()
            )  # all ranks had done the last step, otherwise it wouldn't count: nothing is left to do
        self._done, self._samples = start.first, self._request.run_from(start.first)
        self._step = self._samples.first_step
        outcome = self._steps(self._prepare(start))
        if outcome.finished:
            self._group.farewell()
        return outcome

    def _prepare(self, start: Start) -> StepTimes:
        """Before the first step: plan the step time and reserve the memory."""
        devices = self._manager.devices
        self._host = self._request.share(self._manager.new_share())
        self._layout = Layout(
            tuple(device.gpu_type for device in devices),
            start.gpus,
            self._group.nodes,
            linked=self._dependencies.linked([device.uuid for device in devices]),
            host=self._host,
        )
        self.plan = plan_step(self._request, self._layout, self._dependencies.profiles)
        self._observer.planned(start, devices, self.plan)
        with self._stop.interruptible():
            if start.first != self._manager.steps_done:  # another rank has done fewer steps: repeat the difference
                self._manager.attach(start.first)
            if self.plan.peak_bytes:
                self._manager.reserve(self.plan.persistent_bytes, self.plan.peak_bytes)
        return self.plan.times(self._samples.steps)

    def _steps(self, times: StepTimes) -> PodOutcome:
        loop = StepLoop(
            CountedDevices(self._manager, self._samples),
            self._wait,
            self._group,
            asked_to_stop=lambda: self._stop.asked,
            blocking=self._stop.interruptible,
            times_now=self._times_now,
            stepped=self._count,
            lags=self.lags,
        )
        start = self._group.barrier(self._step, self._clock.now_ns(), stop=self._stop.asked)
        self.seen.begin(start.end_ns)
        ended = loop.run(times, self._step, start)
        if ended.stopped_by == MANAGER:
            self._group.leave(f"the sharing manager told rank {self._group.rank} to stop")
        return self._stopped(ended.stopped_by) if ended.stopped_by else self._finish()

    def _times_now(self, step: int, times: StepTimes) -> StepTimes:
        """They change if the pod's CPUs or memory have changed."""
        assert self._layout is not None
        given = self._manager.new_share()
        if given is None or not self._request.uses_host:
            return times
        host = self._request.share(given)
        if host == self._host:
            return times
        self._host, self._share_changed = host, True
        self.plan = plan_step(self._request, replace(self._layout, host=host), self._dependencies.profiles)
        self._observer.share_changed(step, host, self.plan)
        return self.plan.times(self._samples.steps)

    def _count(self, lease: Lease, times: StepTimes) -> None:
        """Record a step that all ranks have done."""
        seen_ns, step = self._clock.now_ns(), self._step
        self._step += 1
        self._done = self._samples.done(self._step)
        self._paced_ns += max(times.step_ns(step), times.prepared_ns) + times.host_ns
        self.seen.add(seen_ns)
        self._observer.stepped(StepRecord(step, lease.start_ns, lease.end_ns, seen_ns))

    def _wait(self, deadline_ns: int) -> int:
        """Wait and return the lag. Raises StopNow if the process must stop and the deadline is not near."""
        while (left_ns := deadline_ns - (now_ns := self._clock.now_ns())) > SLICE_NS:
            if self._stop.asked and left_ns > PATIENCE_S * NS_PER_S:
                raise StopNow
            self._group.check()
            self._observer.waiting(now_ns)
            self._clock.wait_until_ns(now_ns + min(SLICE_NS, left_ns - SLICE_NS // 2))
        return self._clock.wait_until_ns(deadline_ns)

    def _finish(self) -> PodOutcome:
        with self._stop.interruptible():
            self._manager.finish(self._request.length)
        return PodOutcome(finished=True, steps_done=self._request.length)

    def _stopped(self, who: str) -> PodOutcome:
        """Release the devices, on a new connection: the old one may have a pending request."""
        self._manager.close()
        if self._done is not None:
            manager = self._dependencies.connect(RELEASE_TIMEOUT_S)
            with contextlib.suppress(EmuGpuError):  # the manager will notice that the pod has ended
                manager.attach(self._done)
                manager.release(self._done)
            manager.close()
        return PodOutcome(finished=False, steps_done=self._done or 0, stopped_by=who)
