"""Which pod a token is bound to, and which holders an attachment displaces: one test for each rule."""

import hashlib

import pytest

from emulator_runtime.domain.errors import RefusedError
from sharing_manager.grants.binding import Mark, check_held, decide, mark
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodAllocation, PodIdentity


def pod(name, container="main", uid=None):
    return PodIdentity(uid or f"uid-{name}", f"id-{name}-{container}", "ns", name, container, f"job-{name}")


def grant(minted_ns, devices=("G0",), of=None, state=GrantState.GRANTED):
    digest = hashlib.sha256(str(minted_ns).encode()).hexdigest()
    made = Grant(digest, "", tuple(devices), 0, 0, minted_ns=minted_ns, bound=False, state=state)
    if of is not None:
        made.bind(of.job_key, of)
        made.bound = True
    return made


def displaced(*arguments):
    found = decide(*arguments)
    return [g.minted_ns for g in found.fenced], [g.minted_ns for g in found.suspended]


def test_the_first_to_show_a_token_displaces_nobody():
    assert displaced(grant(1), pod("a"), [], {}) == ([], [])


def test_another_pod_with_the_same_token_is_refused():
    with pytest.raises(RefusedError, match="this token belongs to another pod; use the one in"):
        decide(grant(1, of=pod("a")), pod("b"), [], {})


def test_a_pod_that_was_deleted_and_has_the_same_name_is_another_pod():
    with pytest.raises(RefusedError, match="another pod"):
        decide(grant(1, of=pod("a")), pod("a", uid="uid-2"), [], {})


def test_another_container_with_the_same_token_is_refused():
    with pytest.raises(RefusedError, match="belongs to container 'main' of this pod; use 'side''s EMUGPU_TOKEN"):
        decide(grant(1, of=pod("a")), pod("a", "side"), [], {})


@pytest.mark.parametrize("known", ["bound", "shown", "neither"])
def test_a_container_whose_name_is_not_known_is_the_pods(known):
    bound = pod("a", "main" if known == "bound" else "")
    shown = pod("a", "main" if known == "shown" else "")
    assert displaced(grant(1, of=bound), shown, [], {}) == ([], [])


@pytest.mark.parametrize("state", [GrantState.ATTACHED, GrantState.GRANTED, GrantState.FINISHED, GrantState.FAILED])
def test_a_newer_token_fences_older_ones_of_other_pods_whatever_they_do(state):
    older = grant(1, of=pod("a"), state=state)
    assert displaced(grant(2), pod("b"), [older], {}) == ([1], [])


@pytest.mark.parametrize("state", [GrantState.FENCED, GrantState.GONE])
def test_what_is_over_is_not_fenced_again(state):
    assert displaced(grant(2), pod("b"), [grant(1, of=pod("a"), state=state)], {}) == ([], [])


def test_other_devices_unshown_tokens_and_the_owners_jobs_are_left_alone():
    owners = Grant("0" * 64, "job", ("G0",), 0, 0)
    others = [grant(1, ("G1",), of=pod("a")), grant(2), owners]
    assert displaced(grant(3), pod("b"), others, {}) == ([], [])


def test_two_replicas_of_a_device_are_two_ids():
    older = grant(1, ("G0::0",), of=pod("a"), state=GrantState.ATTACHED)
    assert displaced(grant(2, ("G0::1",)), pod("b"), [older], {}) == ([], [])
    assert displaced(grant(2, ("G0::0", "G0::1")), pod("b"), [older], {}) == ([1], [])


def test_within_a_pod_the_last_to_attach_suspends_the_other_newer_or_not():
    first = grant(1, of=pod("a", "init"), state=GrantState.ATTACHED)
    main = grant(2, of=pod("a"), state=GrantState.ATTACHED)
    assert displaced(main, pod("a"), [first, main], {"G0": Mark(2, "uid-a")}) == ([], [1])
    assert displaced(first, pod("a", "init"), [first, main], {"G0": Mark(2, "uid-a")}) == ([], [2])
    first.state = GrantState.GRANTED  # suspended already
    assert displaced(main, pod("a"), [first], {}) == ([], [])


def test_an_older_token_of_another_pod_is_void_for_good():
    marks = {}
    newer = grant(5, of=pod("b"))
    mark(newer, marks)
    mark(grant(3, of=pod("c")), marks)  # doesn't turn it back
    with pytest.raises(RefusedError, match="device G0 has been given to another pod since; this token is void"):
        decide(grant(4), pod("a"), [], marks)
    with pytest.raises(RefusedError, match="void"):
        decide(grant(4, ("G1", "G0")), pod("a"), [], marks)
    assert displaced(grant(4), pod("b"), [], marks) == ([], [])
    assert displaced(grant(6), pod("a"), [], marks) == ([], [])
    assert displaced(grant(4, ("G1",)), pod("a"), [], marks) == ([], [])


def test_where_nobody_can_tell_each_token_is_somebody():
    older = grant(1, state=GrantState.ATTACHED)
    older.bound = True
    marks = {}
    mark(older, marks)
    assert displaced(grant(2), None, [older], marks) == ([1], [])
    mark(grant(2), marks)
    with pytest.raises(RefusedError, match="void"):
        decide(older, None, [], marks)


def test_who_was_bound_with_a_name_is_still_somebody_when_nobody_can_tell():
    bound = grant(1, of=pod("a"))
    assert displaced(bound, None, [], {"G0": Mark(2, "uid-a")}) == ([], [])


# --- who has the devices, says the kubelet ----------------------------------------------------------------------------


def held_by(name, *ids, resource="", namespace="ns", container="main"):
    return PodAllocation(namespace, name, container, resource, frozenset(ids))


@pytest.mark.parametrize(
    "allocations",
    [
        [held_by("a", "G0", "G1")],
        [held_by("a", "G0"), held_by("a", "G1", container="side")],
        [held_by("a", "G0", "G1"), held_by("just-deleted", "G0", "G1")],
        [held_by("other", "G0", "G1", resource="another/resource")],
        [held_by("a"), held_by("other", "G2")],  # an init container's: nobody has them
        [],
    ],
)
def test_a_token_that_nobody_has_shown_yet_is_good_for_the_pod_that_has_its_devices(allocations):
    check_held(grant(1, ("G0", "G1")), pod("a"), allocations)


@pytest.mark.parametrize(
    "allocations",
    [
        [held_by("other", "G0", "G1")],
        [held_by("a", "G2"), held_by("other", "G0", "G1")],
        [held_by("a", "G0"), held_by("other", "G1")],
        [held_by("a", "G0", "G1", namespace="theirs")],
        [held_by("a", "G0", "G1", resource="another/resource"), held_by("other", "G0")],
    ],
)
def test_a_copied_token_is_not_bound_to_the_pod_that_copied_it(allocations):
    with pytest.raises(RefusedError, match="devices were given to another pod; use the one in this container's own"):
        check_held(grant(1, ("G0", "G1")), pod("a"), allocations)
