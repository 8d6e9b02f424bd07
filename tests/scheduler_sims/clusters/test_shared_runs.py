"""Jobs that share devices on the simulated cluster: alone, and under a policy that packs them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.units import to_ns
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.sharing.modes import MODES
from scheduler_sims.clusters.base import Start
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.testing import Job, Node

S = 1_000_000_000
SHARED = [name for name, mode in MODES.items() if mode.shared]


@dataclass
class Driven:
    """A simulated cluster with two nodes of two devices, one of them exclusive, driven without a loop."""

    cluster: SimulatedCluster
    jobs: dict

    def start(self, job_id, *, devices=(0,), node="n1", milli=500, steps_done=0):
        shares = tuple(DeviceShare(device_uuid(node, device), "Tesla-T4", milli) for device in devices)
        allocation = Allocation("gpu", (TaskPlacement(node, shares, 1000),))
        self.cluster.start(Start(self.jobs[job_id], allocation, self.cluster.now_ns(), steps_done))

    def wait(self, until_s=None):
        events = self.cluster.wait(None if until_s is None else to_ns(until_s))
        return [(event.at_ns / S, str(event.what), event.job_id, event.steps_done) for event in events]

    def ends(self):
        found = []
        while events := self.wait():
            found += [(at_s, job_id) for at_s, what, job_id, _ in events if what == "finished"]
        return found


@pytest.fixture(scope="module")
def drive(job_specs, cluster_spec):
    def drive(sharing, *jobs, **costs):
        nodes = [Node("n1", gpus=2, sharing=sharing), Node("x1", gpus=2)]
        specs, spec = job_specs(jobs), cluster_spec(nodes, **costs)
        truth = WorkloadTruth(Workload("w", specs, ProfileTable.bundled()), spec)
        return Driven(SimulatedCluster(truth, spec.costs), {each.job_id: each for each in specs})

    return drive


A, B = Job("a", gpu_s=10, steps=100), Job("b", gpu_s=10, steps=100)


@pytest.mark.parametrize("sharing", SHARED)
def test_alone_a_job_takes_as_long_as_on_a_device_of_its_own(drive, sharing):
    driven = drive(sharing, A)
    driven.start("a", milli=1000)
    assert driven.ends() == [(10.0, "a")]


@pytest.mark.parametrize("sharing", SHARED)
def test_two_equal_jobs_take_twice_as_long(drive, sharing):
    driven = drive(sharing, A, B)
    driven.start("a")
    driven.start("b")
    ends = {job_id: at_s for at_s, job_id in driven.ends()}
    first = 10.0 if sharing == "srtf" else 19.9  # it serves one job after the other
    assert min(ends.values()) == pytest.approx(first, abs=0.11)
    assert max(ends.values()) == pytest.approx(20.0, abs=0.002)


def test_a_share_is_a_cap_under_mps_and_a_weight_in_weighted(drive):
    driven = drive("mps", A)
    driven.start("a", milli=250)
    assert driven.ends() == [(40.0, "a")]
    driven = drive("weighted", A, B)
    driven.start("a", milli=750)
    driven.start("b", milli=250)
    assert driven.wait(5) and driven.wait(5) == []
    assert [driven.cluster.steps_done(job_id) for job_id in "ab"] == pytest.approx([37, 12], abs=2)


def test_who_needs_two_devices_waits_for_the_slower_one(drive):
    """Job b is on one of them only, so the other one idles for half of the time."""
    driven = drive("fifo", Job("a", gpu_s=10, gpus=2, steps=100), B)
    driven.start("a", devices=(0, 1))
    driven.start("b", devices=(1,))
    assert driven.ends() == [(pytest.approx(19.9), "a"), (20.0, "b")]


def test_a_stop_takes_effect_before_the_next_step(drive):
    driven = drive("fifo", A, B)
    driven.start("a")
    driven.start("b")
    driven.wait(0)
    assert driven.wait(1.05) == []
    driven.cluster.stop("a")
    driven.cluster.stop("a")
    ((at_s, what, job_id, steps_done),) = driven.wait()
    assert (what, job_id, steps_done) == ("stopped", "a", 6)
    assert at_s == pytest.approx(1.1)
    driven.start("a", steps_done=6)
    assert driven.wait()[0][1] == "started"
    assert driven.ends()[-1][0] == pytest.approx(20.0, abs=0.11)


def test_a_stop_while_the_step_waits_for_the_device_comes_at_once(drive):
    driven = drive("fifo", Job("a", gpu_s=10, steps=2), B)
    driven.start("a")
    driven.start("b")
    driven.wait(0)
    assert driven.wait(1) == []
    driven.cluster.stop("b")
    assert driven.wait() == [(1.0, "stopped", "b", 0)]


def test_a_step_under_processor_sharing_is_finished_before_a_stop(drive):
    driven = drive("mps", A, B)
    driven.start("a")
    driven.start("b")
    driven.wait(0)
    assert driven.wait(1.05) == []
    driven.cluster.stop("a")
    ((at_s, what, job_id, steps_done),) = driven.wait()
    assert (at_s, what, job_id, steps_done) == (pytest.approx(1.2), "stopped", "a", 6)


def test_the_last_step_finishes_in_spite_of_a_stop(drive):
    driven = drive("fifo", Job("a", gpu_s=10, steps=1))
    driven.start("a", milli=1000)
    driven.wait(0)
    assert driven.wait(5) == []
    driven.cluster.stop("a")
    assert driven.wait() == [(10.0, "finished", "a", 1)]


def test_how_far_a_job_is(drive):
    driven = drive("fifo", A)
    driven.start("a", milli=1000)
    driven.wait(0)
    for until_s, steps in ((0.05, 0), (0.1, 1), (0.95, 9)):
        driven.wait(until_s)
        assert driven.cluster.steps_done("a") == steps


def test_devices_are_all_shared_or_all_whole(drive):
    driven = drive("mps", A)
    can, job = driven.cluster.capabilities, driven.jobs["a"]
    uuids = {node: device_uuid(node, 0) for node in ("n1", "x1")}

    def allocation(**milli):
        shares = ((node, DeviceShare(uuids[node], "Tesla-T4", each)) for node, each in milli.items())
        return Allocation("gpu", tuple(TaskPlacement(node, (share,), 1000) for node, share in shares))

    assert "a part of a device that is exclusive; plan whole devices, or share" in can.refusal(job, allocation(x1=500))
    assert can.refusal(job, allocation(n1=1000, x1=1000)).startswith(
        "devices of which some are shared and some exclusive"
    )
    assert (can.refusal(job, allocation(n1=500)), can.refusal(job, allocation(x1=1000))) == ("", "")
    assert can.modes_of(allocation(n1=500, x1=1000)) == {uuids["n1"]: "mps"}
    driven.start("a", node="x1", milli=1000)
    assert driven.ends() == [(10.0, "a")]


@pytest.mark.parametrize("sharing", SHARED)
@settings(max_examples=25)
@given(
    jobs=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(0, 5)), min_size=1, max_size=5),
    seed=st.integers(0, 2),
)
def test_time_is_conserved_and_the_order_of_starts_means_nothing(drive, sharing, jobs, seed):
    def run(shuffled):
        specs = [Job(f"j{n}", gpu_s=gpu_s, steps=steps) for n, (gpu_s, steps, _) in enumerate(jobs)]
        driven = drive(sharing, *specs)
        order = list(range(len(jobs)))
        if shuffled:
            random.Random(seed).shuffle(order)
        for number in order:
            driven.start(f"j{number}", milli=1000 // len(jobs))
        return sorted((job_id, at_s) for at_s, job_id in driven.ends())

    ends = run(shuffled=False)
    assert ends == run(shuffled=True)
    total_s = sum(gpu_s for gpu_s, _, _ in jobs)
    last_s = max(at_s for _, at_s in ends)
    if sharing == "mps":  # a cap leaves the device idle
        assert last_s >= total_s - 0.01
    else:
        assert last_s == pytest.approx(total_s, abs=0.001 * (1 + len(jobs)))


class PackTwo:
    """Two jobs on each device, in order of submission: the policy of the guide."""

    preemptive = False

    def __init__(self, milli=500):
        self.milli = milli

    def plan(self, view):
        started = {}
        free = {d.uuid: d.free_milli for node in view.nodes.values() for d in node.devices}
        for job in view.jobs.values():
            if job.allocation is not None:
                continue
            for node in view.nodes.values():
                device = next(
                    (d for d in node.devices if d.sharing != "exclusive" and free[d.uuid] >= self.milli), None
                )
                if device is not None:
                    free[device.uuid] -= self.milli
                    share = DeviceShare(
                        device.uuid, device.gpu_type, self.milli, job.configurations[0].device_memory_bytes
                    )
                    started[job.job_id] = Allocation("gpu", (TaskPlacement(node.name, (share,), 1000),))
                    break
        return view.plan.evolve(start=started)


def test_a_policy_packs_two_jobs_on_a_device(simulate):
    """Four jobs of 10 s on one device: each pair takes 20 s, as its members have half of the device each."""
    jobs = [Job(f"j{number}", gpu_s=10, steps=100) for number in range(4)]
    records = simulate(PackTwo(), [Node("n1", gpus=1, sharing="mps")], jobs).records
    assert {job_id: record.finish_s for job_id, record in records.items()} == {"j0": 20, "j1": 20, "j2": 40, "j3": 40}


def test_a_device_has_no_more_jobs_than_replicas(simulate):
    """Room for four by shares, for two by replicas: the loop reports that the others don't fit."""
    jobs = [Job(f"j{number}", gpu_s=10, steps=100) for number in range(3)]
    with pytest.raises(PolicyError, match="it needs 1 GPU of type Tesla-T4, 0 of the node's 1 are free"):
        simulate(PackTwo(250), [Node("n1", gpus=1, sharing="mps", replicas=2)], jobs)
