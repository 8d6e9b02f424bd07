"""The manager's answers to requests that are repeated, out of order, from the wrong job, or late."""

import pytest

from emulator_runtime.domain.errors import OutOfMemoryError, ProtocolError, RefusedError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.units import MAX_UNIT_NS, NS_PER_S
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.sharing.demands import Demand
from sharing_manager.grants.grant import GrantState

GIB = 1024**3


@pytest.fixture
def held(node, uuids):
    """Job `a`, attached, on the first device."""
    token = node.token(node.manager.grant("a", uuids[:1], 0))
    return node.manager.attach(token, "a", 0, 0)


def kinds(node, job_id="a"):
    return [event.kind for event in node.events(job_id)]


def at(node, now_ns):
    node.clock.advance_to_ns(now_ns)
    return now_ns


# --- twice ------------------------------------------------------------------------------------------------------------


def test_the_same_grant_twice_is_one_grant(node, uuids):
    first = node.manager.grant("a", uuids[:2], 3)
    assert node.manager.grant("a", uuids[:2], 3) is first
    assert kinds(node) == ["granted"]
    with pytest.raises(RefusedError, match="job 'a' holds other devices of this node already"):
        node.manager.grant("a", uuids[1:2], 3)


def test_the_same_lease_twice_is_one_lease(node, held):
    lease = node.manager.lease(held, 0, 50, 1_000)
    assert lease == Lease(1_000, 1_050)
    assert node.manager.lease(held, 0, 50, 1_000) == lease
    assert node.manager.lease(held, 0, 99, 1_000) == lease
    assert held.leased_ns == 50
    assert node.pool.all()[0].leased_ns == 50


def test_attaching_again_keeps_the_lease_under_way(node, held):
    lease = node.manager.lease(held, 0, 50, 1_000)
    node.manager.attach(node.token(held), "a", 0, 1_000)
    assert node.manager.lease(held, 0, 50, 1_000) == lease
    assert kinds(node) == ["granted", "attached"]


@pytest.mark.parametrize("end", ["release", "finish"])
def test_the_same_end_twice_is_one_end(node, held, end):
    for _ in range(2):
        getattr(node.manager, end)(held, 4)
    node.manager.attach(node.token(held), "a", 4, 0)
    assert [(e.from_step, e.steps_done) for e in node.events("a")] == [(0, 0), (0, 0), (0, 4)]


def test_failing_and_stopping_twice(node, held):
    for _ in range(2):
        node.manager.stop("a")
    for _ in range(2):
        node.manager.fail(held, "first reason")
    node.manager.stop("a")
    node.manager.revoke("a", "later")
    assert kinds(node) == ["granted", "attached", "stopping", "failed"]
    assert node.events("a")[-1].detail == "first reason"


def test_reserving_twice_replaces(node, held):
    for amount in (16, 14):
        node.manager.reserve(held.main, Reservation(GIB, GIB * amount // 2))
    assert node.pool.all()[0].memory.used_bytes == 7 * GIB


# --- in order ---------------------------------------------------------------------------------------------------------


def test_steps_come_one_after_the_other(node, held):
    for step in range(5):
        lease = node.manager.lease(held, step, 50, node.clock.now_ns())
        at(node, lease.end_ns)
        assert node.manager.steps_done("a") == step
    assert lease == Lease(1_200, 1_250)


@pytest.mark.parametrize("step", [1, 2, 100])
def test_the_first_step_of_a_run_is_the_one_after_the_checkpoint(node, held, step):
    with pytest.raises(ProtocolError, match=f"step {step} is out of order: 0 steps are done"):
        node.manager.lease(held, step, 50, 1_000)
    assert node.manager.steps_done("a") == 0


@pytest.mark.parametrize("step", [0, 1, 4, 5])
def test_a_step_out_of_order(node, held, step):
    for done in range(3):
        at(node, 1_000 + 50 * done)
        node.manager.lease(held, done, 50, 1_000)
    at(node, 1_150)
    with pytest.raises(ProtocolError, match=f"step {step} is out of order: 2 steps are done"):
        node.manager.lease(held, step, 50, 1_000)
    assert node.manager.lease(held, 3, 50, 1_000) == Lease(1_150, 1_200)


def test_an_issue_in_the_future_does_not_block_the_device(make_node, uuids):
    node = make_node("shared.db", "fifo")
    a, b = (node.manager.attach(node.token(node.manager.grant(j, uuids[:1], 0)), j, 0, 0) for j in "ab")
    with pytest.raises(ProtocolError, match="step 0 is issued 1 ns in the future; give job and manager the same"):
        node.manager.lease(a, 0, 50, 1_001)
    assert node.manager.lease(b, 0, 50, 900) == Lease(1_000, 1_050)


def test_no_lease_begins_before_the_grant_or_in_the_last_one(node, held):
    assert node.manager.lease(held, 0, 50, 0) == Lease(1_000, 1_050)
    at(node, 1_060)
    assert node.manager.lease(held, 1, 50, 3) == Lease(1_050, 1_100)


def test_no_step_is_booked_before_the_one_before_has_ended(node, held):
    """Else a job could book a device years ahead, and who leaves gives back its last lease only."""
    node.manager.lease(held, 0, 50, 1_000)
    at(node, 1_049)
    with pytest.raises(ProtocolError, match="step 1 is asked for 1 ns before the step before it ends"):
        node.manager.lease(held, 1, 50, 1_049)
    at(node, 1_050)
    assert node.manager.lease(held, 1, 50, 1_050) == Lease(1_050, 1_100)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_step_that_others_would_wait_for_too_long(node, uuids, replicas):
    entries = tuple(DeviceEntry(device) for device in node.pool.specs(uuids[:1]))
    node.manager.apply_inventory(Inventory("n1", (ResourceEntry("r/x", entries, replicas),)))
    grant = node.manager.attach(node.token(node.manager.grant("a", uuids[:1], 0)), "a", 0, 0)
    at(node, node.manager.lease(grant, 0, MAX_UNIT_NS, 1_000).end_ns)
    if replicas == 1:
        assert node.manager.lease(grant, 1, MAX_UNIT_NS + 1, 1_000)
    else:
        with pytest.raises(ProtocolError, match="on a shared device; at most 600 s, others wait for it"):
            node.manager.lease(grant, 1, MAX_UNIT_NS + 1, 1_000)


def test_a_pool_says_how_long_others_may_have_to_wait(node, uuids):
    entries = tuple(DeviceEntry(device) for device in node.pool.specs(uuids[:1]))
    node.manager.apply_inventory(Inventory("n1", (ResourceEntry("r/x", entries, 2, longest_unit_ns=10 * NS_PER_S),)))
    grant = node.manager.attach(node.token(node.manager.grant("a", uuids[:1], 0)), "a", 0, 0)
    wanted = Demand("a", 0, 1_000, 10 * NS_PER_S)
    node.manager.demand(grant.main, uuids[0], wanted)
    too_long = (
        r"a step of 11 s on a shared device; at most 10 s, others .* raise spec\.sharing\.longestUnit of its pool"
    )
    with pytest.raises(ProtocolError, match=too_long):
        node.manager.demand(grant.main, uuids[0], wanted._replace(sequence=1, work_ns=11 * NS_PER_S))
    with pytest.raises(ProtocolError, match=too_long):
        node.manager.lease(grant, 0, 11 * NS_PER_S, 1_000)


def test_a_further_process_says_nothing_of_the_last_lease(node, held):
    """It may connect long after the main process's last lease: that leaves the main process's time alone."""
    at(node, 5_000)
    node.manager.attach(node.token(held), "a", None, 5_000, main=False)
    assert node.manager.lease(held, 0, 50, 4_000) == Lease(4_000, 4_050)
    node.manager.attach(node.token(held), "a", None, 5_000)
    assert held.floor_ns == 5_000


def test_a_request_that_was_late_on_its_way_gets_the_time_of_its_issue(node, held):
    at(node, 5_000)
    assert node.manager.lease(held, 0, 50, 4_000) == Lease(4_000, 4_050)


# --- stop, revoke, end ------------------------------------------------------------------------------------------------


def test_stop_lets_the_step_under_way_end(node, held):
    lease = node.manager.lease(held, 0, 50, 1_000)
    node.manager.stop("a")
    assert node.manager.lease(held, 0, 50, 1_000) == lease
    at(node, 1_050)
    for _ in range(2):
        assert node.manager.lease(held, 1, 50, 1_050).stop
    assert node.manager.steps_done("a") == 1
    with pytest.raises(ProtocolError, match="step 2 is out of order"):  # nobody leased step 1
        node.manager.lease(held, 2, 50, 1_050)
    node.manager.release(held, 1)
    assert node.covered("a") == 1
    assert kinds(node) == ["granted", "attached", "stopping", "released"]


def test_stop_before_the_first_step(node, held):
    node.manager.stop("a")
    assert node.manager.lease(held, 0, 50, 1_000).stop
    assert node.pool.all()[0].leased_ns == 0


def test_stopping_whom_nobody_knows_is_nothing(node):
    node.manager.stop("nobody")
    node.manager.revoke("nobody", "x")
    assert list(node.log.after(0)) == []


def test_revoke_frees_at_once(node, held, uuids):
    node.manager.reserve(held.main, Reservation(GIB, 2 * GIB))
    node.manager.lease(held, 0, 5_000, 1_000)
    at(node, 2_000)
    node.manager.revoke("a", "its process ended")
    assert node.pool.all()[0].memory.used_bytes == 0
    assert node.pool.all()[0].leased_ns == 1_000
    other = node.manager.attach(node.token(node.manager.grant("b", uuids[:1], 0)), "b", 0, 0)
    assert node.manager.lease(other, 0, 50, 2_000) == Lease(2_000, 2_050)
    assert node.events("a")[-1].detail == "its process ended"


def test_who_was_revoked_gets_neither_time_nor_memory_nor_another_end(node, held, uuids):
    node.manager.lease(held, 0, 50, 1_000)
    node.manager.revoke("a", "gone")
    other = node.manager.grant("b", uuids[:1], 0)
    ended = r"the grant of job 'a' has ended \(failed\)"
    for step in (0, 1):
        with pytest.raises(RefusedError, match=ended):
            node.manager.lease(held, step, 50, 1_000)
    with pytest.raises(RefusedError, match=ended):
        node.manager.reserve(held.main, Reservation(1, 1))
    for end in (node.manager.finish, node.manager.release):
        with pytest.raises(RefusedError, match=ended):
            end(held, 1)
    node.manager.close_session(held.main)
    node.manager.flush_progress()
    device = node.pool.all()[0]
    assert (device.memory.used_bytes, device.free_at_ns(), device.holders) == (0, 1_000, {other.job_id})
    assert kinds(node) == ["granted", "attached", "failed"]


def test_an_unknown_token_and_one_of_another_job(node, held):
    for token, job_id in (("nonsense", "a"), (node.token(held), "b"), ("", "a")):
        with pytest.raises(RefusedError, match="unknown token"):
            node.manager.attach(token, job_id, 0, 0)


def test_a_token_that_has_ended_says_how(node, held):
    node.manager.release(held, 3)
    assert node.manager.attach(node.token(held), "a", 3, 0).state is GrantState.RELEASED


def test_a_new_run_gets_a_new_token_and_goes_on_where_the_old_one_ended(node, held, uuids):
    node.manager.lease(held, 0, 50, 1_000)
    node.manager.release(held, 1)
    again = node.manager.grant("a", uuids[1:], 1)
    assert node.token(again) != node.token(held)
    node.manager.attach(node.token(again), "a", 1, 0)
    assert node.manager.lease(again, 1, 50, 1_000) == Lease(1_000, 1_050)
    node.manager.finish(again, 2)
    assert node.covered("a") == 2


def test_steps_of_a_job_that_was_never_here(node):
    with pytest.raises(RefusedError, match="job 'nobody' has no grant on this node"):
        node.manager.steps_done("nobody")


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_on_all_devices_of_the_grant(node, uuids):
    grant = node.manager.grant("a", uuids[:2], 0)
    node.manager.reserve(grant.main, Reservation(GIB, 2 * GIB))
    assert [d.memory.used_bytes for d in node.pool.all()] == [2 * GIB, 2 * GIB, 0]
    with pytest.raises(OutOfMemoryError, match=f"out of memory on {uuids[0]}: a asks for 15.00 GiB"):
        node.manager.reserve(grant.main, Reservation(GIB, 15 * GIB))
    assert [d.memory.used_bytes for d in node.pool.all()] == [2 * GIB, 2 * GIB, 0]
    node.manager.close_session(grant.main)
    assert [d.memory.used_bytes for d in node.pool.all()] == [0, 0, 0]


def test_a_peak_below_its_persistent_part(node, held):
    with pytest.raises(ProtocolError, match="field 'peak_bytes' must not be below 'persistent_bytes'"):
        node.manager.reserve(held.main, Reservation(2, 1))


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_written_as_ranges_without_gap_or_overlap(node, held):
    for step in range(10):
        lease = node.manager.lease(held, step, 50, node.clock.now_ns())
        at(node, lease.end_ns)
        if step in (3, 4, 8):
            node.manager.flush_progress()
            node.manager.flush_progress()
    node.manager.finish(held, 10)
    node.manager.flush_progress()
    assert [(e.kind, e.from_step, e.steps_done) for e in node.events("a")] == [
        ("granted", 0, 0),
        ("attached", 0, 0),
        ("progress", 0, 3),
        ("progress", 3, 4),
        ("progress", 4, 8),
        ("finished", 8, 10),
    ]
    assert node.published == list(node.log.after(0))


def test_an_older_checkpoint_is_reported_as_it_is(node, held):
    for step in range(6):
        at(node, 1_000 + 50 * step)
        node.manager.lease(held, step, 50, 1_000)
    node.manager.flush_progress()
    node.manager.attach(node.token(held), "a", 2, 0)  # the process died and came back with what it had saved
    node.manager.flush_progress()
    node.manager.lease(held, 2, 50, 1_000)
    node.manager.finish(held, 3)
    assert [(e.from_step, e.steps_done) for e in node.events("a")[2:]] == [(0, 5), (5, 2), (2, 3)]


def test_an_older_checkpoint_makes_old_leases_void(node, held):
    for step in range(3):
        at(node, 1_000 + 50 * step)
        lease = node.manager.lease(held, step, 50, 1_000)
    node.manager.attach(node.token(held), "a", 1, 0)
    with pytest.raises(ProtocolError, match="step 2 is out of order: 1 steps are done"):
        node.manager.lease(held, 2, 50, 1_000)
    assert node.manager.lease(held, 1, 50, 1_000).start_ns == lease.end_ns


def test_giving_up_without_a_word_about_steps_keeps_them(node, uuids):
    grant = node.manager.grant("a", uuids[:1], 7)
    node.manager.attach(node.token(grant), "a", None, 0)
    node.manager.fail(grant, "no profile")
    assert node.manager.steps_done("a") == 7
    assert [(e.from_step, e.steps_done) for e in node.events("a")] == [(7, 7)] * 3
