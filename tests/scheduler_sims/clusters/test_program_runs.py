"""Programs in the simulator: each run takes its start-up time, a stop comes at once, and most programs begin anew after it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork, Program
from emulator_runtime.domain.units import to_ns
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.base import Start
from scheduler_sims.clusters.local import LocalOptions, check_programs
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.testing import Node

S = 1_000_000_000
T4 = "Tesla-T4"
KNOT = {"batch": 8, "forward_s": 0.25, "backward_s": 0.75, "start_s": 5.0}
MINE = {
    "sample_bytes": 0,
    "memory": {"knots": [{"batch": 8, "peak_bytes": 10**9, "persistent_bytes": 10**8}]},
    "gpus": {"T4": {"knots": [KNOT]}},
}


@pytest.fixture
def profiles(tmp_path):
    """A step of `mine` takes a second, and a run 5 seconds beside its steps."""
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"models": {"mine": MINE}}), encoding="utf-8")
    return ProfileTable.bundled().with_file(path)


def job(*, resumes=False, starts=True):
    configuration = Configuration("gpu", 1, 1000, gpu_types=(T4,))
    work = ModelWork("mine", 8, starts=starts)
    program = Program(("python", "train.py"), resumes) if starts else None
    return JobSpec("a", "u", 0.0, 10, (configuration,), {"gpu": work}, 0, program=program)


class Driven:
    """A simulated cluster, driven without a loop."""

    def __init__(self, cluster, spec):
        self.cluster, self.spec = cluster, spec

    def start(self, steps_done=0, milli=1000):
        share = DeviceShare(device_uuid("n1", 0), T4, milli)
        allocation = Allocation("gpu", (TaskPlacement("n1", (share,), 1000),))
        self.cluster.start(Start(self.spec, allocation, self.cluster.now_ns(), steps_done))

    def wait(self, until_s=None):
        events = self.cluster.wait(None if until_s is None else to_ns(until_s))
        return [(event.at_ns / S, str(event.what), event.steps_done) for event in events]


@pytest.fixture
def drive(cluster_spec, profiles):
    def drive(spec, sharing=None, **costs):
        node = Node("n1", gpus=1)
        nodes = cluster_spec([node], **costs)
        if sharing:
            nodes = replace(nodes, nodes=tuple(replace(each, sharing=sharing) for each in nodes.nodes))
        truth = WorkloadTruth(Workload("w", (spec,), profiles), nodes)
        return Driven(SimulatedCluster(truth, nodes.costs), spec)

    return drive


def test_a_run_takes_its_start_and_its_steps(drive):
    at = drive(job())
    at.start()
    assert at.wait() == [(0.0, "started", 0)]
    at.wait(7.5)
    assert at.cluster.steps_done("a") == 2
    assert at.wait() == [(15.0, "finished", 10)]


def test_emulated_training_of_the_same_model_has_no_start(drive):
    at = drive(job(starts=False))
    at.start()
    at.wait()
    assert at.wait() == [(10.0, "finished", 10)]


@pytest.mark.parametrize(("resumes", "kept", "end_s"), [(False, 0, 27.5), (True, 2, 25.5)])
def test_a_stop_comes_in_the_middle_of_a_step(drive, resumes, kept, end_s):
    at = drive(job(resumes=resumes), stop_s=5)
    at.start()
    at.wait()
    at.wait(7.5)
    at.cluster.stop("a")
    assert at.wait() == [(12.5, "stopped", kept)]
    at.start(steps_done=kept)
    at.wait()
    assert at.wait() == [(end_s, "finished", 10)], "it starts again, and does what it hasn't kept"


def test_a_stop_before_the_first_step(drive):
    at = drive(job(resumes=True))
    at.start()
    at.wait()
    at.wait(3)
    at.cluster.stop("a")
    assert at.wait() == [(3.0, "stopped", 0)]


def test_on_a_shared_device_a_program_starts_and_begins_anew_as_well(drive):
    at = drive(job(), sharing="fifo")
    at.start()
    at.wait()
    at.wait(7.5)
    at.cluster.stop("a")
    assert at.wait() == [(8.0, "stopped", 0)], "the device ends the step that it has begun"
    at.start()
    at.wait()
    assert at.wait() == [(23.0, "finished", 10)]


@pytest.fixture
def pair(cluster_spec, profiles):
    """Programs 'a' and 'b' for a node with two GPUs, as `start(job_id)`, and the cluster."""

    def pair(**costs):
        nodes = cluster_spec([Node("n1", gpus=2)], **costs)
        jobs = {name: replace(job(), job_id=name, row=row) for row, name in enumerate("ab")}
        truth = WorkloadTruth(Workload("w", tuple(jobs.values()), profiles), nodes)
        cluster = SimulatedCluster(truth, nodes.costs)

        def start(name):
            share = DeviceShare(device_uuid("n1", jobs[name].row), T4)
            allocation = Allocation("gpu", (TaskPlacement("n1", (share,), 1000),))
            cluster.start(Start(jobs[name], allocation, cluster.now_ns(), 0))

        return start, cluster

    return pair


def ends(cluster):
    """When the jobs end, in seconds."""
    found = {}
    while events := cluster.wait(None):
        found |= {event.job_id: event.at_ns / S for event in events if str(event.what) != "started"}
    return found


def test_programs_that_start_share_the_machines(pair):
    """One slot: 'a' has done 1 of its 5 s when 'b' comes, so it has started at 9 s; 'b' has 1 s left then."""
    start, cluster = pair(program_slots=1)
    start("a")
    cluster.wait(S)
    cluster.wait(S)
    start("b")
    assert ends(cluster) == {"a": 19.0, "b": 20.0}


def test_a_program_takes_longer_to_start_on_the_cluster(pair):
    start, cluster = pair(program_start_s=1.0)
    start("a")
    assert ends(cluster) == {"a": 16.0}


@pytest.mark.parametrize(
    ("costs", "end_s"),
    [
        ({"program_slots": 2}, 15.0),  # a slot each
        ({"program_slots": 1, "program_start_s": 1.0}, 22.0),
        # Pods first: two starts of 1 s on one slot are over at 2 s, and both programs begin after half a second more.
        ({"start_s": 1.0, "warm_up_s": 0.5, "host_slots": 1, "program_slots": 1}, 22.5),
    ],
)
def test_programs_that_start_at_once(pair, costs, end_s):
    start, cluster = pair(**costs)
    start("a")
    start("b")
    assert ends(cluster) == {"a": end_s, "b": end_s}


def test_a_program_that_is_stopped_while_it_starts_leaves_the_machines_to_others(pair):
    """'a' has done 1.5 s at 3 s, when 'b' is stopped."""
    start, cluster = pair(program_slots=1)
    start("a")
    start("b")
    cluster.wait(0)
    cluster.wait(3 * S)
    cluster.stop("b")
    assert cluster.steps_done("b") == 0
    assert ends(cluster) == {"a": 16.5, "b": 3.0}


def test_a_program_that_is_stopped_while_its_pod_starts_leaves_the_machines_to_others(pair):
    """Of 4 s each, both have done half a second when 'b' is stopped: 'a' has started at 4.5 s."""
    start, cluster = pair(start_s=4.0, host_slots=1, program_slots=1)
    start("a")
    start("b")
    cluster.wait(0)
    cluster.wait(S)
    cluster.stop("b")
    assert ends(cluster) == {"a": 19.5, "b": 1.0}


@pytest.mark.parametrize("costs", [{}, {"program_start_s": 3.0}, {"program_slots": 1}, {"host_slots": 1}])
def test_a_program_that_runs_already_goes_on(drive, costs):
    """Half of its steps were done before time 0, and the next one began 0.25 s before it."""

    class Earlier(Start):
        def begin_ns(self, costs):
            return -S // 4

    at = drive(job(), **costs)
    allocation = Allocation("gpu", (TaskPlacement("n1", (DeviceShare(device_uuid("n1", 0), T4),), 1000),))
    at.cluster.start(Earlier(at.spec, allocation, -20 * S, 5))
    at.wait(0)
    assert at.wait() == [(4.75, "finished", 10)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (LocalOptions(warp=True), r"--warp: job 'a' runs a program, whose own work takes real time; leave --warp out"),
        (LocalOptions(speed=2.0), r"--speed: job 'a' runs a program"),
        (LocalOptions(realtime=True), r"--realtime: job 'a' runs a program"),
    ],
)
def test_programs_need_real_time(options, error):
    with pytest.raises(InputError, match=error):
        check_programs([job()], options)
    check_programs([job(starts=False)], options)
    check_programs([job()], LocalOptions())
