"""A cluster in virtual time: discrete events, exact arithmetic, no host clock. Its answer is the predicted JCT.

One total order of events (`Event.order`): time, kind of event, row of the job; the order of insertion never matters. Within
one instant the loop first acts on what it knew beforehand (submissions, wakes, the effect of a plan), then steps are issued,
then the loop receives the events. So a stop that results from an event of this instant comes after the steps of this
instant, any other stop before them, as on a cluster where messages take time.
Runs that share nothing are computed whole; others go step by step (shared_runs.py). Devices decide before the
loop receives the events of an instant.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns, to_s
from scheduler_sims.clusters.base import ORDER, Capabilities, Event, Happening, Start, StartQueue, StopQueue
from scheduler_sims.clusters.host_share import HostShare
from scheduler_sims.clusters.leases import Leases
from scheduler_sims.clusters.node_outages import Checkpoint, Interrupted, NodeOutages, NodeTurn, Turn
from scheduler_sims.clusters.open import NodesChanged
from scheduler_sims.clusters.shared_runs import RunEnd, SharedRuns
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.record import Interruption, LagAccount

_WITHIN = -1
"""Position of cluster-internal events among the events of an instant (see base.ORDER): before all of them."""
_HOST = -2
"""Position of the machines' work: before those."""
_LATER_NS = 2**62
"""When a run begins whose start the machines have not carried out yet."""


@dataclass(slots=True)
class _Run:
    """One uninterrupted run of a job, or its remaining part at one speed; `number` distinguishes stale from valid events."""

    job: JobSpec
    times: StepTimes
    first: int
    begin_ns: int
    number: int
    last: int
    """The last step to run (a stop lowers it; with leases, the last step that ends within the lease)."""
    born: int
    """The number of the run's STARTED event."""
    before_ns: int = 0
    """When the step before `first` ends, which may be in progress when the speed changes."""
    lease_end_ns: int | None = None
    asked: bool = False
    """A stop was requested; the run continues until the stop is delivered."""
    release_ns: int = 0
    """After the last step of a run that was stopped: until its devices are free."""
    allocation: Allocation | None = None
    """Where nodes may go away."""
    kept: int = 0
    """The steps that the last checkpoint has, which was written at `kept_ns`; before the first one the run, or its program, began
    at that time."""
    kept_ns: int = _LATER_NS


@dataclass(frozen=True, slots=True)
class _StopDelivery:
    """A stop reaches a job, whose devices are free `shared_ns` later than if it were stopped alone."""

    job_id: str
    shared_ns: int


@dataclass(frozen=True, slots=True, order=True)
class _HostWork:
    """Work of the machines: the start of one task of a run, its end, after which the loop receives `event`, or what its
    `program` does before its first step."""

    job_id: str
    task: int
    event: Event | None = None
    program: bool = False


@dataclass(frozen=True, slots=True)
class _HostDone:
    """The machines have done some work (of programs), unless what they have to do has changed since its `version`."""

    version: int
    program: bool


@dataclass(slots=True)
class _Pending:
    """A run whose start the machines have not carried out: tasks to start, what its program does then, and a stop that has
    reached it meanwhile."""

    start: Start
    sharing: Mapping[str, str]
    tasks: int
    program_ns: int = 0
    stop: _StopDelivery | None = None


_Machines = HostShare[tuple[_HostWork, int]]
"""What they do for runs: each piece with the run's number."""
_Entry = Event | _Run | _StopDelivery | _HostWork | _HostDone | NodeTurn | Checkpoint


class SimulatedCluster:
    """Discrete events over StepTimes, with the costs of ClusterCosts.

    With `leases` it behaves like round-based simulators (see Leases); by default jobs run without interruption. `any_batch`
    False: it predicts for Kubernetes, where only elastic jobs change their batch size.
    """

    name = "simulated"

    def __init__(
        self, truth: WorkloadTruth, costs: ClusterCosts, leases: Leases | None = None, *, any_batch: bool = True
    ) -> None:
        self._truth = truth
        self.capabilities = Capabilities(truth.cluster.sharing, any_batch)
        self._costs = costs
        self._leases = leases
        self._starts = StartQueue(costs)
        self._stops = StopQueue(costs)
        self._finish_ns = to_ns(costs.finish_s)
        self._now_ns = 0
        self._host = _Machines(costs.host_slots) if costs.host_slots else None
        self._programs = _Machines(costs.program_slots) if costs.program_slots else None
        self._pending: dict[str, _Pending] = {}
        self._heap: list[tuple[tuple[int, int, int], int, _Entry]] = []
        self._runs: dict[str, _Run] = {}
        self._shared = SharedRuns(truth.cluster.resources)
        self._numbers = 0
        self._seen_now = False  # whether the loop has received an event of this instant
        self._outages = NodeOutages(truth.cluster)
        self._turns(self._outages.first())
        self.interruptions: list[Interruption] = []

    def prepare(self, jobs: Sequence[JobSpec]) -> None:
        pass

    def now_ns(self) -> int:
        return self._now_ns

    def wait(self, until_ns: int | None) -> list[Event]:
        events: list[Event] = []
        news, reached_ns = False, until_ns
        while self._more(reached_ns, until_ns):
            (due_ns, *_), number, event = heapq.heappop(self._heap)
            if isinstance(event, _Run):
                self._renew(event, number)
            elif isinstance(event, _StopDelivery):
                self._advance(due_ns)
                self._deliver_stop(event, number)
            elif isinstance(event, _HostWork | _HostDone):
                self._work(event, number, due_ns)
            elif isinstance(event, NodeTurn):
                self._advance(due_ns)
                self._turn(event)
            elif isinstance(event, Checkpoint):
                self._advance(due_ns)
                self._checkpoint(event, number)
            elif self._valid(number, event):
                events.append(event)
                news |= event.what is not Happening.STARTED
                reached_ns = due_ns
        if reached_ns is not None:
            self._advance(reached_ns)
        self._seen_now |= news
        return events

    def start(self, start: Start) -> None:
        sharing = self.capabilities.modes_of(start.allocation)
        number = self._next_number()
        times, program_ns = self._divided(start)
        run = _Run(start.job, times, start.steps_done, _LATER_NS, number, times.steps, number)
        self._runs[start.job.job_id] = run
        if self._outages:
            run.allocation, run.kept = start.allocation, run.first
        self._push(run, start.at_ns, Happening.STARTED, run.first)
        tasks = len(start.allocation.tasks) if self._host is not None and start.at_ns >= 0 else 0
        if not tasks and not program_ns:
            self._begin(run, self._starts.begin_ns(start), start, sharing)
            return
        self._pending[start.job.job_id] = pending = _Pending(start, sharing, tasks, program_ns)
        if not tasks:
            self._begin_program(run, self._starts.begin_ns(start), pending)
            return
        for task, turn_ns in enumerate(self._starts.turns_ns(start)):
            heapq.heappush(self._heap, ((turn_ns, _HOST, run.job.row), number, _HostWork(run.job.job_id, task)))

    def _times(self, job: JobSpec, allocation: Allocation, steps: int) -> StepTimes:
        """When steps end; before the first one of a program lies what its start takes on this cluster, too."""
        times = self._truth.step_times(job, allocation, steps)
        if job.program is None or not self._costs.program_start_s:
            return times
        return replace(times, start_ns=times.start_ns + to_ns(self._costs.program_start_s))

    def _divided(self, start: Start) -> tuple[StepTimes, int]:
        """When the steps of a run end, and what its program does before that as work of the machines. A run that began before
        time 0 shares nothing."""
        job, allocation, steps = start.job, start.allocation, start.samples.steps
        if start.at_ns < 0:
            return self._truth.step_times(job, allocation, steps).going_on(start.steps_done), 0
        times = self._times(job, allocation, steps)
        return (times, 0) if self._programs is None else (replace(times, start_ns=0), times.start_ns)

    def _begin_program(self, run: _Run, at_ns: int, pending: _Pending) -> None:
        """The program of a run begins: work of the machines, as the start of one task is."""
        pending.tasks, run.kept_ns = 1, at_ns
        work = _HostWork(run.job.job_id, 0, program=True)
        heapq.heappush(self._heap, ((at_ns, _HOST, run.job.row), run.born, work))

    def _begin(self, run: _Run, begin_ns: int, start: Start, sharing: Mapping[str, str]) -> None:
        """The first step of a run begins at `begin_ns`."""
        run.begin_ns, run.kept_ns = begin_ns, min(begin_ns, run.kept_ns)
        if self._outages and self._outages.checkpoint_every_ns:
            self._expect_checkpoint(run)
        nodes = self._truth.cluster.resources if run.times.stages else ()
        if sharing or (nodes and any(task.node in nodes for task in start.allocation.tasks)):
            self._shared.begin(start, run.times, begin_ns + run.times.start_ns, sharing)
        else:
            self._plan_end(run)

    def _work(self, work: _HostWork | _HostDone, number: int, now_ns: int) -> None:
        """The machines begin a piece of work, or have done some, if that is still so."""
        machines = self._programs if work.program else self._host
        assert machines is not None
        if isinstance(work, _HostDone) and work.version == machines.version:
            self._advance(now_ns)
            for done, its_number in machines.take(now_ns):
                self._worked(done, its_number)
        elif isinstance(work, _HostWork) and self._of(work, number) is not None:
            self._advance(now_ns)
            machines.add(now_ns, (work, number), self._work_ns(work))
        else:
            return
        self._forecast(machines, program=work.program)

    def _forecast(self, machines: _Machines, *, program: bool) -> None:
        if (due_ns := machines.next_ns()) is not None:
            done = _HostDone(machines.version, program)
            heapq.heappush(self._heap, ((due_ns, _HOST, -2 if program else -1), machines.version, done))

    def _of(self, work: _HostWork, number: int) -> _Run | None:
        """The run that the work belongs to, if it still does."""
        run = self._runs.get(work.job_id)
        if run is None or number != (run.born if work.event is None else run.number):
            return None
        return run

    def _work_ns(self, work: _HostWork) -> int:
        if work.event is not None:
            return to_ns(self._costs.finish_s)
        pending = self._pending[work.job_id]
        if work.program:
            return pending.program_ns
        return to_ns(self._costs.start_s) + (to_ns(self._costs.restore_s) if pending.start.steps_done > 0 else 0)

    def _worked(self, work: _HostWork, number: int) -> None:
        run = self._of(work, number)
        if run is None:
            return
        if work.event is not None:
            _, kind, row = work.event.order
            heapq.heappush(self._heap, ((self._now_ns, kind, row), number, work.event))
            return
        pending = self._pending[work.job_id]
        pending.tasks -= 1
        if pending.tasks:
            return
        begin_ns = self._now_ns + (0 if work.program else to_ns(self._costs.warm_up_s))
        if pending.program_ns and not work.program:
            self._begin_program(run, begin_ns, pending)
            return
        del self._pending[work.job_id]
        self._begin(run, begin_ns, pending.start, pending.sharing)
        if pending.stop is not None:
            self._deliver_stop(pending.stop, run.born)

    def stop(self, job_id: str, others: int = 0) -> None:
        run = self._runs.get(job_id)
        if run is None or run.asked:
            return
        run.asked = True
        due_ns = self._stops.delivery_ns(self._now_ns)
        delivery = _StopDelivery(job_id, self._stops.shared_ns(others))
        if due_ns > self._now_ns:
            heapq.heappush(self._heap, ((due_ns, _WITHIN, run.job.row), run.born, delivery))
        else:
            self._deliver_stop(delivery, run.born)

    def _deliver_stop(self, delivery: _StopDelivery, born: int) -> None:
        run = self._runs.get(delivery.job_id)
        if run is None or run.born != born:
            return  # the run has ended meanwhile
        run.release_ns = to_ns(self._costs.release_s()) + delivery.shared_ns
        pending = self._pending.get(delivery.job_id)
        if pending is not None and run.job.program is None:
            pending.stop = delivery
            return
        if delivery.job_id in self._shared:
            if (end := self._shared.stop(delivery.job_id, self._now_ns)) is not None:
                self._end_shared(end)
            return
        if run.job.program is not None:
            self._stop_program(run)
            return
        count = self._issued(run)
        if run.first + count == run.times.steps:
            return  # the current step is the last one: the job finishes
        run.number = run.born = self._next_number()  # invalidates the planned end
        next_ns = self._issue_ns(run, count)
        run.last = run.first + count
        self._push(run, next_ns + run.release_ns, Happening.STOPPED, run.last)

    def _stop_program(self, run: _Run) -> None:
        """A program ends at once, in the middle of a step."""
        self._not_begun(run)
        run.last = self.steps_done(run.job.job_id)
        run.number = run.born = self._next_number()
        self._push(run, self._now_ns + run.release_ns, Happening.STOPPED, _kept(run.job, run.last))

    def _not_begun(self, run: _Run) -> None:
        """A run won't get to its first step, if it has not yet: what the machines were doing for it ends."""
        if self._pending.pop(run.job.job_id, None) is None:
            return
        for machines, program in ((self._host, False), (self._programs, True)):
            if machines is not None and machines.discard(self._now_ns, lambda piece: piece[1] == run.born):
                self._forecast(machines, program=program)

    # --- nodes that go away ---------------------------------------------------------------------------------------------

    def _turns(self, turns: Iterable[NodeTurn]) -> None:
        for turn in turns:
            heapq.heappush(self._heap, ((turn.at_ns, _WITHIN, -1), self._next_number(), turn))

    def _turn(self, turn: NodeTurn) -> None:
        """A node goes, comes back, or is announced to go; what ran on it is interrupted before the loop hears of the node."""
        if turn.turn is Turn.DOWN:
            for run in [
                run for run in self._runs.values() if run.allocation and turn.outage.node in run.allocation.nodes
            ]:
                self._interrupt(run, turn.outage.node)
        following, changed = self._outages.take(turn)
        self._turns(following)
        if changed:
            event = NodesChanged(self._now_ns, Happening.NODES, "", -1, nodes=self._outages.states())
            key = (self._now_ns, ORDER[Happening.STOPPED], _LATER_NS)  # after all that stops
            heapq.heappush(self._heap, (key, self._next_number(), event))

    def _interrupt(self, run: _Run, node: str) -> None:
        """Ends a run at its last checkpoint, unless its last step has ended and it only releases its devices."""
        job, now_ns = run.job, self._now_ns
        if self.steps_done(job.job_id) >= run.times.steps:
            return
        assert run.allocation is not None
        kept, lost_ns = _kept(job, run.kept), max(0, now_ns - run.kept_ns)  # 0 as long as it hasn't begun
        self._not_begun(run)
        if job.job_id in self._shared:
            self._shared.leave(job.job_id, now_ns)
        run.asked, run.number = True, self._next_number()
        run.born = run.number
        lost_gpu_s = to_s(lost_ns) * run.allocation.gpus
        self.interruptions.append(Interruption(job.job_id, node, to_s(now_ns), kept, lost_gpu_s))
        reason = f"node {node} went away; it goes on after step {kept}"
        event = Interrupted(now_ns, Happening.STOPPED, job.job_id, job.row, kept, reason)
        heapq.heappush(self._heap, (event.order, run.number, event))

    def _checkpoint(self, checkpoint: Checkpoint, born: int) -> None:
        run = self._runs.get(checkpoint.job_id)
        if run is not None and run.born == born:
            run.kept, run.kept_ns = self.steps_done(checkpoint.job_id), self._now_ns
            self._expect_checkpoint(run)

    def _expect_checkpoint(self, run: _Run) -> None:
        due_ns = run.kept_ns + self._outages.checkpoint_every_ns
        heapq.heappush(self._heap, ((due_ns, _WITHIN, run.job.row), run.born, Checkpoint(run.job.job_id)))

    def resize(self, job_id: str, allocation: Allocation) -> None:
        run = self._runs.get(job_id)
        if run is None or run.asked:
            return
        times = self._times(run.job, allocation, run.times.steps)
        times = replace(times, start_ns=min(run.times.start_ns, times.start_ns))  # 0 where that has begun or is over
        if job_id in self._shared:
            self._shared.resize(job_id, times, self._now_ns)
            return
        if job_id in self._pending:
            run.times = times
            return
        count = self._issued(run)
        if times == run.times or run.first + count == run.times.steps:
            return
        if self._now_ns >= run.begin_ns and (count or not run.lease_end_ns):
            # The step in progress keeps its speed, and the next step's input is ready as before.
            run.before_ns = run.begin_ns + run.times.end_ns(run.first, count) if count else run.before_ns
            run.begin_ns = self._issue_ns(run, count) - times.prepared_ns
            run.first += count
        run.times, run.number = times, self._next_number()
        self._plan_end(run)

    def steps_done(self, job_id: str) -> int:
        run = self._runs[job_id]
        if job_id in self._shared:
            return self._shared.steps_done(job_id, self._now_ns)
        if self._now_ns < run.before_ns:
            return run.first - 1
        elapsed = self._now_ns - run.begin_ns
        done = run.times.steps_done(run.first, elapsed) if elapsed > 0 else 0
        return min(run.first + done, run.last)

    def settle(self) -> None:
        pass

    def lag(self) -> dict[str, LagAccount]:
        return {}

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        self._heap.clear()
        self._pending.clear()
        self._runs.clear()

    def _more(self, reached_ns: int | None, until_ns: int | None) -> bool:
        """Whether an event of the heap is due by `reached_ns`, after the decisions of shared devices that come before it.

        Decisions at `until_ns` itself come after what the loop does then, unless an event of that instant is there.
        """
        while True:
            due_ns = self._heap[0][0][0] if self._heap else None
            if due_ns is not None and reached_ns is not None and due_ns > reached_ns:
                due_ns = None
            decision_ns = self._shared.next_ns()
            first = decision_ns is not None and (
                decision_ns <= due_ns if due_ns is not None else until_ns is None or decision_ns < until_ns
            )
            if not first or (reached_ns is not None and decision_ns is not None and decision_ns > reached_ns):
                return due_ns is not None
            for end in self._shared.decide():
                self._end_shared(end)

    def _end_shared(self, end: RunEnd) -> None:
        """Schedules the end of a run on shared devices as soon as it is known."""
        run = self._runs[end.job_id]
        if end.steps_done == run.times.steps:
            self._push(run, end.at_ns, Happening.FINISHED, end.steps_done)
        else:
            self._push(run, end.at_ns + run.release_ns, Happening.STOPPED, _kept(run.job, end.steps_done))

    def _advance(self, now_ns: int) -> None:
        if now_ns > self._now_ns:
            self._now_ns, self._seen_now = now_ns, False

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _plan_end(self, run: _Run) -> None:
        """Schedules the end of a run, or of its lease if that comes first."""
        steps = run.times.steps
        if self._leases is None:
            self._push(run, run.begin_ns + run.times.end_ns(run.first, steps - run.first), Happening.FINISHED, steps)
            return
        run.lease_end_ns = self._leases.end_ns(run.begin_ns)
        run.last = run.first + self._leases.steps(run.times, run.first, run.begin_ns)
        if run.last == steps:
            self._push(run, run.lease_end_ns, Happening.FINISHED, steps)
        else:
            heapq.heappush(self._heap, ((run.lease_end_ns, _WITHIN, run.job.row), run.number, run))

    def _renew(self, run: _Run, number: int) -> None:
        """Ends the lease of a run and begins the next one at the same instant."""
        if run.number == number and run.lease_end_ns is not None:
            run.first, run.begin_ns = run.last, run.lease_end_ns
            self._plan_end(run)

    def _issued(self, run: _Run) -> int:
        """Number of steps issued since `run.first`. The first step of a lease comes after all other events of its instant."""
        elapsed = self._now_ns - run.begin_ns
        if run.lease_end_ns is None:
            return run.times.steps_issued(run.first, elapsed - (not self._seen_now))
        return min(run.times.steps_issued(run.first, elapsed), run.last - run.first) if elapsed > 0 else 0

    def _issue_ns(self, run: _Run, count: int) -> int:
        """When the step after `count` more is issued, ignoring the end of a lease."""
        if run.lease_end_ns is not None and run.first + count == run.last:
            return max(self._now_ns, run.begin_ns + run.times.end_ns(run.first, count))
        return run.begin_ns + run.times.issue_ns(run.first, count)

    def _push(self, run: _Run, at_ns: int, what: Happening, steps_done: int) -> None:
        """Schedules an event at `at_ns`; the loop receives a job's end when its devices are free."""
        event = Event(at_ns, what, run.job.job_id, run.job.row, steps_done)
        if self._host is not None and what is Happening.FINISHED:
            work = _HostWork(run.job.job_id, -1, event)
            heapq.heappush(self._heap, ((at_ns, _HOST, run.job.row), run.number, work))
            return
        due_ns = at_ns + (self._finish_ns if what is Happening.FINISHED else 0)
        heapq.heappush(self._heap, ((due_ns, ORDER[what], event.row), run.number, event))

    def _valid(self, number: int, event: Event) -> bool:
        if isinstance(event, NodesChanged):
            return True
        run = self._runs.get(event.job_id)
        if run is None or number != (run.born if event.what is Happening.STARTED else run.number):
            return False
        if event.what is not Happening.STARTED:
            del self._runs[event.job_id]
            if event.job_id in self._shared:
                self._shared.leave(event.job_id, event.at_ns)
        return True


def _kept(job: JobSpec, steps_done: int) -> int:
    """The steps that a job which is stopped after `steps_done` needn't do again."""
    return 0 if job.begins_anew else steps_done
