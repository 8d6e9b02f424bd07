"""Grants of pods: attach, resume, fencing, restart, loss of a device, end of the pod, and which grants are kept."""

import pytest

from emulator_runtime.domain.errors import DeviceLostError, OutOfMemoryError, RefusedError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.units import MAX_UNIT_NS
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.sharing.demands import Demand, Piece
from sharing_manager.grants import registry
from sharing_manager.grants.grant import GrantState
from sharing_manager.grants.identity import PodAllocation
from sharing_manager.grants.reconcile import YOUNG_NS

GIB = 1024**3


def train(node, grant, steps, duration_ns=50):
    """Steps one after the other, each awaited; answers the leases."""
    leases = []
    for step in range(grant.steps_done, grant.steps_done + steps):
        leases.append(node.manager.lease(grant, step, duration_ns, node.clock.now_ns()))
        node.clock.wait_until_ns(leases[-1].end_ns)
    return leases


def holds(name, *devices):
    return PodAllocation("ns", name, "main", "r", frozenset(devices))


# --- attach -----------------------------------------------------------------------------------------------------------


def test_the_life_of_a_pod(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[1], uuids[0]), pod("a"))
    assert (grant.job_id, grant.steps_done, grant.live) == ("uid-a", 0, True)
    assert [d.index for d in pods.manager.specs(grant.main)] == [1, 0]
    assert not pods.manager.shared(grant)
    leases = train(pods, grant, 3)
    assert [lease.start_ns for lease in leases] == [1_000, 1_050, 1_100]
    pods.manager.finish(grant, 3)
    assert pods.kinds("uid-a") == ["granted", "attached", "finished"]
    assert pods.told == [("ns/a/main", kind) for kind in ("granted", "attached", "finished")]
    event = list(pods.log.after(0))[-1]
    assert (event.namespace, event.pod, event.wall_ns) == ("ns", "a", pods.wall_ns)
    assert all(not device.holders for device in pods.pool.all())


def test_a_token_serves_run_after_run_and_goes_on_where_it_was(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    train(pods, grant, 2)
    pods.manager.release(grant, 2)
    again = pods.attach("t", pod("a"))
    assert (again is grant, again.live, again.steps_done) == (True, True, 2)
    train(pods, again, 1)
    pods.manager.fail(again, "x")
    assert pods.attach("t", pod("a")).steps_done == 2  # asking for step 3 would have said that it is done
    assert pods.kinds("uid-a") == ["granted", "attached", "released", "attached", "failed", "attached"]


def test_a_process_that_missed_the_reply_to_its_last_word_hears_that_it_was_heard(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    pods.manager.finish(grant, 5)
    assert pods.attach("t", pod("a"), 5).state is GrantState.FINISHED
    with pytest.raises(RefusedError, match="another pod"):
        pods.attach("t", pod("b"), 5)


def test_progress_follows_the_job_from_pod_to_pod(pods, pod, uuids):
    first = pods.attach(pods.mint("t1", uuids[0]), pod("a", job_key="job/0"))
    train(pods, first, 4)
    second = pods.attach(pods.mint("t2", uuids[1]), pod("b", job_key="job/0"))
    assert second.steps_done == 3  # the fourth was never said to be done
    third = pods.attach(pods.mint("t3", uuids[2]), pod("c", job_key="job/0"), known_steps=7)
    assert third.steps_done == 7
    other = pods.attach(pods.mint("t4", uuids[2]), pod("d", job_key="job/1"))
    assert other.steps_done == 0
    assert pods.manager.steps_done("job/0") == 7


def test_progress_outlives_the_pod_the_manager_and_the_grant(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a", job_key="job/0"))
    train(pods, grant, 4)  # nothing is flushed
    pods.crash()
    pods.manager.apply_inventory(pods.inventory())
    pods.manager.revoke("job/0", "gone")
    pods.crash()
    pods.manager.apply_inventory(pods.inventory())
    assert pods.attach(pods.mint("t2", uuids[0]), pod("b", job_key="job/0")).steps_done == 3


def test_a_process_that_begins_anew_computes_its_step_itself(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    assert pods.manager.lease(grant, 0, 1_000, 1_000) == Lease(1_000, 2_000)
    pods.clock.advance_ns(100)
    again = pods.attach("t", pod("a"))  # the container was restarted
    assert pods.manager.lease(again, 0, 1_000, 1_100) == Lease(1_100, 2_100)
    assert pods.pool.all()[0].leased_ns == 100 + 1_000


def test_a_process_that_was_only_cut_off_keeps_its_lease(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    lease = pods.manager.lease(grant, 0, 1_000, 1_000)
    assert pods.manager.lease(pods.attach("t", pod("a"), 0), 0, 1_000, 1_000) == lease


def test_ranks_may_go_back_to_the_least_of_them(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"), known_steps=9)
    assert grant.steps_done == 9
    again = pods.attach("t", pod("a"), 6)
    train(pods, again, 1)
    pods.manager.finish(again, 7)
    assert [(e.from_step, e.steps_done) for e in pods.log.after(0)] == [(9, 9), (9, 9), (9, 7)]
    assert pods.attach("t", pod("a")).steps_done == 9  # those were done, once


def test_two_replicas_of_one_device_are_one_device(make_pod_node, pod, uuids):
    node = make_pod_node(4)
    grant = node.attach(node.mint("t", f"{uuids[0]}::0", f"{uuids[0]}::3"), pod("a"))
    assert [d.uuid for d in node.manager.specs(grant.main)] == [uuids[0]]
    assert node.manager.shared(grant)
    assert node.manager.lease(grant, 0, 50, 1_000) == Lease(1_000, 1_050)


def test_a_shared_device_serves_pods_one_step_after_the_other(make_pod_node, pod, uuids):
    node = make_pod_node(2)
    a, b = (node.attach(node.mint(n, f"{uuids[0]}::{i}"), pod(n)) for i, n in enumerate("ab"))
    assert node.manager.lease(a, 0, 50, 1_000) == Lease(1_000, 1_050)
    assert node.manager.lease(b, 0, 50, 1_000) == Lease(1_050, 1_100)
    assert node.dropped == []


# --- displacing -------------------------------------------------------------------------------------------------------


def test_the_pod_that_was_deleted_by_force_is_fenced_before_the_next_one_gets_anything(pods, pod, uuids):
    zombie = pods.attach(pods.mint("old", uuids[0], uuids[1]), pod("a"))
    pods.manager.reserve(zombie.main, Reservation(GIB, GIB))
    pods.manager.lease(zombie, 0, 10_000, 1_000)
    pods.mint("new", uuids[0])
    pods.clock.advance_ns(500)
    heir = pods.attach("new", pod("b"))
    assert pods.dropped == ["old"]
    assert pods.manager.lease(heir, 0, 50, 1_500) == Lease(1_500, 1_550)
    assert [(d.memory.used_bytes, d.leased_ns) for d in pods.pool.all()[:2]] == [(0, 550), (0, 500)]
    assert pods.kinds("uid-a") == ["granted", "attached", "fenced"]
    for ask in (
        lambda: pods.manager.lease(zombie, 1, 50, 1_500),
        lambda: pods.manager.finish(zombie, 1),
        lambda: pods.manager.reserve(zombie.main, Reservation(1, 1)),
    ):
        with pytest.raises(RefusedError, match=r"the grant of pod ns/a/main has ended \(fenced\)"):
            ask()
    assert pods.attach("old", pod("a"), 0).state is GrantState.FENCED
    assert pods.attach("old", pod("a")).state is GrantState.FENCED


def test_a_token_of_before_that_was_never_shown_is_void(pods, pod, uuids):
    for token in ("old", "new"):
        pods.mint(token, uuids[0])
    heir = pods.attach("new", pod("b"))
    pods.manager.finish(heir, 1)
    for _ in range(2):
        with pytest.raises(RefusedError, match="void"):
            pods.attach("old", pod("a"))
        pods.crash()
        pods.manager.apply_inventory(pods.inventory())
    assert pods.kinds("uid-a") == []


def test_init_and_main_container_take_turns(pods, pod, uuids):
    init = pods.attach(pods.mint("init", uuids[0]), pod("a", "init"))
    pods.mint("main", uuids[0])
    pods.manager.lease(init, 0, 5_000, 1_000)
    main = pods.attach("main", pod("a"))
    assert pods.manager.lease(main, 0, 50, 1_000) == Lease(1_000, 1_050)
    assert (init.state, pods.dropped) == (GrantState.GRANTED, ["init"])
    pods.attach("init", pod("a", "init"))  # the pod's sandbox was made anew
    assert (main.state, pods.dropped) == (GrantState.GRANTED, ["init", "main"])
    assert pods.pool.all()[0].holders == {init.holder}
    assert "suspended" in pods.kinds("uid-a")


def test_an_owners_job_is_not_fenced_and_nobody_is_fenced_in_vain(pods, pod, uuids):
    older = pods.attach(pods.mint("old", uuids[0]), pod("a"))
    pods.manager.grant("job", uuids[1:2], 0)
    pods.mint("new", uuids[0], uuids[1])
    with pytest.raises(RefusedError, match="exclusive and job holds it"):
        pods.attach("new", pod("b"))
    assert older.live
    assert pods.manager.find("new") is None
    with pytest.raises(RefusedError, match=r"exclusive and ns/a/main \([0-9a-f]{8}\) holds it"):
        pods.manager.grant("other", uuids[:1], 0)


def test_without_names_the_newest_token_wins_as_well(pods, uuids):
    pods.attach(pods.mint("old", uuids[0]), None)
    heir = pods.attach(pods.mint("new", uuids[0]), None)
    assert pods.dropped == ["old"]
    assert heir.job_id.startswith("grant/")
    assert pods.attach("new", None, 3).steps_done == 3


def test_who_was_nobody_and_has_a_name_now_is_the_same_holder(pods, pod, uuids):
    nameless = pods.attach(pods.mint("t", uuids[0]), None)
    pods.manager.lease(nameless, 0, 50, 1_000)
    pods.crash()
    pods.manager.apply_inventory(pods.inventory())
    named = pods.attach("t", pod("a"), 0)
    assert named.job_id == "uid-a"
    assert pods.pool.all()[0].holders == {named.holder}
    with pytest.raises(RefusedError, match="another pod"):
        pods.attach("t", pod("b"), 0)


# --- restart ----------------------------------------------------------------------------------------------------------


def test_leases_of_before_and_after_a_crash_never_overlap_on_a_shared_device(make_pod_node, pod, uuids):
    node = make_pod_node(2)
    a, b = (node.attach(node.mint(n, f"{uuids[0]}::{i}"), pod(n)) for i, n in enumerate("ab"))
    before = [node.manager.lease(a, 0, 500, 1_000), node.manager.lease(b, 0, 500, 1_000)]
    node.crash()
    node.manager.apply_inventory(node.inventory())  # it comes after the restart
    b = node.attach("b", pod("b"), 0)
    assert node.manager.lease(b, 0, 500, 1_000) == before[1]  # its reply may have been lost
    c = node.attach(node.mint("c", f"{uuids[0]}::0"), pod("c"))
    assert node.dropped == ["a"]
    assert node.manager.lease(c, 0, 500, 1_000) == Lease(2_000, 2_500)


def test_what_was_cut_before_a_crash_stays_cut(pods, pod, uuids):
    old = pods.attach(pods.mint("old", uuids[0]), pod("a"))
    pods.manager.lease(old, 0, 10_000, 1_000)
    new = pods.attach(pods.mint("new", uuids[0]), pod("b"))
    pods.manager.lease(new, 0, 50, 1_000)
    pods.crash()
    pods.manager.apply_inventory(pods.inventory())
    new = pods.attach("new", pod("b"), 0)
    assert pods.manager.lease(new, 0, 50, 1_000) == Lease(1_000, 1_050)
    assert pods.manager.find("old").state is GrantState.FENCED


def test_a_pods_grant_waits_for_an_inventory_that_comes_later(pods, pod, uuids):
    pods.attach(pods.mint("t", uuids[0]), pod("a"))
    pods.crash()
    with pytest.raises(DeviceLostError, match="no longer in the node's inventory"):
        pods.attach("t", pod("a"), 0)
    pods.manager.apply_inventory(pods.inventory())
    assert pods.attach("t", pod("a"), 0).live


# --- devices ----------------------------------------------------------------------------------------------------------


def test_an_unhealthy_device_serves_nobody_until_it_is_well(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    pods.manager.apply_inventory(pods.inventory(unhealthy={0: "XID 79", 2: ""}))
    lost = f"device {uuids[0]} is lost: XID 79; start again on another device"
    for ask in (
        lambda: pods.manager.lease(grant, 0, 50, 1_000),
        lambda: pods.manager.reserve(grant.main, Reservation(1, 1)),
        lambda: pods.attach("t", pod("a"), 0),
        lambda: pods.attach(pods.mint("u", uuids[0]), pod("b")),
    ):
        with pytest.raises(DeviceLostError) as caught:
            ask()
        assert str(caught.value) == lost
    with pytest.raises(DeviceLostError, match=f"{uuids[2]} is lost: it is unhealthy;"):
        pods.manager.grant("job", uuids[2:], 0)
    assert not pods.pool.all()[2].holders
    assert pods.kinds("uid-a") == ["granted", "attached", "device-lost"]
    pods.manager.apply_inventory(pods.inventory(unhealthy={0: "XID 79"}))
    assert pods.kinds("uid-a")[-1:] == ["device-lost"]
    assert len(pods.kinds("uid-a")) == 3
    pods.manager.fail(grant, lost)
    pods.manager.apply_inventory(pods.inventory())
    assert pods.manager.lease(pods.attach("t", pod("a")), 0, 50, 1_000) == Lease(1_000, 1_050)


def test_an_owners_job_loses_its_device_too(pods, uuids):
    grant = pods.manager.grant("job", uuids[:1], 0)
    token = pods.manager.token_of(grant)
    pods.manager.attach(token, "job", 0, 0)
    pods.manager.apply_inventory(pods.inventory(unhealthy={0: "gone"}))
    with pytest.raises(DeviceLostError):
        pods.manager.lease(grant, 0, 50, 1_000)
    with pytest.raises(DeviceLostError):
        pods.manager.attach(token, "job", 0, 0)
    assert pods.kinds("job") == ["granted", "attached", "device-lost"]


def test_out_of_memory_is_reported_once_a_run(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    for _ in range(3):
        with pytest.raises(OutOfMemoryError):
            pods.manager.reserve(grant.main, Reservation(99 * GIB, 99 * GIB))
    assert pods.kinds("uid-a").count("oom") == 1
    pods.attach("t", pod("a"))
    with pytest.raises(OutOfMemoryError):
        pods.manager.reserve(grant.main, Reservation(99 * GIB, 99 * GIB))
    assert pods.kinds("uid-a").count("oom") == 2


# --- gone -------------------------------------------------------------------------------------------------------------


def test_a_pod_that_is_gone_twice_loses_its_grant_and_its_files(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    records = list(pods.minted.values())
    assert pods.manager.pods.reconcile([], records).gone == frozenset()
    found = pods.manager.pods.reconcile([], records)
    assert found.gone == {grant.digest}
    assert pods.manager.pods.reconcile([], records).stale == {grant.digest}  # its files are still there
    assert (grant.state, pods.dropped) == (GrantState.GONE, ["t"])
    assert pods.attach("t", pod("a")).state is GrantState.GONE
    assert pods.kinds("uid-a") == ["granted", "attached", "gone"]
    assert not pods.pool.all()[0].holders


def test_a_pod_that_is_there_stays(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    for allocations in ([], [holds("a", uuids[0])], [], [holds("a", uuids[0])]):
        assert pods.manager.pods.reconcile(allocations).gone == frozenset()
    assert grant.live


def test_an_unshown_token_goes_when_it_is_nobodys_for_long(pods, uuids):
    pods.mint("t", uuids[0])
    records = list(pods.minted.values())
    pods.manager.pods.reconcile([], records)
    assert not pods.manager.pods.reconcile([], records).stale
    pods.wall_ns += YOUNG_NS + 1
    assert pods.manager.pods.reconcile([], records).stale == {records[0].token_digest}


def test_all_pods_leave_with_the_node(pods, pod, uuids):
    grants = [pods.attach(pods.mint(n, uuid), pod(n)) for n, uuid in zip("ab", uuids, strict=False)]
    pods.manager.release(grants[1], 1)
    pods.manager.grant("job", uuids[2:], 0)
    for _ in range(2):
        pods.manager.pods.end_all("the node leaves")
    assert [g.state for g in grants] == [GrantState.GONE] * 2
    assert [g.job_id for g in pods.manager.grants()] == ["job"]
    assert [e.detail for e in pods.log.after(0) if e.kind == "gone"] == ["the node leaves"] * 2


def test_the_owner_may_stop_and_revoke_a_pods_job(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    pods.manager.stop("uid-a")
    assert pods.manager.lease(grant, 0, 50, 1_000).stop
    pods.manager.release(grant, 0)
    assert not pods.manager.lease(pods.attach("t", pod("a")), 0, 50, 1_000).stop
    pods.manager.revoke("uid-a", "enough")
    assert (grant.state, pods.dropped) == (GrantState.GONE, ["t"])


def test_only_the_last_ones_that_are_over_are_kept_and_the_newest_of_each_device(
    make_pod_node, pod, uuids, monkeypatch
):
    monkeypatch.setattr(registry, "_BATCH", 3)
    node = make_pod_node()
    node.manager._grants._max_ended = 5
    node.attach(node.mint("last of G2", uuids[2]), pod("z"))
    for _ in range(2):
        node.manager.pods.reconcile([])
    for number in range(30):
        node.attach(node.mint(f"t{number}", uuids[0]), pod(f"p{number}"))
    kept = {grant.digest for grant in node.log.grants()}
    assert {g.digest for g in node.manager._grants.all()} == kept
    assert len(kept) <= 5 + 3 + 1
    assert node.manager.find("t29").live
    assert node.manager.find("t3") is None
    older = node.mint("older", uuids[2])
    node.minted[older] = node.minted["last of G2"].__class__(
        *(getattr(node.minted[older], f) for f in ("grant_id", "token_digest", "resource", "device_ids")), 10**18
    )
    node.crash()
    node.manager.apply_inventory(node.inventory())
    with pytest.raises(RefusedError, match="void"):
        node.attach(older, pod("y"))


# --- device time of before a restart, when the inventory comes late ---------------------------------------------------


def test_a_pod_that_does_not_come_back_after_a_restart_delays_nobody(pods, pod, uuids):
    grant = pods.attach(pods.mint("t", uuids[0]), pod("a"))
    pods.manager.report_use(grant.main, Piece(1_000, 10**17, 0), steps_done=1)
    pods.crash()
    pods.manager.apply_inventory(pods.inventory(replicas=2))
    other = pods.attach(pods.mint("other", f"{uuids[0]}::1"), pod("b"))
    pods.manager.demand(other.main, uuids[0], Demand("", 0, 1_000, 50))
    assert pods.manager.next_decision_ns() == 1_000 + MAX_UNIT_NS
    pods.manager.pods.end(pods.grant("t"), "its pod is gone")
    assert pods.manager.next_decision_ns() == 1_000


def test_a_lease_comes_after_the_last_piece_of_before_the_restart(make_pod_node, pod, uuids):
    pods = make_pod_node(2)
    grant = pods.attach(pods.mint("t", f"{uuids[0]}::0"), pod("a"))
    pods.manager.demand(grant.main, uuids[0], Demand("", 0, 1_000, 50))
    pods.manager.decide(1_000)
    pods.crash()
    pods.manager.apply_inventory(pods.inventory())
    other = pods.attach(pods.mint("other", f"{uuids[0]}::1"), pod("b"))
    assert pods.manager.lease(other, 0, 50, 1_000) == Lease(1_050, 1_100)
