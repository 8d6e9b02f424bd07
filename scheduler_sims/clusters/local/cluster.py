"""LocalCluster: real sharing managers and real job processes on this machine, in wall, scaled or warp time.

One thread, one poller. In warp the clock jumps when every job process waits and a poll without waiting finds nothing:
what a process sent on a Unix socket before it said that it waits is readable by then, so nothing is in flight.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError, ProtocolError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import NS_PER_S, to_ns
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.ipc.warp import WAKE
from emulator_runtime.timing.host import monotonic_ns, prepare_waiting, shorten_slice
from emulator_runtime.timing.shared_clock import SharedClockFile
from emulator_runtime.timing.waiter import Waiter
from emulator_runtime.timing.warp import WarpCoordinator
from emulator_runtime.workloads.order import RunOrder
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.local.job_process import JobProcess
from scheduler_sims.clusters.local.lags import Lags
from scheduler_sims.clusters.local.manager_process import ManagerProcess
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.record import LagAccount

_HAPPENINGS = {
    "attached": Happening.STARTED,
    "released": Happening.STOPPED,
    "finished": Happening.FINISHED,
    "failed": Happening.FAILED,
}
_PREPARE_S = 120.0
_END_S = 1.0
_PRECISE_NS = 2_000_000
"""The poller's timeouts are whole milliseconds; the rest of a wait is slept precisely."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """`speed`: emulated seconds per host second. `warp`: jump over waiting instead. `standby`: how many job processes are
    started ahead of their start (each takes about 15 MB); more jobs than that start their process when they start."""

    speed: float = 1.0
    warp: bool = False
    standby: int = 200
    profiles: str = ""


class LocalCluster:
    """Emulated nodes as processes on this machine. Use as a context manager, or call `close`."""

    name = "local"

    def __init__(self, spec: ClusterSpec, options: LocalOptions, *, told: Callable[[str], None] | None = None) -> None:
        self._spec = spec
        self._options = options
        self._told = told or (lambda _text: None)
        self._poller = Poller()
        self._warp = WarpCoordinator() if options.warp else None
        self._managers: dict[str, ManagerProcess] = {}
        self._processes: dict[str, JobProcess] = {}
        self._ended: list[JobProcess] = []
        self._jobs: dict[str, JobSpec] = {}
        self._to_spawn: deque[str] = deque()
        self._node_of: dict[str, str] = {}
        self._events: list[Event] = []
        self._lags = Lags()
        self._notes: list[str] = []
        self._waiter = Waiter()
        self.steps_run: dict[str, int] = {}
        self._closed = False
        self._directory: Path | None = None
        self._clock: SharedClockFile | None = None

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- life -------------------------------------------------------------------------------------------------------

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        """Start managers and the first job processes, wait until all are ready, then let emulated time run from 0."""
        prepare_waiting()
        shorten_slice()
        self._directory = Path(tempfile.mkdtemp(prefix=f"emugpu-{os.getpid()}-", dir="/tmp"))
        mode = "warp" if self._options.warp else "host"
        self._clock = SharedClockFile.create(self._directory / "clock", 0.0, mode)  # type: ignore[arg-type]
        for node in self._spec.nodes:
            directory = self._directory / "nodes" / node.name
            self._managers[node.name] = ManagerProcess(
                node, directory, self._directory / "clock", self._poller, self._on_manager_event
            )
        ordered = sorted(jobs, key=lambda job: (job.submit_s, job.row))
        self._jobs = {job.job_id: job for job in ordered}
        self._to_spawn.extend(self._jobs)
        self._spawn_ahead()
        for manager in self._managers.values():
            manager.connect()
        self._wait_ready()
        self._clock.set_rate(1.0 if self._options.warp else self._options.speed)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        children: list[JobProcess | ManagerProcess] = [
            *self._processes.values(),
            *self._ended,
            *self._managers.values(),
        ]
        for child in children:
            child.ask_to_end()
        deadline_ns = monotonic_ns() + round(_END_S * NS_PER_S)
        for child in children:
            child.make_sure_it_ended(max(0.01, (deadline_ns - monotonic_ns()) / NS_PER_S))
        self._poller.close()
        if self._clock is not None:
            self._clock.close()
            self._clock = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    # --- the loop's side ----------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        assert self._clock is not None
        return self._clock.now_ns()

    def wait(self, until_ns: int | None) -> list[Event]:
        """See Cluster.wait; in warp, emulated time jumps in here."""
        self._poll_all()
        while not self._events:
            now_ns = self.now_ns()
            if until_ns is not None and now_ns >= until_ns:
                return []
            if not (self._warp is not None and self._move_time(self._warp, until_ns, now_ns)):
                self._wait_host(self._next_deadline(until_ns))
            self._poll_all()
        events, self._events = sorted(self._events, key=lambda event: event.order), []
        return events

    def start(self, start: Start) -> None:
        job_id, task = start.job.job_id, start.allocation.tasks[0]
        manager = self._managers[task.node]
        devices = [share.device for share in task.shares]
        token = manager.request({"op": "grant", "job_id": job_id, "devices": devices, "steps_done": start.steps_done})[
            "token"
        ]
        process = self._processes.get(job_id) or self._spawn(job_id)
        self._node_of[job_id] = task.node
        configuration = start.job.configuration(start.allocation.configuration)
        costs, resumed = self._spec.costs, start.steps_done > 0
        if self._warp is not None:
            self._warp.busy(job_id)
        assert self._directory is not None
        process.run(
            RunOrder(
                manager=manager.job_socket,
                token=str(token),
                job_id=job_id,
                steps=start.job.steps,
                work=start.job.work[configuration.name],
                gpu_type=task.shares[0].gpu_type if task.shares else "",
                cpu_milli=task.cpu_milli,
                device_memory_bytes=configuration.device_memory_bytes,
                begin_ns=start.at_ns + to_ns(costs.begin_s(resumed=resumed)),
                release_ns=to_ns(costs.release_s()),
                checkpoint=self._directory / "checkpoints" / f"{start.job.row}.json",
                profiles=self._options.profiles,
            )
        )

    def stop(self, job_id: str, at_ns: int) -> None:
        del at_ns  # on a real cluster a stop takes effect when it arrives
        node = self._node_of.get(job_id)
        if node is not None:
            self._managers[node].request({"op": "stop", "job_id": job_id})

    def steps_done(self, job_id: str) -> int:
        reply = self._managers[self._node_of[job_id]].request({"op": "steps", "job_id": job_id})
        return int(reply["steps_done"])

    def settle(self) -> None:
        give_up_ns = monotonic_ns() + round(_END_S * NS_PER_S)
        while any(process.running for process in self._processes.values()) and monotonic_ns() < give_up_ns:
            self._poller.poll(0.05)

    def lag(self) -> dict[str, LagAccount]:
        return self._lags.accounts()

    def notes(self) -> tuple[str, ...]:
        restarted = [
            f"the sharing manager of {m.node} was restarted {m.restarts} time{'s' if m.restarts > 1 else ''}"
            for m in self._managers.values()
            if m.restarts
        ]
        return (*self._notes, *restarted)

    # --- processes, for tests that kill them ----------------------------------------------------------------------------

    def manager_pids(self) -> dict[str, int]:
        return {name: manager.pid for name, manager in self._managers.items()}

    def job_pids(self) -> dict[str, int]:
        return {job_id: process.pid for job_id, process in self._processes.items()}

    # --- waiting --------------------------------------------------------------------------------------------------------

    def _poll_all(self) -> None:
        while self._poller.poll(0):
            pass

    def _next_deadline(self, until_ns: int | None) -> int | None:
        """The next moment at which this thread has to do something: the loop's, or a warp participant's."""
        earliest = self._warp.earliest_ns() if self._warp is not None else None
        deadlines = [d for d in (until_ns, earliest) if d is not None]
        return min(deadlines) if deadlines else None

    def _move_time(self, warp: WarpCoordinator, until_ns: int | None, now_ns: int) -> bool:
        """Wake who is due; if nobody is and all wait, jump to the next deadline. False: there is nothing to do but wait."""
        due = warp.due(now_ns)
        for job_id in due:
            self._processes[job_id].send(WAKE)
        if due:
            return True
        deadline_ns = self._next_deadline(until_ns)
        if not warp.all_wait or deadline_ns is None or self._clock is None:
            return False
        self._clock.jump_to_ns(deadline_ns)
        return True

    def _wait_host(self, deadline_ns: int | None) -> None:
        """Wait for a message, or until an emulated deadline by the host's clock."""
        assert self._clock is not None
        wall_ns = None if deadline_ns is None else self._clock.read().wall_at(deadline_ns)
        if wall_ns is None:
            self._poller.poll(None)
            return
        left_ns = wall_ns - monotonic_ns()
        if left_ns > _PRECISE_NS:
            self._poller.poll((left_ns - _PRECISE_NS) / NS_PER_S)
        elif left_ns > 0 and not self._poller.poll(0):
            self._waiter.wait_until_ns(min(wall_ns, monotonic_ns() + _PRECISE_NS // 4))

    def _wait_ready(self) -> None:
        give_up_ns = monotonic_ns() + round(_PREPARE_S * NS_PER_S)
        while waiting := [p.job_id for p in self._processes.values() if not p.ready]:
            if monotonic_ns() > give_up_ns:
                raise ClusterError(f"the process of job {waiting[0]!r} is not ready after {_PREPARE_S:g} s")
            self._told(f"starting processes: {len(self._processes) - len(waiting)} of {len(self._processes)}")
            self._poller.poll(0.2)

    # --- job processes ----------------------------------------------------------------------------------------------------

    def _spawn_ahead(self) -> None:
        while self._to_spawn and len(self._processes) < self._options.standby:
            job_id = self._to_spawn.popleft()
            if job_id not in self._processes:
                self._spawn(job_id)

    def _spawn(self, job_id: str) -> JobProcess:
        assert self._directory is not None
        if self._warp is not None:
            self._warp.register(job_id)  # before it exists: time can't jump while it starts
        for part in ("checkpoints", "jobs"):
            (self._directory / part).mkdir(exist_ok=True)
        log = self._directory / "jobs" / str(self._jobs[job_id].row)
        process = JobProcess(
            job_id, log, self._directory / "clock", self._poller, self._on_job_message, self._on_job_death
        )
        self._processes[job_id] = process
        if job_id in self._to_spawn:
            self._to_spawn.remove(job_id)
        return process

    def _on_job_message(self, job_id: str, message: Message) -> None:
        process = self._processes[job_id]
        match message:
            case {"op": "wait", "deadline_ns": int(deadline_ns)} if self._warp is not None:
                self._warp.waits(job_id, deadline_ns)
            case {"op": "ready"}:
                process.ready = True
                if self._warp is not None and not process.running:
                    self._warp.waits(job_id)
            case {"op": "ended", "outcome": str(outcome)}:
                self._on_ended(process, outcome, message)
            case _:
                raise ProtocolError(f"job {job_id!r} sent a message that is not part of the contract")

    def _on_ended(self, process: JobProcess, outcome: str, message: Message) -> None:
        process.running = False
        self._lags.add_report(message)
        self.steps_run[process.job_id] = self.steps_run.get(process.job_id, 0) + int(message["steps_run"])
        if outcome == "stopped":
            if self._warp is not None:
                self._warp.waits(process.job_id)
            return
        if outcome == "failed":
            self._fail(process.job_id, str(message["reason"]))
        self._retire(process)

    def _retire(self, process: JobProcess) -> None:
        """The job is over: let its process go, and start the next one ahead of time."""
        if self._warp is not None:
            self._warp.leave(process.job_id)
        self._processes.pop(process.job_id, None)
        process.ask_to_end()
        self._ended = [ended for ended in self._ended if ended.alive] + [process]
        self._spawn_ahead()

    def _on_job_death(self, job_id: str, how: str) -> None:
        process = self._processes.pop(job_id)
        if self._warp is not None:
            self._warp.leave(job_id)
        if process.running:
            self._fail(job_id, f"its process ended: {how}")
        else:  # nothing was running, so nothing is lost: the job gets another process when it starts
            self._notes.append(f"the waiting process of job {job_id} ended ({how}) and was replaced")

    def _fail(self, job_id: str, reason: str) -> None:
        """Report the failure, and make sure that the manager gives the devices to others."""
        node = self._node_of.pop(job_id, None)
        if node is None:
            return  # the manager said so already
        self._events.append(Event(self.now_ns(), Happening.FAILED, job_id, self._jobs[job_id].row, 0, reason))
        self._managers[node].request({"op": "revoke", "job_id": job_id, "reason": reason})

    # --- managers ---------------------------------------------------------------------------------------------------------

    def _on_manager_event(self, node: str, message: Message) -> None:
        happening = _HAPPENINGS.get(str(message["event"]))
        job_id = str(message["job_id"])
        if happening is None or self._node_of.get(job_id) != node:
            return
        if happening is not Happening.STARTED:
            del self._node_of[job_id]
        self._events.append(
            Event(
                at_ns=int(message["at_ns"]),
                what=happening,
                job_id=job_id,
                row=self._jobs[job_id].row,
                steps_done=int(message["steps_done"]),
                reason=str(message["detail"]),
            )
        )
