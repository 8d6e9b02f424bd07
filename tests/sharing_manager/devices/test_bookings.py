"""Booked device time never overlaps, isn't idle under load, and what a holder gives back can be booked again."""

from hypothesis import given
from hypothesis import strategies as st

from sharing_manager.devices.bookings import Bookings


def book(bookings, holder, issue_ns, duration_ns):
    start = max(issue_ns, bookings.free_at_ns)
    bookings.add(holder, start + duration_ns)
    return start, start + duration_ns


asked = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=30)


@given(asked)
def test_first_in_first_out_and_never_overlapping(requests):
    bookings, now, busy_until = Bookings(), 0, 0
    for holder, pause, duration in requests:
        now += pause
        start, end = book(bookings, holder, now, duration)
        assert start == max(now, busy_until)  # in the order of asking, and back to back while there is work
        busy_until = end
    assert bookings.free_at_ns == busy_until


@given(asked, st.integers(0, 2000))
def test_cutting_frees_what_has_not_run_and_leaves_what_others_have(requests, later):
    bookings, now, booked = Bookings(), 0, []
    for holder, pause, duration in requests:
        now += pause
        booked.append((holder, *book(bookings, holder, now, duration)))
    now += later
    for number, holder in enumerate("abc"):
        bookings.cut(holder, now)
        bookings.cut(holder, 0)  # only once, and not with another time
        others = [end for each, _, end in booked if each in "abc"[number + 1 :]]
        gone = [min(end, now) for each, _, end in booked if each in "abc"[: number + 1]]
        assert bookings.free_at_ns == max(others + gone, default=0)


def test_who_leaves_first_holds_nobody_up_when_those_behind_it_have_left_too():
    bookings = Bookings()
    book(bookings, "a", 0, 10)
    book(bookings, "b", 0, 10)
    bookings.cut("a", 3)
    assert bookings.free_at_ns == 20
    bookings.cut("b", 4)
    assert bookings.free_at_ns == 4


def test_who_has_the_device_alone_frees_all():
    bookings = Bookings()
    book(bookings, "a", 0, 10)
    book(bookings, "b", 0, 10)
    bookings.cut("b", 3, alone=True)
    assert bookings.free_at_ns == 3
