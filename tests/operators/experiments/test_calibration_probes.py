"""The probes on the simulated cluster: what calibration finds there is what the simulator was told to charge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, replace
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import TimedWork
from emulator_runtime.domain.units import GIB, POOL_UNIT_NS, to_ns
from emulator_runtime.profiles.table import ProfileTable
from operators.experiments.calibration.calibration import calibrated
from operators.experiments.calibration.observations import ProbeJobs, observations
from operators.experiments.calibration.policy import ProbePolicy
from operators.experiments.calibration.probes import ALONE, BURST, CHAIN, PROBES, VISITS, WIDE, YIELD_STEP_S, probe_jobs
from operators.experiments.records import JobRun, ObservedJob
from operators.experiments.scheduler_output import Decision
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.loop.scheduler_loop import SchedulerLoop

DAY_NS = 86_400 * 10**9


class Watched(SimulatedCluster):
    """Notes starts, stops and ends as a scheduler's lines and the statuses would."""

    def __init__(self, truth: WorkloadTruth, costs: ClusterCosts) -> None:
        super().__init__(truth, costs)
        self._charged = costs
        self.decisions: list[Decision] = []
        self._beside: dict[str, int] = {}
        self.ends: dict[str, list[tuple[int, int]]] = defaultdict(list)

    def start(self, start: Start) -> None:
        super().start(start)
        self.decisions.append(Decision(DAY_NS + start.at_ns, (start.job.job_id,)))

    def stop(self, job_id: str, others: int = 0) -> None:
        super().stop(job_id, others)
        self._beside[job_id] = others
        before: tuple[str, ...] = ()
        if self.decisions and self.decisions[-1].stopped and self.decisions[-1].at_ns == DAY_NS + self.now_ns():
            before = self.decisions.pop().stopped
        self.decisions.append(Decision(DAY_NS + self.now_ns(), (), (*before, job_id)))

    def wait(self, until_ns: int | None) -> list[Event]:
        events = super().wait(until_ns)
        for event in events:
            if event.what is not Happening.STARTED:
                self.ends[event.job_id].append((event.at_ns - self._released_ns(event), event.steps_done))
        return events

    def _released_ns(self, event: Event) -> int:
        """From the end of a stopped run's last step until its device was free."""
        if event.what is not Happening.STOPPED:
            return 0
        return to_ns(self._charged.release_s() + self._charged.shared_stop_s * self._beside[event.job_id])


def run_phases(cluster: ClusterSpec, jobs: Mapping[str, ProbeJobs]) -> tuple[list[ObservedJob], list[Decision]]:
    told, decisions = [], []
    for phase in (probe.jobs for probe in jobs.values()):
        truth = WorkloadTruth(Workload("probes", phase, ProfileTable.bundled()), cluster)
        watched = Watched(truth, cluster.costs)
        SchedulerLoop(watched, cluster, ProbePolicy(), parse_estimates("none", truth, 0), phase).run()
        decisions += watched.decisions
        for job in phase:
            stays, done = [], 0
            for at_ns, steps in watched.ends[job.job_id]:
                stays.append(JobRun("w", (), 0, DAY_NS + at_ns, steps - done))
                done = steps
            submitted_ns = DAY_NS + to_ns(job.submit_s)
            told.append(
                ObservedJob(job.job_id, "Succeeded", submitted_ns=submitted_ns, runs=tuple(stays), finished_ns=1)
            )
    return told, decisions


def overlapping_starts(cluster: ClusterSpec, jobs: Mapping[str, ProbeJobs]) -> dict[str, list[float]]:
    """From the decision to the first step, of each job that starts while others start or end, by probe: several costs may
    charge the same for them."""
    names = [name for name in ("burst", "wide", "turnover") if name in jobs]
    told, decisions = run_phases(cluster, {name: jobs[name] for name in names})
    seen = observations(jobs, told, decisions, cluster.costs.coalesce_s)
    return {name: [run.start_s for run in seen.runs_of(name)] for name in names}


def cluster_of(gpus: int, cpu_nodes: int, costs: ClusterCosts) -> ClusterSpec:
    with_gpu = tuple(
        NodeSpec(f"g{n}", 8000, 0, (Device(f"g{n}", 0, "Tesla_V100-PCIE-32GB", 32 * GIB),)) for n in range(gpus)
    )
    return ClusterSpec((*with_gpu, *(NodeSpec(f"c{n}", 8000, 0) for n in range(cpu_nodes))), costs)


quarters = st.integers(0, 8).map(lambda number: number / 4)
short = st.integers(0, 3).map(lambda number: number / 4)
each = st.integers(0, 3).map(lambda number: number / 8)
"""Shorter than a probe: so that a chain is no burst, and who yields has begun."""


@settings(max_examples=12, deadline=None)
@given(
    costs=st.builds(
        ClusterCosts,
        submit_s=quarters,
        serial_submit_s=each,
        coalesce_s=quarters,
        start_s=short,
        restore_s=short,
        serial_start_s=each,
        host_slots=st.sampled_from([0.0, 1.0, 1.5, 3.0]),
        stop_s=quarters,
        serial_stop_s=each,
        shared_stop_s=each,
        finish_s=quarters,
    ),
    gpus=st.one_of(st.integers(1, 14), st.just(40)),
    cpu_nodes=st.integers(0, 3),
)
def test_calibration_finds_what_the_simulator_charges(costs: ClusterCosts, gpus: int, cpu_nodes: int) -> None:
    cluster = cluster_of(gpus, cpu_nodes, costs)
    jobs = probe_jobs(cluster)
    told, decisions = run_phases(cluster, jobs)
    seen = observations(jobs, told, decisions, costs.coalesce_s)
    places = gpus + cpu_nodes
    few, many = min(BURST, places), min(WIDE, places)
    runs = [len(seen.runs_of(name)) for name in ("alone", "burst", "wide", "chain", "turnover")]
    assert runs == [ALONE, few, many * (many > few), CHAIN, 2 * few * (few > 1)]
    assert [len(seen.stops_of(name)) for name in ("stops", "together")] == [VISITS, few * (few > 1)]
    for probe in PROBES[1:]:
        observed = seen.stops_of(probe.name) if probe.stops else seen.runs_of(probe.name)
        assert seen.planned.get(probe.name, 0) == len(observed)
    assert {stop.others for stop in seen.stops_of("stops")} == {0}
    calibration = calibrated(seen)
    found, together = calibration.seconds, calibration.usable["together"]
    assert calibration.notes == () or 2 * together < len(seen.stops_of("together"))
    charged = asdict(costs)
    for name in ("submit_s", "serial_submit_s", "start_s", "finish_s"):
        assert found[name] == pytest.approx(charged[name]), name
    assert found["restart_s"] == pytest.approx(costs.restore_s)
    if few > 1:
        charged_starts = overlapping_starts(cluster, jobs)
        predicted = overlapping_starts(replace(cluster, costs=calibration.costs(costs.coalesce_s)), jobs)
        for name, charged_s in charged_starts.items():
            if name == "turnover":  # ends and starts meet by microseconds, so that single ones differ more
                assert mean(predicted[name]) == pytest.approx(mean(charged_s), abs=0.3)
            else:
                assert predicted[name] == pytest.approx(charged_s, abs=0.1)
    assert found["stop_s"] == pytest.approx(costs.stop_s, abs=YIELD_STEP_S)  # a step of the yielding job
    if together > 1:
        stops = seen.stops_of("together")
        assert together == len(stops)
        assert {stop.others + 1 for stop in stops} == {together}
        slack = YIELD_STEP_S if together == 2 else YIELD_STEP_S / 2  # a line through two points follows both
        assert found["serial_stop_s"] == pytest.approx(costs.serial_stop_s, abs=slack)
        assert found["shared_stop_s"] == pytest.approx(costs.shared_stop_s, abs=slack)
    assert calibration.costs(costs.coalesce_s).start_s == found["start_s"]


def test_pools_that_share_devices_take_the_steps_of_probes() -> None:
    jobs = probe_jobs(cluster_of(40, 2, ClusterCosts()))
    for job in (job for probe in jobs.values() for job in probe.jobs):
        for work in job.work.values():
            assert isinstance(work, TimedWork)
            assert to_ns(work.duration_s) // job.steps <= POOL_UNIT_NS, job.job_id


@pytest.mark.parametrize(
    ("gpus_of", "first", "wide"),
    [
        ((8, 8, 8, 8), [0, 8, 16, 24, 1, 9], [turn + 8 * node for turn in range(8) for node in range(4)]),
        ((1, 3, 0, 2), [0, 1, 4, 6, 2, 5], []),
    ],
)
def test_probes_go_round_the_nodes(gpus_of: tuple[int, ...], first: list[int], wide: list[int]) -> None:
    nodes = [
        NodeSpec(f"n{n}", 8000, 0, tuple(Device(f"n{n}", i, "Tesla_V100-PCIE-32GB", 32 * GIB) for i in range(gpus)))
        for n, gpus in enumerate(gpus_of)
    ]
    jobs = probe_jobs(ClusterSpec(tuple(nodes)))
    assert [job.user for job in jobs.get("wide", ProbeJobs()).jobs] == [f"p{place}" for place in wide]
    for phase in (jobs["warm_up"].jobs, jobs["burst"].jobs):
        assert [job.user for job in phase][: len(first)] == [f"p{place}" for place in first]
        assert len(phase) == min(BURST, sum(gpus or 1 for gpus in gpus_of))
        assert [job.user for job in phase if not job.configurations[0].gpus] == ["p6"] * (0 in gpus_of)


def test_programs_are_probed_where_the_workload_runs_some() -> None:
    cluster = cluster_of(3, 2, ClusterCosts())
    assert "programs" not in probe_jobs(cluster)
    jobs = probe_jobs(cluster, "emugpu-torch:1")["programs"].jobs
    assert len(jobs) == 4, "one alone, then one on each GPU"
    assert all(job.program and job.program.image == "emugpu-torch:1" for job in jobs)
    assert [job.submit_s for job in jobs] == [0.0, 15.0, 15.0, 15.0]
    assert all(job.configurations[0].gpus for job in jobs)
    assert "programs" not in probe_jobs(cluster_of(1, 2, ClusterCosts()), "emugpu-torch:1"), "one shares nothing"


@pytest.mark.parametrize(("cpu_milli", "wanted"), [(64_000, 1000), (8000, 1000), (2000, 250), (100, 12)])
def test_probes_ask_for_no_more_cpus_than_their_places_have(cpu_milli: int, wanted: int) -> None:
    """Two nodes of 8 GPUs and 2 CPUs: a probe on each GPU gets 250 millicores, so a burst on all GPUs of a node fits."""
    costs = ClusterCosts(start_s=0.5)
    nodes = tuple(
        NodeSpec(f"n{n}", cpu_milli, 0, tuple(Device(f"n{n}", i, "Tesla_V100-PCIE-32GB", 32 * GIB) for i in range(8)))
        for n in range(2)
    )
    cluster = ClusterSpec(nodes, costs)
    jobs = probe_jobs(cluster)
    asked = {job.configurations[0].cpu_milli for probe in jobs.values() for job in probe.jobs}
    assert asked == {wanted}
    told, decisions = run_phases(cluster, jobs)
    assert calibrated(observations(jobs, told, decisions, 0.0)).seconds["start_s"] == pytest.approx(0.5)


def test_a_node_without_cpus_for_probes_is_refused_with_the_fix() -> None:
    devices = tuple(Device("n", i, "Tesla_V100-PCIE-32GB", 32 * GIB) for i in range(8))
    with pytest.raises(InputError, match=r"node n has no CPUs for a probe job on each of its GPUs; .*--emulated-cpus"):
        probe_jobs(ClusterSpec((NodeSpec("n", 7, 0, devices),)))
    with pytest.raises(InputError, match="pools have no node"):
        probe_jobs(ClusterSpec(()))
