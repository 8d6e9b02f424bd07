from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError, PolicyError, UnknownNameError
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.experiment import Experiment
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.record import RunRecord
from scheduler_sims.reports.files import write_jobs_csv

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "examples" / "allox-40"
POLICIES = ("fifo", "sjf", "srtf", "las:threshold_s=4,quantum_s=1", "drf-fifo", "drf-sjf", "allox", "allox:alpha=0.3")
CLUSTER = """
nodes:
  - {name: g, count: 2, gpus: 1, gpu_type: T4, cpus: 8}
  - {name: c, cpus: 4}
costs: {coalesce_s: 0.25, decide_s: 0.125, start_s: 0.5, restore_s: 1, warm_up_s: 0.25, checkpoint_s: 0.5, stop_s: 0.25}
"""


def rows(seed, count=24):
    """A workload with many ties in time and size."""
    chance = random.Random(f"{seed}/workload")
    lines = ["job_id,user,submit_s,gpu_duration_s,cpu_duration_s,steps"]
    for i in range(count):
        cpu_s = chance.choice(["", "9", "12"])
        lines.append(f"j{i},u{i % 3},{chance.choice([0, 0, 5, 10])},{chance.choice([2, 4, 10])},{cpu_s},10")
    return "\n".join(lines) + "\n"


@pytest.fixture
def files(tmp_path):
    """Writes a workload and a cluster file; answers their paths."""

    def files(workload=None, cluster=CLUSTER):
        paths = tmp_path / "jobs.csv", tmp_path / "cluster.yaml"
        for path, text in zip(paths, (workload or rows(1), cluster), strict=True):
            path.write_text(text)
        return paths

    return files


# --- the published comparison -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    return Experiment.load(STUDY / "workload.csv", STUDY / "cluster.yaml")


@pytest.mark.parametrize(("policy", "mean_s"), [("fifo", 79.1), ("sjf", 61.6), ("allox", 32.5)])
def test_the_study_has_exactly_these_mean_jcts(study, policy, mean_s):
    """GPEmu, PVLDB 18(6), 2025, figure 10b, computed for exact durations without overheads."""
    run = study.simulate(policy)
    assert sum(round(job.jct_s * 1e9) for job in run.jobs) == round(40 * mean_s * 1e9)


@pytest.mark.parametrize(("policy", "mean_s"), [("drf-fifo", 83.5), ("drf-sjf", 61.6)])
def test_fair_policies_come_close_to_the_study(study, policy, mean_s):
    jobs = study.simulate(policy).jobs
    assert sum(job.jct_s for job in jobs) / len(jobs) == pytest.approx(mean_s, rel=0.02)


def test_a_run_tells_what_it_was(study):
    run = study.simulate("allox")
    assert (run.policy, run.cluster, run.repeat, run.gpus, len(run.nodes)) == ("allox", "simulated", 0, 4, 12)
    assert [job.job_id for job in run.jobs] == [job.job_id for job in study.workload.jobs]
    assert {job.status for job in run.jobs} == {"finished"}
    assert (run.lag, run.notes, run.decisions > 1, run.wall_s > 0) == ({}, (), True, True)


def test_progress_counts_the_jobs_that_ended_and_reasons_are_reported(study):
    told, reasons = [], []
    study.simulate(
        "fifo",
        progress=lambda ended, now_s: told.append((now_s, ended)),
        explain=lambda now_s, job_id, reason: reasons.append((now_s, job_id, reason)),
    )
    assert told == sorted(told)
    assert told[-1] == (149.0, 40)
    assert all(reason and job_id in study.workload.by_id for _, job_id, reason in reasons)
    assert len({job_id for _, job_id, _ in reasons}) == 40


# --- what is refused ----------------------------------------------------------------------------------------------------


def test_a_job_larger_than_the_cluster_is_refused_with_the_workloads_name(files):
    workload, cluster = files("job_id,num_gpus,gpu_duration_s\nj,2,5\n")
    with pytest.raises(InputError, match=r"jobs.csv:2: job 'j' is larger than the cluster: needs 2 GPUs"):
        Experiment.load(workload, cluster)


def test_a_policy_that_needs_estimates_is_refused_without_them(files):
    experiment = Experiment.load(*files(), estimates="none")
    assert experiment.check_policies(["las"]) == {"las": "las"}
    with pytest.raises(
        PolicyError, match=r"policy srtf needs estimates of run times: use --estimates oracle or error:0\.2"
    ):
        experiment.check_policies(["srtf"])
    with pytest.raises(PolicyError, match=r"policy srtf: this policy asks for job durations"):
        experiment.simulate("srtf")
    assert experiment.simulate("fifo").jobs


def test_an_unknown_policy_comes_with_a_suggestion(files):
    with pytest.raises(UnknownNameError, match=r"--policy: unknown policy 'strf'; did you mean srtf"):
        Experiment.load(*files()).check_policies(["strf"])


def test_the_error_of_a_policy_names_it(files, tmp_path):
    (tmp_path / "mine.py").write_text("class Mine:\n    def plan(self, view):\n        return view.plan.evolve()\n")
    experiment = Experiment.load(*files("job_id,gpu_duration_s\na,1\n"))
    with pytest.raises(PolicyError, match="policy Mine: the policy leaves a queued although nothing runs"):
        experiment.simulate(f"{tmp_path}/mine.py:Mine")


# --- the same inputs give the same bytes --------------------------------------------------------------------------------


def run_all(experiment, path):
    write_jobs_csv(path, [experiment.simulate(policy) for policy in POLICIES])
    return path.read_bytes()


def test_the_same_inputs_give_the_same_bytes(files, tmp_path):
    workload, cluster = files()
    once = run_all(Experiment.load(workload, cluster, estimates="error:0.3", seed=4), tmp_path / "once.csv")
    assert run_all(Experiment.load(workload, cluster, estimates="error:0.3", seed=4), tmp_path / "again.csv") == once
    assert once.count(b"\n") == 1 + 24 * len(POLICIES)
    other = run_all(Experiment.load(workload, cluster, estimates="error:0.3", seed=5), tmp_path / "other.csv")
    assert other != once


RUN_ALL = """
import sys
from pathlib import Path
from scheduler_sims.experiment import Experiment
from scheduler_sims.reports.files import write_jobs_csv
workload, cluster, out, *policies = sys.argv[1:]
experiment = Experiment.load(Path(workload), Path(cluster))
write_jobs_csv(Path(out), [experiment.simulate(policy) for policy in policies])
"""


def test_the_order_of_hashes_does_not_matter(files, tmp_path):
    outs = [tmp_path / f"{seed}.csv" for seed in (1, 2)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", RUN_ALL, *map(str, files()), str(out), *POLICIES],
            env={**os.environ, "PYTHONHASHSEED": out.stem},
            cwd=ROOT,
        )
        for out in outs
    ]
    assert [process.wait(50) for process in running] == [0, 0]
    assert outs[0].read_bytes() == outs[1].read_bytes()


# --- the order of insertion does not matter -----------------------------------------------------------------------------


class Shuffled(SimulatedCluster):
    """Holds starts and stops back until time moves, and hands them on in any order; the heap is filled in any order."""

    chance: random.Random

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._held = []

    def start(self, start):
        self._held.append(lambda: SimulatedCluster.start(self, start))

    def stop(self, job_id, others=0):
        self._held.append(lambda: SimulatedCluster.stop(self, job_id, others))

    def wait(self, until_ns):
        self.chance.shuffle(self._held)
        while self._held:
            self._held.pop()()
        entries = list(self._heap)
        self._heap.clear()
        self.chance.shuffle(entries)
        for _, number, event in entries:
            run = self._runs.get(event.job_id)
            if run is not None and run.number == number:
                self._push(run, event.at_ns, event.what, event.steps_done)
        return super().wait(until_ns)


def run_in_order(experiment, policy, jobs, cluster):
    loop = SchedulerLoop(cluster, experiment.spec, resolve_policy(policy)[1], experiment.estimates, jobs)
    loop.run()
    return RunRecord(policy, "simulated", 0, 2, (), loop.books.records(), tuple(loop.books.spans))


@settings(max_examples=40, deadline=None)
@given(policy=st.sampled_from(POLICIES), seed=st.integers(0, 999), order=st.integers(0, 999), free=st.booleans())
def test_the_order_of_insertion_never_matters(tmp_path_factory, policy, seed, order, free):
    folder = tmp_path_factory.mktemp("order")
    (folder / "jobs.csv").write_text(rows(seed, count=12))
    (folder / "cluster.yaml").write_text(CLUSTER.partition("costs")[0] if free else CLUSTER)
    experiment = Experiment.load(folder / "jobs.csv", folder / "cluster.yaml")
    jobs = list(experiment.workload.jobs)
    plain = run_in_order(experiment, policy, jobs, SimulatedCluster(experiment.truth, experiment.spec.costs))
    chance = random.Random(order)
    shuffled_cluster = Shuffled(experiment.truth, experiment.spec.costs)
    shuffled_cluster.chance = chance
    shuffled = run_in_order(experiment, policy, chance.sample(jobs, len(jobs)), shuffled_cluster)
    assert shuffled == plain


def test_allox_on_equal_gpus_is_shortest_job_first(tmp_path):
    chance = random.Random("arrivals")
    rows, now_s = ["job_id,submit_s,gpu_duration_s"], 0.0
    for number in range(60):
        now_s += chance.expovariate(1 / 10)
        rows.append(f"j{number},{now_s:.3f},{chance.uniform(5, 90):.3f}")
    (tmp_path / "w.csv").write_text("\n".join(rows))
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 4, gpu_type: T4, cpus: 8}]")
    run = Experiment.load(tmp_path / "w.csv", tmp_path / "c.yaml")
    means = {policy: sum(job.jct_s for job in run.simulate(policy).jobs) / 60 for policy in ("allox", "sjf", "fifo")}
    assert means["allox"] == pytest.approx(means["sjf"], rel=0.01)
    assert means["fifo"] > 1.05 * means["sjf"]


def test_a_policy_that_only_asks_to_be_woken_is_stopped(tmp_path):
    (tmp_path / "lazy.py").write_text(
        "class Lazy:\n    def plan(self, view):\n        return view.plan.evolve(wake_at_s=view.now_s + 1)\n"
    )
    (tmp_path / "w.csv").write_text("job_id,gpu_duration_s\na,1\n")
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 4, gpu_type: T4, cpus: 8}]")
    run = Experiment.load(tmp_path / "w.csv", tmp_path / "c.yaml")
    with pytest.raises(PolicyError, match="a queued although nothing runs"):
        run.simulate(f"{tmp_path}/lazy.py:Lazy")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("view.plan.evolve(start={'a': None})", "place\\(\\) found no room, so leave the job out"),
        ("view.plan.evolve(start={'a': 'n/0'})", "starts job 'a' with str, not an Allocation"),
        ("view.plan.evolve(wake_at_s='5')", "wake_at_s is '5'"),
    ],
)
def test_slips_in_a_plan_are_named(tmp_path, answer, says):
    (tmp_path / "slip.py").write_text(f"class Slip:\n    def plan(self, view):\n        return {answer}\n")
    (tmp_path / "w.csv").write_text("job_id,gpu_duration_s\na,1\n")
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 4, gpu_type: T4, cpus: 8}]")
    with pytest.raises(PolicyError, match=says):
        Experiment.load(tmp_path / "w.csv", tmp_path / "c.yaml").simulate(f"{tmp_path}/slip.py:Slip")


def test_two_classes_of_one_name_keep_their_files_as_titles(tmp_path):
    texts = []
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("class Same:\n    def plan(self, view):\n        return view.plan\n")
        texts.append(f"{tmp_path}/{name}.py:Same")
    (tmp_path / "w.csv").write_text("job_id,gpu_duration_s\na,1\n")
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 4, gpu_type: T4, cpus: 8}]")
    experiment = Experiment.load(tmp_path / "w.csv", tmp_path / "c.yaml")
    assert experiment.check_policies(texts) == {text: text for text in texts}
    assert experiment.check_policies(texts[:1]) == {texts[0]: "Same"}


def test_srtf_counts_what_is_left_on_the_gpu_that_a_job_has(tmp_path):
    """On the slow GPU `slow` has more left than the newcomer needs, so it is stopped; by its fastest GPU it would not be."""
    (tmp_path / "w.csv").write_text(
        "job_id,submit_s,model,batch_size,steps\nfast,0,resnet50,32,1000\nslow,0,resnet50,32,1000\nnew,1,resnet50,32,900\n"
    )
    (tmp_path / "c.yaml").write_text(
        "nodes: [{name: v, gpus: 1, gpu_type: V100, cpus: 8}, {name: k, gpus: 1, gpu_type: K80, cpus: 8}]"
    )
    run = Experiment.load(tmp_path / "w.csv", tmp_path / "c.yaml").simulate("srtf")
    assert {job.job_id: job.preemptions for job in run.jobs}["fast"] == 0
