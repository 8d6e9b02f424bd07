from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.units import to_ns
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.costs import COST_NAMES, ClusterCosts
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node

S = 1_000_000_000
POLICIES = ("fifo", "srtf", "las:threshold_s=4,quantum_s=1", "drf-sjf", "allox")


# --- the cluster alone --------------------------------------------------------------------------------------------------


@dataclass
class Driven:
    """A simulated cluster of one node and its jobs, driven without a loop."""

    cluster: SimulatedCluster
    jobs: dict

    def start(self, job_id, *, steps_done=0, milli=1000, device=0, later_tasks=0):
        share = DeviceShare(device_uuid("n1", device), "Tesla-T4", milli)
        allocation = Allocation("gpu", (TaskPlacement("n1", (share,), 1000),))
        self.cluster.start(Start(self.jobs[job_id], allocation, self.cluster.now_ns(), steps_done, later_tasks))

    def wait(self, until_s=None):
        events = self.cluster.wait(None if until_s is None else to_ns(until_s))
        return [(event.at_ns / S, str(event.what), event.job_id, event.steps_done) for event in events]


@pytest.fixture
def drive(job_specs, cluster_spec):
    def drive(*jobs, **costs):
        specs, spec = job_specs(jobs), cluster_spec([Node("n1", gpus=4)], **costs)
        truth = WorkloadTruth(Workload("w", specs, ProfileTable.bundled()), spec)
        return Driven(SimulatedCluster(truth, spec.costs), {each.job_id: each for each in specs})

    return drive


TEN = Job("a", gpu_s=10, steps=10)


def test_a_run_starts_and_finishes(drive):
    driven = drive(TEN)
    driven.start("a")
    assert driven.wait() == [(0.0, "started", "a", 0)]
    assert driven.wait() == [(10.0, "finished", "a", 10)]
    assert driven.cluster.now_ns() == 10 * S


def test_waiting_ends_where_it_was_told_to(drive):
    driven = drive(TEN)
    driven.start("a")
    driven.wait()
    assert driven.wait(9.999) == []
    assert driven.cluster.now_ns() == to_ns(9.999)
    assert driven.wait(10) == [(10.0, "finished", "a", 10)]


def test_when_nothing_can_happen_the_answer_is_empty_and_time_stands_still(drive):
    driven = drive(TEN)
    assert driven.wait() == []
    assert driven.cluster.now_ns() == 0
    assert driven.wait(5) == []
    assert driven.wait(3) == []
    assert driven.cluster.now_ns() == 5 * S


def test_simultaneous_events_come_together_by_kind_then_row(drive):
    jobs = [Job("d", gpu_s=2), Job("c", gpu_s=2), Job("b", gpu_s=9, steps=9), Job("a", gpu_s=9, steps=9)]
    driven = drive(*jobs)
    for device, job_id in enumerate(("a", "b", "c", "d")):
        driven.start(job_id, device=device)
    assert [told[2] for told in driven.wait()] == ["d", "c", "b", "a"]
    driven.wait(0.5)
    driven.cluster.stop("a")
    assert [told[:3] for told in driven.wait(1.5)] == [(1.0, "stopped", "a")]
    driven.cluster.stop("b")
    assert [told[1:3] for told in driven.wait(10)] == [("finished", "d"), ("finished", "c"), ("stopped", "b")]


@pytest.mark.parametrize(
    ("at_s", "freed"),
    [
        (0.0, (1.75, "stopped", "a", 0)),  # it is being started
        (0.999, (1.75, "stopped", "a", 0)),
        (
            1.0,
            (1.75, "stopped", "a", 0),
        ),  # the very instant at which the first step would be issued: the stop comes first
        (1.5, (2.75, "stopped", "a", 1)),
        (2.0, (2.75, "stopped", "a", 1)),
        (9.999, (10.75, "stopped", "a", 9)),
        (10.0, (10.75, "stopped", "a", 9)),
        (10.001, (11.0, "finished", "a", 10)),  # the last step has begun
        (10.5, (11.0, "finished", "a", 10)),
    ],
)
def test_a_stop_takes_effect_between_two_steps(drive, at_s, freed):
    driven = drive(TEN, start_s=1.0, checkpoint_s=0.5, stop_s=0.25)
    driven.start("a")
    driven.wait()
    driven.wait(at_s)
    driven.cluster.stop("a")
    assert driven.wait() == [freed]
    assert driven.wait() == []  # and the finish that was planned first is forgotten


def test_a_stop_that_answers_to_an_event_of_this_instant_comes_after_the_steps_of_this_instant(drive):
    driven = drive(TEN, Job("two", gpu_s=2, steps=1))
    driven.start("a")
    driven.start("two")
    driven.wait()
    assert driven.wait() == [(2.0, "finished", "two", 1)]
    driven.cluster.stop("a")
    assert driven.wait() == [(3.0, "stopped", "a", 3)]


def test_a_stop_for_a_job_that_is_not_there_is_nothing(drive):
    driven = drive(TEN)
    driven.cluster.stop("a")
    assert driven.wait() == []


def test_steps_are_counted_while_they_run_and_not_beyond_a_stop(drive):
    driven = drive(TEN, start_s=1.0, checkpoint_s=5.0)
    driven.start("a", steps_done=3)
    driven.wait()
    seen = []
    for at_s in (0.5, 1.0, 1.999, 2.0, 4.25):
        driven.wait(at_s)
        seen.append(driven.cluster.steps_done("a"))
    driven.cluster.stop("a")
    for at_s in (5.0, 8.0):
        driven.wait(at_s)
        seen.append(driven.cluster.steps_done("a"))
    assert seen == [3, 3, 3, 4, 6, 7, 7]


def test_a_stop_of_a_job_with_an_input_pipeline_waits_until_the_next_input_is_ready(cluster_spec):
    """Like a real job, which learns of a stop when it is about to issue a step (workloads/training.py)."""
    work = ModelWork("resnet50", 16, input_cpu_s=1.0)  # a second for each input, the device is faster
    gpu_type = "Tesla_V100-PCIE-32GB"
    job = JobSpec("m", "u", 0.0, 10, (Configuration("gpu", 1, 1000),), {"gpu": work}, 0)
    spec = cluster_spec([Node("n1", gpus=1, gpu_type=gpu_type)])
    allocation = Allocation("gpu", (TaskPlacement("n1", (DeviceShare("d", gpu_type),), 1000),))
    told = []
    for at_ns in (S // 2, S, 2 * S - 1, 2 * S):
        cluster = SimulatedCluster(WorkloadTruth(Workload("w", (job,), ProfileTable.bundled()), spec), ClusterCosts())
        cluster.start(Start(job, allocation, 0, 0))
        cluster.wait(None)
        cluster.wait(at_ns)
        cluster.stop("m")
        told += [(event.at_ns, event.steps_done) for event in cluster.wait(None)]
    assert told == [(S, 0), (S, 0), (2 * S, 1), (2 * S, 1)]


def test_starts_are_served_one_after_the_other(drive):
    """Four simultaneous starts are served one after the other; a later start waits until they have been served."""
    jobs = [Job(name, gpu_s=10, steps=10) for name in "abcde"]
    driven = drive(*jobs, start_s=1.0, serial_start_s=0.5)
    for device, name in enumerate("abcd"):
        driven.start(name, device=device)
    assert [told[1:3] for told in driven.wait()] == [("started", name) for name in "abcd"]
    driven.wait(1.75)
    driven.start("e")
    assert driven.wait() == [(1.75, "started", "e", 0)]
    ends = [told for _ in range(5) for told in driven.wait()]
    assert ends == [
        (at, "finished", n, 10) for at, n in [(11.0, "a"), (11.5, "b"), (12.0, "c"), (12.5, "d"), (13, "e")]
    ]


def test_starts_of_one_plan_share_the_machines(drive):
    """Two simultaneous starts delay each other equally; a start requested meanwhile waits for both."""
    driven = drive(
        *(Job(name, gpu_s=10, steps=1) for name in "abc"), start_s=1.0, serial_start_s=0.5, shared_start_s=2.0
    )
    driven.start("a", later_tasks=1)
    driven.start("b", device=1)
    driven.wait()
    driven.wait(3.0)
    driven.start("c", device=2)
    driven.wait()
    ends = [told for _ in range(3) for told in driven.wait()]
    assert [(at, name) for at, _, name, _ in ends] == [(13.0, "a"), (13.5, "b"), (5 + 1 + 10.0, "c")]


def test_starts_and_ends_share_the_machines(drive):
    """One slot. 'a' starts within 1 s and runs until 3 s; its end of 2 s shares from 3.5 s on with the start of 'b'."""
    driven = drive(*(Job(name, gpu_s=2, steps=1) for name in "ab"), start_s=1.0, finish_s=2.0, host_slots=1)
    driven.start("a")
    driven.wait(3.5)
    driven.wait(3.5)
    driven.start("b", device=1)
    driven.wait()
    # The end has 1.5 s left, the start 1 s: together half as fast, so the start is over at 5.5 s and the end at 6 s.
    assert driven.wait() == [(3.0, "finished", "a", 1)]
    assert driven.cluster.now_ns() == 6 * S
    assert driven.wait() == [(7.5, "finished", "b", 1)]
    assert driven.cluster.now_ns() == 9.5 * S


def test_a_start_that_others_delay_is_stopped_when_it_is_over(drive):
    driven = drive(
        *(Job(name, gpu_s=2, steps=2) for name in "ab"), start_s=1.0, warm_up_s=0.5, stop_s=0.25, host_slots=1
    )
    driven.start("a")
    driven.start("b", device=1)
    driven.wait()
    driven.wait(1.0)
    driven.cluster.stop("b")
    assert driven.cluster.steps_done("b") == 0
    assert driven.wait() == [(2.75, "stopped", "b", 0)]
    assert driven.wait() == [(4.5, "finished", "a", 2)]


def test_a_line_that_is_empty_again_delays_nobody(drive):
    driven = drive(TEN, Job("b", gpu_s=10, steps=1), serial_start_s=0.5)
    driven.start("a")
    driven.wait()
    driven.wait(0.5)
    driven.start("b", device=1)
    driven.wait()
    assert [driven.wait(), driven.wait()] == [[(10.0, "finished", "a", 10)], [(10.5, "finished", "b", 1)]]


def test_a_start_before_the_run_has_had_its_turn(drive):
    driven = drive(TEN, Job("b", gpu_s=10, steps=1), serial_start_s=3.0)
    share = DeviceShare(device_uuid("n1", 0), "Tesla-T4")
    allocation = Allocation("gpu", (TaskPlacement("n1", (share,), 1000),))
    driven.cluster.start(Start(driven.jobs["a"], allocation, -4 * S, 2))
    driven.start("b", device=1)
    driven.wait()
    driven.wait()
    assert [driven.wait(), driven.wait()] == [[(4.0, "finished", "a", 10)], [(10.0, "finished", "b", 1)]]


def test_stops_are_reported_one_after_the_other_and_jobs_work_on_until_then(drive):
    """Three simultaneous stops are delivered a second apart; a stop requested meanwhile is the fourth."""
    driven = drive(*(Job(name, gpu_s=20, steps=20) for name in "abcd"), stop_s=0.25, serial_stop_s=1.0)
    for device, name in enumerate("abcd"):
        driven.start(name, device=device)
    driven.wait()
    driven.wait(4.5)
    for name in "abc":
        driven.cluster.stop(name, 2)
    driven.wait(5.0)
    assert [driven.cluster.steps_done(name) for name in "abc"] == [5, 5, 5]
    driven.cluster.stop("d")
    ends = [told for _ in range(4) for told in driven.wait()]
    assert ends == [(t + 0.25, "stopped", name, t) for t, name in [(5, "a"), (6, "b"), (7, "c"), (8, "d")]]


def test_a_job_that_ends_before_it_is_told_to_stop_is_finished(drive):
    driven = drive(Job("a", gpu_s=10, steps=10), Job("b", gpu_s=10, steps=10), serial_stop_s=3.0)
    driven.start("a")
    driven.start("b", device=1)
    driven.wait()
    driven.wait(8.5)
    driven.cluster.stop("a", 1)
    driven.cluster.stop("b", 1)
    assert [driven.wait(), driven.wait()] == [[(9.0, "stopped", "a", 9)], [(10.0, "finished", "b", 10)]]
    driven.start("a")
    assert [driven.wait(), driven.wait()] == [[(10.0, "started", "a", 0)], [(20.0, "finished", "a", 10)]]


def test_stops_of_one_plan_share_the_machines(drive):
    driven = drive(*(Job(name, gpu_s=10, steps=10) for name in "abc"), stop_s=1.0, shared_stop_s=0.5)
    for device, name in enumerate("abc"):
        driven.start(name, device=device)
    driven.wait()
    driven.wait(2.5)
    driven.cluster.stop("a", 1)
    driven.cluster.stop("b", 1)
    driven.cluster.stop("c")
    ends = [told for _ in range(2) for told in driven.wait()]
    assert [(at, name) for at, _, name, _ in ends] == [(4.0, "c"), (4.5, "a"), (4.5, "b")]


def test_the_loop_hears_of_an_end_when_the_devices_are_free(drive):
    driven = drive(TEN, finish_s=1.5)
    driven.start("a")
    driven.wait()
    assert driven.wait(11.25) == []
    driven.cluster.stop("a")  # it is over, whoever doesn't know yet
    driven.cluster.resize("a", Allocation("gpu", (TaskPlacement("n1", (), 2000),)))
    assert driven.cluster.steps_done("a") == 10
    assert driven.wait() == [(10.0, "finished", "a", 10)]
    assert driven.cluster.now_ns() == 11.5 * S


def test_the_completion_time_is_the_last_step_s_and_the_next_job_waits_for_the_device(simulate):
    jobs = [Job("a", gpu_s=10), Job("b", gpu_s=10), Job("c", gpu_s=10, submit_s=31)]
    run = simulate(resolve_policy("fifo")[1], [Node("n1", gpus=1)], jobs, start_s=2.0, finish_s=0.5)
    assert [run.records[name].finish_s for name in "abc"] == [12.0, 24.5, 43.0]
    assert [(s.start_s, s.end_s) for s in run.loop.books.spans] == [(0.0, 12.0), (12.5, 24.5), (31.0, 43.0)]


def test_the_scheduler_hears_of_submissions_later_and_of_those_of_one_instant_together(simulate):
    jobs = [Job("a", gpu_s=10), Job("b", gpu_s=5), Job("c", gpu_s=1), Job("d", gpu_s=1, submit_s=0.75)]
    run = simulate(resolve_policy("sjf")[1], [Node("n1", gpus=4)], jobs, submit_s=0.5, serial_submit_s=0.25)
    assert {name: record.start_s for name, record in run.records.items()} == {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.25}
    assert [record.submit_s for record in run.records.values()] == [0.0, 0.0, 0.0, 0.75]


def test_a_late_batch_does_not_hold_up_who_comes_after_it(simulate):
    jobs = [Job("a", gpu_s=9), Job("b", gpu_s=9), Job("c", gpu_s=9), Job("d", gpu_s=9, submit_s=1.0)]
    run = simulate(resolve_policy("fifo")[1], [Node("n1", gpus=1)], jobs, serial_submit_s=2.0)
    assert {name: record.start_s for name, record in run.records.items()} == {"d": 1.0, "a": 10.0, "b": 19.0, "c": 28.0}


def test_it_is_never_late_and_can_be_closed_twice(drive):
    driven = drive(TEN)
    driven.start("a")
    driven.cluster.close()
    driven.cluster.close()
    assert (driven.wait(), driven.cluster.lag(), driven.cluster.notes()) == ([], {}, ())


def test_events_are_ordered_by_time_kind_and_row():
    kinds = [Happening.FINISHED, Happening.FAILED, Happening.STOPPED, Happening.STARTED]
    events = [Event(at_ns, kind, "x", row) for at_ns in (1, 2) for kind in kinds for row in (0, 1)]
    shuffled = random.Random(5).sample(events, len(events))
    assert sorted(shuffled, key=lambda event: event.order) == events


# --- random workloads under real policies -------------------------------------------------------------------------------


class Recording(SimulatedCluster):
    """Remembers starts and events."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.told = defaultdict(list)
        self.started = []
        self.stops_beside = defaultdict(list)

    def start(self, start):
        self.started.append((start.job.job_id, start.at_ns, start.later_tasks))
        self.told[start.job.job_id].append(("start", start.at_ns, start.steps_done, start))
        super().start(start)

    def stop(self, job_id, others=0):
        self.stops_beside[job_id].append(others)
        super().stop(job_id, others)

    def wait(self, until_ns):
        events = super().wait(until_ns)
        for event in events:
            self.told[event.job_id].append((str(event.what), event.at_ns, event.steps_done, event))
        return events


class Watched:
    """A policy that records its views."""

    def __init__(self, text, look):
        self.inner = resolve_policy(text)[1]
        self.needs_estimates = self.inner.needs_estimates
        self.look = look

    def plan(self, view):
        self.look(view)
        return self.inner.plan(view)


short = st.integers(0, 40).map(lambda quarters: quarters / 4)
nodes = st.builds(
    lambda gpus: [Node(f"n{i}", gpus=g, cpus=4) for i, g in enumerate([1, *gpus])],
    st.lists(st.integers(0, 2), max_size=2),
)
SECONDS = [name for name in COST_NAMES if name.endswith("_s")]
costs = st.fixed_dictionaries({}, optional={name: st.sampled_from([0.25, 1.0, 2.5]) for name in SECONDS})


@st.composite
def jobs_for(draw, most_gpus=1):
    """Up to eight jobs; half of them offer CPUs as well."""
    count = draw(st.integers(1, 8))
    return [
        Job(
            f"j{i}",
            user=draw(st.sampled_from("uv")),
            gpu_s=draw(st.integers(1, 40)) / 4,
            cpu_s=draw(st.sampled_from([None, 6.0])),
            gpus=draw(st.integers(1, most_gpus)),
            submit_s=draw(short),
            steps=draw(st.sampled_from([1, 3, 10, 100])),
        )
        for i in range(count)
    ]


@settings(max_examples=80, deadline=None)
@given(policy=st.sampled_from(POLICIES), nodes=nodes, jobs=jobs_for(), costs=costs)
def test_any_run_keeps_its_books(simulate, policy, nodes, jobs, costs):
    views = []
    run = simulate(Watched(policy, views.append), nodes, jobs, cluster=Recording, **costs)
    assert list(run.records) == [job.job_id for job in jobs]
    for job in jobs:
        check_events(run, job, ClusterCosts(**costs))
    check_spans(run)
    for view in views:
        check_view(view)


def check_events(run, job, costs):
    """Each step is run once, each run has the stated costs, and the records agree."""
    told, record = run.cluster.told[job.job_id], run.records[job.job_id]
    waits = waits_of(run, costs)
    steps_done, stops, began_ns = 0, 0, 0
    for kind, at_ns, steps, _ in told:
        if kind == "start":
            assert steps == steps_done
            began_ns = at_ns + to_ns(costs.begin_s(resumed=steps_done > 0))
            began_ns += waits[job.job_id, at_ns]
        elif kind == "started":
            assert (steps, at_ns) == (steps_done, told[0][1] if not stops else at_ns)
        else:
            total_ns = to_ns(job.gpu_s if run.spans(job.job_id)[stops].device is not None else job.cpu_s)
            ran_ns = total_ns * steps // job.steps - total_ns * steps_done // job.steps
            release_ns = to_ns(costs.release_s()) if kind == "stopped" else 0
            if kind == "stopped":
                release_ns += to_ns(costs.shared_stop_s) * run.cluster.stops_beside[job.job_id][stops]
            assert at_ns == began_ns + ran_ns + release_ns
            assert steps >= steps_done
            steps_done, stops = steps, stops + (kind == "stopped")
    assert [kind for kind, *_ in told] == ["start", "started", "stopped"] * stops + ["start", "started", "finished"]
    assert steps_done == job.steps
    assert (record.preemptions, record.status) == (stops, "finished")
    assert (to_ns(record.start_s), to_ns(record.finish_s)) == (told[0][1], told[-1][1])
    assert record.start_s >= record.submit_s


def waits_of(run, costs):
    """How long each start waited for earlier starts and for the other starts of its plan."""
    waits, free_ns = {}, 0
    for job_id, at_ns, later_tasks in run.cluster.started:
        turn_ns = max(at_ns, free_ns)
        waits[job_id, at_ns] = turn_ns - at_ns + later_tasks * to_ns(costs.shared_start_s)
        free_ns = turn_ns + to_ns(costs.serial_start_s) + to_ns(costs.shared_start_s)
    return waits


def check_spans(run):
    """No device has two holders at once; spans and records name the same places."""
    by_place = defaultdict(list)
    for span in run.loop.books.spans:
        assert span.start_s <= span.end_s
        if span.device is not None:
            by_place[span.node, span.device].append(span)
    for spans in by_place.values():
        spans.sort(key=lambda span: span.start_s)
        assert all(before.end_s <= after.start_s for before, after in pairwise(spans))
    for job_id, record in run.records.items():
        places = [f"{s.node}/{'cpu' if s.device is None else s.device}" for s in run.spans(job_id)]
        assert set(places) == set(record.devices)


def check_view(view):
    """No resource is allocated twice."""
    for node in view.nodes.values():
        assert 0 <= node.free_cpu_milli <= node.cpu_milli
        assert all(device.free_milli >= 0 and len(device.holders) <= 1 for device in node.devices)


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(POLICIES), nodes=nodes, jobs=jobs_for(), costs=costs, slots=st.sampled_from([1, 1.5, 3, 100])
)
def test_machines_that_are_shared_delay_runs_and_lose_nothing(simulate, policy, nodes, jobs, costs, slots):
    costs = {**costs, "shared_start_s": 0.0}
    run = simulate(Watched(policy, check_view), nodes, jobs, cluster=Recording, **costs, host_slots=slots)
    check_spans(run)
    assert all(record.status == "finished" for record in run.records.values())
    for job in jobs:
        told = run.cluster.told[job.job_id]
        steps = [steps for kind, _, steps, _ in told if kind != "start"]
        assert steps == sorted(steps) and steps[-1] == job.steps
        begin_s = ClusterCosts(**costs).begin_s(resumed=False)
        assert told[-1][1] - told[0][1] >= to_ns(begin_s)
    if slots == 100:
        alone = simulate(Watched(policy, check_view), nodes, jobs, cluster=Recording, **costs)
        assert run.records == alone.records


@settings(max_examples=40, deadline=None)
@given(policy=st.sampled_from(["srtf", "las:threshold_s=4,quantum_s=1"]), jobs=jobs_for(most_gpus=2), costs=costs)
def test_attained_service_and_preemptions_are_what_the_spans_tell(simulate, policy, jobs, costs):
    nodes = [Node("n1", gpus=2, cpus=8)]
    queued = []

    def look(view):
        queued.extend((view.now_s, job) for job in view.jobs.values() if job.queued)

    run = simulate(Watched(policy, look), nodes, jobs, **costs)
    for now_s, job in queued:
        spans = [span for span in run.spans(job.job_id) if span.end_s <= now_s]
        assert job.attained_gpu_s == pytest.approx(sum(s.end_s - s.start_s for s in spans if s.device is not None))
        assert job.preemptions == len({span.start_s for span in spans})


@settings(max_examples=30, deadline=None)
@given(jobs=jobs_for())
def test_one_gpu_is_never_idle_while_jobs_wait_and_costs_are_nothing(simulate, jobs):
    jobs = [replace(job, cpu_s=None) for job in jobs]
    for policy in ("fifo", "srtf"):
        run = simulate(resolve_policy(policy)[1], [Node("n1", gpus=1)], jobs)
        free_s = 0.0
        for job in sorted(jobs, key=lambda job: job.submit_s):
            free_s = max(free_s, job.submit_s) + job.gpu_s
        assert max(record.finish_s for record in run.records.values()) == pytest.approx(free_s, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(jobs=jobs_for(), gpus=st.integers(1, 4))
def test_fifo_on_like_gpus_is_a_bare_queue(simulate, jobs, gpus):
    run = simulate(resolve_policy("fifo")[1], [Node("n1", gpus=gpus)], [replace(job, cpu_s=None) for job in jobs])
    free_s, start_s = [0.0] * gpus, 0.0
    for job in sorted(jobs, key=lambda job: job.submit_s):
        free_s.sort()
        start_s = max(start_s, free_s[0], job.submit_s)
        free_s[0] = start_s + job.gpu_s
        assert (run.records[job.job_id].start_s, run.records[job.job_id].finish_s) == (start_s, free_s[0])


def test_srtf_stops_the_longer_job_on_one_gpu(simulate):
    jobs = [Job("long", gpu_s=10, steps=10), Job("short", gpu_s=2, steps=2, submit_s=3)]
    run = simulate(resolve_policy("srtf")[1], [Node("n1", gpus=1)], jobs, stop_s=0.5, restore_s=1.0)
    # At 3 the submission comes before the fourth step is issued: `long` leaves at 3.5 and comes back at 5.5.
    assert [(s.start_s, s.end_s) for s in run.spans("long")] == [(0.0, 3.5), (5.5, 5.5 + 1 + 7)]
    assert [(s.start_s, s.end_s) for s in run.spans("short")] == [(3.5, 5.5)]
