"""The scheduler loop: events -> view -> plan -> difference -> actions, the same on every cluster.

The loop doesn't know which cluster it drives. Events within `coalesce_s` are handled together. A plan takes effect `decide_s`
after its decision began. A start that must wait for a stopping job is left to the next plan; a start that the cluster refuses
for the moment is retried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from emulator_runtime.domain.errors import ClusterError, EmuGpuError, InputError, PolicyError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import gib, to_ns, to_s
from emulator_runtime.domain.wording import one_line
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.lag import LagHistogram
from scheduler_sims.clusters.base import Cluster, Event, Happening, Start
from scheduler_sims.clusters.node_outages import Interrupted
from scheduler_sims.clusters.open import NodesChanged, NodeState, PresentJob, Submitted
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.estimates import Estimates
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.interface.view import ClusterView, Phase
from scheduler_sims.loop.adoption import adopt, on_any_devices
from scheduler_sims.loop.books import JobBooks
from scheduler_sims.loop.changes import Change, Division, difference
from scheduler_sims.loop.checks import PlanRefusedError, PolicyFailedError, check_allocation, check_layers, check_types
from scheduler_sims.loop.ledger import Ledger
from scheduler_sims.loop.stated_ends import StatedEnds
from scheduler_sims.loop.strategies import ALL_JOBS_ENDED, PATIENCE_S, Decision, Ending, Listeners
from scheduler_sims.loop.wakes import Wakes, next_wake_ns
from scheduler_sims.record import LagAccount

RETRY_S = 1.0
"""Emulated time until a start is retried that the cluster refused for the moment."""

MAX_LOST_RUNS = 1000
"""Limit of consecutive interruptions of a job by failing nodes without a new checkpoint."""
MAX_IDLE_PLANS = 10_000
"""Limit of consecutive plans that start nothing while no job runs, and of consecutive stops of runs without a finished step."""


class SchedulerLoop:
    """Drives one cluster by one policy until `ending` is reached; afterwards `books` has the records.

    Jobs come from `jobs`, known in advance, and from the cluster's events (Submitted). `state` is the policy's memory; before
    `run` it may be set to the state of an earlier loop.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec: ClusterSpec,
        policy: Policy,
        estimates: Estimates,
        jobs: Sequence[JobSpec],
        *,
        ending: Ending = ALL_JOBS_ENDED,
        listeners: Listeners | None = None,
    ) -> None:
        self._cluster = cluster
        self._costs = spec.costs
        self._coalesce_ns, self._decide_ns = to_ns(spec.costs.coalesce_s), to_ns(spec.costs.decide_s)
        self._policy = policy
        self._rounds: Rounds | None = getattr(policy, "rounds", None)
        self._estimates = estimates
        self._jobs = jobs
        self._ending = ending
        self._listeners = listeners or Listeners()
        self.books = JobBooks(jobs, spec, keeps_records=not ending.endless)
        self._at_once = Counter(job.submit_s for job in jobs)
        self.books.waiting.sort(key=lambda job: (self._arrival_ns(job), job.submit_s, job.row), reverse=True)
        self._next_arrival: tuple[JobSpec, int] | None = None
        self._stated_ends = StatedEnds()
        self._jobs_view = MappingProxyType(self.books.views)
        self._in_force = Plan(started=self.books.live)
        self._ledger = Ledger.of(spec)
        self._first_nodes = [node.name for node in spec.nodes]
        self.state: object = None
        self._wake_ns: int | None = None
        self._wakes = Wakes()
        self._retry_ns: int | None = None
        self._changes: set[str] = set()
        self._triggers: set[str] = set()
        self._missed: frozenset[str] = frozenset()
        """The triggers of a plan that failed."""
        self.asking = False
        """Whether the policy is computing a plan."""
        self.decisions = 0
        self.policy_ns = 0
        """On the host's clock, for which the policy has computed plans."""
        self._decision = Decision(0.0, ())
        """The decision that is reported next; it includes the stops that changes of nodes required before it."""
        self._idle_plans = 0
        self._nodes_away = False
        """Whether nodes that the cluster began with are away."""
        self._wasted_stops = 0
        self._wasted_runs: Counter[str] = Counter()
        """Of each job: how often it was interrupted since it last kept a step."""
        self._decide_lags = LagHistogram()

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The current nodes, with the costs that the policy gets."""
        return ClusterSpec(self._ledger.open_nodes(), self._costs)

    def adopt(self, job: PresentJob) -> Allocation | None:
        """Enters a job with its history; returns its allocation. Raises InputError if the books contradict it."""
        allocation = adopt(self.books, self._ledger, job)
        self._changes.add(job.spec.job_id)
        return allocation

    def run(self) -> None:
        """Run until the ending. Raises PolicyError for an invalid plan, ClusterError if the cluster fails."""
        self._cluster.prepare(self._jobs)
        while not self._over():
            if not self._triggers:  # else: events came while the last plan took effect
                self._wait_for_events()
            if self._triggers:
                if self._coalesce_ns:
                    self._absorb_until(self._cluster.now_ns() + self._coalesce_ns)
                self._decide_and_report()
        self._cluster.settle()

    def lag(self) -> dict[str, LagAccount]:
        """How much later than `decide_s` plans took effect; empty if decisions take no time on the cluster's clock."""
        return {"decide": LagAccount.of(self._decide_lags)} if self._decide_lags.max_ns else {}

    # --- events ---------------------------------------------------------------------------------------------------

    def _wait_for_events(self) -> None:
        until_ns = self._next_deadline()
        if until_ns is None and not self._ending.endless and not self._anything_runs() and not self._nodes_away:
            raise PolicyError(self._starvation())  # without a deadline, only running jobs cause events
        self._absorb(self._cluster.wait(until_ns))

    def _over(self) -> bool:
        return self._ending.over(self.books)

    def _absorb_until(self, end_ns: int) -> None:
        while self._cluster.now_ns() < end_ns and not (self._ending.endless and self._over()):
            coming = [time_ns for time_ns in (self._next_submit(), self._stated_ends.next_ns) if time_ns is not None]
            self._absorb(self._cluster.wait(min([end_ns, *coming])))

    def _next_submit(self) -> int | None:
        if not self.books.waiting:
            return None
        job = self.books.waiting[-1]
        if self._next_arrival is None or self._next_arrival[0] is not job:
            self._next_arrival = job, self._arrival_ns(job)
        return self._next_arrival[1]

    def _arrival_ns(self, job: JobSpec) -> int:
        """When the loop learns of a submission: jobs of one instant together, `serial_submit_s` later for each further job."""
        others = max(0, self._at_once[job.submit_s] - 1)
        return to_ns(job.submit_s) + to_ns(self._costs.submit_s + self._costs.serial_submit_s * others)

    def _next_deadline(self) -> int | None:
        times = (self._next_submit(), self._stated_ends.next_ns, self._wake_ns, self._retry_ns)
        deadlines = [time_ns for time_ns in times if time_ns is not None]
        return min(deadlines) if deadlines else None

    def _absorb(self, events: Sequence[Event]) -> None:
        for event in events:
            self._note(event)
        now_ns = self._cluster.now_ns()
        while (submit_ns := self._next_submit()) is not None and submit_ns <= now_ns:
            job = self.books.waiting.pop()
            self.books.submit(job)
            self._changed(job.job_id, "submitted")
            self._stated_ends.enter(job)
        if due := self._stated_ends.due(now_ns):
            self._end_stated(due, now_ns)
        if self._wake_ns is not None and self._wake_ns <= now_ns:
            self._wake_ns = None
            self._triggers.add("wake")
        if self._retry_ns is not None and self._retry_ns <= now_ns:
            self._retry_ns = None
            self._triggers.add("retry")
        self._listeners.progress(self.books.ended, to_s(now_ns))
        if events:
            self._listeners.noted()

    def _note(self, event: Event) -> None:
        if isinstance(event, Submitted):
            self._listeners.submitted(event.job)
            self._enter(event.job)
            self._changed(event.job_id, str(event.what))
        elif isinstance(event, NodesChanged):
            self._renew(event.nodes)
        elif event.what is Happening.PROGRESS:
            self.books.progressed(event)
            self._changes.add(event.job_id)
        elif event.what is Happening.STARTED:
            self.books.started(event)
            self._changes.add(event.job_id)
        else:
            self._released(event)

    def _enter(self, job: PresentJob) -> None:
        """Enter a submitted job. If its devices are taken, it gets any devices of its nodes; if none are free, it is stopped."""
        for attempt in (job, on_any_devices(job)):
            try:
                self.adopt(attempt)
            except InputError:
                continue
            return
        self.adopt(replace(job, allocation=None))
        self._cluster.stop(job.spec.job_id)
        self._decision.stopped.append(job.spec.job_id)

    def _renew(self, states: tuple[NodeState, ...]) -> None:
        """Replace the nodes. Jobs on a removed node are stopped, since Kubernetes would wait for the node to return."""
        held = dict(self.books.held)
        self._ledger = self._ledger.renewed(states, held)
        self.books.renew(states)
        names = {state.spec.name for state in states}
        self._nodes_away = not names.issuperset(self._first_nodes)
        self._stop([job_id for job_id, allocation in held.items() if not names.issuperset(allocation.nodes)])
        self._triggers.add(str(Happening.NODES))

    def _end_stated(self, job_ids: Sequence[str], now_ns: int) -> None:
        """Of the jobs whose time has come, those that wait have left, and those that run are stopped."""
        present = [view for job_id in job_ids if (view := self.books.views.get(job_id)) is not None]
        for view in present:
            if view.queued:
                self._released(Event(now_ns, Happening.STOPPED, view.job_id, view.row, view.steps_done))
        self._stop([view.job_id for view in present if not view.queued])

    def _released(self, event: Event) -> None:
        """A run has ended: release its resources."""
        event = self._stated_ends.settled(event)
        view = self.books.views[event.job_id]
        allocation = view.allocation
        gained = event.what is not Happening.STOPPED or event.steps_done > view.steps_done
        if isinstance(event, Interrupted):
            self._interrupted(event, gained=gained)
            gained = True  # it isn't the policy's fault
        self._wasted_stops = 0 if gained else self._wasted_stops + 1
        if self._wasted_stops > MAX_IDLE_PLANS:
            raise PolicyError(f"the policy stopped jobs {MAX_IDLE_PLANS} times in a row before they had done a step")
        self.books.released(event)
        if allocation is not None:
            self._ledger.release(event.job_id, allocation)
        self._changed(event.job_id, str(event.what))

    def _interrupted(self, event: Interrupted, *, gained: bool) -> None:
        """Raises ClusterError for a job that would never end, because its nodes fail more often than it writes checkpoints."""
        self._wasted_runs[event.job_id] = 0 if gained else self._wasted_runs[event.job_id] + 1
        if self._wasted_runs[event.job_id] > MAX_LOST_RUNS and self.books.specs[event.job_id].until_s is None:
            problem = (
                f"job {event.job_id!r} was interrupted {MAX_LOST_RUNS} times in a row before it had a new checkpoint"
            )
            raise ClusterError(f"{problem}; give failures a shorter checkpoint_every_s, or a longer mtbf_s")
        if self._listeners.explain is not None:
            self._listeners.explain(to_s(event.at_ns), event.job_id, event.reason)

    def _changed(self, job_id: str, trigger: str) -> None:
        self._changes.add(job_id)
        self._triggers.add(trigger)

    # --- decisions ------------------------------------------------------------------------------------------------

    def _decide_and_report(self) -> None:
        began_ns, before, triggers = self._cluster.now_ns(), self.decisions, self._triggers
        try:
            self._decide()
        except PolicyError as error:
            if not self._listeners.failed(error):
                raise
            self._retry_ns = self._cluster.now_ns() + to_ns(PATIENCE_S)
        if self.decisions == before:
            return  # there was no job, or no plan
        decision, self._decision = self._decision, Decision(0.0, ())
        if self._listeners.decided is None:
            return
        decision.at_s, decision.triggers = to_s(began_ns), tuple(sorted(triggers))
        decision.holding = len(self.books.held)
        decision.queued = len(self.books.views) - decision.holding
        decision.took_s = to_s(self._cluster.now_ns() - began_ns)
        self._listeners.decided(decision)

    def _decide(self) -> None:
        """Ask the policy for a plan, wait until the plan takes effect, apply the difference."""
        if not self.books.views:
            self._triggers.clear()
            return
        decided_ns = self._cluster.now_ns()
        view = self._view(decided_ns)
        self._changes, self._triggers = set(), set()
        plan = self._ask(view)
        change = difference(view.plan, plan)  # before any event: the view is the loop's books
        self.decisions += 1
        self.state = plan.state
        self._wake_ns = next_wake_ns(plan.wake_at_s, view.round, view.now_s)
        if self._listeners.explain is not None:
            for job_id, reason in plan.reasons.items():
                self._listeners.explain(view.now_s, job_id, reason)
        effective_ns = decided_ns + self._decide_ns
        self._decide_lags.add(max(0, self._cluster.now_ns() - effective_ns))
        if self._decide_ns:
            self._absorb_until(effective_ns)
        change = self._applicable(change)
        self._stop(change.stops)
        self._start(change.starts, self._resize(change.resizes))
        if not self._ending.endless:
            self._check_idle_plans(view)

    def _applicable(self, change: Change) -> Change:
        """The actions of a plan that still make sense when it takes effect.

        A plan is dropped if nodes changed while it was made. In an endless loop jobs that have left since are skipped.
        """
        if str(Happening.NODES) in self._triggers:
            return Change([])
        if not self._ending.endless:
            return change
        present = self.books.views
        return Change(
            change.stops,
            {job_id: wanted for job_id, wanted in change.starts.items() if job_id in present},
            {job_id: wanted for job_id, wanted in change.resizes.items() if job_id in present},
        )

    def _check_idle_plans(self, view: ClusterView) -> None:
        """Raises PolicyError for a policy that only asks to be woken again, which would never end."""
        self._wakes.note(view.triggers, view.now_s)
        idle = view.triggers <= {"wake", "retry"} and not self.books.waiting and not self._anything_runs()
        self._idle_plans = self._idle_plans + 1 if idle else 0
        if self._idle_plans > MAX_IDLE_PLANS:
            raise PolicyError(f"{self._starvation()} but the wakes that it asks for")

    def _ask(self, view: ClusterView) -> Plan:
        self.asking = True
        try:
            return self._checked_plan(view)
        except PolicyError:
            self._changes |= view.changes  # the next view must contain them too
            self._missed = view.triggers
            self._ledger.changed |= view.changed_nodes or set()
            raise
        finally:
            self.asking = False

    def _checked_plan(self, view: ClusterView) -> Plan:
        began_ns = monotonic_ns()
        try:
            plan = self._policy.plan(view)
        except EmuGpuError:
            raise
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {one_line(error)} ({_last_line(error)})"
            raise PolicyFailedError(
                f"the policy failed at {view.now_s:.3f} s: {problem}", f"the policy failed: {problem}"
            ) from error
        self.policy_ns += monotonic_ns() - began_ns
        if not isinstance(plan, Plan):
            answer, fix = type(plan).__name__, "not a Plan: return Plan.full(...) or view.plan.evolve(...)"
            raise PolicyFailedError(
                f"the policy answered {answer} at {view.now_s:.3f} s, {fix}", f"the policy answered {answer}, {fix}"
            )
        check_types(plan)
        return plan

    def _view(self, now_ns: int) -> ClusterView:
        """The present state. It shows the loop's own books, so it is valid only while the policy makes its plan."""
        changed, self._ledger.changed = self._ledger.changed, set()
        missed, self._missed = self._missed, frozenset()
        return ClusterView(
            now_s=to_s(now_ns),
            triggers=missed.union(self._triggers),
            nodes=self._ledger.views(),
            jobs=self._jobs_view,
            changes=frozenset(self._changes),
            plan=self._in_force,
            state=self.state,
            costs=self._costs,
            estimates=self._estimates,
            observed_steps=self._cluster.steps_done,
            round=self._rounds.at(to_s(now_ns)) if self._rounds is not None else None,
            changed_nodes=frozenset(changed),
            held=self.books.held,
        )

    def _stop(self, job_ids: Sequence[str]) -> None:
        running = [job_id for job_id in job_ids if self._is_active(job_id)]  # the others ended while the plan was made
        for job_id in running:
            self.books.stopping(job_id)
            self._changes.add(job_id)
            self._cluster.stop(job_id, len(running) - 1)
        self._decision.stopped += running

    def _is_active(self, job_id: str) -> bool:
        view = self.books.views.get(job_id)
        return view is not None and view.phase in (Phase.STARTING, Phase.RUNNING)

    def _resize(self, wanted: dict[str, Allocation]) -> list[Division]:
        """Apply new divisions of CPUs and host memory. Returns those that must wait for resources of stopping jobs."""
        if not wanted:
            return []
        due = []
        for job_id, allocation in wanted.items():
            view = self.books.views.get(job_id)
            if view is None or view.allocation is None or view.phase not in (Phase.STARTING, Phase.RUNNING):
                continue
            check_allocation(self.books.specs.get(job_id), job_id, allocation)
            due.append(Division(job_id, view.allocation, view.allocation.resized(allocation)))
        together = self._fit_together(due, self._ledger)
        if not together:
            self._check_divisions(due)
        waiting = []
        for one in due:
            if together or self._fit_together([one], self._ledger):
                self._divide(one)
            else:
                waiting.append(one)
        return waiting

    def _divide(self, one: Division) -> None:
        self._cluster.resize(one.job_id, one.new)
        self._ledger.resize(one.job_id, one.old, one.new)
        self.books.resized(one.job_id, one.new, self._cluster.now_ns())
        self._changes.add(one.job_id)
        self._decision.resized[one.job_id] = one.new

    def _fit_together(self, divisions: Sequence[Division], ledger: Ledger) -> bool:
        sketch = ledger.without((one.job_id, one.old) for one in divisions)
        for one in divisions:
            if sketch.resolve(one.new) is None:
                return False
            sketch.take(one.job_id, one.new)
        return True

    def _check_divisions(self, due: Sequence[Division]) -> None:
        sketch = self._ledger.without([*self.books.leaving.items(), *((one.job_id, one.old) for one in due)])
        for one in due:
            if sketch.resolve(one.new) is None:
                raise PlanRefusedError(
                    one.job_id,
                    f"the plan gives job {one.job_id!r} {_host(one.new)} on {', '.join(one.new.nodes)}, more than the "
                    "rest of the plan leaves there",
                )
            sketch.take(one.job_id, one.new)

    def _start(self, starts: dict[str, Allocation], undivided: Sequence[Division]) -> None:
        """Start the jobs whose resources are free. `undivided`: divisions that wait for stopping jobs."""
        if not starts:
            return
        views = self.books.views
        leaving = [*self._leaving_from(starts), *((one.job_id, one.old) for one in undivided)]
        free, ready = self._ledger.without([]), dict[str, Allocation]()
        sketch = self._ledger.without(leaving) if leaving else free
        for one in undivided:
            sketch.take(one.job_id, one.new)
        for job_id, allocation in starts.items():
            check_allocation(self.books.specs.get(job_id), job_id, allocation)
            if job_id not in views or not views[job_id].queued:
                continue  # it is still stopping, or has left; a later plan starts it
            planned = sketch.resolve(allocation)
            if planned is None:
                shortage = sketch.shortage(allocation)
                problem = f"the plan places job {job_id!r} on {shortage.text}"
                raise PlanRefusedError(job_id, problem, never=shortage.never)
            if refusal := self._cluster.capabilities.refusal(self.books.specs[job_id], planned):
                raise PlanRefusedError(job_id, f"the plan gives job {job_id!r} {refusal}", never=True)
            sketch.take(job_id, planned)
            if sketch is free:
                ready[job_id] = planned
            elif (resolved := free.resolve(allocation)) is not None:  # else: a stopping job still holds its place
                free.take(job_id, resolved)
                ready[job_id] = resolved
        for job_id, resolved in ready.items():
            check_layers(self.books.specs[job_id], resolved, free.nvlink_domains)
        later_tasks = sum([len(resolved.tasks) for resolved in ready.values()])
        for job_id, resolved in ready.items():
            later_tasks -= len(resolved.tasks)
            self._begin(job_id, resolved, later_tasks)

    def _leaving_from(self, starts: Mapping[str, Allocation]) -> list[tuple[str, Allocation]]:
        """The stopping jobs on the nodes that these allocations name."""
        leaving = self.books.leaving
        return leaving.on({node for allocation in starts.values() for node in allocation.nodes}) if leaving else []

    def _begin(self, job_id: str, allocation: Allocation, later_tasks: int) -> None:
        """`later_tasks`: number of tasks that the same plan starts after this job."""
        view = self.books.views[job_id]
        self.books.starting(job_id, allocation)
        self._changes.add(job_id)
        try:
            spec, now_ns = self.books.specs[job_id], self._cluster.now_ns()
            self._cluster.start(Start(spec, allocation, now_ns, view.steps_done, later_tasks, view.samples_done))
        except EmuGpuError as error:
            self.books.not_started(job_id)
            if not error.retry_helps:
                raise
            self._retry_ns = self._cluster.now_ns() + to_ns(RETRY_S)
            self._decision.refused.append(job_id)
            return
        self._ledger.take(job_id, allocation)
        self._decision.started[job_id] = allocation

    def _anything_runs(self) -> bool:
        return bool(self.books.held)

    def _starvation(self) -> str:
        stuck = list(self.books.views)
        more = f" and {len(stuck) - 5} more" if len(stuck) > 5 else ""
        return (
            f"the policy leaves {', '.join(stuck[:5])}{more} queued although nothing runs and nothing else will happen"
        )


def _host(allocation: Allocation) -> str:
    cpus, memory = (sum(getattr(t, name) for t in allocation.tasks) for name in ("cpu_milli", "memory_bytes"))
    return f"{cpus / 1000:g} CPUs and {gib(memory)} of memory"


def _last_line(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "unknown place"
