"""The job processes of a local cluster: started ahead of time, given runs, ended with their job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError, ProtocolError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.control import resize_message
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.ipc.warp import WAKE, counts_in
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.workloads.order import RunOrder
from scheduler_sims.clusters.local.job_process import JobProcess
from scheduler_sims.clusters.local.options import LocalOptions
from scheduler_sims.clusters.local.processes import ForkServer
from scheduler_sims.clusters.local.time_keeper import TimeKeeper

READY_S = 120.0
_SETTLE_S = 1.0


class Fleet:
    """At most `options.standby` processes wait ahead of time, in the order of `jobs`; further ones are started on demand.

    Each participates in the clock from before it is spawned until it has ended. `on_ended` gets the report of a run
    (see workloads/__main__.py); `on_death` gets a job whose process ended by itself, how it ended, and whether it was running.
    """

    def __init__(
        self,
        server: Callable[[], ForkServer],
        directory: Path,
        poller: Poller,
        time: TimeKeeper,
        *,
        options: LocalOptions,
        on_ended: Callable[[str, Message], None],
        on_death: Callable[[str, str, bool], None],
    ) -> None:
        self._server = server
        self._logs = directory / "jobs"
        self._logs.mkdir()
        self._poller = poller
        self._participants = time.participants
        self._standby = options.standby
        self._environment = {"EMUGPU_CLOCK": str(time.path)} | ({"EMUGPU_REALTIME": "1"} if options.realtime else {})
        self._on_ended = on_ended
        self._on_death = on_death
        self._rows: dict[str, int] = {}
        self._to_spawn: dict[str, None] = {}
        self._ending: list[JobProcess] = []
        self.processes: dict[str, JobProcess] = {}
        self._died_early: list[tuple[str, str]] = []
        self.realtime_refused = False

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        """Start the first processes; `wait_ready` waits for them."""
        self._rows = {job.job_id: job.row for job in jobs}
        self._to_spawn = dict.fromkeys(self._rows)
        self._spawn_ahead()

    def wait_ready(self, notify: Callable[[str], None]) -> None:
        """Wait until all processes are ready; `notify` gets the progress. Raises ClusterError if one ends or is late."""
        give_up_ns = monotonic_ns() + round(READY_S * NS_PER_S)
        while waiting := [p.job_id for p in self.processes.values() if not p.ready]:
            if monotonic_ns() > give_up_ns:
                raise ClusterError(
                    f"the process of job {waiting[0]!r} is not ready after {READY_S:g} s: this machine is too busy for "
                    f"{len(self.processes)} processes; lower --standby"
                )
            notify(f"starting processes: {len(self.processes) - len(waiting)} of {len(self.processes)}")
            self._poller.poll(0.2)
            if self._died_early:
                job_id, how = self._died_early[0]
                raise ClusterError(f"the process of job {job_id!r} could not start: {how}")

    def run(self, order: RunOrder) -> None:
        """Send a run to the job's process."""
        process = self.processes.get(order.job_id) or self._spawn(order.job_id)
        self._participants.busy(order.job_id)
        process.run(order)

    def resize(self, job_id: str, host: HostShare) -> None:
        """Send a running job its new CPUs and memory; not needed if its process has just ended."""
        process = self.processes.get(job_id)
        if process is not None and process.running:
            process.send(resize_message(host))

    def wake(self, job_id: str) -> None:
        """The job's process reached the deadline for which it waits in warp."""
        self.processes[job_id].send(WAKE)

    def retire(self, job_id: str) -> None:
        """The job has ended: end its process, and start another one ahead of time."""
        process = self.processes.pop(job_id)
        self._participants.leave(job_id)
        process.terminate()
        self._ending = [*(p for p in self._ending if p.alive), process]
        self._spawn_ahead()

    def settle(self) -> None:
        """Wait for the reports of the last runs."""
        give_up_ns = monotonic_ns() + round(_SETTLE_S * NS_PER_S)
        while any(process.running for process in self.processes.values()) and monotonic_ns() < give_up_ns:
            self._poller.poll(0.05)

    def all(self) -> list[JobProcess]:
        """All processes that may still exist."""
        return [*self.processes.values(), *self._ending]

    def _spawn_ahead(self) -> None:
        while self._to_spawn and len(self.processes) < self._standby:
            self._spawn(next(iter(self._to_spawn)))

    def _spawn(self, job_id: str) -> JobProcess:
        self._participants.register(job_id)  # before it exists: time can't jump while it starts
        log = self._logs / str(self._rows[job_id])
        process = JobProcess(self._server(), job_id, log, self._environment, self._poller, self._message, self._death)
        self.processes[job_id] = process
        self._to_spawn.pop(job_id, None)
        return process

    def _message(self, job_id: str, message: Message) -> None:
        process = self.processes[job_id]
        match message:
            case {"op": "wait", "deadline_ns": int(deadline_ns), "handled": int(handled), "frames": dict(frames)}:
                self._participants.waits(job_id, deadline_ns, handled=handled, frames=counts_in(frames))
            case {"op": "ready"}:
                process.ready = True
                self.realtime_refused |= bool(message.get("realtime_refused"))
                if not process.running:
                    self._participants.waits(job_id, frames={})
            case {"op": "ended", "outcome": str()}:
                process.ended()
                if not process.running:
                    self._participants.waits(job_id, frames={})
                self._on_ended(job_id, message)
            case _:
                raise ProtocolError(f"job {job_id!r} sent a message that is not part of the contract")

    def _death(self, job_id: str, how: str) -> None:
        process = self.processes.pop(job_id)
        self._participants.leave(job_id)
        if not process.ready:
            self._died_early.append((job_id, how))
        self._on_death(job_id, how, process.running)
