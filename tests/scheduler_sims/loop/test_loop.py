from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError, PolicyError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.units import GIB
from scheduler_sims.clusters.base import Happening
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import Phase
from scheduler_sims.loop.wakes import MAX_WAKES
from scheduler_sims.testing import Job, Node

NS = 1e-9
NODES = [Node("n1", gpus=2, cpus=8, memory_gib=16), Node("n2", gpus=1, cpus=8, memory_gib=16)]
TEN = Job("a", gpu_s=10, cpu_s=20, steps=10)  # steps of one second


class Timeline:
    """A policy by table: from each time on, these jobs are in these places ("n1/0 n1/1", "n2" for CPUs)."""

    needs_estimates = False

    def __init__(self, *table, **plan):
        self.table = [(at_s, dict(places)) for at_s, places in table]
        self.extras = plan
        self.views = []

    def plan(self, view):
        jobs = {job.job_id: job for job in view.jobs.values()}
        self.views.append(  # a view shows the loop's books, which go on
            replace(view, jobs=jobs, nodes=dict(view.nodes), plan=Plan.full(dict(view.plan.allocations)))
        )
        wanted = next(places for at_s, places in reversed(self.table) if at_s <= view.now_s + 1e-6)
        wake = next((at_s for at_s, _ in self.table if at_s > view.now_s + 1e-6), None)
        return Plan.full({j: place(jobs[j], p) for j, p in wanted.items() if j in jobs}, wake_at_s=wake, **self.extras)

    @property
    def times(self):
        return [round(view.now_s, 6) for view in self.views]


def place(job, text, **changes):
    """The allocation of `job` at a place written as in Timeline; `changes` to the task."""
    node = text.partition("/")[0]
    indexes = [int(each.partition("/")[2]) for each in text.split() if "/" in each]
    configuration = next(c for c in job.configurations if c.on_gpu == bool(indexes))
    memory = configuration.device_memory_bytes
    shares = tuple(DeviceShare(device_uuid(node, i), "Tesla-T4", memory_bytes=memory) for i in indexes)
    task = TaskPlacement(node, shares, configuration.cpu_milli, configuration.memory_bytes)
    return Allocation(configuration.name, (replace(task, **changes),))


class Once:
    """A policy whose plan is one function's."""

    needs_estimates = False

    def __init__(self, answer):
        self.plan = answer


def times_of(record):
    return (record.start_s, record.finish_s)


# --- when the policy is asked -------------------------------------------------------------------------------------------


def test_events_within_the_coalescing_time_after_the_first_are_handled_together(simulate):
    jobs = [TEN, Job("b", gpu_s=10, submit_s=0.5), Job("c", gpu_s=10, submit_s=1.0), Job("d", cpu_s=10, submit_s=1.2)]
    policy = Timeline((0, {"a": "n1/0", "b": "n1/1", "c": "n2/0", "d": "n2"}))
    run = simulate(policy, NODES, jobs, coalesce_s=1.0)
    assert policy.times == [1.0, 2.2, 12.0]  # a, b and c end together at 11
    assert [list(view.jobs) for view in policy.views[:1]] == [["a", "b", "c"]]
    assert policy.views[0].changes == {"a", "b", "c"}
    assert policy.views[0].triggers == {"submitted"}
    assert {name: record.start_s for name, record in run.records.items()} == {"a": 1, "b": 1, "c": 1, "d": 2.2}


def test_a_plan_takes_effect_after_the_time_to_decide(simulate):
    run = simulate(Timeline((0, {"a": "n1/0"})), NODES, [TEN], decide_s=2.0)
    assert times_of(run.records["a"]) == (2.0, 12.0)


def test_what_happens_while_a_plan_is_on_its_way_is_handled_right_after_it(simulate):
    policy = Timeline((0, {"a": "n1/0", "b": "n1/1"}))
    run = simulate(policy, NODES, [TEN, Job("b", gpu_s=10, submit_s=1.0)], decide_s=2.0)
    assert policy.times[:2] == [0.0, 2.0]
    assert policy.views[1].jobs["a"].phase is Phase.STARTING
    assert times_of(run.records["b"]) == (4.0, 14.0)


def test_the_triggers_say_why_the_policy_is_asked(simulate):
    policy = Timeline((0, {"a": "n1/0", "b": "n1/1"}), (4.5, {"b": "n1/1"}), (7, {"a": "n1/0", "b": "n1/1"}))
    jobs = [TEN, Job("b", gpu_s=9, submit_s=0), Job("c", gpu_s=1, submit_s=8)]
    policy.table.append((7.5, {"a": "n1/0", "b": "n1/1", "c": "n2/0"}))
    simulate(policy, NODES, jobs, cluster=failing("c", "died"))
    told = [(round(view.now_s, 6), *sorted(view.triggers)) for view in policy.views]
    assert told == [
        (0.0, "submitted"),
        (4.5, "wake"),
        (5.0, "stopped"),
        (7.0, "wake"),
        (7.5, "wake"),
        (8.0, "submitted"),
        (9.0, "failed", "finished"),
    ]


def test_jobs_that_come_and_go_at_one_instant_are_seen_at_once(simulate):
    policy = Timeline((0, {"a": "n1/0", "b": "n1/1", "c": "n2/0"}))
    simulate(policy, NODES, [Job("a", gpu_s=5), Job("b", gpu_s=5), Job("c", gpu_s=1, submit_s=5)])
    assert policy.times == [0.0, 5.0]
    assert policy.views[1].triggers == {"finished", "submitted"}
    assert policy.views[1].changes == {"a", "b", "c"}
    assert list(policy.views[1].jobs) == ["c"]


def test_state_comes_back_and_reasons_are_reported(simulate):
    seen = []

    class Counting(Timeline):
        def plan(self, view):
            seen.append(view.state)
            return replace(super().plan(view), state=len(seen), reasons={"a": f"call {len(seen)}"})

    run = simulate(Counting((0, {"a": "n1/0"}), (5, {"a": "n1/0"})), NODES, [TEN])
    assert seen == [None, 1]
    assert [(round(at_s, 6), job, reason) for at_s, job, reason in run.explained] == [
        (0.0, "a", "call 1"),
        (5.0, "a", "call 2"),
    ]
    assert run.loop.decisions == 2


def test_a_wake_up_that_never_comes_is_none(simulate):
    policy = Once(lambda view: Plan.full({"a": place(view.jobs["a"], "n1/0")}, wake_at_s=inf))
    assert times_of(simulate(policy, NODES, [TEN]).records["a"]) == (0.0, 10.0)


# --- starts and stops ---------------------------------------------------------------------------------------------------


def test_a_start_costs_start_and_warm_up(simulate):
    run = simulate(Timeline((0, {"a": "n1/0"})), NODES, [TEN], start_s=3.0, warm_up_s=1.0, restore_s=50.0)
    assert times_of(run.records["a"]) == (0.0, 14.0)


COSTS = {"start_s": 1.0, "restore_s": 2.0, "warm_up_s": 0.125, "checkpoint_s": 0.25, "stop_s": 0.5}


def test_a_stop_ends_the_step_and_costs_checkpoint_and_stop_and_a_resume_restores_and_warms_up(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (4.5, {}), (8, {"a": "n1/0"}))
    run = simulate(policy, NODES, [TEN], **COSTS)
    # The first step begins at 1.125; the stop comes in the fourth, which ends at 5.125.
    queued = policy.views[2].jobs["a"]
    assert (queued.phase, queued.steps_done, queued.preemptions) == (Phase.QUEUED, 4, 1)
    assert (queued.queued_since_s, queued.attained_gpu_s) == (5.875, 5.875)
    assert (run.records["a"].preemptions, run.records["a"].start_s) == (1, 0.0)
    assert run.records["a"].finish_s == pytest.approx(8 + 3.125 + 6, abs=2 * NS)
    assert [(span.start_s, span.end_s) for span in run.spans("a")] == [
        (0.0, 5.875),
        (pytest.approx(8, abs=2 * NS), run.records["a"].finish_s),
    ]


def test_a_stop_while_the_job_starts_waits_for_the_start_and_runs_no_step(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (0.5, {}), (8, {"a": "n1/0"}))
    run = simulate(policy, NODES, [TEN], **COSTS)
    assert run.spans("a")[0].end_s == 1.125 + 0.75
    assert policy.views[2].jobs["a"].steps_done == 0
    assert run.records["a"].finish_s == pytest.approx(8 + 1.125 + 10, abs=2 * NS)  # nothing to restore
    assert run.records["a"].preemptions == 1


def test_a_stop_in_the_last_step_lets_the_job_finish(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (9.5, {}))
    run = simulate(policy, NODES, [TEN], checkpoint_s=5.0)
    assert times_of(run.records["a"]) == (0.0, 10.0)
    assert (run.records["a"].preemptions, len(run.spans("a"))) == (0, 1)


def test_a_start_waits_for_the_job_that_is_stopping_in_its_place(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (4.5, {"b": "n1/0"}), (18, {"a": "n1/0"}))
    run = simulate(policy, NODES, [TEN, Job("b", gpu_s=3, submit_s=1)], stop_s=1.0)
    assert run.spans("a")[0].end_s == 6.0
    assert times_of(run.records["b"]) == (6.0, 9.0)
    assert times_of(run.records["a"]) == (0.0, pytest.approx(23.0, abs=2 * NS))


def test_a_stopping_job_still_holds_its_place_in_the_view(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (4.25, {}), (4.5, {}), (7, {"a": "n1/0"}))
    simulate(policy, NODES, [TEN])
    stopping = policy.views[2]
    assert stopping.jobs["a"].phase is Phase.STOPPING
    assert stopping.nodes["n1"].devices[0].holders == ("a",)
    assert not stopping.plan.allocations
    assert policy.views[3].nodes["n1"].devices[0].holders == ()


def test_a_job_that_moves_keeps_its_steps(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (4.5, {"a": "n2/0"}))
    record = simulate(policy, NODES, [TEN]).records["a"]
    assert (record.devices, record.preemptions, times_of(record)) == (("n1/0", "n2/0"), 1, (0.0, 10.0))


def test_a_job_that_is_still_stopping_is_not_started_elsewhere_yet(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (4.25, {"a": "n2/0"}), (4.5, {"a": "n2/0"}))
    run = simulate(policy, NODES, [TEN])
    assert policy.views[2].jobs["a"].phase is Phase.STOPPING
    assert [(span.node, span.start_s, span.end_s) for span in run.spans("a")] == [("n1", 0, 5), ("n2", 5, 10)]


def test_a_job_that_changes_its_configuration_keeps_its_share_of_steps(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (4.5, {"a": "n2"}))
    record = simulate(policy, NODES, [TEN]).records["a"]
    assert (record.devices, record.finish_s) == (("n1/0", "n2/cpu"), 5.0 + 5 * 2.0)


def test_a_plan_for_any_device_does_not_move_a_running_job(simulate):
    anywhere = Allocation("gpu", (TaskPlacement("n1", (DeviceShare(None, "Tesla-T4"),), 1000),))
    policy = Once(lambda view: Plan.full(dict.fromkeys(view.jobs, anywhere)))
    run = simulate(policy, NODES, [TEN, Job("b", gpu_s=1, submit_s=2)])
    assert (run.records["a"].devices, run.records["a"].preemptions) == (("n1/0",), 0)
    assert run.records["b"].devices == ("n1/1",)


def test_a_plan_that_evolves_changes_what_it_names_only(simulate):
    def answer(view):
        if "b" in view.jobs and view.jobs["b"].queued and view.jobs["a"].phase is Phase.RUNNING:
            return view.plan.evolve(start={"b": place(view.jobs["b"], "n1/0")}, stop=["a", "unknown"])
        starts = {j: place(job, "n1/0") for j, job in view.jobs.items() if job.queued and "b" not in view.jobs}
        return view.plan.evolve(start=starts or {j: place(view.jobs[j], "n1/0") for j in view.jobs if j == "b"})

    run = simulate(Once(answer), NODES, [TEN, Job("b", gpu_s=4, submit_s=2.5)])
    assert times_of(run.records["b"]) == (3.0, 7.0)
    assert times_of(run.records["a"]) == (0.0, 7.0 + 7.0)


def test_a_plan_that_evolves_from_an_older_one_is_taken_as_a_whole(simulate):
    older = []

    def answer(view):
        if not older:
            older.append(Plan.full({"a": place(view.jobs["a"], "n1/0")}))
            return older[0]
        starts = {"b": place(view.jobs["b"], "n1/1")} if "b" in view.jobs else {}
        return older[0].evolve(start=starts)

    run = simulate(Once(answer), NODES, [TEN, Job("b", gpu_s=4, submit_s=2.5)])
    assert times_of(run.records["a"]) == (0.0, 10.0)
    assert times_of(run.records["b"]) == (2.5, 6.5)


def test_a_plan_may_name_jobs_that_have_ended_meanwhile(simulate):
    """`a` ends while the plan that stops it is on its way."""
    policy = Timeline((0, {"a": "n1/0"}), (10.5, {"b": "n1/0"}))
    run = simulate(policy, NODES, [TEN, Job("b", gpu_s=1, submit_s=1)], decide_s=2.0)
    assert times_of(run.records["a"]) == (2.0, 12.0)
    assert run.records["a"].preemptions == 0
    assert times_of(run.records["b"]) == (pytest.approx(12.5, abs=2 * NS), pytest.approx(13.5, abs=2 * NS))


# --- plans that can't be ------------------------------------------------------------------------------------------------

BIG = Job("big", gpu_s=5, gpus=2, cpus=4, memory_gib=4, gpu_memory_gib=8)
B = Job("b", gpu_s=5, gpu_types=("Tesla-T4",))


def gpu_task(*devices, gpu_type="Tesla-T4", cpu_milli=1000, node="n1"):
    return TaskPlacement(node, tuple(DeviceShare(d, gpu_type) for d in devices), cpu_milli)


def task_of(view, job_id, text, **changes):
    return {job_id: place(view.jobs[job_id], text, **changes)}


def devices(view, count, **changes):
    return tuple(DeviceShare(None, "Tesla-T4", memory_bytes=8 * GIB, **changes) for _ in range(count))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda v: {"who": place(v.jobs["b"], "n1/0")}, "the plan starts job 'who', which is not in the workload"),
        (lambda v: {"b": Allocation("tpu", (gpu_task(None),))}, "the plan runs job 'b' as 'tpu'; it has gpu"),
        (
            lambda v: {"b": Allocation("gpu", (gpu_task(None), gpu_task(None)))},
            "the plan gives job 'b' 2 tasks; its configuration gpu has 1, all of them or none",
        ),
        (
            lambda v: {"b": Allocation("gpu", ())},
            "the plan gives job 'b' 0 tasks; its configuration gpu has 1, all of them or none",
        ),
        (
            lambda v: task_of(v, "big", "n1/0 n1/1", shares=devices(v, 1)),
            "the plan gives job 'big' 1 GPUs and 4 CPUs; its configuration gpu needs 2 and 4",
        ),
        (
            lambda v: task_of(v, "big", "n1/0 n1/1", shares=devices(v, 3)),
            "the plan gives job 'big' 3 GPUs and 4 CPUs; its configuration gpu needs 2 and 4",
        ),
        (
            lambda v: task_of(v, "big", "n1/0 n1/1", cpu_milli=3999),
            "the plan gives job 'big' 2 GPUs and 3.999 CPUs; its configuration gpu needs 2 and 4",
        ),
        (
            lambda v: task_of(v, "big", "n1/0 n1/1", memory_bytes=0),
            "the plan gives job 'big' 0.00 GiB of memory and 8.00 GiB on a GPU; its configuration gpu needs 4.00 GiB and "
            "8.00 GiB",
        ),
        (
            lambda v: task_of(v, "big", "n1/0 n1/1", shares=tuple(replace(s, memory_bytes=0) for s in devices(v, 2))),
            "the plan gives job 'big' 4.00 GiB of memory and 0.00 GiB on a GPU; its configuration gpu needs 4.00 GiB and "
            "8.00 GiB",
        ),
        (
            lambda v: {"b": Allocation("gpu", (gpu_task(None, gpu_type="Tesla_K80"),))},
            "the plan puts job 'b' on Tesla_K80; it can use Tesla-T4",
        ),
        (
            lambda v: task_of(v, "b", "n1/0", node="elsewhere"),
            "the plan places job 'b' on 'elsewhere', which is no node of the cluster; see ClusterView.nodes",
        ),
        (
            lambda v: task_of(v, "b", "n1/7"),
            "the plan places job 'b' on n1, where it does not fit beside the rest: a device that it names is taken, out of use "
            "or of another type",
        ),
        (
            lambda v: task_of(v, "b", "n1/0", cpu_milli=8001),
            "the plan places job 'b' on n1, where it does not fit beside the rest: it needs 8.001 CPUs, 8 of the node's 8 "
            "are free",
        ),
        (
            lambda v: {**task_of(v, "big", "n1/0 n1/1"), **task_of(v, "b", "n1/0")},
            "the plan places job 'b' on n1, where it does not fit beside the rest: it needs 1 GPU of type Tesla-T4, 0 of the "
            "node's 2 are free",
        ),
        (
            lambda v: task_of(v, "b", "n1/0", shares=(DeviceShare(None, "Tesla-T4", milli=500),)),
            "the plan gives job 'b' a part of a device that is exclusive; plan whole devices, or share the device "
            "('sharing: mps' of its node in a cluster file, spec.sharing of its pool on Kubernetes)",
        ),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_reported_in_one_line(simulate, answer, message):
    with pytest.raises(PolicyError) as caught:
        simulate(Once(lambda view: Plan.full(answer(view))), NODES, [BIG, B])
    assert str(caught.value) == message


def test_a_plan_that_divides_a_layer_over_domains_is_refused(simulate):
    """Also where it names no devices: those that are free once another job has stopped may be of two domains."""
    pairs = [Node("n1", gpus=4, cpus=8, nvlink=("x", "x", "y", "y"))]
    divided = Job("big", gpu_s=5, gpus=2, tensor=2)
    words = r"the plan gives job 'big' GPUs of which NVLink doesn't join 2 for each layer \(tensor_parallel\); FreeSpace.place"
    with pytest.raises(PolicyError, match=words):
        simulate(Timeline((0, {"big": "n1/1 n1/2"})), pairs, [divided])
    assert simulate(Timeline((0, {"big": "n1/2 n1/3"})), pairs, [divided]).records["big"].jct_s == 5

    def unnamed(view):
        if view.now_s < 1:
            return Plan.full({"a": place(view.jobs["a"], "n1/0")}, wake_at_s=1.0)
        task = TaskPlacement("n1", (DeviceShare(None, "Tesla-T4"),) * 2, 1000)
        return Plan.full({"big": Allocation("gpu", (task,))})

    with pytest.raises(PolicyError, match=words):
        simulate(Once(unnamed), pairs, [Job("a", gpu_s=100, steps=10), divided])


def test_a_device_that_a_running_job_keeps_cannot_be_given_away(simulate):
    policy = Timeline((0, {"a": "n1/0"}), (5, {"a": "n1/0", "b": "n1/0"}))
    with pytest.raises(PolicyError, match="places job 'b' on n1, where it does not fit beside the rest"):
        simulate(policy, NODES, [TEN, Job("b", gpu_s=1)])


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("late", [0, 500])
def test_a_policy_that_is_woken_for_ever_without_getting_anywhere_is_ended(simulate, running, late):
    """Jobs that run, and jobs that are to come, don't end it: virtual time doesn't get that far."""

    def answer(view):
        start = {"a": place(view.jobs["a"], "n1/0")} if running else {}
        return Plan.full(start, wake_at_s=view.now_s + 1e-12)

    with pytest.raises(PolicyError) as caught:
        simulate(Once(answer), NODES, [TEN, Job("b", gpu_s=10, submit_s=late)])
    told = str(caught.value)
    assert "\n" not in told
    assert told.endswith("nothing else happened meanwhile; answer a later wake_at_s") or not (running or late)


def test_many_wakes_between_events_are_fine(simulate):
    asked = []

    def answer(view):
        asked.append(view.now_s)
        return Plan.full({"a": place(view.jobs["a"], "n1/0")}, wake_at_s=view.now_s + 9e-4)

    assert simulate(Once(answer), NODES, [TEN]).records["a"].finish_s == 10
    assert len(asked) > MAX_WAKES


def test_a_wake_up_past_all_clocks_never_comes(simulate):
    policy = Once(lambda view: Plan.full({"a": place(view.jobs["a"], "n1/0")}, wake_at_s=1e300))
    assert simulate(policy, NODES, [TEN]).records["a"].finish_s == 10


@pytest.mark.parametrize("wake_at_s", [0.0, -1.0, nan])
def test_a_wake_up_that_is_not_ahead_is_refused(simulate, wake_at_s):
    with pytest.raises(PolicyError, match=rf"wake_at_s is {wake_at_s}, which is not after now \(0.0\)"):
        simulate(Once(lambda _view: Plan.full({}, wake_at_s=wake_at_s)), NODES, [TEN])


def test_an_exception_in_a_policy_is_reported_with_its_line(simulate):
    def broken(view):
        return view.jobs["nobody"]

    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(PolicyError) as caught:
        simulate(Once(broken), NODES, [Job("a", gpu_s=1, submit_s=2.5)])
    assert str(caught.value) == f"the policy failed at 2.500 s: KeyError: 'nobody' ({__file__}:{line})"
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_that_a_policy_raises_on_purpose_passes_unchanged(simulate):
    error = PolicyError("job 'a' wants too much")

    def refuse(_view):
        raise error

    with pytest.raises(PolicyError) as caught:
        simulate(Once(refuse), NODES, [TEN])
    assert caught.value is error


@pytest.mark.parametrize("answer", [None, {"a": "n1/0"}])
def test_an_answer_that_is_no_plan_is_reported(simulate, answer):
    with pytest.raises(PolicyError, match=rf"the policy answered {type(answer).__name__} at 0.000 s, not a Plan"):
        simulate(Once(lambda _view: answer), NODES, [TEN])


def test_jobs_that_are_left_queued_for_ever_are_named(simulate):
    with pytest.raises(PolicyError) as caught:
        simulate(Timeline((0, {"j0": "n1/0"})), NODES, [Job(f"j{i}", gpu_s=1) for i in range(8)])
    assert str(caught.value) == (
        "the policy leaves j1, j2, j3, j4, j5 and 2 more queued although nothing runs and nothing else will happen"
    )


def test_a_few_jobs_that_are_left_queued_are_all_named(simulate):
    with pytest.raises(PolicyError, match="the policy leaves a queued although nothing runs"):
        simulate(Timeline((0, {})), NODES, [TEN])


# --- clusters that fail -------------------------------------------------------------------------------------------------


def refusing(times, error):
    class Refusing(SimulatedCluster):
        """Raises at the first starts."""

        left = times

        def start(self, start):
            if self.left:
                self.left -= 1
                raise error
            super().start(start)

    return Refusing


def failing(job_id, reason, *, at_start=False):
    class Failing(SimulatedCluster):
        """One job fails where it would have finished, or where it would have started."""

        def wait(self, until_ns):
            return [self._turned(event) for event in super().wait(until_ns)]

        def _turned(self, event):
            if event.job_id != job_id:
                return event
            if event.what is Happening.STARTED and at_start:
                del self._runs[job_id]
            elif event.what is not Happening.FINISHED:
                return event
            return replace(event, what=Happening.FAILED, reason=reason, steps_done=0)

    return Failing


def test_a_start_that_the_cluster_refuses_for_a_moment_is_tried_again(simulate):
    policy = Timeline((0, {"a": "n1/0"}))
    run = simulate(policy, NODES, [TEN], cluster=refusing(2, ManagerUnavailableError("restarting")))
    assert times_of(run.records["a"]) == (2.0, 12.0)
    assert (run.records["a"].preemptions, run.records["a"].queueing_delay_s) == (0, 2.0)
    assert [set(view.triggers) for view in policy.views] == [{"submitted"}, {"retry"}, {"retry"}]
    assert [view.jobs["a"].phase for view in policy.views] == [Phase.QUEUED] * 3
    assert all(view.nodes["n1"].devices[0].holders == () for view in policy.views)


def test_a_start_that_fails_for_good_ends_the_run(simulate):
    with pytest.raises(ClusterError, match="no such node"):
        simulate(Timeline((0, {"a": "n1/0"})), NODES, [TEN], cluster=refusing(1, ClusterError("no such node")))


def test_a_job_that_fails_is_recorded_and_its_devices_are_used_again(simulate):
    policy = Timeline((0, {"a": "n1/0", "b": "n1/1"}), (2.5, {"a": "n1/0", "c": "n1/1"}))
    jobs = [TEN, Job("b", gpu_s=2), Job("c", gpu_s=1)]
    records = simulate(policy, NODES, jobs, cluster=failing("b", "out of memory")).records
    assert (records["b"].status, records["b"].reason, times_of(records["b"])) == ("failed", "out of memory", (0.0, 2.0))
    assert (records["c"].status, records["c"].devices) == ("finished", ("n1/1",))
    assert records["a"].status == "finished"


def test_a_job_that_fails_before_it_started_has_no_start(simulate):
    run = simulate(Timeline((0, {"a": "n1/0"})), NODES, [TEN], cluster=failing("a", "gone", at_start=True))
    record = run.records["a"]
    assert (record.status, record.start_s, record.devices, run.spans("a")) == ("failed", None, (), [])
