"""The loop of a cluster that lives on: jobs and nodes come and go, plans fail, and nothing ends it but its owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.errors import ClusterError, PolicyError
from emulator_runtime.domain.units import to_ns
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.base import Capabilities, Event, Happening
from scheduler_sims.clusters.open import NodesChanged, NodeState, PresentJob, Submitted
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import Phase
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import PATIENCE_S, Ending, Listeners
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.testing import Job, Node

TWO = [Node("n1", gpus=1, cpus=8), Node("n2", gpus=1, cpus=8)]


class Script:
    """A cluster by table: at each time these events come; what the loop does is written down."""

    name = "script"
    capabilities = Capabilities()

    def __init__(self, *events):
        self.events = sorted(events, key=lambda event: event.at_ns)
        self.done = []
        self.refuse = []
        self._now_ns = 0

    def prepare(self, jobs):
        assert not jobs

    def now_ns(self):
        return self._now_ns

    def wait(self, until_ns):
        if self.events and (until_ns is None or self.events[0].at_ns <= until_ns):
            self._now_ns = self.events[0].at_ns
            due = [event for event in self.events if event.at_ns == self._now_ns]
            self.events = self.events[len(due) :]
            return due
        self._now_ns = 10**15 if until_ns is None else until_ns
        return []

    def start(self, start):
        if self.refuse:
            raise self.refuse.pop(0)
        self.done.append((self._now_ns / 1e9, "start", start.job.job_id, start.allocation.nodes[0]))

    def stop(self, job_id, others=0):
        self.done.append((self._now_ns / 1e9, "stop", job_id))

    def resize(self, job_id, allocation):
        self.done.append((self._now_ns / 1e9, "resize", job_id, allocation.tasks[0].cpu_milli))

    def steps_done(self, job_id):
        return 0

    def settle(self):
        pass


@pytest.fixture
def states(cluster_spec):
    def of(nodes, **more):
        return tuple(NodeState(spec, **more) for spec in cluster_spec(nodes).nodes)

    return of


@pytest.fixture
def script(job_specs, states):
    """Events in short: ("a", 3.0) submits job a at 3 s; others are events as they are. TWO nodes from the start."""
    names = {}

    def made(*entries, nodes=TWO):
        events = [NodesChanged(0, Happening.NODES, "", -1, nodes=states(nodes))]
        for entry in entries:
            events.append(submitted(*entry) if isinstance(entry, tuple) else entry)
        return Script(*events)

    def submitted(name, at_s=0.0, **past):
        row = names.setdefault(name, len(names))
        (spec,) = job_specs([Job(name, gpu_s=10, cpu_s=20, submit_s=at_s, row=row)])
        job = PresentJob(spec, **past)
        return Submitted(to_ns(at_s), Happening.SUBMITTED, name, spec.row, job=job)

    return made


def happened(what, name, at_s, steps=0, row=0):
    return Event(to_ns(at_s), what, name, row, steps)


class Run:
    def __init__(self, cluster, policy=None, *, until_s=100.0, costs=None, state=None, patient=True):
        self.decisions, self.failures, self.arrived, self.noted = [], [], [], 0
        truth = OpenTruth(ProfileTable.bundled())
        self.loop = SchedulerLoop(
            cluster,
            ClusterSpec((), costs or ClusterCosts()),
            policy or Fifo(),
            parse_estimates("oracle", truth, 0),
            (),
            ending=Ending(lambda _books: cluster.now_ns() >= to_ns(until_s), endless=True),
            listeners=Listeners(
                decided=self.decisions.append,
                failed=lambda error: self.failures.append(str(error)) or patient,
                submitted=lambda job: self.arrived.append(job.spec.job_id),
                noted=self._note,
            ),
        )
        self.loop.state = state
        self.loop.run()

    def _note(self):
        self.noted += 1

    @property
    def views(self):
        return self.loop.books.views


def test_jobs_that_come_are_scheduled_and_forgotten_when_they_end(script):
    cluster = script(("a", 1), ("b", 2), happened(Happening.STARTED, "a", 3), happened(Happening.FINISHED, "a", 9))
    run = Run(cluster)
    assert cluster.done == [(1, "start", "a", "n1"), (2, "start", "b", "n2")]
    assert list(run.views) == ["b"]
    assert list(run.loop.books.specs) == ["b"]
    assert run.loop.books.records() == ()
    assert run.loop.books.spans == []
    assert run.arrived == ["a", "b"]
    assert run.noted >= 4


def test_a_policy_that_leaves_jobs_waiting_is_not_stuck(script):
    class Idle:
        needs_estimates = False

        def plan(self, view):
            return Plan.full({}, wake_at_s=view.now_s + 0.001)

    run = Run(script(("a", 1)), Idle(), until_s=15)  # more wakes than a workload's loop would bear
    assert run.views["a"].phase is Phase.QUEUED
    assert run.failures == []


def test_what_runs_is_adopted_with_its_past(script, states):
    first = Run(script(("a", 1))).views["a"].allocation
    cluster = script(("a", 1))
    entry = cluster.events[1]
    past = replace(entry.job, allocation=first, running_since_s=-5.0, attained_gpu_s=7.0, steps_done=3, preemptions=2)
    cluster.events[1] = replace(entry, job=past)
    run = Run(cluster)
    view = run.views["a"]
    assert (view.phase, view.running_since_s, view.attained_gpu_s) == (Phase.RUNNING, -5.0, 7.0)
    assert (view.steps_done, view.preemptions, view.allocation) == (3, 2, first)
    assert cluster.done == []


@pytest.mark.parametrize("taken", [False, True])
def test_what_is_held_in_another_way_than_told(script, taken):
    """On another device of the node where there is one; else the job is stopped."""
    place = Run(script(("a", 1), nodes=[Node("n1", gpus=2, cpus=8)])).views["a"].allocation
    gpus = 1 if taken else 2
    cluster = script(("a", 1), ("b", 1), nodes=[Node("n1", gpus=gpus, cpus=8)])
    cluster.events[1:] = [replace(e, job=replace(e.job, allocation=place)) for e in cluster.events[1:]]
    run = Run(cluster)
    devices = [v.allocation.tasks[0].shares[0].device for v in run.views.values() if v.allocation]
    assert len(set(devices)) == len(devices) == gpus
    assert [entry[1:] for entry in cluster.done] == ([("stop", "b")] if taken else [])
    assert [decision.stopped for decision in run.decisions] == ([["b"]] if taken else [[]])


def test_one_that_is_starting_or_stopping_is_adopted_so(script):
    place = Run(script(("a", 1))).views["a"].allocation
    cluster = script(("a", 1))
    entry = cluster.events[1]
    cluster.events[1] = replace(entry, job=replace(entry.job, allocation=place, started=False))
    assert Run(cluster).views["a"].phase is Phase.STARTING
    cluster = script(("a", 1), happened(Happening.STOPPED, "a", 5, steps=4))
    cluster.events[1] = replace(entry, job=replace(entry.job, allocation=place, stopping=True))
    run = Run(cluster)
    assert run.views["a"].steps_done == 4
    assert cluster.done == [(5, "start", "a", "n1")]


def test_removed_jobs_leave_whatever_they_are_doing(script):
    for phase in ("waits", "starts", "runs"):
        events = [("a", 1), ("b", 1), ("c", 1), happened(Happening.REMOVED, "c" if phase == "waits" else "a", 5)]
        if phase == "runs":
            events.insert(3, happened(Happening.STARTED, "a", 3))
        cluster = script(*events)
        run = Run(cluster)
        assert list(run.views) == (["a", "b"] if phase == "waits" else ["b", "c"])
        assert len(cluster.done) == (2 if phase == "waits" else 3)


def test_more_is_known_of_a_waiting_job(script):
    seen = []

    class Looking(Fifo):
        def plan(self, view):
            seen.append((view.now_s, "b" in view.changes, view.jobs["b"].steps_done if "b" in view.jobs else None))
            return super().plan(view)

    cluster = script(
        ("a", 1),
        ("b", 2),
        happened(Happening.PROGRESS, "b", 3, steps=7, row=1),
        ("c", 4),
        nodes=[Node("n1", gpus=1, cpus=8)],
    )
    Run(cluster, Looking())
    assert seen == [(1.0, False, None), (2.0, True, 0), (4.0, True, 7)]  # known is not a reason to decide


# --- nodes --------------------------------------------------------------------------------------------------------------


def test_jobs_on_a_node_that_is_gone_are_stopped_and_start_elsewhere(script, states):
    cluster = script(
        ("a", 1),
        happened(Happening.STARTED, "a", 2),
        NodesChanged(to_ns(4), Happening.NODES, "", -1, nodes=states([TWO[1]])),
        happened(Happening.STOPPED, "a", 6, steps=1),
        happened(Happening.STARTED, "a", 7),
    )
    run = Run(cluster)
    assert cluster.done == [(1, "start", "a", "n1"), (4, "stop", "a"), (6, "start", "a", "n2")]
    told = [(decision.at_s, decision.stopped) for decision in run.decisions]
    assert told == [(1.0, []), (4.0, ["a"]), (6.0, [])]
    assert set(run.loop._ledger.views()) == {"n1", "n2"}  # it is in the books until they are made anew
    assert [spec.name for spec in run.loop.cluster_spec.nodes] == ["n2"]


def test_a_closed_node_takes_nothing_and_keeps_what_it_has(script, states):
    closed = (*states([TWO[0]], closed=True), *states([TWO[1]]))
    cluster = script(
        ("a", 1),
        happened(Happening.STARTED, "a", 2),
        NodesChanged(to_ns(3), Happening.NODES, "", -1, nodes=closed),
        ("b", 4),
        ("c", 5),
        happened(Happening.FINISHED, "a", 8, row=0),
    )
    run = Run(cluster)
    assert cluster.done == [(1, "start", "a", "n1"), (4, "start", "b", "n2")]
    view = run.loop._ledger.views()["n1"]
    assert (view.free_cpu_milli, view.cpu_milli, view.devices[0].healthy) == (0, 0, False)
    assert [spec.name for spec in run.loop.cluster_spec.nodes] == ["n2"]


def test_a_plan_that_was_made_for_other_nodes_is_dropped(script, states):
    """Nodes change while the plan is on its way: it may start jobs where nothing is."""
    cluster = script(("a", 1), NodesChanged(to_ns(1.5), Happening.NODES, "", -1, nodes=states([TWO[1]])))
    Run(cluster, costs=ClusterCosts(decide_s=1.0))
    assert cluster.done == [(3, "start", "a", "n2")]


def test_a_job_that_leaves_while_the_plan_is_on_its_way_is_not_started(script):
    cluster = script(("a", 1), ("b", 1), happened(Happening.REMOVED, "a", 1.5))
    Run(cluster, costs=ClusterCosts(decide_s=1.0))
    assert [entry[:3] for entry in cluster.done] == [(2, "start", "b")]


# --- what goes wrong --------------------------------------------------------------------------------------------------------


class Failing(Fifo):
    """Fails for a while, and says what it was told had changed."""

    def __init__(self, until_s):
        self.until_s, self.changes, self.triggers = until_s, [], []

    def plan(self, view):
        self.changes.append((view.now_s, sorted(view.changes)))
        self.triggers.append(sorted(view.triggers))
        if view.now_s < self.until_s:
            raise ValueError("not yet")
        return super().plan(view)


def test_a_policy_that_fails_is_asked_again_and_told_all_that_changed(script):
    policy, cluster = Failing(5), script(("a", 1), ("b", 3))
    run = Run(cluster, policy)
    assert policy.changes == [(1.0, ["a"]), (3.0, ["a", "b"]), (3.0 + PATIENCE_S, ["a", "b"])]
    assert policy.triggers == [["submitted"], ["submitted"], ["retry", "submitted"]]
    assert len(run.failures) == 2
    assert "the policy failed at 1.000 s: ValueError: not yet" in run.failures[0]
    assert {entry[2] for entry in cluster.done} == {"a", "b"}


def test_a_policy_that_fails_ends_who_has_no_patience(script):
    with pytest.raises(PolicyError, match="not yet"):
        Run(script(("a", 1)), Failing(5), patient=False)


class NotNowError(ClusterError):
    retry_helps = True


def test_a_start_that_is_refused_is_reported_and_tried_again(script):
    cluster = script(("a", 1))
    cluster.refuse = [NotNowError("busy"), NotNowError("busy")]
    run = Run(cluster)
    assert [decision.refused for decision in run.decisions] == [["a"], ["a"], []]
    assert cluster.done == [(3, "start", "a", "n1")]


def test_decisions_say_what_was_done(script):
    run = Run(script(("a", 1), ("b", 1), ("c", 1)))
    (decision,) = run.decisions
    assert (decision.at_s, decision.triggers) == (1.0, ("submitted",))
    assert (list(decision.started), decision.queued, decision.holding) == (["a", "b"], 1, 2)


def test_what_a_policy_remembers_is_given_to_the_next_program(script):
    class Counting(Fifo):
        def plan(self, view):
            return replace(super().plan(replace(view, state=None)), state=(view.state or 0) + 1)

    assert Run(script(("a", 1), ("b", 2)), Counting()).loop.state == 2
    assert Run(script(("a", 1)), Counting(), state=41).loop.state == 42
