"""The scheduler loop of a cluster that lives on: jobs are told by the cluster when they come, nodes may change, nothing ends it.

It differs from the loop of a workload only in what is taken for granted there: all jobs are known, nodes stay as they are,
a policy that leaves jobs waiting is stuck, and one wrong plan ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from emulator_runtime.domain.errors import InputError, PolicyError
from emulator_runtime.domain.units import to_ns, to_s
from scheduler_sims.clusters.base import Cluster, Event, Happening
from scheduler_sims.clusters.open import NodesChanged, NodeState, PresentJob, Submitted
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import Estimates
from scheduler_sims.interface.plan import Allocation, Plan
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.loop.adoption import adopt
from scheduler_sims.loop.books import JobBooks
from scheduler_sims.loop.scheduler_loop import Change, Division, Explain, SchedulerLoop

PATIENCE_S = 10.0
"""Emulated time after which a policy that failed is asked again, where nothing else happens."""


@dataclass(slots=True)
class Decision:
    """What one plan came to. `at_s` and `took_s` in emulated seconds; jobs by id."""

    at_s: float
    triggers: tuple[str, ...]
    started: dict[str, Allocation] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    resized: dict[str, Allocation] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    queued: int = 0
    holding: int = 0
    took_s: float = 0.0


class OpenBooks(JobBooks):
    """Books that forget jobs when they have ended: a scheduler may run for months."""

    def renew(self, states: Sequence[NodeState]) -> None:
        """These nodes are there; devices of former ones may still be held."""
        self._places |= {device.uuid: device for state in states for device in state.spec.devices}

    def _end(self, event: Event) -> None:
        super()._end(event)
        self._records.clear()
        self.spans.clear()
        self.host_spans.clear()
        del self.specs[event.job_id]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears what: each decision, what goes wrong (and whether to go on all the same), reasons for `--explain`.

    `submitted` hears of each job that comes, before any decision about it; `noted` when the books have changed.
    """

    decided: Callable[[Decision], None]
    failed: Callable[[PolicyError], bool]
    explain: Explain | None = None
    submitted: Callable[[PresentJob], None] = lambda _job: None
    noted: Callable[[], None] = lambda: None


class OpenLoop(SchedulerLoop):
    """Drives one policy over one cluster until `over` says so. `state`: what the policy remembers of an earlier program."""

    books: OpenBooks

    def __init__(
        self,
        cluster: Cluster,
        costs: ClusterCosts,
        policy: Policy,
        estimates: Estimates,
        listeners: Listeners,
        *,
        over: Callable[[], bool],
        state: Any = None,
    ) -> None:
        nothing = ClusterSpec((), costs)
        super().__init__(cluster, nothing, policy, estimates, (), explain=listeners.explain)
        self.books = OpenBooks((), nothing)
        self._state = state
        self._is_over = over
        self._listeners = listeners
        self._decision = Decision(0.0, ())
        """The next one to be told: it has also what had to be done before."""

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The nodes as they are, with the costs that the policy is told."""
        return ClusterSpec(self._ledger.open_nodes(), self._costs)

    @property
    def state(self) -> Any:
        """What the policy wants to remember."""
        return self._state

    # --- events ---------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        return self._is_over()

    def _check_hope(self) -> None:
        """Somebody may submit something at any time."""

    def _check_fruitful(self, view: ClusterView) -> None:
        """As above: a policy may well wait."""

    def _absorb_until(self, end_ns: int) -> None:
        while self._cluster.now_ns() < end_ns and not self._over():
            self._absorb(self._cluster.wait(end_ns))

    def _absorb(self, events: Sequence[Event]) -> None:
        super()._absorb(events)
        if events:
            self._listeners.noted()

    def _note(self, event: Event) -> None:
        if isinstance(event, Submitted):
            self._listeners.submitted(event.job)
            self._adopt(event.job)
            self._changed(event.job_id, str(event.what))
        elif isinstance(event, NodesChanged):
            self._renew(event.nodes)
        elif event.what is Happening.PROGRESS:
            self.books.progressed(event.job_id, event.steps_done)
            self._changes.add(event.job_id)
        else:
            super()._note(event)

    def _adopt(self, job: PresentJob) -> None:
        """What can't be held as it is told is held on any devices of its nodes, or not at all: then the job is stopped."""
        for attempt in (job, _anywhere(job)):
            try:
                adopt(self.books, self._ledger, attempt)
            except InputError:
                continue
            return
        adopt(self.books, self._ledger, replace(job, allocation=None))
        self._cluster.stop(job.spec.job_id)
        self._decision.stopped.append(job.spec.job_id)

    def _renew(self, states: tuple[NodeState, ...]) -> None:
        """Jobs on a node that is gone are stopped: Kubernetes would wait for it to come back."""
        views = self.books.views.values()
        held = {view.job_id: view.allocation for view in views if view.allocation is not None}
        self._ledger = self._ledger.renewed(states, held)
        self.books.renew(states)
        names = {state.spec.name for state in states}
        self._stop([job_id for job_id, allocation in held.items() if not names.issuperset(allocation.nodes)])
        self._triggers.add(str(Happening.NODES))

    # --- decisions ------------------------------------------------------------------------------------------------

    def _decide(self) -> None:
        began_ns, before = self._cluster.now_ns(), self.decisions
        self._decision.at_s, self._decision.triggers = to_s(began_ns), tuple(sorted(self._triggers))
        try:
            super()._decide()
        except PolicyError as error:
            if not self._listeners.failed(error):
                raise
            self._retry_ns = self._cluster.now_ns() + to_ns(PATIENCE_S)
        if self.decisions == before:
            return  # there was no job, or no plan
        decision, self._decision = self._decision, Decision(0.0, ())
        views = self.books.views.values()
        decision.queued = sum(view.queued for view in views)
        decision.holding = len(views) - decision.queued
        decision.took_s = to_s(self._cluster.now_ns() - began_ns)
        self._listeners.decided(decision)

    def _ask(self, view: ClusterView) -> Plan:
        try:
            return super()._ask(view)
        except PolicyError:
            self._changes |= view.changes  # the next plan must hear of them
            raise

    def _difference(self, base: Plan, plan: Plan) -> Change:
        """Nothing where nodes changed while the plan was on its way; and jobs that left meanwhile start no more."""
        if str(Happening.NODES) in self._triggers:
            return Change([])
        change, here = super()._difference(base, plan), self.books.views
        return Change(
            change.stops,
            {job_id: wanted for job_id, wanted in change.starts.items() if job_id in here},
            {job_id: wanted for job_id, wanted in change.resizes.items() if job_id in here},
        )

    def _stop(self, job_ids: Sequence[str]) -> None:
        running = [job_id for job_id in job_ids if self._goes_on(job_id)]
        super()._stop(job_ids)
        self._decision.stopped += running

    def _divide(self, one: Division) -> None:
        super()._divide(one)
        self._decision.resized[one.job_id] = one.new

    def _begin(self, job_id: str, allocation: Allocation, behind: int) -> None:
        super()._begin(job_id, allocation, behind)
        if self._goes_on(job_id):
            self._decision.started[job_id] = allocation
        else:
            self._decision.refused.append(job_id)


def _anywhere(job: PresentJob) -> PresentJob:
    """The same, on whichever devices of its nodes."""
    if job.allocation is None:
        return job
    tasks = (
        replace(task, shares=tuple(replace(share, device=None) for share in task.shares))
        for task in job.allocation.tasks
    )
    return replace(job, allocation=replace(job.allocation, tasks=tuple(tasks)))
