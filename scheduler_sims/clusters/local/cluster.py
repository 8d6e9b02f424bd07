"""LocalCluster: real sharing managers and real job processes on this machine, in wall, scaled or warp time.

One thread and one poller serve the managers' events, the job processes' messages and emulated time, all in `wait`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import NS_PER_S, to_ns
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns, prepare_waiting, shorten_slice
from emulator_runtime.workloads.order import RunOrder
from scheduler_sims.clusters.base import Capabilities, Event, Happening, Start, StartQueue, StopQueue
from scheduler_sims.clusters.local import job_process, manager_process
from scheduler_sims.clusters.local.fleet import Fleet
from scheduler_sims.clusters.local.grants import Grants
from scheduler_sims.clusters.local.inbox import Inbox
from scheduler_sims.clusters.local.job_process import JobProcess
from scheduler_sims.clusters.local.lags import Lags
from scheduler_sims.clusters.local.manager_process import ManagerProcess
from scheduler_sims.clusters.local.options import LocalOptions
from scheduler_sims.clusters.local.processes import ForkServer
from scheduler_sims.clusters.local.programs import Programs, check_programs
from scheduler_sims.clusters.local.run_directory import new_run_directory, remove_run_directory
from scheduler_sims.clusters.local.time_keeper import RunningTime, TimeKeeper, WarpTime
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.record import LagAccount

_HAPPENINGS = {
    "attached": Happening.STARTED,
    "released": Happening.STOPPED,
    "finished": Happening.FINISHED,
    "failed": Happening.FAILED,
}
_END_S = 1.0


class LocalCluster:
    """Emulated nodes as processes on this machine. Use as a context manager, or call `close`."""

    name = "local"

    def __init__(
        self, spec: ClusterSpec, options: LocalOptions, *, notify: Callable[[str], None] | None = None
    ) -> None:
        if spec.costs.host_slots:
            problem = "only the simulator knows it, since it delays a start by what begins later; leave it out"
            raise InputError("costs.host_slots", f"{problem} to observe jobs on a local cluster")
        if spec.failures:
            problem = "nodes fail in the simulator only (`emugpu simulate`); leave it out"
            raise InputError("failures", f"{problem} to observe jobs on a local cluster")
        self._spec = spec
        self._options = options
        self._notify = notify or (lambda _text: None)
        self._jobs: dict[str, JobSpec] = {}
        self._grants = Grants()
        self._inbox = Inbox(to_ns(spec.costs.finish_s))
        self._starts = StartQueue(spec.costs)
        self._stops = StopQueue(spec.costs)
        self._pending_stops: deque[tuple[int, str]] = deque()
        """Times and jobs of stops that are not delivered yet, in order (StopQueue)."""
        self._lags = Lags()
        self._profiles: ProfileTable | None = None
        self.capabilities = Capabilities(spec.sharing)
        self._notes: list[str] = []
        self._reconnects = 0
        self.steps_run: dict[str, int] = {}
        self._closed = False
        self._directory = new_run_directory()
        self._poller = Poller()
        self._managers: dict[str, ManagerProcess] = {}
        clock = self._directory / "clock"
        self._time: TimeKeeper = (
            WarpTime(clock, self._poller, options.speed, self._wake)
            if options.warp
            else RunningTime(clock, self._poller, options.speed)
        )
        self._programs = Programs(spec, self._directory / "programs", clock)
        self._server: ForkServer | None = None
        self._fleet = Fleet(
            self._fork_server,
            self._directory,
            self._poller,
            self._time,
            options=options,
            on_ended=self._on_ended,
            on_death=self._on_death,
        )

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- life -------------------------------------------------------------------------------------------------------

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        """Start managers and the first job processes, wait until all are ready, then let emulated time run from 0.

        Raises InputError if jobs run programs and time isn't real, BuildError if the libraries for them can't be compiled.
        """
        check_programs(jobs, self._options)
        self._programs.prepare(jobs)
        prepare_waiting()
        shorten_slice()
        for number, node in enumerate(self._spec.nodes):
            directory = self._directory / "nodes" / str(number)  # a node's name may be too long for a socket's path
            manager = ManagerProcess(
                self._fork_server(), node, directory, self._time, self._poller, self._on_manager_event
            )
            self._managers[node.name] = manager
        ordered = sorted(jobs, key=lambda job: (job.submit_s, job.row))
        self._jobs = {job.job_id: job for job in ordered}
        self._fleet.prepare(ordered)
        for manager in self._managers.values():
            manager.connect()
        self._fleet.wait_ready(self._notify)
        self._time.run()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        children: list[JobProcess | ManagerProcess] = [*self._fleet.all(), *self._managers.values()]
        for child in children:
            child.terminate()
        deadline_ns = monotonic_ns() + round(_END_S * NS_PER_S)
        for child in children:
            child.kill_after(max(0.01, (deadline_ns - monotonic_ns()) / NS_PER_S))
        if self._server is not None:
            self._server.close()
        self._poller.close()
        self._time.close()
        remove_run_directory(self._directory)

    def _fork_server(self) -> ForkServer:
        """Created with the first process, after `prepare` has set how this thread waits, because children inherit that."""
        if self._server is None:
            modules = (manager_process.MODULE, job_process.MODULE)
            self._server = ForkServer(modules, self._directory / "fork-server")
        return self._server

    # --- the loop's side ----------------------------------------------------------------------------------------------

    def now_ns(self) -> int:
        return self._time.now_ns()

    def wait(self, until_ns: int | None) -> list[Event]:
        """See Cluster.wait. In warp, emulated time jumps here."""
        while True:
            self._deliver_stops()
            delivery_ns = self._pending_stops[0][0] if self._pending_stops else None
            deadlines = [ns for ns in (until_ns, self._inbox.due_ns(), delivery_ns) if ns is not None]
            self._time.wait(min(deadlines, default=None), self._inbox.has_news)
            events = self._inbox.take(self.now_ns())
            if events or (until_ns is not None and self.now_ns() >= until_ns):
                return events

    def start(self, start: Start) -> None:
        """One process has the grants of all nodes of a gang, since its tasks run in lockstep."""
        tokens = []
        for task in start.allocation.tasks:
            grant = {"op": "grant", "job_id": start.job.job_id, "steps_done": start.steps_done, "row": start.job.row}
            grant |= {
                "devices": [share.device for share in task.shares],
                "milli": [share.milli for share in task.shares],
                "priority": [share.priority for share in task.shares],
            }
            tokens.append(str(self._managers[task.node].request(grant)["token"]))
        self._grants.begin(start.job.job_id, start.allocation.nodes)
        order = self._order(start, tokens)
        if order.program is not None:
            if self._profiles is None:
                self._profiles = order.profile_table()
            self._programs.started(start, order.begin_ns, order.step_times(self._profiles))
        self._fleet.run(order)

    def _wake(self, participant: str) -> None:
        """A participant of the clock has reached its deadline in warp."""
        for manager in self._managers.values():
            if manager.participant == participant:
                manager.wake()
                return
        self._fleet.wake(participant)

    def _order(self, start: Start, tokens: Sequence[str]) -> RunOrder:
        task, costs = start.allocation.tasks[0], self._spec.costs
        configuration = start.job.configuration(start.allocation.configuration)
        first, *others = (
            (self._managers[node].job_socket, token) for node, token in zip(start.allocation.nodes, tokens, strict=True)
        )
        allocation, samples, spread = start.allocation, start.samples, self._spec.nvlink.spread(start.allocation)
        return RunOrder(
            manager=first[0],
            token=first[1],
            job_id=start.job.job_id,
            steps=samples.steps,
            work=start.job.work_on(configuration.name, allocation.gpus, allocation.batch_size),
            gpu_type=start.allocation.gpu_type or "",
            cpu_milli=task.cpu_milli,
            device_memory_bytes=configuration.device_memory_bytes,
            begin_ns=self._starts.begin_ns(start),
            release_ns=to_ns(costs.release_s()),
            checkpoint=self._directory / "checkpoints" / f"{start.job.row}.json",
            profiles=self._options.profiles,
            host_memory_bytes=task.memory_bytes,
            gpus=spread.gpus,
            others=tuple(others),
            linked=spread.linked,
            nodes_linked=spread.nodes_linked,
            first_step=samples.first_step,
            first_sample=samples.first_sample,
            step_samples=samples.batch_size,
            program=self._programs.order(start, first[0], tokens),
        )

    def stop(self, job_id: str, others: int = 0) -> None:
        self._inbox.stopping(job_id, self._stops.shared_ns(others))
        self._pending_stops.append((self._stops.delivery_ns(self.now_ns()), job_id))
        self._deliver_stops()

    def _deliver_stops(self) -> None:
        while self._pending_stops and self._pending_stops[0][0] <= (now_ns := self.now_ns()):
            delivery_ns, job_id = self._pending_stops.popleft()
            self._lags.add_stop(now_ns - delivery_ns)
            for node in self._grants.nodes(job_id)[:1]:  # the manager of a gang's first node stops the process
                self._managers[node].request({"op": "stop", "job_id": job_id})

    def resize(self, job_id: str, allocation: Allocation) -> None:
        self._fleet.resize(job_id, allocation.tasks[0].host)

    def steps_done(self, job_id: str) -> int:
        ended = self._inbox.pending_end(job_id)
        if ended is not None:
            return ended.steps_done
        by_profile = self._programs.steps_done(job_id, self.now_ns())
        if by_profile is not None:
            return by_profile
        reply = self._managers[self._grants.nodes(job_id)[0]].request({"op": "steps", "job_id": job_id})
        return int(reply["steps_done"])

    def settle(self) -> None:
        self._fleet.settle()

    def lag(self) -> dict[str, LagAccount]:
        return self._lags.accounts()

    def notes(self) -> tuple[str, ...]:
        restarted = [
            f"the sharing manager of {m.node} was restarted {m.restarts} time{'s' if m.restarts > 1 else ''}"
            for m in self._managers.values()
            if m.restarts
        ]
        refused = ["real-time priority was refused: it needs CAP_SYS_NICE"] if self._fleet.realtime_refused else []
        again = (
            [f"job processes connected again to their managers, {self._reconnects} times in all"]
            if self._reconnects
            else []
        )
        return (*refused, *self._notes, *restarted, *again)

    # --- processes, for tests that kill them ----------------------------------------------------------------------------

    def manager_pids(self) -> dict[str, int]:
        return {name: manager.pid for name, manager in self._managers.items()}

    def job_pids(self) -> dict[str, int]:
        return {job_id: process.pid for job_id, process in self._fleet.processes.items()}

    # --- messages of processes -----------------------------------------------------------------------------------------------

    def _on_manager_event(self, node: str, message: Message) -> None:
        happening = _HAPPENINGS.get(str(message["event"]))
        job_id = str(message["job_id"])
        if happening is None or job_id not in self._jobs:
            return
        event = Event(
            at_ns=int(message["at_ns"]),
            what=happening,
            job_id=job_id,
            row=self._jobs[job_id].row,
            steps_done=int(message["steps_done"]),
            reason=str(message["detail"]),
        )
        of_job = self._grants.combine(node, event)
        if of_job is not None:
            self._inbox.add(of_job)

    def _on_ended(self, job_id: str, message: Message) -> None:
        """A job process reports how a run ended. The manager knows already, unless the run failed before it could report."""
        self._lags.add_report(message)
        self._reconnects += int(message["reconnects"])
        self.steps_run[job_id] = self.steps_run.get(job_id, 0) + int(message["steps_run"])
        if message["outcome"] == "failed":
            self._fail(job_id, str(message["reason"]))
        if message["outcome"] != "stopped":
            self._fleet.retire(job_id)

    def _on_death(self, job_id: str, how: str, was_running: bool) -> None:  # noqa: FBT001 (a callback's signature)
        if was_running:
            self._fail(job_id, f"its process ended: {how}")
        else:  # nothing was running, so nothing is lost: the job gets another process when it starts
            self._notes.append(f"the waiting process of job {job_id} ended ({how}); the job got another one")

    def _fail(self, job_id: str, reason: str) -> None:
        """Revoke the job's grants, if its managers don't know of the failure; their events then have the time of the failure."""
        for node in self._grants.nodes(job_id):
            self._managers[node].request({"op": "revoke", "job_id": job_id, "reason": reason})
