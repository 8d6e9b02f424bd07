"""Jobs whose GPUs or batch size change between runs, in the simulator: times by hand, progress in samples, refusals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.units import to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, plan_step
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.experiment import Experiment
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.interface.plan import Plan
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.placing import FreeSpace

V100 = "Tesla_V100-PCIE-32GB"
CLUSTER = """nodes: [{name: n, count: 2, gpus: 4, gpu_type: V100, cpus: 16}]
costs: {start_s: 1, restore_s: 2, checkpoint_s: 3, stop_s: 4}
"""
COLUMNS = (
    "job_id,submit_s,num_gpus,nodes,min_gpus,max_gpus,max_nodes,model,batch_size,steps,"
    "input_cpu_s,gpu_duration_s,cpu_duration_s\n"
)
ONE = "a,0,2,,1,8,2,resnet50,64,100,,,\n"
PROFILES = ProfileTable.bundled()


class Sizes:
    """A policy by table: from each time on, the GPUs, nodes and batch size of every job, as far as there is room."""

    needs_estimates = False

    def __init__(self, *table):
        self.table, self.seen = table, []

    def plan(self, view):
        now = view.now_s + 1e-6
        gpus, nodes, batch_size = next(size for at_s, size in reversed(self.table) if at_s <= now)
        self.seen += [(view.now_s, job.samples_done, view.samples_done(job)) for job in view.jobs.values()]
        space, start, stop = FreeSpace.now(view), {}, []
        for job in view.jobs.values():
            wanted = (
                job.configurations[0].with_gpus(gpus, nodes) if job.configurations[0].elastic else job.configurations[0]
            )
            if job.queued and (allocation := space.place(wanted)) is not None:
                start[job.job_id] = replace(allocation, batch_size=batch_size)
            elif job.allocation and (job.allocation.gpus, len(job.allocation.tasks), job.allocation.batch_size) != (
                gpus,
                nodes,
                batch_size,
            ):
                stop.append(job.job_id)
        return view.plan.evolve(
            start=start, stop=stop, wake_at_s=next((at_s for at_s, _ in self.table if at_s > now), None)
        )


@pytest.fixture
def experiment(tmp_path):
    def experiment(*rows):
        (tmp_path / "jobs.csv").write_text(COLUMNS + "".join(rows))
        (tmp_path / "cluster.yaml").write_text(CLUSTER)
        return Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml")

    return experiment


def run(experiment, policy, *, any_batch=True):
    """The loop after a simulated run."""
    cluster = SimulatedCluster(experiment.truth, experiment.spec.costs, any_batch=any_batch)
    loop = SchedulerLoop(cluster, experiment.spec, policy, experiment.estimates, experiment.workload.jobs)
    loop.run()
    return loop


def step_s(gpus, nodes, batch_size, model="resnet50"):
    """The time of a step as a pod of the whole job computes it, where the batch can be divided equally."""
    request = TrainRequest(1, model=model, batch_size=batch_size)
    return to_s(plan_step(request, Layout((V100,) * (gpus // nodes), gpus, nodes), PROFILES).times(1).total_device_ns)


def held(loop, job_id="a"):
    """[from, to, GPUs] of the job's runs."""
    spans = Counter((span.start_s, span.end_s) for span in loop.books.spans if span.job_id == job_id)
    return [(*times, gpus) for times, gpus in sorted(spans.items())]


@pytest.mark.parametrize(
    ("gpus", "nodes", "batch_size"), [(1, 1, 0), (2, 1, 0), (4, 1, 0), (2, 2, 0), (8, 2, 0), (4, 1, 256), (4, 2, 32)]
)
def test_a_job_takes_the_steps_of_its_samples(experiment, gpus, nodes, batch_size):
    """100 steps of 128 samples as submitted, whatever the number of GPUs; of other batches as many as the samples need."""
    loop = run(experiment(ONE), Sizes((0, (gpus, nodes, batch_size))))
    steps = 100 * 128 // (batch_size or 128)
    (record,) = loop.books.records()
    assert record.finish_s == pytest.approx(1 + steps * step_s(gpus, nodes, batch_size or 128))
    assert held(loop) == [(0, record.finish_s, gpus)]


def test_another_number_of_gpus_is_a_stop_and_a_start(experiment):
    loop = run(experiment(ONE), policy := Sizes((0, (1, 1, 0)), (10, (4, 1, 0))))
    first_s, second_s = step_s(1, 1, 128), step_s(4, 1, 128)
    done = int(9 // first_s) + 1  # the step in progress is finished
    stopped_s = 1 + done * first_s + 3 + 4
    (record,) = loop.books.records()
    assert (record.finish_s, record.preemptions) == (pytest.approx(stopped_s + 3 + (100 - done) * second_s), 1)
    assert held(loop) == [(0, pytest.approx(stopped_s), 1), (pytest.approx(stopped_s), record.finish_s, 4)]
    assert policy.seen[-1][1:] == (128 * done, 128 * done)


def test_progress_is_in_samples_when_the_batch_changes(experiment):
    loop = run(experiment(ONE), policy := Sizes((0, (2, 1, 0)), (10, (2, 1, 48)), (30, (4, 1, 500))))
    large, small, last = step_s(2, 1, 128), step_s(2, 1, 48), step_s(4, 1, 500)
    first = int(9 // large) + 1
    begin_s = 1 + first * large + 7 + 3
    second = int((30 - begin_s) // small) + 1
    begin_s += second * small + 7 + 3
    left = 12800 - first * 128 - second * 48
    (record,) = loop.books.records()
    assert record.finish_s == pytest.approx(begin_s + -(-left // 500) * last)
    assert [done for _, done, _ in policy.seen] == sorted(done for _, done, _ in policy.seen)
    at_30 = next(now for at_s, _, now in policy.seen if at_s == 30)
    assert at_30 in (12800 - left - 48, 12800 - left)
    assert policy.seen[-1][1] == 12800 - left


def test_only_the_nodes_change(experiment):
    loop = run(experiment("a,0,4,,,,2,resnet50,64,100,,,\n"), Sizes((0, (4, 1, 0)), (10, (4, 2, 0))))
    done = int(9 // step_s(4, 1, 256)) + 1
    (record,) = loop.books.records()
    begin_s = 1 + done * step_s(4, 1, 256) + 7 + 3
    assert record.finish_s == pytest.approx(begin_s + (100 - done) * step_s(4, 2, 256))
    assert sorted({span.node for span in loop.books.spans if span.start_s > 0}) == ["n-1", "n-2"]


def test_where_gpus_do_not_divide_a_batch_the_fullest_sets_the_pace(experiment):
    (record,) = run(experiment(ONE), Sizes((0, (3, 1, 0)))).books.records()
    assert record.finish_s == pytest.approx(1 + 100 * step_s(3, 1, 43 * 3))


def test_the_input_pipeline_prepares_each_sample_once(experiment):
    """0.5 CPU seconds for a step of 128 samples are 2 for one of 512, on 1 CPU for 2 GPUs: 2 for 4."""
    row = "a,0,2,,1,8,2,mobilenet_v2,64,100,0.5,,\n"
    (record,) = run(experiment(row), Sizes((0, (4, 1, 512)))).books.records()
    assert record.finish_s == pytest.approx(1 + 25 * 1.0 + step_s(4, 1, 512, "mobilenet_v2"))


def test_remaining_times_with_other_allocations(experiment):
    class Asks(Sizes):
        def plan(self, view):
            (job,), self.remaining_s = view.jobs.values(), {}
            for gpus, batch_size in ((2, 0), (4, 0), (4, 256)):
                allocation = FreeSpace.empty(view).place(job.configurations[0].with_gpus(gpus))
                self.remaining_s[gpus, batch_size] = view.remaining_with_s(
                    job, replace(allocation, batch_size=batch_size)
                )
            self.remaining_s["as submitted"] = view.remaining_s(job)
            return super().plan(view)

    policy = Asks((0, (2, 1, 0)), (10, (4, 1, 0)))
    run(experiment(ONE), policy)
    left = 1 - policy.seen[-1][1] / 12800
    assert 0 < left < 1
    assert policy.remaining_s == pytest.approx(
        {
            (2, 0): left * 100 * step_s(2, 1, 128),
            (4, 0): left * 100 * step_s(4, 1, 128),
            (4, 256): left * 50 * step_s(4, 1, 256),
            "as submitted": left * 100 * step_s(2, 1, 128),
        }
    )


# --- what can't be -------------------------------------------------------------------------------------------------------


class Gives:
    """A policy of one plan: as many GPUs on each of the nodes, with this batch size."""

    needs_estimates = False

    def __init__(self, *gpus, batch_size=0):
        self.gpus, self.batch_size = gpus, batch_size

    def plan(self, view):
        space, tasks = FreeSpace.now(view), ()
        (job,) = view.jobs.values()
        for node, gpus in zip(view.nodes, self.gpus, strict=False):
            way = replace(job.configurations[0], gpus=gpus, min_tasks=1, max_tasks=1)
            allocation = space.place(way, node=node)
            tasks += allocation.tasks
        return Plan.full({job.job_id: replace(allocation, tasks=tasks, batch_size=self.batch_size)})


@pytest.mark.parametrize(
    ("row", "policy", "problem"),
    [
        (
            "a,0,2,,2,3,,resnet50,64,9,,,\n",
            Gives(1),
            "gives job 'a' 1 GPUs: .* can't run on 1 GPUs of 1 nodes; it can on 2 to 3 GPUs",
        ),
        ("a,0,2,,2,3,,resnet50,64,9,,,\n", Gives(4), "gives job 'a' 4 GPUs: "),
        (ONE, Gives(2, 1), "gives job 'a' 3 GPUs: configuration gpu can't run on 3 GPUs of 2 nodes"),
        (ONE, Gives(3, 1), "gives job 'a' 3 GPUs and 1 CPUs; its configuration gpu needs 2 and 1"),
        ("a,0,2,,,,,resnet50,64,9,,,\n", Gives(3), "gives job 'a' 3 GPUs and 1 CPUs; its configuration gpu needs 2"),
        (ONE, Gives(2, batch_size=257), "steps of 257 samples; on 2 GPUs it can have 2 to 256, on each GPU at most"),
        (ONE, Gives(2, batch_size=1), "steps of 1 samples; on 2 GPUs it can have 2 to 256"),
        ("a,0,2,,,,,resnet50,64,9,,,\n", Gives(2, batch_size=129), "on 2 GPUs it can have 2 to 128"),
        ("a,0,2,,,,,,,9,,60,\n", Gives(2, batch_size=2), "gives a batch size to job 'a', whose work is a duration"),
        (
            "a,0,2,,,,,resnet50,64,9,,,60\n",
            Gives(2, batch_size=64),
            "gives a batch size to job 'a', whose work is a duration",
        ),
    ],
)
def test_plans_that_a_job_can_not_follow(experiment, row, policy, problem):
    with pytest.raises(PolicyError, match=problem):
        run(experiment(row), policy)


FIXED = "a,0,2,,,,,resnet50,64,9,,,\n"


def test_pods_of_a_job_that_is_not_elastic_keep_its_batch(experiment):
    problem = r"the plan gives job 'a' steps of 64 samples \(submitted: 128\); on Kubernetes .* Give it a range of GPUs"
    with pytest.raises(PolicyError, match=problem):
        run(experiment(FIXED), Gives(2, batch_size=64), any_batch=False)
    anywhere = run(experiment(FIXED), Gives(2, batch_size=64)).books.records()
    assert anywhere[0].status == "finished"


@pytest.mark.parametrize(("row", "batch_size"), [(FIXED, 128), (FIXED, 0), (ONE, 64)])
def test_what_pods_can_have_is_the_same_everywhere(experiment, row, batch_size):
    policy = Gives(2, batch_size=batch_size)
    anywhere, in_pods = (
        run(experiment(row), policy, any_batch=any_batch).books.records() for any_batch in (True, False)
    )
    assert anywhere == in_pods


def test_predictions_for_kubernetes_change_the_gpus_of_elastic_jobs(experiment, tmp_path):
    (tmp_path / "one.py").write_text(
        "from scheduler_sims.policies.placing import FreeSpace\n"
        "class One:\n    needs_estimates = False\n    def plan(self, view):\n"
        "        place = FreeSpace.now(view).place\n"
        "        return view.plan.evolve(start={j.job_id: place(j.configurations[0].with_gpus(1)) for j in view.queued()})\n"
    )
    policy, ours = f"{tmp_path}/one.py:One", experiment(ONE)
    observed_here = ours.simulate(policy).jobs
    for theirs in (ours.in_pods(), ours.in_pods().on(ours.spec)):
        assert theirs.as_pods
        assert theirs.simulate(policy).jobs == observed_here


# --- nothing is lost -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.integers(1, 60),
    changes=st.lists(
        st.tuples(
            st.integers(1, 15),
            st.sampled_from([(1, 1, 0), (2, 1, 0), (3, 1, 0), (8, 2, 0), (4, 2, 100), (2, 1, 31), (1, 1, 7)]),
        ),
        max_size=6,
    ),
)
def test_each_sample_is_trained_once(tmp_path, steps, changes):
    """The time of all runs together is that of the samples that each of them is said to have done."""
    (tmp_path / "jobs.csv").write_text(COLUMNS + f"a,0,2,,1,8,2,resnet50,64,{steps},,,\n")
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("costs: {", "costs: {finish_s: 0, "))
    table, at_s = [(0, (2, 1, 0))], 0
    for after_s, size in changes:
        table.append((at_s := at_s + after_s, size))
    workload = load_workload(tmp_path / "jobs.csv")
    ours = Experiment.of(workload, load_cluster(tmp_path / "cluster.yaml", PROFILES.catalogue), ("oracle", 0))
    starts = []

    class Watched(SimulatedCluster):
        def start(self, start):
            starts.append(start)
            super().start(start)

    loop = SchedulerLoop(Watched(ours.truth, ours.spec.costs), ours.spec, Sizes(*table), ours.estimates, workload.jobs)
    loop.run()
    (record,) = loop.books.records()
    assert record.status == "finished"
    marks = [start.samples.first_sample for start in starts] + [workload.jobs[0].samples]
    assert marks == sorted(marks)
    assert marks[0] == 0
    for start, end, (since_s, until_s, gpus) in zip(starts, marks[1:], held(loop), strict=True):
        samples, last = start.samples, end == marks[-1]
        count, part = divmod(end - samples.first_sample, samples.batch_size)
        assert last or part == 0, "only the last step of a job may be short"
        each_s = to_s(ours.truth.step_times(start.job, start.allocation).device_ns(0))
        overhead_s = 1 + (2 if samples.first_step else 0) + (0 if until_s == record.finish_s else 7)
        assert until_s - since_s == pytest.approx(overhead_s + (count + (part > 0)) * each_s)
        assert gpus == start.allocation.gpus
