"""Devices that several jobs share: who gets their time when, what is repeated, what is taken back."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import ClusterError, OutOfMemoryError, ProtocolError, RefusedError
from emulator_runtime.domain.gpu import Device, device_uuid
from emulator_runtime.domain.units import GIB
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.sharing.demands import Demand, Piece, Terms
from emulator_runtime.sharing.modes import MODES
from sharing_manager.persistence.interval_table import IntervalFile

MS, S = 1_000_000, 1_000_000_000
UUIDS = [device_uuid("n1", index) for index in range(3)]
SHARED = [name for name, mode in MODES.items() if mode.shared]
PICKING = ["fifo", "fair", "weighted", "priority", "srtf"]


@pytest.fixture
def shared(make_node):
    """`shared(mode)`: a node whose clock stands at 0, with these jobs attached to its first device."""

    def shared(mode, *jobs, priority=None, **shares):
        node = make_node(f"{mode}.db", mode)
        node.clock._now_ns = 0
        grants = {}
        for row, job in enumerate(jobs):
            terms = Terms(row, milli=shares.get(job, 1000), priority=(priority or {}).get(job, 0))
            grant = node.manager.grant(job, UUIDS[:1], 0, [terms])
            grants[job] = node.manager.attach(node.token(grant), job, 0, 0)
        return node, grants

    return shared


def ask(node, grant, number, ready_ns, work_ns, uuid=UUIDS[0], **more):
    node.manager.demand(grant.main, uuid, Demand(grant.holder, number, ready_ns, work_ns, **more))


def decide(node, until_ns):
    """What is decided by then, as (job, number, start, end)."""
    node.clock.advance_to_ns(max(until_ns, node.clock.now_ns()))
    return [
        (each.session.grant.job_id, each.answer.sequence, each.answer.piece.start_ns, each.answer.piece.end_ns)
        for each in node.manager.decide(until_ns)
    ]


@pytest.mark.parametrize("mode", SHARED)
def test_a_job_alone_is_served_when_it_is_ready(shared, mode):
    node, grants = shared(mode, "a")
    ask(node, grants["a"], 0, 0, 10 * MS)
    assert decide(node, 10 * MS) == [("a", 0, 0, 10 * MS)]
    assert grants["a"].leased_ns == 10 * MS
    (device, *_) = node.manager.telemetry().devices
    assert (device.leased_ns, device.utilisation) == (10 * MS, 0.01)


@pytest.mark.parametrize("mode", PICKING)
def test_a_busy_device_decides_when_it_is_free_and_says_when_that_is(shared, mode):
    node, grants = shared(mode, "a", "b")
    ask(node, grants["a"], 0, 0, 10 * MS)
    assert node.manager.next_decision_ns() == 0
    assert decide(node, 0) == [("a", 0, 0, 10 * MS)]
    ask(node, grants["b"], 0, 2 * MS, 5 * MS)
    assert node.manager.next_decision_ns() == 10 * MS
    assert decide(node, 10 * MS - 1) == []
    assert decide(node, 10 * MS) == [("b", 0, 10 * MS, 15 * MS)]
    assert node.manager.next_decision_ns() is None


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_readiness_counts_and_not_arrival(shared, order):
    node, grants = shared("fifo", "a", "b")
    ready = {"a": 3 * MS, "b": 2 * MS}
    for job in order:
        ask(node, grants[job], 0, ready[job], MS)
    assert decide(node, 5 * MS) == [("b", 0, 2 * MS, 3 * MS), ("a", 0, 3 * MS, 4 * MS)]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_equal_jobs_the_first_of_the_workload_is_served_first(shared, order):
    node, grants = shared("fifo", "a", "b")
    for job in order:
        ask(node, grants[job], 0, MS, MS)
    assert [job for job, *_ in decide(node, 5 * MS)] == ["a", "b"]


def shares_of(node, grants, steps, **remaining):
    """Device time of each job while all of them always have a demand queued, over `steps` steps of 1 ms."""
    served, number = dict.fromkeys(grants, 0), dict.fromkeys(grants, 0)
    for job, grant in grants.items():
        ask(node, grant, 0, 0, MS, remaining_ns=remaining.get(job, 0))
    while sum(served.values()) < steps:
        for job, _, start_ns, end_ns in decide(node, node.manager.next_decision_ns()):
            served[job] += 1
            number[job] += 1
            ask(node, grants[job], number[job], end_ns, MS, remaining_ns=remaining.get(job, 0))
            assert end_ns - start_ns == MS
    return served


def test_weights_give_their_shares(shared):
    node, grants = shared("weighted", "a", "b", a=750, b=250)
    assert shares_of(node, grants, 400) == {"a": 300, "b": 100}


def test_the_higher_priority_goes_first(shared):
    node, grants = shared("priority", "a", "b", priority={"b": 7})
    assert shares_of(node, grants, 100) == {"a": 0, "b": 100}


def test_the_job_with_less_work_left_goes_first(shared):
    node, grants = shared("srtf", "a", "b")
    assert shares_of(node, grants, 100, a=50 * MS, b=20 * MS) == {"a": 0, "b": 100}


def test_the_weight_of_a_job_survives_a_restart(shared):
    node, grants = shared("weighted", "a", "b", a=750, b=250)
    node.crash()
    for job, grant in grants.items():
        grants[job] = node.manager.attach(node.token(grant), job, 0, 0)
    assert shares_of(node, grants, 400) == {"a": 300, "b": 100}


def test_all_at_once_get_their_caps(shared):
    node, grants = shared("mps", "a", "b", a=250, b=500)
    for grant in grants.values():
        ask(node, grant, 0, 0, 10 * MS)
    assert decide(node, 40 * MS) == [("b", 0, 0, 20 * MS), ("a", 0, 0, 40 * MS)]
    assert [grant.leased_ns for grant in grants.values()] == [10 * MS] * 2
    (device, *_) = node.manager.telemetry().devices
    assert device.utilisation == 0.04  # the device was in use for 40 ms of the last second


@pytest.mark.parametrize("mode", SHARED)
def test_a_repeated_demand_has_the_same_answer_also_after_a_restart(shared, mode):
    node, grants = shared(mode, "a")
    ask(node, grants["a"], 7, 0, 10 * MS)
    first = decide(node, 10 * MS)
    ask(node, grants["a"], 7, 0, 10 * MS)
    assert decide(node, 10 * MS) == first
    node.crash()
    grant = node.manager.attach(node.token(grants["a"]), "a", 0, 0)
    ask(node, grant, 7, 0, 10 * MS)
    assert decide(node, 10 * MS) == first
    ask(node, grant, 8, 10 * MS, MS)
    assert decide(node, 11 * MS) == [("a", 8, 10 * MS, 11 * MS)]
    with pytest.raises(ProtocolError, match="demand 7 is out of order: demand 8 has been answered"):
        ask(node, grant, 7, 0, 10 * MS)


@pytest.mark.parametrize("mode", SHARED)
def test_a_repeated_demand_with_other_work_has_the_same_answer(shared, mode):
    node, grants = shared(mode, "a")
    ask(node, grants["a"], 0, 0, 10 * MS)
    (first,) = node.manager.decide(10 * MS)
    ask(node, grants["a"], 0, 0, 500 * S)
    (again,) = node.manager.decide(10 * MS)
    assert again.answer.piece == first.answer.piece == Piece(0, 10 * MS, 10 * MS)


@pytest.mark.parametrize("mode", PICKING)
def test_after_a_restart_a_device_is_not_free_before_what_it_does_has_ended(shared, mode):
    node, grants = shared(mode, "a", "b")
    ask(node, grants["a"], 0, 0, 10 * MS)
    decide(node, 0)
    node.crash()
    grant = node.manager.attach(node.token(grants["b"]), "b", 0, 0)
    ask(node, grant, 0, MS, MS)
    assert decide(node, 20 * MS) == [("b", 0, 10 * MS, 11 * MS)]


def test_a_demand_that_waits_is_replaced(shared):
    node, grants = shared("fifo", "a", "b")
    ask(node, grants["a"], 0, 0, 10 * MS)
    ask(node, grants["b"], 0, 0, 5 * MS)
    decide(node, 0)
    ask(node, grants["b"], 0, 0, 3 * MS)
    assert decide(node, 20 * MS) == [("b", 0, 10 * MS, 13 * MS)]


@pytest.mark.parametrize("mode", SHARED)
def test_who_leaves_frees_what_was_not_done(shared, mode):
    node, grants = shared(mode, "a", "b")
    ask(node, grants["a"], 0, 0, 10 * MS)
    decide(node, 4 * MS)
    ask(node, grants["b"], 0, 4 * MS, 2 * MS)
    node.manager.fail(grants["a"], "killed")
    assert decide(node, 20 * MS) == [("b", 0, 4 * MS, 6 * MS)]


def test_a_device_was_in_use_until_a_run_ended_also_after_a_restart(shared):
    node, grants = shared("fifo", "a", "b")
    ask(node, grants["a"], 0, 0, 500 * MS)
    decide(node, 4 * MS)
    node.manager.fail(grants["a"], "killed")
    for _ in range(2):
        node.crash()
        grant = node.manager.attach(node.token(grants["b"]), "b", 0, 0)
    ask(node, grant, 0, 2 * MS, MS)
    assert decide(node, 20 * MS) == [("b", 0, 4 * MS, 5 * MS)]


def test_after_an_aborted_run_a_restarted_manager_does_not_wait_for_it(shared):
    node, grants = shared("fifo", "a", "b")
    ask(node, grants["a"], 0, 0, 500 * MS)
    decide(node, 4 * MS)
    node.manager.fail(grants["a"], "killed")
    node.crash()
    grant = node.manager.attach(node.token(grants["b"]), "b", 0, 0)
    ask(node, grant, 0, 5 * MS, MS)
    assert decide(node, 20 * MS) == [("b", 0, 5 * MS, 6 * MS)]


def test_a_stop_takes_back_what_waits_and_tells_the_job(shared):
    node, grants = shared("fifo", "a", "b")
    stops = []
    node.manager.on_stop = lambda of: stops.append((of, node.manager.last_number(of.main)))
    ask(node, grants["a"], 0, 0, 10 * MS)
    decide(node, 0)
    ask(node, grants["a"], 1, 10 * MS, 10 * MS)
    ask(node, grants["b"], 0, 10 * MS, MS)
    node.manager.stop("a")
    node.manager.stop("a")
    assert stops == [(grants["a"], 0)]
    ask(node, grants["a"], 1, 10 * MS, 10 * MS)  # it was under way
    assert decide(node, 20 * MS) == [("b", 0, 10 * MS, 11 * MS)]
    ask(node, grants["a"], 0, 0, 10 * MS)
    assert decide(node, 20 * MS) == [("a", 0, 0, 10 * MS)]  # a repeated one is answered
    node.manager.release(grants["a"], 1)
    assert node.manager.next_decision_ns() is None
    grant = node.manager.grant("a", UUIDS[:1], 1)
    grant = node.manager.attach(node.token(grant), "a", 1, 0)
    ask(node, grant, 1, 20 * MS, MS)
    assert decide(node, 30 * MS) == [("a", 1, 20 * MS, 21 * MS)]  # the next run


def test_a_stop_before_the_first_step(shared):
    node, grants = shared("fifo", "a", "b")
    stops = []
    node.manager.on_stop = lambda of: stops.append(node.manager.last_number(of.main))
    ask(node, grants["b"], 0, 0, 10 * MS)
    decide(node, 0)
    ask(node, grants["a"], 0, 0, MS)
    node.manager.stop("a")
    assert stops == [-1]
    assert decide(node, 20 * MS) == []


def test_a_step_that_is_served_beside_others_is_finished_before_a_stop(shared):
    node, grants = shared("mps", "a", "b")
    stops = []
    node.manager.on_stop = lambda of: stops.append(node.manager.last_number(of.main))
    for grant in grants.values():
        ask(node, grant, 0, 0, 10 * MS)
    decide(node, 5 * MS)
    ask(node, grants["a"], 1, 20 * MS, 10 * MS)
    node.manager.stop("a")
    assert stops == [0]
    assert decide(node, 40 * MS) == [("a", 0, 0, 20 * MS), ("b", 0, 0, 20 * MS)]


def test_a_step_that_one_of_two_devices_has_begun_is_finished_before_a_stop(make_node):
    node = make_node("manager.db", "fifo")
    node.clock._now_ns = 0
    both = node.manager.grant("both", UUIDS[:2], 0)
    both = node.manager.attach(node.token(both), "both", 0, 0)
    one = node.manager.grant("one", UUIDS[1:2], 0, [Terms(1)])
    one = node.manager.attach(node.token(one), "one", 0, 0)
    stops = []
    node.manager.on_stop = lambda of: stops.append(node.manager.last_number(of.main))
    ask(node, one, 0, 0, 5 * MS, uuid=UUIDS[1])
    decide(node, 0)
    for uuid in UUIDS[:2]:
        ask(node, both, 0, MS, MS, uuid=uuid)
    decide(node, 2 * MS)
    node.manager.stop("both")
    assert stops == [0]
    assert decide(node, 10 * MS) == [("both", 0, 5 * MS, 6 * MS)]


def test_a_job_that_is_to_stop_learns_it_again_after_a_restart(shared):
    node, grants = shared("fifo", "a")
    ask(node, grants["a"], 4, 0, MS)
    decide(node, 0)
    node.manager.stop("a")
    node.crash()
    grant = node.manager.attach(node.token(grants["a"]), "a", 0, 0)
    assert grant.stopping
    assert node.manager.last_number(grant.main) == 4


def test_a_job_can_not_claim_the_time_in_which_the_device_was_idle(shared):
    node, grants = shared("fifo", "a", "b")
    node.clock.advance_ns(60 * S)
    ask(node, grants["b"], 0, 60 * S - 5 * MS, MS)
    ask(node, grants["a"], 0, 0, MS)  # claims to have been ready for a minute
    assert decide(node, 60 * S) == [("a", 0, 59 * S, 59 * S + MS), ("b", 0, 60 * S - 5 * MS, 60 * S - 4 * MS)]
    assert node.manager.telemetry().late_total == 1


def test_after_a_restart_of_the_manager_a_late_demand_is_not_the_jobs_fault(shared):
    node, grants = shared("fifo", "a")
    ask(node, grants["a"], 0, 0, MS)
    decide(node, 0)
    node.clock.advance_ns(20 * S)
    node.crash()
    grant = node.manager.attach(node.token(grants["a"]), "a", 1, 0)
    node.clock.advance_ns(5 * S)
    ask(node, grant, 1, MS, MS)
    assert decide(node, 25 * S) == [("a", 1, MS, 2 * MS)]
    assert node.manager.telemetry().late_total == 0


def test_no_job_is_ready_before_its_own_last_step_has_ended(shared):
    """Otherwise who lies about it is always first in line."""
    node, grants = shared("fifo", "liar", "b")
    number = dict.fromkeys(grants, 0)
    for grant in grants.values():
        ask(node, grant, 0, 0, MS)
    served = []
    while len(served) < 20:
        for job, _, _, end_ns in decide(node, node.manager.next_decision_ns()):
            served.append(job)
            number[job] += 1
            ask(node, grants[job], number[job], 0 if job == "liar" else end_ns, MS)
    assert served.count("liar") == 10


def test_leaving_and_coming_back_is_no_way_to_the_front(shared):
    node, grants = shared("weighted", "a", "b")
    for grant in grants.values():
        ask(node, grant, 0, 0, 10 * MS)
    first = decide(node, 0)[0][0]
    other = "b" if first == "a" else "a"
    ask(node, grants[first], 1, 10 * MS, 10 * MS)
    node.manager.attach(node.token(grants[first]), first, 5, 0)
    node.manager.attach(node.token(grants[first]), first, 4, 0)  # its demands are numbered from anew
    ask(node, grants[first], 4, 10 * MS, 10 * MS)
    assert decide(node, 10 * MS)[0][0] == other


def test_a_repeated_demand_that_is_being_served_is_not_served_again(shared):
    node, grants = shared("mps", "a", "b")
    for grant in grants.values():
        ask(node, grant, 0, 0, 10 * MS)
    assert decide(node, 5 * MS) == []
    ask(node, grants["a"], 0, 0, 10 * MS)  # after a lost connection
    assert decide(node, 60 * MS) == [("a", 0, 0, 20 * MS), ("b", 0, 0, 20 * MS)]
    assert node.manager.next_decision_ns() is None


def test_a_repeated_demand_that_is_being_served_leaves_the_next_one_in_its_place(shared):
    node, grants = shared("mps", "a")
    ask(node, grants["a"], 0, 0, 10 * MS)
    assert decide(node, 5 * MS) == []
    ask(node, grants["a"], 1, 10 * MS, 20 * MS)
    ask(node, grants["a"], 0, 0, 10 * MS)
    assert decide(node, 60 * MS) == [("a", 0, 0, 10 * MS), ("a", 1, 10 * MS, 30 * MS)]
    assert grants["a"].leased_ns == 30 * MS


@pytest.mark.parametrize("mode", SHARED)
def test_a_demand_with_a_lower_number_than_the_one_that_waits_changes_nothing(shared, mode):
    node, grants = shared(mode, "a")
    ask(node, grants["a"], 3, 5 * MS, MS)
    ask(node, grants["a"], 2, 0, MS)
    assert decide(node, 10 * MS) == [("a", 3, 5 * MS, 6 * MS)]


def test_a_device_that_serves_all_at_once_is_in_use_before_it_answers(shared):
    node, grants = shared("mps", "a")
    ask(node, grants["a"], 0, 0, 10 * S)
    assert decide(node, 2 * S) == []
    (device, *_) = node.manager.telemetry().devices
    assert device.utilisation == 1.0
    decide(node, 10 * S)
    node.clock.advance_ns(S // 2)
    (device, *_) = node.manager.telemetry().devices
    assert device.utilisation == 0.5


def test_a_run_that_ends_after_a_restart_frees_the_device_of_its_last_piece(shared):
    node, grants = shared("fifo", "a", "b")
    ask(node, grants["a"], 0, 0, 500 * S)
    decide(node, 0)
    node.crash()
    node.manager.revoke("a", "its process died")
    grant = node.manager.attach(node.token(grants["b"]), "b", 0, 0)
    node.clock.advance_ns(MS)
    ask(node, grant, 0, MS, MS)
    assert decide(node, S) == [("b", 0, MS, 2 * MS)]


def test_progress_that_was_not_logged_does_not_forget_the_last_piece(shared):
    """The job knows better than the restarted manager how far it is; its unread answer must be the same."""
    node, grants = shared("fifo", "a")
    ask(node, grants["a"], 0, 0, 10 * MS)
    ask(node, grants["a"], 0, 0, 10 * MS)
    decide(node, 10 * MS)
    ask(node, grants["a"], 1, 10 * MS, 10 * MS)
    assert decide(node, 10 * MS) == [("a", 1, 10 * MS, 20 * MS)]  # nobody reads it
    node.crash()
    grant = node.manager.attach(node.token(grants["a"]), "a", 1, 0)
    ask(node, grant, 1, 10 * MS, 10 * MS)
    assert decide(node, 10 * MS) == [("a", 1, 10 * MS, 20 * MS)]


@pytest.mark.parametrize("mode", SHARED)
def test_a_demand_that_is_replaced_over_and_over_costs_no_memory(shared, mode):
    node, grants = shared(mode, "a", "b")
    ask(node, grants["a"], 0, 0, 10 * S)
    decide(node, 0)
    for number in range(5_000):
        ask(node, grants["b"], 0, 500 * S - number, MS)
    engine = node.pool.find(UUIDS[0]).engine
    assert len(engine._coming) < 500
    assert len(node.manager._shared._due_heap) < 500


def of_mode(mode, replicas):
    """An inventory of the first device, shared in this way."""
    entry = DeviceEntry(Device("n1", 0, "T", 16 * GIB))
    return Inventory("n1", (ResourceEntry("emugpu.dev/emuGPU", (entry,), replicas, sharing=mode),))


@pytest.mark.parametrize("after", ["exclusive", "weighted"])
def test_another_way_of_sharing_applies_when_the_demanding_jobs_have_ended(shared, after):
    node, grants = shared("mps", "a", "b")
    ask(node, grants["a"], 0, 0, 10 * MS)
    assert decide(node, 2 * MS) == []
    node.manager.apply_inventory(of_mode(after, 1 if after == "exclusive" else 2))
    assert decide(node, 10 * MS) == [("a", 0, 0, 10 * MS)]
    ask(node, grants["a"], 1, 10 * MS, 10 * MS)
    assert node.manager.mode_for(grants["b"].main, UUIDS[0]) == "mps"
    node.manager.fail(grants["a"], "killed")
    assert decide(node, 100 * MS) == []
    assert node.manager.mode_for(grants["b"].main, UUIDS[0]) == after


def test_an_exclusive_device_becomes_shared_at_once(shared):
    node, grants = shared("exclusive", "a")
    lease = node.manager.lease(grants["a"], 0, 10 * MS, 0)
    node.manager.apply_inventory(of_mode("fifo", 2))
    other = node.manager.grant("b", UUIDS[:1], 0)
    other = node.manager.attach(node.token(other), "b", 0, 0)
    ask(node, other, 0, 0, MS)
    assert decide(node, 30 * MS) == [("b", 0, lease.end_ns, lease.end_ns + MS)]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("mode", PICKING)
def test_use_that_was_reported_of_an_exclusive_device_delays_others_by_one_demand_at_most(shared, mode, restart):
    node, grants = shared("exclusive", "a")
    node.manager.report_use(grants["a"].main, Piece(0, 10**17, 0), steps_done=1)
    if restart:
        node.crash()
    node.manager.apply_inventory(of_mode(mode, 2))
    other = node.manager.grant("b", UUIDS[:1], 0)
    other = node.manager.attach(node.token(other), "b", 0, 0)
    ask(node, other, 0, MS, MS)
    assert node.manager.next_decision_ns() == 600 * S
    node.clock.advance_to_ns(2 * MS)
    node.manager.revoke("a", "gone")
    assert decide(node, 2 * MS) == [("b", 0, 2 * MS, 3 * MS)]


def test_who_had_reported_more_use_than_there_was_leaves_and_another_process_of_the_grant_is_served_on(shared):
    node, grants = shared("exclusive", "a")
    reporter = node.manager.open_session(grants["a"], "reporter")
    node.manager.report_use(reporter, Piece(0, 100 * S, 0))
    node.manager.apply_inventory(of_mode("mps", 2))
    ask(node, grants["a"], 0, 0, 10 * MS)
    node.clock.advance_to_ns(4 * MS)
    assert decide(node, 4 * MS) == []
    node.manager.close_session(reporter)
    assert decide(node, 9 * MS) == [("a", 0, 0, 10 * MS)]


def test_a_full_disk_stops_nobody(shared, monkeypatch):
    node, grants = shared("fifo", "a")

    def full(*_):
        raise ClusterError("no space left")

    monkeypatch.setattr(IntervalFile, "record", full)
    ask(node, grants["a"], 0, 0, MS)
    assert decide(node, MS) == [("a", 0, 0, MS)]


def test_progress_is_what_the_job_reports_and_never_goes_back(shared):
    node, grants = shared("fifo", "a")
    node.manager.report_steps(grants["a"].main, 5)
    node.manager.report_steps(grants["a"].main, 3)
    assert node.manager.steps_done("a") == 5
    node.manager.finish(grants["a"], 9)
    with pytest.raises(RefusedError, match="has ended"):
        node.manager.report_steps(grants["a"].main, 10)
    with pytest.raises(RefusedError, match="has ended"):
        ask(node, grants["a"], 10, 0, MS)


def test_memory_follows_the_way_in_which_a_device_is_shared(shared):
    big = Reservation(4 * GIB, 10 * GIB)
    node, grants = shared("fair", "a", "b")
    for grant in grants.values():
        node.manager.reserve(grant.main, big)  # 4 + 4 + 6 of 16 GiB
    node, grants = shared("mps", "c", "d")
    node.manager.reserve(grants["c"].main, big)
    with pytest.raises(OutOfMemoryError):
        node.manager.reserve(grants["d"].main, big)


WRONG = {
    "another device": ({"uuid": UUIDS[1]}, "is no device of job 'a'"),
    "no device": ({"uuid": "GPU-x"}, "is no device of job 'a'"),
    "too long": ({"work_ns": 601 * 10**9}, "a step of 601 s on a shared device; at most 600 s"),
    "too far ahead": ({"ready_ns": 601 * 10**9}, "demand 0 is ready in 601 s; demand at most 600 s ahead"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_wrong_demands(shared, change, message):
    node, grants = shared("fifo", "a")
    with pytest.raises(ProtocolError, match=message):
        ask(node, grants["a"], 0, **{"ready_ns": 0, "work_ns": MS} | change)
    assert node.manager.next_decision_ns() is None


def test_an_exclusive_device_has_leases_and_demands_and_a_shared_one_demands(shared):
    node, grants = shared("exclusive", "a")
    ask(node, grants["a"], 0, 0, MS)
    assert decide(node, 0) == [("a", 0, 0, MS)]
    node, grants = shared("mps", "b")
    with pytest.raises(ProtocolError, match="shared by mode mps: demand its time"):
        node.manager.lease(grants["b"], 0, MS, 0)


def test_leases_of_older_clients_and_demands_exclude_each_other(shared):
    node, grants = shared("fifo", "old", "new")
    lease = node.manager.lease(grants["old"], 0, 10 * MS, 0)
    assert (lease.start_ns, lease.end_ns) == (0, 10 * MS)
    ask(node, grants["new"], 0, 0, 5 * MS)
    assert decide(node, 10 * MS) == [("new", 0, 10 * MS, 15 * MS)]
    lease = node.manager.lease(grants["old"], 1, MS, 10 * MS)
    assert (lease.start_ns, lease.end_ns) == (15 * MS, 16 * MS)


def test_a_lease_of_an_older_client_delays_a_demand_that_waits(shared):
    node, grants = shared("fifo", "old", "new")
    ask(node, grants["new"], 0, 5 * MS, 5 * MS)
    assert node.manager.next_decision_ns() == 5 * MS
    node.manager.lease(grants["old"], 0, 10 * MS, 0)
    assert node.manager.next_decision_ns() == 10 * MS
    assert decide(node, 20 * MS) == [("new", 0, 10 * MS, 15 * MS)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_lease_of_an_older_client_that_has_left_delays_nobody(shared, restart):
    node, grants = shared("fifo", "old", "older", "new")
    ask(node, grants["new"], 0, 0, MS)
    decide(node, 0)
    node.manager.lease(grants["old"], 0, 600 * S, 0)
    node.manager.lease(grants["older"], 0, MS, 0)
    if restart:
        node.crash()
        grants = {job: node.manager.attach(node.token(grant), job, 0, 0) for job, grant in grants.items()}
    ask(node, grants["new"], 1, MS, MS)
    assert node.manager.next_decision_ns() == 600 * S + 2 * MS
    node.clock.advance_to_ns(2 * MS)
    node.manager.fail(grants["old"], "")
    assert node.manager.next_decision_ns() == 600 * S + 2 * MS  # the other lease is what it was
    node.manager.fail(grants["older"], "")
    assert node.manager.next_decision_ns() == 2 * MS
    assert decide(node, S) == [("new", 1, 2 * MS, 3 * MS)]


def test_two_devices_decide_on_their_own(make_node):
    node = make_node("manager.db", "fifo")
    both = node.manager.grant("both", UUIDS[:2], 0)
    both = node.manager.attach(node.token(both), "both", 0, 0)
    one = node.manager.grant("one", UUIDS[1:2], 0, [Terms(1)])
    one = node.manager.attach(node.token(one), "one", 0, 0)
    ask(node, one, 0, 2_000, 5 * MS, uuid=UUIDS[1])
    for uuid in UUIDS[:2]:
        ask(node, both, 0, 3_000, MS, uuid=uuid)
    node.clock.advance_ns(10 * MS)
    answers = {(each.uuid, each.session.grant.job_id): each.answer.piece for each in node.manager.decide(10 * MS)}
    assert answers == {
        (UUIDS[0], "both"): Piece(3_000, 3_000 + MS, MS),
        (UUIDS[1], "one"): Piece(2_000, 2_000 + 5 * MS, 5 * MS),
        (UUIDS[1], "both"): Piece(2_000 + 5 * MS, 2_000 + 6 * MS, MS),
    }
