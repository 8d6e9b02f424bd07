"""The local cluster against the simulator: real processes, warp time unless a test needs the host's."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import sleep_ns
from scheduler_sims.clusters.base import Start
from scheduler_sims.clusters.local import LocalCluster, LocalOptions
from scheduler_sims.experiment import Experiment
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.record import JobRecord, RunRecord
from scheduler_sims.reports.comparison import compare

Agree = Callable[..., RunRecord]
Excuse = Any
"""Of conftest."""
BUSY = 1.2
"""A slowdown above this factor means that other work keeps this process from the CPU."""
SMALL_S = {"start": 0.05, "step": 0.01, "stop": 0.01, "decide": 0.01}
"""Host seconds: what each is late at most where nothing keeps it from the CPU. A start wakes a process and its manager."""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[4]
ALLOX = ROOT / "examples" / "allox-40"
WARP = LocalOptions(warp=True)

MIXED_WORKLOAD = """job_id,user,submit_s,num_gpus,cpus,gpu_duration_s,model,batch_size,steps,input_cpu_s
long,u,0,1,4,120,,,,
pair,u,3,2,4,60,,,,
middle,v,10,1,4,20,,,,
short,v,12.5,1,4,5,,,,
input-bound,w,13,1,2,,resnet50,64,60,1.2
vgg,w,14,2,8,,vgg16,32,100,
late,u,40,1,4,3,,,,
"""
MIXED_CLUSTER = """
nodes:
  - {name: v, gpus: 2, gpu_type: V100, cpus: 16}
  - {name: a, gpus: 2, gpu_type: A100, cpus: 16}
costs:
  {coalesce_s: 0.1, decide_s: 0.05, start_s: 1, restore_s: 2, warm_up_s: 0.5, checkpoint_s: 1.5, stop_s: 0.25,
   serial_start_s: 0.5, finish_s: 0.75}
"""
MIG_WORKLOAD = """job_id,submit_s,num_gpus,gpu_duration_s,model,batch_size,steps,gpu_type,host_s
stated,0,1,4,,,40,,0.02
large,0,1,,resnet50,64,40,,
pair,1,2,4,,,20,,
small,2,1,2,,,20,A100-MIG-1g.5gb,
any,2.5,1,,resnet18,32,60,,
"""
MIG_CLUSTER = """nodes:
- {name: a, gpus: 1, gpu_type: A100, cpus: 8, mig: {4g.20gb: 1, 2g.10gb: 1, 1g.5gb: 1}}
- {name: v, gpus: 1, gpu_type: V100, cpus: 8}
costs: {start_s: 0.2, checkpoint_s: 0.1}
"""
ONE_GPU = "nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8}]"
TWO_GPUS = "nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8, count: 2}]"


def experiment(tmp_path: Path, workload: str, cluster: str) -> Experiment:
    (tmp_path / "workload.csv").write_text(workload)
    (tmp_path / "cluster.yaml").write_text(cluster)
    return Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml")


def rows(*durations: float) -> str:
    return "job_id,gpu_duration_s\n" + "".join(f"j{n},{duration}\n" for n, duration in enumerate(durations))


def by_id(jobs: tuple[JobRecord, ...]) -> dict[str, JobRecord]:
    return {job.job_id: job for job in jobs}


def watched_run(run: Experiment, cluster: LocalCluster, policy: str = "fifo") -> SchedulerLoop:
    """Run on a given cluster object, so that a test can reach its processes."""
    loop = SchedulerLoop(cluster, run.spec, resolve_policy(policy)[1], run.estimates, run.workload.jobs)
    with cluster:
        loop.run()
    return loop


@pytest.mark.parametrize("policy", ["drf-fifo", "drf-sjf", "allox"])
def test_warp_observes_what_was_predicted(agree: Agree, policy: str) -> None:
    run = Experiment.load(ALLOX / "workload.csv", ALLOX / "cluster.yaml")
    predicted = run.simulate(policy)
    mean_s = mean(job.jct_s for job in predicted.jobs)

    def differences(observed: RunRecord, excuse: Excuse) -> list[object]:
        assert [job.status for job in observed.jobs] == ["finished"] * 40
        (result,) = compare([predicted, observed]).policies
        assert result.error is not None
        off_mean, off_quantile = result.error.by_figure["mean_jct"], result.error.jct_quantiles_max_abs
        assert off_mean is not None
        assert off_quantile is not None
        fits = abs(off_mean) < excuse.widen(0.005, mean_s) and off_quantile < excuse.widen(0.05, mean_s)
        return [] if fits else [("mean, quantiles", off_mean, off_quantile)]

    agree(lambda: run.observe(policy, WARP), differences)


def off(
    predicted: RunRecord, observed: RunRecord, excuse: Excuse, *, rel: float = 0.01, abs_s: float = 0.1
) -> list[object]:
    """The jobs whose JCT is further off than this, or that were stopped more or less often, or ran elsewhere: where they come
    late, another device may be free, and a job may be over before it would be stopped."""

    def facts(job: JobRecord) -> tuple[object, ...]:
        return job.job_id, job.status, () if excuse.late_s else (job.preemptions, job.devices)

    pairs = zip(predicted.jobs, observed.jobs, strict=True)
    return [
        (p, o)
        for p, o in pairs
        if facts(p) != facts(o) or abs(o.jct_s - p.jct_s) > excuse.widen(max(rel * p.jct_s, abs_s))
    ]


@pytest.mark.parametrize("policy", ["srtf", "las:threshold_s=10,quantum_s=5"])
def test_preemption_input_pipeline_and_costs_agree_job_by_job(tmp_path: Path, agree: Agree, policy: str) -> None:
    run = experiment(tmp_path, MIXED_WORKLOAD, MIXED_CLUSTER)
    predicted = run.simulate(policy)
    assert sum(job.preemptions for job in predicted.jobs) >= 2
    agree(lambda: run.observe(policy, WARP), lambda observed, excuse: off(predicted, observed, excuse))


@pytest.mark.parametrize("policy", ["fifo", "srtf"])
def test_mig_instances_are_as_slow_as_predicted(tmp_path: Path, agree: Agree, policy: str) -> None:
    run = experiment(tmp_path, MIG_WORKLOAD, MIG_CLUSTER)
    predicted = run.simulate(policy)
    (small,) = (job for job in predicted.jobs if job.job_id == "small")
    assert small.finish_s is not None and small.start_s is not None
    assert small.preemptions == (
        policy == "srtf"
    )  # a stop takes effect at the next step, and the checkpoint and start cost
    assert small.finish_s - small.start_s == pytest.approx(2 / 0.142, abs=1)  # one of seven slices
    agree(lambda: run.observe(policy, WARP), lambda observed, excuse: off(predicted, observed, excuse))


def test_every_step_runs_exactly_once_across_preemptions(tmp_path: Path) -> None:
    run = experiment(tmp_path, MIXED_WORKLOAD, MIXED_CLUSTER)
    cluster = LocalCluster(run.spec, WARP)
    watched_run(run, cluster, "srtf")
    assert cluster.steps_run == {job.job_id: job.steps for job in run.workload.jobs}


SENSITIVE_WORKLOAD = """job_id,submit_s,model,steps,num_gpus
alexnet,0,synergy/alexnet,900,1
gnmt,0,synergy/gnmt,800,1
res18,50,synergy/res18,100,1
wide,70,synergy/mobilenet,150,2
"""
SENSITIVE_CLUSTER = "nodes: [{name: n, gpus: 4, gpu_type: V100, cpus: 16, memory_gib: 400}]"


def divided_while_running(run: RunRecord) -> set[str]:
    """The jobs whose CPUs changed without a stop."""
    spans = run.host_spans
    return {a.job_id for a in spans for b in spans if (a.job_id, a.end_s) == (b.job_id, b.start_s) and a is not b}


def test_jobs_run_faster_from_the_next_step_on_when_they_get_more_cpus(tmp_path: Path, agree: Agree) -> None:
    run = experiment(tmp_path, SENSITIVE_WORKLOAD, SENSITIVE_CLUSTER)
    predicted = run.simulate("synergy:round_s=40")
    assert divided_while_running(predicted) == {"alexnet"}

    def differences(observed: RunRecord, excuse: Excuse) -> list[object]:
        divisions, ours = (
            [(s.job_id, s.cpu_milli, s.memory_bytes) for s in r.host_spans] for r in (predicted, observed)
        )
        if divisions != ours or divided_while_running(observed) != {"alexnet"}:
            return ours
        return off(predicted, observed, excuse, abs_s=0.7)  # a step's time, where a share came late

    agree(lambda: run.observe("synergy:round_s=40", WARP), differences)


def test_scaled_time_takes_a_new_share_too(tmp_path: Path, agree: Agree) -> None:
    workload = "job_id,model,steps\nfirst,synergy/alexnet,90\nsecond,synergy/res18,200\n"
    run = experiment(tmp_path, workload, SENSITIVE_CLUSTER)
    predicted = run.simulate("synergy:round_s=20")
    assert divided_while_running(predicted) == {"second"}

    def differences(observed: RunRecord, excuse: Excuse) -> list[object]:
        if divided_while_running(observed) != {"second"}:
            return [*observed.host_spans]
        return off(predicted, observed, excuse, rel=0.05)

    agree(lambda: run.observe("synergy:round_s=20", LocalOptions(speed=20)), differences, speed=20)


def test_scaled_time_observes_what_was_predicted(tmp_path: Path, agree: Agree) -> None:
    run = experiment(tmp_path, rows(12, 8, 20, 6), TWO_GPUS)
    predicted = run.simulate("sjf")

    def differences(observed: RunRecord, excuse: Excuse) -> list[object]:
        assert observed.lag["step"].count == 400
        (result,) = compare([predicted, observed]).policies
        assert result.error is not None
        off_mean = result.error.by_figure["mean_jct"]
        assert off_mean is not None
        mean_s = mean(job.jct_s for job in predicted.jobs)
        return [] if abs(off_mean) < excuse.widen(0.05, mean_s) else [off_mean]

    agree(lambda: run.observe("sjf", LocalOptions(speed=10)), differences, speed=10)


@pytest.mark.alone
def test_a_machine_that_has_time_is_not_late(tmp_path: Path, slowdown: Callable[[], float]) -> None:
    """Lags excuse differences, so lags must be small on a machine that isn't busy; its load is measured independently."""
    run = experiment(tmp_path, rows(6, 4, 5), TWO_GPUS)
    for _ in range(5):
        before = slowdown()
        lag = run.observe("sjf", LocalOptions(speed=10)).lag
        if max(before, slowdown()) < BUSY:
            break
    else:
        pytest.skip("host too busy: other work kept us from the CPU in each of five tries")
    assert {"start", "step"} <= lag.keys()
    assert {kind: account for kind, account in lag.items() if account.p50_s > 10 * SMALL_S[kind]} == {}
    assert lag["step"].p99_s < 10 * SMALL_S["step"]


class SlowStart(LocalCluster):
    """A cluster whose starts take a second longer than its costs state."""

    def start(self, start: Start) -> None:
        sleep_ns(NS_PER_S)
        super().start(start)


def test_a_real_start_delay_moves_what_is_observed_and_not_what_is_predicted(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(10, 10), ONE_GPU)
    predicted = by_id(run.simulate("fifo").jobs)
    cluster = SlowStart(run.spec, WARP)
    observed = by_id(watched_run(run, cluster).books.records())
    assert {job.jct_s for job in predicted.values()} == {10, 20}
    late_s = cluster.lag()["step"].max_s
    assert 10.9 < observed["j0"].jct_s < 11.5 + late_s
    assert 21.9 < observed["j1"].jct_s < 22.8 + 2 * late_s
    assert cluster.lag()["start"].max_s > 0.9


class SlowAfterStops(LocalCluster):
    """A cluster that is busy for two seconds after the request of its second stop."""

    asked = 0

    def stop(self, job_id: str, others: int = 0) -> None:
        super().stop(job_id, others)
        self.asked += 1
        if self.asked == 2:
            sleep_ns(2 * NS_PER_S)


def test_a_stop_that_is_reported_late_is_a_lag(tmp_path: Path) -> None:
    """Of two simultaneous stops, the second is due after one second and delivered after two."""
    workload = "job_id,submit_s,gpu_duration_s\na,0,60\nb,0,60\nc,5,5\nd,5,5\n"
    run = experiment(tmp_path, workload, TWO_GPUS + "\ncosts: {serial_stop_s: 1}")
    cluster = SlowAfterStops(run.spec, WARP)
    records = by_id(watched_run(run, cluster, "srtf").books.records())
    assert [records[name].preemptions for name in "abcd"] == [1, 1, 0, 0]
    lag = cluster.lag()["stop"]
    assert (lag.count, lag.max_s > 0.9) == (2, True)


def test_jobs_beyond_the_standby_processes_start_theirs_when_they_start(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(3, 2, 1, 4, 5, 6), ONE_GPU)
    observed = run.observe("sjf", LocalOptions(warp=True, standby=2))
    assert [job.status for job in observed.jobs] == ["finished"] * 6


def kill_later(delay_s: float, pids: dict[str, int], name: str) -> threading.Timer:
    timer = threading.Timer(delay_s, lambda: os.kill(pids[name], signal.SIGKILL))
    timer.start()
    return timer


class KillsWhenReady(LocalCluster):
    """Kills one of its processes, host seconds after emulated time has begun."""

    victim: tuple[str, str] = ("", "")
    after_s = 0.5

    def prepare(self, jobs: object) -> None:
        super().prepare(jobs)  # type: ignore[arg-type]
        kind, name = self.victim
        kill_later(self.after_s, self.manager_pids() if kind == "manager" else self.job_pids(), name)


@pytest.mark.parametrize("options", [LocalOptions(speed=10), WARP], ids=["scaled", "warp"])
def test_a_killed_manager_costs_no_step(tmp_path: Path, options: LocalOptions) -> None:
    jobs = rows(20, 20, 10) if not options.warp else rows(*[300] * 30)
    run = experiment(tmp_path, jobs, TWO_GPUS)
    cluster = KillsWhenReady(run.spec, options)
    cluster.victim = ("manager", "n-1")
    records = watched_run(run, cluster).books.records()
    assert [job.status for job in records] == ["finished"] * len(records)
    assert set(cluster.steps_run.values()) == {100}
    assert any("n-1 was restarted 1 time" in note for note in cluster.notes())
    if not options.warp:  # the device went on while its manager was away
        predicted = max(job.finish_s for job in run.simulate("fifo").jobs)
        assert max(job.finish_s for job in records) == pytest.approx(predicted, abs=15)


def test_a_killed_job_fails_with_the_reason_and_frees_its_device(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(600, 5), ONE_GPU)
    cluster = KillsWhenReady(run.spec, LocalOptions(speed=10))
    cluster.victim = ("job", "j0")
    records = by_id(watched_run(run, cluster).books.records())
    assert records["j0"].status == "failed"
    assert records["j0"].reason == "its process ended: killed by SIGKILL"
    assert records["j1"].status == "finished"
    assert records["j1"].start_s is not None
    assert records["j1"].start_s - records["j0"].finish_s < 100  # j0 would have run for 600


def test_a_killed_waiting_process_is_replaced(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(20, 5), ONE_GPU)
    cluster = KillsWhenReady(run.spec, LocalOptions(speed=10))
    cluster.victim = ("job", "j1")
    records = watched_run(run, cluster).books.records()
    assert [job.status for job in records] == ["finished", "finished"]
    assert any("job j1" in note and "got another one" in note for note in cluster.notes())


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(1, 1), ONE_GPU)
    cluster = LocalCluster(run.spec, WARP)
    cluster.prepare(run.workload.jobs)
    pids = [*cluster.manager_pids().values(), *cluster.job_pids().values()]
    assert len(pids) == 3
    cluster.close()
    cluster.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not list(Path("/tmp").glob(f"emugpu-run-{os.getpid()}-*"))


def test_records_of_an_observed_run_add_up(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(5, 5, 5), ONE_GPU)
    observed: RunRecord = run.observe("fifo", WARP)
    spans = sorted((span.start_s, span.end_s) for span in observed.spans)
    assert len(spans) == 3
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert [job.devices for job in observed.jobs] == [("n/0",)] * 3


class KillsManagerAtStop(LocalCluster):
    """Kills the manager just before the loop sends it a request."""

    def stop(self, job_id: str, others: int = 0) -> None:
        os.kill(self.manager_pids()["n"], signal.SIGKILL)
        super().stop(job_id, others)


def test_a_manager_that_dies_under_a_request_is_asked_again(tmp_path: Path) -> None:
    workload = "job_id,submit_s,gpu_duration_s\nlong,0,30\nshort,5,5\n"
    run = experiment(tmp_path, workload, ONE_GPU)
    cluster = KillsManagerAtStop(run.spec, WARP)
    records = by_id(watched_run(run, cluster, "srtf").books.records())
    assert [job.status for job in records.values()] == ["finished", "finished"]
    assert records["long"].preemptions == 1
    assert cluster.steps_run == {"long": 100, "short": 100}
    assert "the sharing manager of n was restarted 1 time" in cluster.notes()


def test_real_time_priority_is_taken_or_its_refusal_is_said(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(3), ONE_GPU)
    cluster = LocalCluster(run.spec, LocalOptions(warp=True, realtime=True))
    with cluster:
        cluster.prepare(run.workload.jobs)
        policy = os.sched_getscheduler(cluster.job_pids()["j0"]) & ~os.SCHED_RESET_ON_FORK
        refused = any("real-time priority was refused" in note for note in cluster.notes())
    assert (policy == os.SCHED_FIFO) != refused


@pytest.mark.parametrize("options", [WARP, LocalOptions(speed=10)], ids=["warp", "scaled"])
def test_a_job_that_starts_again_as_it_stops_and_stops_between_two_steps(
    tmp_path: Path, agree: Agree, options: LocalOptions
) -> None:
    """X is submitted when a step of A has just ended; A is stopped, and restarted as soon as its device is free."""
    workload = "job_id,submit_s,gpu_duration_s\nA,0,100\nB,0,5.5\nX,5,2\n"
    run = experiment(tmp_path, workload, TWO_GPUS + "\ncosts: {checkpoint_s: 2}")
    predicted = run.simulate("srtf")
    assert {job.job_id: job.preemptions for job in predicted.jobs} == {"A": 1, "B": 0, "X": 0}

    def differences(observed: RunRecord, excuse: Excuse) -> list[object]:
        return off(predicted, observed, excuse, rel=0, abs_s=0.1 if options.warp else 0.7)

    agree(lambda: run.observe("srtf", options), differences, speed=options.speed)


def test_a_model_job_reserves_the_memory_that_its_row_states(tmp_path: Path) -> None:
    workload = "job_id,model,batch_size,steps,gpu_memory_gib\nsmall,resnet50,32,3,1\n"
    run = experiment(tmp_path, workload, "nodes: [{name: n, gpus: 1, gpu_type: V100, gpu_memory_gib: 2, cpus: 8}]")
    (job,) = run.observe("fifo", WARP).jobs
    assert (job.status, job.reason) == ("finished", "")


@pytest.mark.parametrize("duration", ["0.00000005", "100000000"])
def test_the_shortest_and_the_longest_duration_run(tmp_path: Path, duration: str) -> None:
    run = experiment(tmp_path, f"job_id,gpu_duration_s,steps\nj,{duration},1\n", ONE_GPU)
    observed = run.observe("fifo", WARP)
    (job,) = observed.jobs
    assert job.status == "finished"
    late_s = sum(observed.lag[kind].max_s for kind in ("start", "step"))
    assert job.jct_s == pytest.approx(float(duration), abs=0.5 + late_s)


class CrashLoop(LocalCluster):
    """A cluster whose manager dies at every request to stop a job."""

    def stop(self, job_id: str, others: int = 0) -> None:
        for _ in range(10):
            os.kill(self.manager_pids()["n"], signal.SIGKILL)
            super().stop(job_id, others)


def test_a_manager_in_a_crash_loop_ends_the_run_with_one_sentence(tmp_path: Path) -> None:
    run = experiment(tmp_path, "job_id,submit_s,gpu_duration_s\nlong,0,30\nshort,5,5\n", ONE_GPU)
    with pytest.raises(
        ClusterError, match=r"manager of node n died 6 times, the last time: killed by SIGKILL; see what"
    ):
        watched_run(run, CrashLoop(run.spec, WARP), "srtf")
    assert not list(Path("/tmp").glob(f"emugpu-run-{os.getpid()}-*"))


def test_a_node_with_a_long_name(tmp_path: Path) -> None:
    run = experiment(tmp_path, rows(1), ONE_GPU.replace("name: n", f"name: {'n' * 90}"))
    assert [job.status for job in run.observe("fifo", WARP).jobs] == ["finished"]


@pytest.mark.parametrize("options", [WARP, LocalOptions(speed=10)], ids=["warp", "scaled"])
def test_a_stop_at_the_very_instant_of_a_step_boundary(tmp_path: Path, agree: Agree, options: LocalOptions) -> None:
    """B is submitted exactly when a step of A ends: in both clusters the submission comes first."""
    run = experiment(tmp_path, "job_id,submit_s,gpu_duration_s\nA,0,50\nB,20,5\n", ONE_GPU)
    assert by_id(run.simulate("srtf").jobs)["B"].start_s == 20

    def differences(observed: RunRecord, excuse: Excuse) -> list[object]:
        began_s = by_id(observed.jobs)["B"].start_s
        assert began_s is not None
        allowed_s = excuse.widen(0.1 if options.warp else 0.4)  # a step takes half a second
        return [] if abs(began_s - 20) < allowed_s else [began_s]

    agree(lambda: run.observe("srtf", options), differences, speed=options.speed)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_workloads_agree_job_by_job(tmp_path: Path, agree: Agree, seed: int) -> None:
    """Whole seconds everywhere, so that instants coincide; every cost is drawn; SRTF preempts a lot."""
    chance = random.Random(f"{seed}/workload")
    workload = "job_id,submit_s,num_gpus,gpu_duration_s\n" + "".join(
        f"j{n},{chance.randint(0, 60)},{chance.choice([1, 1, 2])},{chance.randint(5, 80)}\n" for n in range(10)
    )
    drawn = ("start_s", "restore_s", "checkpoint_s", "decide_s", "serial_stop_s", "shared_stop_s")
    costs = {name: round(chance.uniform(0, 3), 1) for name in drawn}
    cluster = f"nodes: [{{name: n, gpus: 2, gpu_type: T4, cpus: 8, count: 2}}]\ncosts: {costs}".replace("'", "")
    run = experiment(tmp_path, workload, cluster)
    predicted = run.simulate("srtf")
    assert sum(job.preemptions for job in predicted.jobs) >= 1

    def differences(observed: RunRecord, excuse: Excuse) -> list[object]:
        pairs = zip(predicted.jobs, observed.jobs, strict=True)
        return [(p, o) for p, o in pairs if abs(p.jct_s - o.jct_s) > excuse.widen(0.01 * p.jct_s + 0.1)]

    agree(lambda: run.observe("srtf", WARP), differences)
