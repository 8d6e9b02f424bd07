"""Storage, network and links that the jobs of a node share: who is served when, and what survives a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.sharing.demands import Demand, Terms

MS, S = 1_000_000, 1_000_000_000
UUIDS = [device_uuid("n1", index) for index in range(3)]
LINK = HostResource("link-0", devices=(UUIDS[0], UUIDS[1]))


@pytest.fixture
def working(make_node):
    """`working(*resources)`: a node whose clock stands at 0, with jobs a, b and c on a device each."""

    def working(*resources):
        node = make_node("manager.db", "exclusive", resources)
        node.clock._now_ns = 0
        grants = {}
        for row, job in enumerate("abc"):
            grant = node.manager.grant(job, [UUIDS[row]], 0, [Terms(row)])
            grants[job] = node.manager.attach(node.token(grant), job, 0, 0)
        return node, grants

    return working


def ask(node, grant, number, ready_ns, work_ns, name="storage"):
    node.manager.demand(grant.main, name, Demand(grant.holder, number, ready_ns, work_ns))


def decide(node, until_ns):
    """What is decided by then, as (job, resource, number, start, end)."""
    node.clock.advance_to_ns(max(until_ns, node.clock.now_ns()))
    return [
        (each.session.grant.job_id, each.uuid, each.answer.sequence, *each.answer.piece[:2])
        for each in node.manager.decide(until_ns)
    ]


def test_two_jobs_at_once_take_twice_as_long(working):
    node, grants = working(HostResource("storage"))
    ask(node, grants["a"], 0, 0, 100 * MS)
    assert decide(node, 50 * MS) == []
    ask(node, grants["b"], 0, 50 * MS, 100 * MS)
    # a has 50 ms left at 50 ms, which take 100; b then has 50 left, which it does alone
    assert decide(node, S) == [("a", "storage", 0, 0, 150 * MS), ("b", "storage", 0, 50 * MS, 200 * MS)]


def test_the_speed_of_a_resource(working):
    node, grants = working(HostResource("storage", 2.0))
    ask(node, grants["a"], 0, 0, 100 * MS)
    assert decide(node, S) == [("a", "storage", 0, 0, 50 * MS)]


def test_a_resource_is_no_device(working):
    """Its time isn't attained service, and doesn't make a device busy."""
    node, grants = working(HostResource("storage"))
    ask(node, grants["a"], 0, 0, 100 * MS)
    decide(node, S)
    assert grants["a"].leased_ns == 0
    assert [device.leased_ns for device in node.manager.telemetry().devices] == [0, 0, 0]


def test_a_link_is_for_the_devices_behind_it(working):
    node, grants = working(HostResource("storage"), LINK)
    seen = {job: node.manager.resources_for(grant.main) for job, grant in grants.items()}
    assert seen["a"] == [HostResource("storage"), HostResource("link-0", devices=(UUIDS[0],))]
    assert seen["c"] == [HostResource("storage")]
    with pytest.raises(ProtocolError, match="link-0 is no device of job 'c'"):
        ask(node, grants["c"], 0, 0, MS, "link-0")
    ask(node, grants["a"], 0, 0, 10 * MS, "link-0")
    ask(node, grants["b"], 0, 0, 10 * MS, "link-0")
    assert [end for *_, end in decide(node, S)] == [20 * MS, 20 * MS]


WRONG = {
    "unknown": ({"name": "network"}, "network is no device of job 'a'"),
    "too long": ({"work_ns": 601 * S}, "a step of 601 s on storage; at most 600 s"),
    "too far ahead": ({"ready_ns": 601 * S}, "demand 0 is ready in 601 s; demand at most 600 s ahead"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_wrong_demands(working, change, message):
    node, grants = working(HostResource("storage"))
    with pytest.raises(ProtocolError, match=message):
        ask(node, grants["a"], **({"number": 0, "ready_ns": 0, "work_ns": MS} | change))


def test_what_is_prepared_when_a_run_is_asked_to_stop_is_still_answered(working):
    """The run ends when its next step would have been issued, so the job awaits the input of that step."""
    node, grants = working(HostResource("storage"))
    node.manager.stop("a")
    ask(node, grants["a"], 5, 0, 10 * MS)
    assert decide(node, S) == [("a", "storage", 5, 0, 10 * MS)]


def test_who_leaves_frees_its_part(working):
    node, grants = working(HostResource("storage"))
    for job in "ab":
        ask(node, grants[job], 0, 0, 100 * MS)
    assert decide(node, 50 * MS) == []
    node.manager.finish(grants["a"], 1)
    assert decide(node, S) == [("b", "storage", 0, 0, 125 * MS)]


def test_the_next_run_numbers_its_demands_from_anew(working):
    node, grants = working(HostResource("storage"))
    ask(node, grants["a"], 7, 0, MS)
    decide(node, 10 * MS)
    node.manager.release(grants["a"], 7)
    again = node.manager.grant("a", UUIDS[:1], 0)
    again = node.manager.attach(node.token(again), "a", 0, 0)
    ask(node, again, 0, 10 * MS, MS)
    assert decide(node, 20 * MS) == [("a", "storage", 0, 10 * MS, 11 * MS)]


def returned(node, jobs="ab"):
    """The node after a kill, with these jobs attached again."""
    tokens = {grant.job_id: node.token(grant) for grant in node.manager.grants()}
    node.crash()
    return {job: node.manager.attach(tokens[job], job, 0, 0) for job in jobs}


def test_a_repeated_demand_has_the_same_answer_also_after_a_kill(working):
    node, grants = working(HostResource("storage"))
    ask(node, grants["a"], 0, 0, 100 * MS)
    answer = decide(node, 200 * MS)
    for _ in range(2):
        ask(node, grants["a"], 0, 0, 100 * MS)
        assert decide(node, 200 * MS) == answer
        grants = returned(node)


def test_what_was_half_served_before_a_kill_is_not_served_again(working):
    """When the answer to c is decided, what a and b have left is stored. From the beginning they would end at 200 ms."""
    node, grants = working(HostResource("storage"))
    for job in "ab":
        ask(node, grants[job], 0, 0, 100 * MS)
    ask(node, grants["c"], 0, 30 * MS, 10 * MS)
    assert decide(node, 61 * MS) == [("c", "storage", 0, 30 * MS, 60 * MS)]
    grants = returned(node)
    for job in "ab":
        ask(node, grants[job], 0, 0, 100 * MS)
    ends = {job: end for job, _, _, _, end in decide(node, S)}
    assert ends == {job: pytest.approx(210 * MS, abs=MS) for job in "ab"}


# --- resources of an inventory ------------------------------------------------------------------------------------------


@pytest.fixture
def changing(pods, pod):
    """`changing(*resources)`: the node's inventory has these from now on. Pods a and b have a device each."""
    for index, name in enumerate("ab"):
        pods.attach(pods.mint(name, UUIDS[index]), pod(name), 0)
    pods.clock._now_ns = 0

    def change(*resources):
        pods.manager.apply_inventory(replace(pods.inventory(), host_resources=resources))
        return {name: pods.grant(name) for name in "ab"}

    return change


def ends(pods, until_ns=10 * S):
    return {end for *_, end in decide(pods, until_ns)}


def test_a_pool_gives_its_nodes_what_their_jobs_share(pods, changing):
    grants = changing(HostResource("storage", 2.0), LINK)
    assert pods.manager.resources_for(grants["b"].main) == [
        HostResource("storage", 2.0),
        HostResource("link-0", devices=(UUIDS[1],)),
    ]
    for grant in grants.values():
        ask(pods, grant, 0, 0, 100 * MS)
    assert ends(pods) == {100 * MS}


def test_another_speed_counts_when_nobody_is_served_any_more(pods, changing):
    grants = changing(HostResource("storage"))
    ask(pods, grants["a"], 0, 0, 100 * MS)
    changing(HostResource("storage", 4.0))
    assert ends(pods) == {100 * MS}
    ask(pods, grants["a"], 1, 10 * S, 100 * MS)
    assert ends(pods, 20 * S) == {10 * S + 100 * MS}  # its run goes on
    pods.manager.release(grants["a"], 2)
    ask(pods, grants["b"], 0, 20 * S, 100 * MS)
    assert ends(pods, 30 * S) == {20 * S + 25 * MS}


def test_what_a_pool_has_no_longer_serves_those_who_know_it(pods, changing):
    """A job that attached before the change knows the resource, so its demands must not be an error."""
    grants = changing(HostResource("storage"), LINK)
    ask(pods, grants["a"], 0, 0, 100 * MS, "link-0")
    assert ends(pods) == {100 * MS}
    changing(replace(LINK, devices=(UUIDS[2],)))
    assert pods.manager.resources_for(grants["a"].main) == []
    ask(pods, grants["a"], 0, 10 * S, 100 * MS)
    ask(pods, grants["a"], 1, 10 * S, 50 * MS, "link-0")
    assert ends(pods, 20 * S) == {10 * S + 100 * MS, 10 * S + 50 * MS}
    with pytest.raises(ProtocolError, match="link-0 is no device of pod"):
        ask(pods, grants["b"], 0, 0, MS, "link-0")  # it never used the link, and isn't behind it any more
    grants = changing(HostResource("storage"), LINK)
    assert [each.name for each in pods.manager.resources_for(grants["b"].main)] == ["storage", "link-0"]
