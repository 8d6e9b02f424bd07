"""SRTF and LAS: which jobs start and stop, in small tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.errors import InputError, PolicyError
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.las import Las
from scheduler_sims.policies.srtf import Srtf
from scheduler_sims.testing import Job, Node, cluster_view, places

ONE, TWO, FOUR = ([Node("n", gpus=number)] for number in (1, 2, 4))


def test_srtf_timelines_of_the_hand_worked_cases(replay):
    t1 = [(4, 0, 100), (2, 10, 50), (2, 20, 30), (1, 30, 20)]
    t2 = [(2, 0, 2000), (2, 100, 2500), (4, 500, 600), (1, 1000, 300), (3, 1200, 1000)]
    for rows, mean_s in ((t1, 72.5), (t2, 1960)):
        jobs = [Job(f"J{i}", gpus=g, submit_s=float(at), gpu_s=d) for i, (g, at, d) in enumerate(rows)]
        assert replay(Srtf(), FOUR, jobs).total_jct_s / len(jobs) == pytest.approx(mean_s)


def test_srtf_stops_a_job_for_a_strictly_shorter_one_only():
    running = Job("running", gpu_s=100, on="n/0", done=0.5)
    for seconds, stops in ((49, {"running"}), (50, set()), (51, set())):
        view = cluster_view(ONE, [running, Job("new", gpu_s=seconds)])
        plan = Srtf().plan(view)
        assert plan.stopped == stops
        assert ("new" in plan.started) == bool(stops)
        assert plan.reasons


def test_srtf_counts_what_is_left_not_the_whole():
    jobs = [Job("nearly-done", gpu_s=1000, done=0.999), Job("short", gpu_s=5)]
    assert list(Srtf().plan(cluster_view(ONE, jobs)).started) == ["nearly-done"]


def test_srtf_stops_the_longest_and_only_as_many_as_needed():
    jobs = [Job(f"r{i}", gpu_s=100 + i, on=f"n/{i}") for i in (3, 1, 0, 2)]
    view = cluster_view(FOUR, [*jobs, Job("wide", gpu_s=10, gpus=2)])
    plan = Srtf().plan(view)
    assert plan.stopped == {"r2", "r3"}
    assert places(view, plan)["wide"] == "n/2 n/3"
    assert plan.reasons["r3"] == "stopped with 103 s remaining: shorter jobs take its place"


def test_srtf_prefers_free_devices_and_moves_nobody():
    jobs = [Job("long", gpu_s=100, on="n/0", done=0.5), Job("short", gpu_s=10), Job("wide", gpu_s=10, gpus=2)]
    view = cluster_view(TWO, jobs)
    assert places(view, Srtf().plan(view)) == {"long": "n/0", "short": "n/1"}


def test_srtf_leaves_those_alone_whose_place_would_not_help():
    """The longest job runs on a node where the wide job doesn't fit, so stopping it would be useless."""
    nodes = [Node("small", gpus=1), Node("big", gpus=2)]
    jobs = [
        Job("longest", gpu_s=900, on="small/0"),
        Job("long", gpu_s=500, on="big/0"),
        Job("other", gpu_s=400, on="big/1"),
        Job("wide", gpu_s=10, gpus=2),
    ]
    plan = Srtf().plan(cluster_view(nodes, jobs))
    assert plan.stopped == {"long", "other"}


def test_srtf_stops_nobody_if_that_is_not_enough():
    jobs = [Job("short", gpu_s=5, on="n/0"), Job("long", gpu_s=500, on="n/1"), Job("wide", gpu_s=10, gpus=2)]
    plan = Srtf().plan(cluster_view(TWO, jobs))
    assert (plan.stopped, plan.started) == (frozenset(), {})


def test_srtf_backfills_what_a_stopped_job_leaves():
    jobs = [Job("wide", gpu_s=100, gpus=4, on="n/0 n/1 n/2 n/3"), Job("short", gpu_s=10), Job("longer", gpu_s=200)]
    view = cluster_view(FOUR, jobs)
    plan = Srtf().plan(view)
    assert plan.stopped == {"wide"}
    assert set(plan.started) == {"short", "longer"}


def test_srtf_takes_the_place_of_a_stopping_job_before_it_stops_another():
    jobs = [
        Job("stopping", gpu_s=300, on="n/0", phase=Phase.STOPPING),
        Job("running", gpu_s=200, on="n/1"),
        Job("short", gpu_s=10),
    ]
    view = cluster_view(TWO, jobs)
    plan = Srtf().plan(view)
    assert (plan.stopped, places(view, plan)["short"]) == (frozenset(), "n/0")


def test_srtf_never_starts_a_stopping_job_nor_counts_its_place_twice():
    jobs = [Job("stopping", gpu_s=1, on="n/0", phase=Phase.STOPPING), Job("a", gpu_s=10), Job("b", gpu_s=20)]
    plan = Srtf().plan(cluster_view(ONE, jobs))
    assert set(plan.started) == {"a"}


def test_srtf_of_equal_victims_stops_the_one_that_came_last():
    jobs = [Job("first", gpu_s=50, on="n/0"), Job("second", gpu_s=50, on="n/1"), Job("new", gpu_s=10)]
    assert Srtf().plan(cluster_view(TWO, jobs)).stopped == {"second"}
    apart = [replace(job, on=on) for job, on in zip(jobs, ("a/0", "b/0", ""), strict=True)]
    assert Srtf().plan(cluster_view([Node("a", gpus=1), Node("b", gpus=1)], apart)).stopped == {"second"}
    assert Srtf().plan(cluster_view([Node("b", gpus=1), Node("a", gpus=1)], apart)).stopped == {"second"}


def test_srtf_refuses_unusable_estimates_of_running_jobs():
    with pytest.raises(PolicyError, match="job 'odd'"):
        Srtf().plan(cluster_view(TWO, [Job("odd", gpu_s=float("nan"), on="n/0")]))


def test_las_serves_jobs_with_little_service_first():
    jobs = [Job("served", gpu_s=9, attained_gpu_s=60.0), Job("fresh", gpu_s=9, attained_gpu_s=59.9)]
    assert list(Las().plan(cluster_view(ONE, jobs)).started) == ["fresh"]


def test_las_is_fifo_inside_a_queue():
    jobs = [Job("a", gpu_s=9, attained_gpu_s=50.0), Job("b", gpu_s=9), Job("c", gpu_s=9)]
    assert list(Las().plan(cluster_view(TWO, jobs)).started) == ["a", "b"]


@pytest.mark.parametrize(
    ("attained_s", "ran_s", "stops"),
    [(60, 10, True), (60, 9.9, False), (49, 10, False), (50, 10, True), (0, 61, True), (0, 59, False)],
)
def test_las_stops_a_job_past_threshold_and_quantum(attained_s, ran_s, stops):
    running = Job("old", gpu_s=900, on="n/0", attained_gpu_s=float(attained_s), running_since_s=100.0 - ran_s)
    plan = Las().plan(cluster_view(ONE, [running, Job("new", gpu_s=9)], now_s=100.0))
    assert plan.stopped == ({"old"} if stops else set())


def test_las_stops_the_youngest_of_the_second_queue_and_nobody_of_the_first():
    jobs = [
        Job("a", gpu_s=900, on="n/0", attained_gpu_s=500.0),
        Job("b", gpu_s=900, on="n/1", attained_gpu_s=80.0),
        Job("c", gpu_s=900, on="n/2", running_since_s=90.0),
    ]
    view = cluster_view(
        [Node("n", gpus=3)], [*jobs, Job("new", gpu_s=9), Job("new2", gpu_s=9), Job("new3", gpu_s=9)], now_s=100.0
    )
    plan = Las().plan(view)
    assert plan.stopped == {"a", "b"}
    assert places(view, plan) == {"c": "n/2", "new": "n/1", "new2": "n/0"}


def test_las_does_not_stop_a_job_for_one_of_its_own_queue():
    jobs = [Job("runs", gpu_s=900, on="n/0", attained_gpu_s=500.0), Job("waits", gpu_s=9, attained_gpu_s=70.0)]
    plan = Las().plan(cluster_view(ONE, jobs, now_s=100.0))
    assert (plan.stopped, plan.wake_at_s) == (frozenset(), None)


def test_las_wakes_when_a_running_job_reaches_the_threshold():
    """Two GPUs attain two GPU-seconds a second: 60 - 20 are reached after 20 s, since the run began at 0."""
    running = Job("two", gpu_s=900, gpus=2, on="n/0 n/1", attained_gpu_s=20.0)
    assert Las().plan(cluster_view(TWO, [running, Job("new", gpu_s=9)], now_s=5.0)).wake_at_s == pytest.approx(20.0)


def test_las_wakes_at_the_end_of_a_quantum():
    running = Job("old", gpu_s=900, on="n/0", attained_gpu_s=500.0, running_since_s=95.0)
    assert Las().plan(cluster_view(ONE, [running, Job("new", gpu_s=9)], now_s=100.0)).wake_at_s == pytest.approx(105.0)
    assert Las(quantum_s=30).plan(cluster_view(ONE, [running, Job("new", gpu_s=9)], now_s=100.0)).wake_at_s == 125.0


def test_las_does_not_wake_if_nobody_of_the_first_queue_waits():
    running = Job("old", gpu_s=900, on="n/0")
    for others in ([], [Job("waits", gpu_s=9, attained_gpu_s=90.0)]):
        assert Las().plan(cluster_view(ONE, [running, *others], now_s=5.0)).wake_at_s is None


def test_las_wake_counts_the_decision_and_service_from_the_allocation_on():
    """The job holds its GPU from 1 s on: it has 60 GPU-seconds at 61 s, although its first step begins at 3 s."""
    costs = ClusterCosts(decide_s=1.0, start_s=2.0)
    plan = Las().plan(cluster_view(ONE, [Job("a", gpu_s=900), Job("b", gpu_s=900)], costs=costs))
    assert (list(plan.started), plan.wake_at_s) == (["a"], pytest.approx(61.0))


@pytest.mark.parametrize(("done", "quantum_ends_s"), [(0.0, 22.0), (0.5, 26.0)])
def test_las_quantum_begins_with_the_first_step(done, quantum_ends_s):
    """Held since 10 s; a start takes 2 s, and 4 s more from a checkpoint."""
    costs = ClusterCosts(start_s=2.0, restore_s=4.0)
    old = Job("old", gpu_s=900, on="n/0", done=done, attained_gpu_s=500.0, running_since_s=10.0)
    for now_s, stopped in ((quantum_ends_s - 0.1, set()), (quantum_ends_s, {"old"})):
        plan = Las().plan(cluster_view(ONE, [old, Job("new", gpu_s=9)], now_s=now_s, costs=costs))
        assert plan.stopped == stopped
        assert plan.wake_at_s == (None if stopped else pytest.approx(quantum_ends_s))


def test_las_looks_again_soon_but_not_at_once_at_a_job_that_starts_late():
    jobs = [Job("late", gpu_s=900, on="n/0", phase=Phase.STARTING, attained_gpu_s=59.9999), Job("b", gpu_s=900)]
    plan = Las(quantum_s=0).plan(cluster_view(ONE, jobs, now_s=7.0))
    assert plan.wake_at_s == pytest.approx(7.001)


def test_las_counts_run_time_on_cpus(replay):
    """One CPU slot: both jobs run 20 s in turns, the stopped runs are remembered, then in order of submission."""
    jobs = [Job("a", cpu_s=50), Job("b", cpu_s=50, submit_s=1.0)]
    run = replay(Las(threshold_s=20, quantum_s=5), [Node("c", cpus=1)], jobs)
    assert run.moves == [(0, "a", "c"), (20, "a", ""), (20, "b", "c"), (70, "a", "c")]
    assert run.finish_s == pytest.approx({"a": 100, "b": 70})


@pytest.mark.parametrize("options", [{"threshold_s": 1e9}, {"threshold_s": 1e12}, {"quantum_s": 1e12}])
def test_las_can_be_told_to_stop_nobody(replay, options):
    """A threshold, or a quantum, that no job gets to: demotion is switched off, or preemption."""
    jobs = [Job("a", cpu_s=500), Job("b", cpu_s=50, submit_s=1.0)]
    run = replay(Las(**options), [Node("c", cpus=1)], jobs)
    assert run.moves == [(0, "a", "c"), (500, "b", "c")]


def test_las_remembers_cpu_runs_that_it_ended():
    policy = Las(threshold_s=20, quantum_s=5)
    nodes = [Node("c", cpus=1)]
    first = policy.plan(cluster_view(nodes, [Job("a", cpu_s=50, on="c", row=0), Job("b", cpu_s=50, row=1)], now_s=20.0))
    assert first.stopped == {"a"}
    waits = Job("a", cpu_s=50, row=0, queued_since_s=20.0)
    plan = policy.plan(cluster_view(nodes, [waits, Job("new", cpu_s=5, row=2)], now_s=30.0, after=first))
    assert list(plan.started) == ["new"]
    fresh = policy.plan(cluster_view(nodes, [waits, Job("new", cpu_s=5, row=2)], now_s=30.0))
    assert list(fresh.started) == ["a"]


def test_las_timeline_two_jobs_on_one_gpu(replay):
    """a runs alone until the threshold; b preempts it at 60, when its service is 60; b isn't preempted at its own threshold."""
    jobs = [Job("a", gpu_s=100), Job("b", gpu_s=100, submit_s=5.0), Job("c", gpu_s=10, submit_s=65.0)]
    run = replay(Las(), ONE, jobs)
    assert run.moves == [
        (0, "a", "n/0"),
        (60, "a", ""),
        (60, "b", "n/0"),
        (120, "b", ""),
        (120, "c", "n/0"),
        (130, "a", "n/0"),
        (170, "b", "n/0"),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"threshold_s": 0.0},
        {"threshold_s": float("nan")},
        {"threshold_s": 1e300},
        {"quantum_s": -1.0},
        {"quantum_s": float("inf")},
    ],
)
def test_las_options_are_checked(options):
    with pytest.raises(InputError, match=f"las: {next(iter(options))}: must be from 0.* to 1e\\+12 seconds"):
        Las(**options)


@pytest.mark.parametrize("policy", [Srtf(), Las()])
def test_an_empty_cluster_or_queue_is_fine(policy):
    assert policy.plan(cluster_view(FOUR, [])).started == {}
    assert policy.plan(cluster_view([], [Job("a", gpu_s=1)])).started == {}


def test_srtf_asks_for_the_progress_of_those_only_that_may_have_to_stop():
    """An earlier result is an upper bound: r0 is no candidate, so its place isn't computed again."""
    jobs = [Job("r0", gpu_s=50, on="n/0", row=0), Job("r1", gpu_s=500, on="n/1", row=1)]
    later = [replace(jobs[0], done=0.2), replace(jobs[1], done=0.7)]
    for seconds, stopped in ((200, set()), (100, {"r1"})):  # r1 has 150 s left
        first = Srtf().plan(cluster_view(TWO, jobs))
        view = cluster_view(TWO, [*later, Job("w", gpu_s=seconds, row=2)], after=first)
        asked: list[str] = []
        progress = view.observed_steps
        watched = replace(
            view, changes=frozenset({"w"}), observed_steps=lambda j, p=progress, a=asked: a.append(j) or p(j)
        )
        assert Srtf().plan(watched).stopped == stopped
        assert asked == ["r1"]


def test_las_jobs_of_the_second_queue_may_be_planned_where_another_stops():
    jobs = [Job("old", gpu_s=900, on="n/0", phase=Phase.STOPPING), Job("waits", gpu_s=9, attained_gpu_s=99.0)]
    view = cluster_view(ONE, jobs)
    assert places(view, Las().plan(view))["waits"] == "n/0"


def test_room_is_made_on_the_node_where_the_most_deserving_loses_least():
    """Two jobs of 300 and 200 s on a, of 900 and 100 s on b: the 200 s one stops rather than the 100 s one."""
    nodes = [Node("b", gpus=2), Node("a", gpus=2)]
    places_ = {"a/0": 300, "a/1": 200, "b/0": 900, "b/1": 100}
    jobs = [Job(f"j{seconds}", gpu_s=seconds, on=on) for on, seconds in places_.items()]
    assert Srtf().plan(cluster_view(nodes, [*jobs, Job("w", gpu_s=9, gpus=2)])).stopped == {"j300", "j200"}
    assert Srtf().plan(cluster_view(nodes, [*jobs, Job("w", gpu_s=9)])).stopped == {"j900"}


def test_a_small_job_that_gives_way_in_vain_keeps_its_place():
    """Stopping the wide job is enough; the narrow job, although it has more time left, continues."""
    jobs = [
        Job("narrow", gpu_s=900, on="n/0"),
        Job("wide", gpu_s=500, gpus=3, on="n/1 n/2 n/3"),
        Job("new", gpu_s=9, gpus=3),
    ]
    plan = Srtf().plan(cluster_view(FOUR, jobs))
    assert plan.stopped == {"wide"}
