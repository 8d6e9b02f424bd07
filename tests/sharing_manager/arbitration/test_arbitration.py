"""Sharing modes: leases never overlap, a device isn't idle under load, and a holder that leaves returns its time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import RefusedError
from emulator_runtime.sharing.modes import MODES
from sharing_manager.arbitration import arbiter_of
from sharing_manager.arbitration.exclusive import Exclusive
from sharing_manager.arbitration.fifo import Fifo


def lease(arbiter, holder, issue_ns, duration_ns):
    start = max(issue_ns, arbiter.free_at_ns())
    arbiter.occupy(holder, start, start + duration_ns)
    return start, start + duration_ns


asked = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=30)


@given(asked)
def test_first_in_first_out_and_never_overlapping(requests):
    arbiter, now, busy_until = Fifo(), 0, 0
    for holder, pause, duration in requests:
        now += pause
        start, end = lease(arbiter, holder, now, duration)
        assert start == max(now, busy_until)  # in the order of asking, and back to back while there is work
        busy_until = end
    assert arbiter.free_at_ns() == busy_until


@given(asked, st.integers(0, 2000))
def test_leaving_frees_what_is_last_and_has_not_run(requests, later):
    arbiter, now, leases = Fifo(), 0, []
    for holder, pause, duration in requests:
        now += pause
        leases.append((holder, *lease(arbiter, holder, now, duration)))
    holder, start, end = leases[-1]
    now += later
    others_end = max((e for h, _, e in leases[:-1]), default=0)
    arbiter.leave(holder, now)
    free = arbiter.free_at_ns()
    assert free == min(end, max(now, start))
    assert free >= others_end
    arbiter.leave(holder, 0)
    assert arbiter.free_at_ns() == free  # only once, and not with another time


def test_who_has_others_behind_it_frees_nothing():
    arbiter = Fifo()
    lease(arbiter, "a", 0, 10)
    lease(arbiter, "b", 0, 10)
    arbiter.leave("a", 3)
    assert arbiter.free_at_ns() == 20
    arbiter.leave("b", 12)
    assert arbiter.free_at_ns() == 12


def test_an_exclusive_device_has_one_holder():
    arbiter = Exclusive()
    arbiter.admit("a")
    arbiter.admit("a")
    with pytest.raises(
        RefusedError, match=r"it is exclusive and a holds it; wait until that ends, or share the device$"
    ):
        arbiter.admit("b")
    arbiter.leave("a", 0)
    arbiter.admit("b")


def test_a_shared_device_has_any_number():
    arbiter = Fifo()
    for holder in "abcdef":
        arbiter.admit(holder)
    assert arbiter.holders == set("abcdef")


def test_only_an_exclusive_device_has_a_single_holder():
    kinds = {name: type(arbiter_of(mode)) for name, mode in MODES.items()}
    assert kinds.pop("exclusive") is Exclusive
    assert set(kinds.values()) == {Fifo}
