"""Which grants end: those missing in two consecutive lists of the kubelet, and never one of an existing pod."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.node.grant_files import GrantRecord
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodAllocation, PodIdentity
from sharing_manager.grants.reconcile import YOUNG_NS, reconcile

NOW = 10**18
OLD = NOW - YOUNG_NS - 1


def digest(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def pod(name, *, init=False):
    return PodIdentity(f"uid-{name}", "id", "ns", name, "main", f"job-{name}", init)


def grant(number, name=None, devices=("G0",), state=GrantState.ATTACHED, init=False):
    return Grant(
        digest(number), "j", tuple(devices), 0, 0, minted_ns=number, state=state, pod=name and pod(name, init=init)
    )


def record(number, devices=("G0",), minted_ns=OLD):
    return GrantRecord(digest(number)[:32], digest(number), "r", tuple(devices), minted_ns)


def holds(name, *devices, container="main"):
    return PodAllocation("ns", name, container, "r", frozenset(devices))


def run(grants=(), unbound=(), allocations=(), missed=(), connected=()):
    return reconcile(grants, unbound, allocations, missed, connected=connected, wall_ns=NOW)


def test_missing_twice_is_gone():
    grants = [grant(1, "a")]
    once = run(grants)
    assert (once.gone, once.missed) == (frozenset(), {digest(1)})
    assert run(grants, missed=once.missed).gone == {digest(1)}


def test_back_in_between_starts_anew():
    grants = [grant(1, "a")]
    there = run(grants, allocations=[holds("a", "G0")], missed=run(grants).missed)
    assert there.gone == there.missed == frozenset()
    assert run(grants, missed=there.missed).gone == frozenset()


@pytest.mark.parametrize("state", [GrantState.ATTACHED, GrantState.GRANTED, GrantState.FINISHED, GrantState.RELEASED])
def test_a_pods_grant_goes_in_any_state_but_once(state):
    assert run([grant(1, "a", state=state)], missed={digest(1)}).gone == {digest(1)}
    for over in (GrantState.GONE, GrantState.FENCED):
        assert run([grant(1, "a", state=over)], missed={digest(1)}).gone == frozenset()


def test_all_its_devices_in_whatever_container_of_that_pod():
    grants = [grant(1, "a", ("G0", "G1"))]
    split = [holds("a", "G0"), holds("a", "G1", container="side")]
    assert not run(grants, allocations=split).missed
    assert run(grants, allocations=[holds("a", "G0")]).missed
    assert run(grants, allocations=[holds("b", "G0", "G1")]).missed


def test_a_pod_of_that_name_elsewhere_is_another_one():
    elsewhere = PodAllocation("other", "a", "main", "r", frozenset({"G0"}))
    assert run([grant(1, "a")], allocations=[elsewhere]).missed


def test_an_init_container_is_there_while_its_pod_is_listed_or_it_is_connected():
    grants = [grant(1, "a", init=True)]
    listed = PodAllocation("ns", "a", "main", "", frozenset())
    assert not run(grants, allocations=[listed]).missed
    assert not run(grants, connected={digest(1)}).missed
    assert run(grants).missed


def test_being_connected_doesnt_keep_what_the_kubelet_has_taken():
    assert run([grant(1, "a")], connected={digest(1)}, missed={digest(1)}).gone == {digest(1)}


def test_a_grant_without_a_name_goes_when_nobody_holds_its_devices():
    assert not run([grant(1)], allocations=[holds("x", "G0")]).missed
    assert run([grant(1)], missed={digest(1)}).gone == {digest(1)}


def test_the_owners_grants_are_no_business_of_the_kubelet():
    owners = Grant(digest(1), "job", ("G0",), 0, 0, state=GrantState.ATTACHED)
    assert not run([owners], missed={digest(1)}).missed


def test_an_unshown_token_is_deleted_when_it_is_old_and_twice_nobodys():
    missed = run(unbound=[record(1)]).missed
    assert run(unbound=[record(1)], missed=missed).stale == {digest(1)}
    assert not run(unbound=[record(1, minted_ns=NOW - YOUNG_NS)], missed=missed).stale
    assert not run(unbound=[record(1)]).stale
    assert not run(unbound=[record(1)], missed=missed, allocations=[holds("a", "G0")]).stale


def test_an_unshown_token_that_a_much_newer_one_has_replaced_is_deleted():
    held = [holds("b", "G0")]
    init, main, newer = record(1, minted_ns=OLD - YOUNG_NS - 1), record(2, minted_ns=OLD - YOUNG_NS), record(3)
    assert run(unbound=[init, main], allocations=held).stale == frozenset()  # one pod's containers
    assert run(unbound=[init, main, newer], allocations=held).stale == {digest(1)}
    older = record(4, minted_ns=OLD - 2 * YOUNG_NS)
    assert run(unbound=[older, main, newer], allocations=held).stale == {digest(4)}


pods = st.sampled_from("abc")
ids = st.frozensets(st.sampled_from(["G0", "G1", "G2::0"]), min_size=1)


@given(
    st.lists(st.tuples(pods, ids, st.sampled_from(list(GrantState)), st.booleans()), max_size=6),
    st.lists(st.lists(st.tuples(pods, ids), max_size=4), min_size=1, max_size=5),
)
def test_whoever_is_listed_in_one_of_any_two_comparisons_stays(described, rounds):
    grants = [grant(n, name, sorted(held), state, init) for n, (name, held, state, init) in enumerate(described, 1)]
    absent_before, missed = set(), frozenset()
    for listed in rounds:
        allocations = [holds(name, *held) for name, held in listed]
        found = run(grants, allocations=allocations, missed=missed)
        missed = found.missed
        of_pod = {name: frozenset().union(*(h for n, h in listed if n == name)) for name, _ in listed}
        absent = {
            g.digest
            for g in grants
            if (
                g.pod.pod not in of_pod
                if g.pod.init_container
                else not of_pod.get(g.pod.pod, frozenset()) >= {*g.devices}
            )
        }
        over = {g.digest for g in grants if g.ended}
        assert found.gone == (absent & absent_before) - over
        absent_before = absent
