"""Changing the CPUs and memory of running jobs in the simulated cluster, and leases: driven without a loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.units import to_ns
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.base import Start
from scheduler_sims.clusters.leases import Leases
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.testing import Job, Node

S = 1_000_000_000
TEN = Job("a", gpu_s=10, steps=10, cpus=1, best_cpus=2, speedup=2.0)
"""Steps of one second with one CPU, of half a second with two."""


def given_cpus(cpus, memory_bytes=0):
    share = DeviceShare(device_uuid("n1", 0), "Tesla_V100-PCIE-32GB")
    return Allocation("gpu", (TaskPlacement("n1", (share,), round(cpus * 1000), memory_bytes),))


@dataclass
class Driven:
    cluster: SimulatedCluster
    jobs: dict

    def start(self, job_id, cpus=1.0, steps_done=0):
        self.cluster.start(Start(self.jobs[job_id], given_cpus(cpus), self.cluster.now_ns(), steps_done))

    def until(self, at_s):
        while self.cluster.now_ns() < to_ns(at_s):
            self.cluster.wait(to_ns(at_s))

    def resize(self, at_s, cpus):
        self.until(at_s)
        self.cluster.resize("a", given_cpus(cpus))

    def events(self, until_s=1000.0):
        found = []
        while events := self.cluster.wait(to_ns(until_s)):
            found += [(event.at_ns / S, str(event.what), event.steps_done) for event in events]
        return found

    def end(self):
        return self.events()[-1]


@pytest.fixture(scope="module")
def drive(job_specs, cluster_spec):
    def drive(*jobs, leases=None, specs=None, **costs):
        spec = cluster_spec([Node("n1", gpus=1, cpus=64)], **costs)
        specs = specs or job_specs(jobs)
        truth = WorkloadTruth(Workload("w", specs, ProfileTable.bundled()), spec)
        return Driven(SimulatedCluster(truth, spec.costs, leases), {each.job_id: each for each in specs})

    return drive


@pytest.mark.parametrize(
    ("at_s", "end_s"),
    [
        (0, 5.5),  # at a boundary: what the loop does on its own comes before the steps, but the first step has begun
        (0.4, 5.5),
        (3.5, 7.0),
        (9.1, 10.0),  # the last step is under way
    ],
)
def test_the_step_in_progress_keeps_its_speed_and_the_next_has_the_new_one(drive, at_s, end_s):
    driven = drive(TEN)
    driven.start("a")
    driven.until(0.1)
    driven.resize(max(at_s, 0.1), 2)
    assert driven.end() == (end_s, "finished", 10)


def test_slower_again_and_no_change(drive):
    driven = drive(TEN)
    driven.start("a")
    driven.resize(2.5, 2)  # 3 steps until 3.0
    driven.resize(2.6, 2)
    driven.resize(4.2, 1)  # 3 more until 4.5
    assert driven.end() == (8.5, "finished", 10)


def test_the_same_division_changes_nothing(drive):
    driven = drive(TEN)
    driven.start("a")
    driven.resize(2.5, 1)
    driven.resize(2.5, 0.9999999)  # rounds to one CPU
    assert driven.end() == (10.0, "finished", 10)


def test_two_changes_within_a_step_the_last_counts(drive):
    driven = drive(TEN)
    driven.start("a")
    driven.resize(2.2, 2)
    driven.resize(2.4, 1)
    assert driven.end() == (10.0, "finished", 10)


def test_before_the_first_step_the_whole_run_is_faster(drive):
    driven = drive(TEN, start_s=3)
    driven.start("a")
    driven.resize(1, 2)
    assert driven.events() == [(0.0, "started", 0), (8.0, "finished", 10)][1:]


def test_a_change_at_the_instant_of_the_start_keeps_its_event(drive):
    driven = drive(TEN, start_s=3)
    driven.start("a")
    driven.cluster.resize("a", given_cpus(2))
    assert driven.events() == [(0.0, "started", 0), (8.0, "finished", 10)]


def test_progress_is_counted_across_a_change(drive):
    driven = drive(TEN)
    driven.start("a")
    driven.resize(3.5, 2)
    assert driven.cluster.steps_done("a") == 3  # the fourth is in progress until 4.0
    driven.until(4)
    assert driven.cluster.steps_done("a") == 4
    driven.until(4.75)
    assert driven.cluster.steps_done("a") == 5


def test_a_stop_after_a_change_is_at_the_end_of_the_step_in_progress(drive):
    driven = drive(TEN)
    driven.start("a")
    driven.resize(3.5, 2)
    driven.cluster.stop("a")
    assert driven.end() == (4.0, "stopped", 4)
    driven = drive(TEN)
    driven.start("a")
    driven.resize(3.5, 2)
    driven.until(5.2)
    driven.cluster.stop("a")
    driven.cluster.stop("a")  # once more is no matter
    driven.cluster.resize("a", given_cpus(1))  # nor is a change on the way out
    assert driven.end() == (5.5, "stopped", 7)


def test_what_does_not_run_has_nothing_to_change(drive):
    drive(TEN).cluster.resize("a", given_cpus(2))


def test_an_input_in_preparation_keeps_its_speed(drive):
    work = ModelWork("resnet50", 16, input_cpu_s=1.0)
    job = JobSpec("a", "u", 0.0, 4, (Configuration("gpu", 1, 1000),), {"gpu": work}, 0)
    driven = drive(specs=(job,))
    driven.start("a")
    step_s = driven.cluster._runs["a"].times.device_ns(0) / S
    driven.resize(1.5, 4)
    assert driven.end()[0] == pytest.approx(2 + 0.25 + 0.25 + step_s)  # issued at 1, 2, 2.25, 2.5


def step_ns(step, steps, cpus):
    """Of the job TEN cut into so many steps: they add up to its duration, which is whole nanoseconds."""
    total_ns = to_ns(10 / cpus)
    return total_ns * (step + 1) // steps - total_ns * step // steps


@settings(deadline=None)
@given(
    changes=st.lists(
        st.tuples(
            st.one_of(st.integers(1, 9 * S), st.integers(1, 36).map(lambda quarter: quarter * S // 4)),
            st.sampled_from([1.0, 1.5, 2.0]),
        ),
        max_size=5,
    ),
    steps=st.integers(1, 30),
)
@example(changes=[(2 * S, 1.5)], steps=30)  # a sum of floats has the sixth step end just before 2 s
@example(changes=[(2 * S - 1, 1.5)], steps=30)
@example(changes=[(2 * S + 1, 1.5)], steps=30)
def test_changes_agree_with_steps_counted_one_by_one(drive, changes, steps):
    """Changes are often at the very end of a step: what is issued then has the new speed already."""
    driven = drive(replace(TEN, steps=steps))
    driven.start("a")
    coming = sorted(changes)
    now_ns, given = 0, 1.0
    for step in range(steps):
        while coming and coming[0][0] <= now_ns:
            given = coming.pop(0)[1]
        now_ns += step_ns(step, steps, given)
    for at_ns, cpus in sorted(changes):
        if at_ns < now_ns:
            driven.resize(at_ns / S, cpus)
    assert driven.end() == (now_ns / S, "finished", steps)


# --- leases ---------------------------------------------------------------------------------------------------------------

THIRDS = Job("a", gpu_s=9, steps=30, cpus=1, best_cpus=2, speedup=2.0)
"""Steps of 0.3 s: three fit into a second."""


def test_a_step_that_does_not_fit_is_not_begun_and_the_end_is_seen_at_the_end_of_the_lease(drive):
    driven = drive(THIRDS, leases=Leases(1.0))
    driven.start("a")
    assert driven.events() == [(0.0, "started", 0), (10.0, "finished", 30)]


@pytest.mark.parametrize(("at_s", "steps"), [(0.5, 1), (0.95, 3), (1.0, 3), (1.7, 5), (2.0, 6)])
def test_progress_within_leases(drive, at_s, steps):
    driven = drive(THIRDS, leases=Leases(1.0))
    driven.start("a")
    driven.until(at_s)
    assert driven.cluster.steps_done("a") == steps


def test_steps_that_fill_a_lease_to_the_nanosecond_fit(drive):
    driven = drive(
        Job("a", gpu_s=9 / 7, steps=9), leases=Leases(1.0)
    )  # the seven from the second on: one ns more than 1 s
    driven.start("a", steps_done=1)
    driven.until(1.0)
    assert driven.cluster.steps_done("a") == 8


def test_a_lease_begins_after_all_else_at_its_instant(drive):
    driven = drive(THIRDS, leases=Leases(1.0, first_s=0.5))
    driven.start("a")  # one step in the first half second
    driven.until(0.5)
    driven.cluster.resize("a", given_cpus(2))  # six in each second
    driven.until(2.5)
    assert driven.cluster.steps_done("a") == 13
    driven.cluster.stop("a")
    assert driven.end() == (2.5, "stopped", 13)


def test_a_stop_or_a_change_within_a_lease(drive):
    driven = drive(THIRDS, leases=Leases(1.0))
    driven.start("a")
    driven.until(0.4)
    driven.cluster.stop("a")
    assert driven.end() == (0.6, "stopped", 2)
    driven = drive(THIRDS, leases=Leases(1.0))
    driven.start("a")
    driven.until(0.95)  # three are done, a fourth isn't begun
    driven.cluster.stop("a")
    assert driven.end() == (0.95, "stopped", 3)
    driven = drive(THIRDS, leases=Leases(1.0))
    driven.start("a")
    driven.resize(0.4, 2)  # two until 0.6, two more of 0.15 s
    driven.until(1.0)
    assert driven.cluster.steps_done("a") == 4


def test_a_run_that_starts_late_in_a_lease_has_the_rest_of_it(drive):
    driven = drive(THIRDS, leases=Leases(1.0), start_s=0.65)
    driven.start("a")
    driven.until(1.0)
    assert driven.cluster.steps_done("a") == 1
    driven.until(2.0)
    assert driven.cluster.steps_done("a") == 4
