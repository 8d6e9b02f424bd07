"""SRSF, smallest first, backfill with reservations, rounds, and finish-time fairness, on cases worked by hand."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError, PolicyError
from scheduler_sims.policies.placing import FreeSpace, main_configuration
from scheduler_sims.policies.queueing.backfill import Timeline
from scheduler_sims.policies.queueing.themis import Claim, fair_shares
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view, places

FOUR = [Node("n", gpus=4)]
T1 = [
    Job("0", gpu_s=100, gpus=4),
    Job("1", gpu_s=50, gpus=2, submit_s=10),
    Job("2", gpu_s=30, gpus=2, submit_s=20),
    Job("3", gpu_s=20, gpus=1, submit_s=30),
]


def policy(text):
    return resolve_policy(text)[1]


def finishes(simulate, text, nodes, jobs, **costs):
    run = simulate(policy(text), nodes, jobs, **costs)
    return {job.job_id: round(run.records[job.job_id].finish_s, 3) for job in jobs}


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("fifo", (100, 150, 130, 150)),
        ("fifo:backfill=any", (100, 150, 130, 150)),
        ("smallest-first", (160, 60, 70, 50)),
        ("srsf", (160, 60, 70, 50)),
    ],
)
def test_four_jobs_on_four_gpus_by_hand(simulate, text, ends):
    found = finishes(simulate, text, FOUR, T1)
    if text == "srsf":  # job 0 has 360 GPU-seconds left at 10 s, job 1 100 of them
        assert found["0"] == max(found.values())
        assert found["3"] == 50
        return
    assert tuple(found.values()) == ends


BACKFILL = [
    Job("runs", gpu_s=100, gpus=3),
    Job("wide", gpu_s=50, gpus=4, submit_s=1),
    Job("long", gpu_s=200, gpus=1, submit_s=2),
    Job("short", gpu_s=90, gpus=1, submit_s=3),
]


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("fifo", {"wide": 100, "long": 150, "short": 150}),
        ("fifo:backfill=any", {"wide": 202, "long": 2, "short": 100}),
        ("fifo:backfill=easy", {"wide": 100, "long": 150, "short": 3}),
        ("fifo:backfill=conservative", {"wide": 100, "long": 150, "short": 3}),
    ],
)
def test_who_may_overtake_a_wide_job(simulate, text, starts):
    run = simulate(policy(text), FOUR, BACKFILL)
    assert {name: run.records[name].start_s for name in starts} == pytest.approx(starts, abs=0.01)


def test_easy_delays_the_second_waiting_job_where_conservative_does_not(simulate):
    """Two GPUs are free until `runs` ends at 100 s, when `first` gets its four; EASY lets `third` delay `second`."""
    jobs = [
        Job("runs", gpu_s=100, gpus=4),
        Job("first", gpu_s=40, gpus=5, submit_s=1),
        Job("second", gpu_s=40, gpus=3, submit_s=2),
        Job("third", gpu_s=300, gpus=1, submit_s=3),
        Job("fourth", gpu_s=50, gpus=1, submit_s=4),
    ]
    nodes = [Node("n", gpus=6)]
    easy, conservative = (
        simulate(policy(f"fifo:backfill={kind}"), nodes, jobs).records for kind in ("easy", "conservative")
    )
    assert easy["first"].start_s == conservative["first"].start_s == pytest.approx(100)
    assert conservative["second"].start_s <= easy["second"].start_s
    assert all(conservative[job.job_id].start_s is not None for job in jobs)


def test_a_reservation_moves_only_where_it_fits_for_the_whole_time():
    view = cluster_view([Node("a", gpus=2), Node("b", gpus=1)], [Job("x", gpu_s=10, gpus=2), Job("y", gpu_s=10)])
    wide, one = (main_configuration(view, view.jobs[name]) for name in "xy")
    line = Timeline(0.0, FreeSpace.now(view))
    assert line.reserve(wide, 10)[0] == 0
    assert line.reserve(wide, 10)[0] == 10
    at_s, place = line.reserve(one, 15)
    assert (at_s, place.nodes) == (0, ("b",))
    assert line.reserve(one, 15, only_now=True) is None
    assert line.reserve(one, 15)[0] == 15


@pytest.mark.parametrize("text", ["fifo:backfill=easy", "srsf", "ftf", "themis", "muri-s"])
def test_policies_that_need_run_times_say_so(text):
    assert policy(text).needs_estimates
    view = cluster_view(FOUR, [Job("a", gpu_s=5), Job("b", gpu_s=5, gpus=4)], estimates=False)
    with pytest.raises(PolicyError, match="--estimates"):
        policy(text).plan(view)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("fifo:backfill=some", "backfill"),
        ("tiresias:limits=7/3", "limits"),
        ("tiresias:limits=x", "limits"),
        ("tiresias:promote=-1", "promote"),
        ("tiresias:fidelity=loose", "fidelity"),
        ("gittins:delta=0", "delta"),
        ("gittins:history=none.csv", "none.csv"),
        ("ftf:fidelity=x", "fidelity"),
        ("themis:fidelity=x", "fidelity"),
        ("muri-s:fidelity=x", "fidelity"),
        ("rounds:of=rounds", "another policy"),
        ("rounds:of=synergy", "rounds of its own"),
        ("rounds:round_s=0", "round_s"),
        ("placed:of=placed", "another policy"),
        ("placed:rule=near", "rule"),
    ],
)
def test_a_wrong_option_is_named(text, part):
    with pytest.raises(InputError, match=part):
        policy(text)


def test_a_history_without_numbers_is_refused_with_its_line(tmp_path):
    (tmp_path / "history.csv").write_text("gpu_s\n12\nmany\n")
    with pytest.raises(InputError, match=r"history.csv:3"):
        policy(f"gittins:history={tmp_path / 'history.csv'}")
    (tmp_path / "history.csv").write_text("gpu_s\n")
    with pytest.raises(InputError, match="at least one number"):
        policy(f"gittins:history={tmp_path / 'history.csv'}")


def test_in_rounds_jobs_start_when_a_round_begins_and_end_when_they_are_done(simulate):
    jobs = [
        Job("a", gpu_s=50, gpus=4),
        Job("b", gpu_s=500, gpus=4, submit_s=10),
        Job("c", gpu_s=30, gpus=4, submit_s=370),
    ]
    run = simulate(policy("rounds:of=srtf"), FOUR, jobs)
    assert run.records["b"].start_s == pytest.approx(360)
    assert run.records["c"].start_s == pytest.approx(720, abs=1e-3)
    assert run.records["c"].finish_s == pytest.approx(750, abs=1e-3)
    assert run.records["b"].finish_s == pytest.approx(1080 + 500 - 360, abs=1e-3)
    assert run.records["b"].preemptions == 1


def test_the_most_unfair_job_goes_first_and_as_coded_the_least():
    jobs = [Job("old", gpu_s=100, gpus=4, row=0), Job("new", gpu_s=100, gpus=4, submit_s=50, row=1)]
    view = cluster_view(FOUR, jobs, now_s=60)
    assert set(places(view, policy("ftf").plan(view))) == {"old"}
    assert set(places(view, policy("ftf:fidelity=as_coded").plan(view))) == {"new"}


def test_fair_shares_make_the_worst_ratio_as_small_as_possible():
    """Two equal jobs on one GPU: each gets half, and ends as it does with its equal share."""
    shares = fair_shares([Claim(1, 0.0, 10.0, 20.0), Claim(1, 0.0, 10.0, 20.0)], 1)
    assert shares == pytest.approx([0.5, 0.5])
    aged = fair_shares([Claim(1, 0.0, 10.0, 20.0), Claim(1, 30.0, 10.0, 20.0)], 1)
    assert aged[1] > aged[0]
    assert sum(aged) == pytest.approx(1.0)
    assert fair_shares([Claim(4, 0.0, 10.0, 20.0)], 4) == pytest.approx([1.0])


QUOTAS = "quota:gpus=a:2;b:2"


def test_a_tenant_borrows_what_is_idle_and_gives_it_back(simulate):
    """Tenant b comes at 10 s and wants its two GPUs: the job of a that started last gives way, and resumes when b is done."""
    jobs = [
        Job("a0", gpu_s=100, gpus=2, user="a"),
        Job("a1", gpu_s=50, gpus=1, submit_s=1, user="a"),
        Job("a2", gpu_s=50, gpus=1, submit_s=2, user="a"),
        Job("b0", gpu_s=20, gpus=1, submit_s=10, user="b"),
    ]
    run = simulate(policy(QUOTAS), FOUR, jobs)
    found = {
        name: (round(record.start_s), round(record.finish_s), record.preemptions)
        for name, record in run.records.items()
    }
    assert found == {"a0": (0, 100, 0), "a1": (1, 51, 0), "a2": (2, 72, 1), "b0": (10, 30, 0)}


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("quota:gpus=a:2;b:2,borrow=0", {"a0": 0, "a1": 50, "b0": 5}),
        ("quota:gpus=a:2;b:2,borrow=1", {"a0": 0, "a1": 50, "b0": 5}),
        ("quota:gpus=a:2;b:2,borrow=2", {"a0": 0, "a1": 1, "b0": 5}),
        ("quota:gpus=a:2;*:2,borrow=0", {"a0": 0, "a1": 50, "b0": 5}),
        ("quota:gpus=a:4", {"a0": 0, "a1": 1, "b0": 50}),
        ("quota", {"a0": 0, "a1": 1, "b0": 5}),
    ],
)
def test_how_much_a_tenant_borrows(simulate, text, starts):
    """Four GPUs. The second job of a would be above its quota of two by two."""
    jobs = [
        Job("a0", gpu_s=50, gpus=2, user="a"),
        Job("a1", gpu_s=50, gpus=2, submit_s=1, user="a"),
        Job("b0", gpu_s=10, gpus=2, submit_s=5, user="b"),
    ]
    run = simulate(policy(text), FOUR, jobs)
    assert {name: round(run.records[name].start_s) for name in starts} == starts


def test_who_borrowed_most_gives_back_and_who_borrowed_least_borrows_next():
    """Quotas of one on six GPUs: a has borrowed two, b one; c takes its own back from a, and a free GPU goes to b."""
    held = [Job(f"a{n}", 100, user="a", on=f"n/{n}", running_since_s=n) for n in range(3)]
    held += [Job(f"b{n}", 100, user="b", on=f"n/{n + 3}", running_since_s=n) for n in range(2)]
    full = [*held, Job("d", 100, user="d", on="n/5"), Job("c", 100, user="c")]
    plan = policy("quota:gpus=*:1").plan(cluster_view([Node("n", gpus=6)], full))
    assert (set(plan.stopped), set(plan.started)) == ({"a2"}, {"c"})
    idle = [*held, Job("a3", 100, user="a"), Job("b2", 100, user="b")]
    plan = policy("quota:gpus=*:1").plan(cluster_view([Node("n", gpus=6)], idle))
    assert (set(plan.stopped), set(plan.started)) == (set(), {"b2"})


def test_a_job_above_its_quota_does_not_hold_up_the_smaller_ones_behind_it(simulate):
    jobs = [
        Job("large", gpu_s=10, gpus=4, user="a"),
        Job("small", gpu_s=10, gpus=2, submit_s=1, user="a"),
        Job("b", gpu_s=30, gpus=2, user="b"),
    ]
    run = simulate(policy("quota:gpus=a:2;b:2,borrow=2"), FOUR, jobs)
    assert round(run.records["small"].start_s) == 1


def test_jobs_that_wait_for_a_quota_say_so():
    view = cluster_view([Node("n", gpus=4)], [Job("a0", 100, gpus=3, user="a"), Job("a1", 100, gpus=2, user="a")])
    plan = policy("quota:gpus=a:3,borrow=1").plan(view)
    assert list(plan.started) == ["a0"]
    assert plan.reasons["a1"] == "waits for 2 GPUs: a has 3 of its quota of 3 and 1 that it may borrow"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("quota:gpus=a", "'a' is no quota; write TENANT:GPUS, such as alice:8;bob:4"),
        ("quota:gpus=a:x", "'a:x' is no quota"),
        ("quota:gpus=a:-1", "'a:-1' is no quota"),
        ("quota:gpus=:3", "':3' is no quota"),
        ("quota:gpus=a:1;a:2", "tenant 'a' is given twice"),
        ("quota:borrow=-2", "must be a number of GPUs, or -1"),
    ],
)
def test_quotas_that_cannot_be_read(text, error):
    with pytest.raises(InputError, match=error):
        policy(text)
