"""Grants of host slots: a container without a GPU attaches, waits and reports, and never counts as a device."""

import pytest

from emulator_runtime.domain.errors import RefusedError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.grant_files import GrantRecord
from emulator_runtime.node.inventory import Inventory
from sharing_manager.grants.binding import check_held
from sharing_manager.grants.grant import GrantState
from sharing_manager.grants.identity import PodAllocation
from sharing_manager.grants.reconcile import YOUNG_NS
from sharing_manager.kubernetes.pod_events import event_reporter
from sharing_manager.persistence.event_log import ManagerEvent

HOST = "emugpu.dev/host"


def holds(name, *places, resource=HOST):
    return PodAllocation("ns", name, "main", resource, frozenset(places))


@pytest.fixture
def mint(pods):
    return lambda token, *places: pods.mint(token, *places, resource=HOST)


def test_a_run_without_a_device(pods, pod, mint):
    grant = pods.attach(mint("t", "place-3"), pod("a"))
    assert (grant.devices, grant.uuids, grant.ids) == ((), (), ("place-3",))
    assert (pods.manager.specs(grant.main), pods.manager.shared(grant)) == ([], False)
    pods.manager.reserve(grant.main, Reservation(0, 0))
    assert pods.manager.lease(grant, 0, 50, 1_000) == Lease(1_000, 1_050)
    pods.clock.wait_until_ns(1_050)
    assert pods.manager.lease(grant, 1, 50, 1_050) == Lease(1_050, 1_100)
    pods.clock.wait_until_ns(1_100)
    pods.manager.finish(grant, 2)
    events = [(event.kind, event.steps_done, event.detail) for event in pods.log.after(0)]
    assert events == [("granted", 0, ""), ("attached", 0, ""), ("finished", 2, "")]


def test_two_of_them_and_a_gpu_do_not_meet(pods, pod, mint, uuids):
    """Each has the time that it asks for, as there is nothing that they share."""
    grants = [pods.attach(mint(f"t{n}", f"place-{n}"), pod(f"p{n}")) for n in range(2)]
    grants.append(pods.attach(pods.mint("g", uuids[0]), pod("g")))
    for grant in grants:
        assert pods.manager.lease(grant, 0, 1_000, 1_000) == Lease(1_000, 2_000)
    assert pods.dropped == []


def test_places_are_in_no_telemetry(pods, pod, mint):
    pods.attach(mint("t", "place-0"), pod("a"))
    telemetry = pods.manager.telemetry()
    assert len(telemetry.devices) == 3
    assert all(not device.processes for device in telemetry.devices)
    assert pods.manager.telemetry(pods.grant("t").uuids).devices == ()


def test_progress_goes_from_a_place_to_a_gpu_and_back(pods, pod, mint, uuids):
    """A job with a CPU and a GPU configuration."""
    first = pods.attach(mint("t1", "place-0"), pod("a", job_key="job/0"))
    pods.manager.release(first, 4)
    second = pods.attach(pods.mint("t2", uuids[0]), pod("b", job_key="job/0"))
    assert second.steps_done == 4
    pods.manager.release(second, 9)
    assert pods.attach(mint("t3", "place-1"), pod("c", job_key="job/0")).steps_done == 9


def test_the_next_pod_on_a_place_fences_the_one_before(pods, pod, mint):
    earlier = mint("t0", "place-0")
    old = pods.attach(mint("t1", "place-0"), pod("a"))
    new = pods.attach(mint("t2", "place-0"), pod("b"))
    assert (old.state, new.live) == (GrantState.FENCED, True)
    assert pods.attach("t1", pod("a")).ended  # and it comes to nothing any more
    with pytest.raises(RefusedError, match="this token is void, delete the pod"):
        pods.attach(earlier, pod("c"))


def test_a_grant_ends_with_its_pod_and_lives_as_long(pods, pod, mint):
    grant = pods.attach(mint("t", "place-0"), pod("a"))
    for _ in range(3):
        pods.manager.pods.reconcile([holds("a", "place-0"), holds("b", "place-1")])
    assert grant.live
    for _ in range(2):
        pods.manager.pods.reconcile([holds("b", "place-0")])
    assert grant.state is GrantState.GONE


def test_what_nobody_showed_goes_with_its_pod(pods, mint):
    """The host token beside a GPU's, which no process uses."""
    mint("t", "place-0")
    record = pods.minted["t"]
    pods.wall_ns += YOUNG_NS + 1
    assert pods.manager.pods.reconcile([holds("a", "place-0")], [record]).stale == frozenset()
    pods.manager.pods.reconcile([], [record])
    assert pods.manager.pods.reconcile([], [record]).stale == {record.token_digest}


def test_a_token_that_was_copied_to_another_pod_is_refused(pods, pod, mint):
    mint("t", "place-0")
    with pytest.raises(RefusedError, match="were given to another pod"):
        check_held(pods.grant("t"), pod("b"), [holds("a", "place-0"), holds("b", "place-1")])
    check_held(pods.grant("t"), pod("a"), [holds("a", "place-0")])


def test_places_survive_a_restart_of_the_manager(pods, pod, mint):
    grant = pods.attach(mint("t", "place-7"), pod("a"))
    pods.manager.lease(grant, 0, 500, 1_000)
    pods.crash()
    pods.manager.apply_inventory(Inventory("n1", (), pool="cpu"))
    again = pods.attach("t", pod("a"), 0)
    assert (again.places, again.devices, again.uuids) == (("place-7",), (), ())
    assert pods.manager.lease(again, 0, 500, 1_000) == Lease(1_000, 1_500)


def test_a_record_of_devices_has_no_places(pods, uuids):
    pods.mint("g", uuids[1])
    assert (pods.grant("g").places, pods.grant("g").uuids) == ((), (uuids[1],))
    assert isinstance(pods.minted["g"], GrantRecord)


def test_the_pods_owner_is_reported_that_it_runs_without_a_gpu(pod):
    reported = []

    class Events:
        def record(self, identity, reason, note, *, warning):
            reported.append((reason, note))

    event_reporter(Events())(pod("a"), ManagerEvent(0, "attached", "j", 0))
    assert reported == [("EmuGPUAttached", "container main starts on CPUs only")]
