"""Jobs that share the storage, links and network of their nodes, on the simulated cluster; times are computed by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.domain.units import to_ns
from scheduler_sims.clusters.base import Start
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

S = 1_000_000_000
DEVICES = {name: [Device(name, index, "Tesla-T4", 2**34) for index in range(4)] for name in ("n1", "n2")}
STORAGE, NETWORK = HostResource("storage"), HostResource("network")
LINKS = tuple(
    HostResource(f"link-{number}", devices=tuple(device.uuid for device in DEVICES["n1"][2 * number : 2 * number + 2]))
    for number in range(2)
)


@dataclass
class Driven:
    """A simulated cluster of two nodes with four devices each, driven without a loop."""

    cluster: SimulatedCluster
    jobs: dict

    def start(self, job_id, *places, steps_done=0, milli=1000):
        """`places`: node and devices of each task."""
        tasks = tuple(
            TaskPlacement(
                node, tuple(DeviceShare(DEVICES[node][index].uuid, "Tesla-T4", milli) for index in devices), 1000
            )
            for node, *devices in places
        )
        self.cluster.start(Start(self.jobs[job_id], Allocation("gpu", tasks), self.cluster.now_ns(), steps_done))

    def wait(self, until_s=None):
        events = self.cluster.wait(None if until_s is None else to_ns(until_s))
        return [(str(event.what), event.job_id, round(event.at_ns / S, 6), event.steps_done) for event in events]

    def ends(self):
        found = {}
        while events := self.wait():
            found |= {job_id: round(at_s, 6) for what, job_id, at_s, _ in events if what == "finished"}
        return found


@pytest.fixture
def drive(tmp_path):
    """`drive(rows, *resources of both nodes)`: ten steps of 1 s for each row, with what the row says."""

    def drive(rows, *resources, sharing="exclusive", **costs):
        lines = ["job_id,num_gpus,nodes,gpu_duration_s,steps,fetch_s,transfer_s,exchange_s", *rows]
        (tmp_path / "jobs.csv").write_text("\n".join(lines) + "\n")
        workload = load_workload(tmp_path / "jobs.csv")
        nodes = (NodeSpec(n, 64000, 0, tuple(d), sharing=sharing, resources=resources) for n, d in DEVICES.items())
        truth = WorkloadTruth(workload, ClusterSpec(tuple(nodes), ClusterCosts(**costs)))
        return Driven(SimulatedCluster(truth, truth.cluster.costs), {job.job_id: job for job in workload.jobs})

    return drive


FETCHING = ["a,1,1,10,10,0.8,,", "b,1,1,10,10,0.8,,"]


def test_alone_the_input_of_the_next_step_is_fetched_during_the_present_one(drive):
    driven = drive(FETCHING, STORAGE)
    driven.start("a", ("n1", 0))
    assert driven.ends() == {"a": 10.8}


def test_two_jobs_that_share_only_storage_slow_each_other(drive):
    """Both fetch at once, for 1.6 s each: then the storage is the limit. Ten fetches, and the last step."""
    driven = drive(FETCHING, STORAGE)
    driven.start("a", ("n1", 0))
    driven.start("b", ("n1", 1))
    assert driven.ends() == {"a": 17.0, "b": 17.0}


def test_where_no_storage_is_stated_each_job_has_its_own(drive):
    driven = drive(FETCHING)
    driven.start("a", ("n1", 0))
    driven.start("b", ("n1", 1))
    assert driven.ends() == {"a": 10.8, "b": 10.8}


def test_jobs_on_two_nodes_have_a_storage_each(drive):
    driven = drive(FETCHING, STORAGE)
    driven.start("a", ("n1", 0))
    driven.start("b", ("n2", 0))
    assert driven.ends() == {"a": 10.8, "b": 10.8}


def test_twice_as_fast_a_storage_serves_two_jobs_as_one(drive):
    driven = drive(FETCHING, HostResource("storage", 2.0))
    driven.start("a", ("n1", 0))
    driven.start("b", ("n1", 1))
    assert driven.ends() == {"a": 10.8, "b": 10.8}


def test_devices_behind_one_switch_share_its_bandwidth(drive):
    driven = drive(["a,1,1,10,10,,0.8,", "b,1,1,10,10,,0.8,", "c,1,1,10,10,,0.8,"], *LINKS)
    for index, job in enumerate("abc"):
        driven.start(job, ("n1", index))
    assert driven.ends() == {"a": 17.0, "b": 17.0, "c": 10.8}


def test_a_job_with_two_devices_behind_a_switch_copies_twice(drive):
    driven = drive(["a,2,1,10,10,,0.8,", "b,2,1,10,10,,0.8,"], *LINKS)
    driven.start("a", ("n1", 0, 1))
    driven.start("b", ("n2", 0, 1))  # its links aren't stated
    assert driven.ends() == {"a": 17.0, "b": 10.8}


def test_a_step_ends_with_its_exchange_which_others_slow(drive):
    """Steps of 1 s, and exchanges of 0.5 s, which take 1 s for both at once."""
    rows = ["a,1,1,10,10,,,0.5", "b,1,1,10,10,,,0.5"]
    driven = drive(rows, NETWORK)
    driven.start("a", ("n1", 0))
    assert driven.ends() == {"a": 15.0}
    driven = drive(rows, NETWORK)
    driven.start("a", ("n1", 0))
    driven.start("b", ("n1", 1))
    assert driven.ends() == {"a": 20.0, "b": 20.0}


def test_stages_of_an_input_follow_each_other(drive):
    """0.4 s of storage and 0.6 s of a link, alone: their sum is the limit before steps of 1 s. Beside b the fetch takes 0.8 s."""
    driven = drive(["a,1,1,5,10,0.4,0.6,", "b,1,1,5,10,0.4,0.6,"], STORAGE, *LINKS)
    driven.start("a", ("n1", 0))
    assert driven.ends() == {"a": 10.5}
    driven = drive(["a,1,1,5,10,0.4,0.6,", "b,1,1,5,10,0.4,0.6,"], STORAGE, *LINKS)
    driven.start("a", ("n1", 0))
    driven.start("b", ("n1", 2))  # behind another switch
    assert driven.ends() == {"a": 14.5, "b": 14.5}


def test_the_slowest_node_of_a_gang_sets_the_pace(drive):
    driven = drive(["gang,2,2,10,10,0.8,,", "b,1,1,10,10,0.8,,"], STORAGE)
    driven.start("gang", ("n1", 0), ("n2", 0))
    driven.start("b", ("n2", 1))
    assert driven.ends() == {"gang": 17.0, "b": 17.0}


def test_stages_beside_a_shared_device(drive):
    """Both compute on one device: 2 s for a step of each, so the storage has time for both fetches."""
    driven = drive(FETCHING, STORAGE, sharing="mps")
    driven.start("a", ("n1", 0), milli=1000)
    driven.start("b", ("n1", 0), milli=1000)
    assert driven.ends() == {"a": pytest.approx(21.6, abs=0.01), "b": pytest.approx(21.6, abs=0.01)}


def test_a_stop_takes_effect_when_the_input_of_the_next_step_is_ready(drive):
    """The first two steps end at 2.6 and 4.2 s; the input of the third is ready at 4.8 s."""
    driven = drive(FETCHING, STORAGE, checkpoint_s=0.5)
    driven.start("a", ("n1", 0))
    driven.start("b", ("n1", 1))
    driven.wait(0)
    assert driven.wait(4.5) == []
    driven.cluster.stop("a")
    assert driven.wait() == [("stopped", "a", 5.3, 2)]
    driven.start("a", ("n1", 0), steps_done=2)
    assert driven.wait()[0][:2] == ("started", "a")
    assert set(driven.ends()) == {"a", "b"}


def test_a_stop_during_an_exchange_comes_after_it(drive):
    driven = drive(["a,1,1,10,10,,,0.5"], NETWORK)
    driven.start("a", ("n1", 0))
    driven.wait(0)
    assert driven.wait(1.2) == []
    assert driven.cluster.steps_done("a") == 0
    driven.cluster.stop("a")
    assert driven.wait() == [("stopped", "a", 1.5, 1)]


seconds = st.sampled_from([0, 0.05, 0.3, 0.9, 2.5])


@settings(max_examples=60, deadline=None)
@given(
    fetch=seconds, transfer=seconds, exchange=seconds, duration=st.sampled_from([0.5, 10, 33.3]), done=st.integers(0, 9)
)
def test_alone_a_run_on_shared_resources_takes_as_long_as_on_its_own(
    tmp_path_factory, fetch, transfer, exchange, duration, done
):
    """Step by step with engines, and computed whole."""
    text = "job_id,gpu_duration_s,steps,fetch_s,transfer_s,exchange_s\n"
    path = tmp_path_factory.mktemp("alone") / "jobs.csv"
    path.write_text(f"{text}a,{duration},10,{fetch},{transfer},{exchange}\n")
    workload, ends = load_workload(path), []
    for resources in ((), (STORAGE, NETWORK, *LINKS)):
        spec = ClusterSpec((NodeSpec("n1", 64000, 0, tuple(DEVICES["n1"]), resources=resources),))
        driven = Driven(SimulatedCluster(WorkloadTruth(workload, spec), spec.costs), {"a": workload.jobs[0]})
        driven.start("a", ("n1", 0), steps_done=done)
        ends.append(driven.ends())
    assert ends[0] == pytest.approx(ends[1], abs=1e-7)


@pytest.mark.parametrize("sharing", ["exclusive", "fifo", "mps"])
@pytest.mark.parametrize("stop_s", [0, 0.5, 0.8, 1.0, 1.7, 2.45, 3.3, 4.8, 6.2])
def test_a_run_that_is_stopped_at_any_time_goes_on_where_it_ended(drive, sharing, stop_s):
    """On a device of its own, or beside b on one; b fetches from the same storage."""
    driven = drive(["a,1,1,6,6,0.8,0.1,0.2", "b,1,1,6,6,0.5,0.1,0.1"], STORAGE, NETWORK, *LINKS, sharing=sharing)
    for index, job in enumerate("ab"):
        driven.start(job, ("n1", index if sharing == "exclusive" else 0), milli=1000)
    driven.wait(0)
    assert driven.wait(stop_s) == []
    before = driven.cluster.steps_done("a")
    driven.cluster.stop("a")
    ((what, job, at_s, done),) = driven.wait()
    assert (what, job) == ("stopped", "a")
    assert at_s >= stop_s
    assert done in (before, before + 1)
    driven.start("a", ("n1", 0), steps_done=done)
    ends = driven.ends()
    assert set(ends) == {"a", "b"}
    assert ends["a"] >= at_s + (6 - done) * 1.2
