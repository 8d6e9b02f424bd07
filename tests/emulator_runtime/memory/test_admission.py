"""What fits on a device: the rule, that a refusal changes nothing, and what the refusal says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import OutOfMemoryError
from emulator_runtime.domain.units import GIB
from emulator_runtime.memory.admission import MemoryBook
from emulator_runtime.memory.rules import Reservation, sum_of_peaks

reservations = st.builds(lambda p, extra: Reservation(p, p + extra), st.integers(0, 60), st.integers(0, 60))
requests = st.lists(st.tuples(st.sampled_from("abc"), st.none() | reservations), max_size=20)


@given(requests)
def test_what_is_admitted_fits_and_what_is_refused_would_not_have(asked):
    book, expected = MemoryBook("GPU-0", 100), {}
    for holder, wanted in asked:
        if wanted is None:
            book.release(holder)
            expected.pop(holder, None)
            continue
        then = expected | {holder: wanted}
        needs = sum(r.persistent_bytes for r in then.values()) + max(
            r.peak_bytes - r.persistent_bytes for r in then.values()
        )
        if needs <= 100:
            book.reserve(holder, wanted)
            expected = then
        else:
            with pytest.raises(OutOfMemoryError):
                book.reserve(holder, wanted)
        assert book.held == expected
        assert 0 <= book.used_bytes <= 100


def test_peaks_share_their_transient_part_because_one_computes_at_a_time():
    book = MemoryBook("GPU-0", 10)
    book.reserve("a", Reservation(2, 8))
    book.reserve("b", Reservation(2, 8))
    assert book.used_bytes == 10
    with pytest.raises(OutOfMemoryError):
        book.reserve("c", Reservation(1, 1))


def test_a_second_reservation_replaces_the_first():
    book = MemoryBook("GPU-0", 10)
    book.reserve("a", Reservation(9, 9))
    book.reserve("a", Reservation(10, 10))
    assert book.used_bytes == 10
    book.release("a")
    book.release("a")
    assert book.used_bytes == 0


def test_the_message_says_who_asks_what_is_free_and_who_holds_the_rest():
    book = MemoryBook("GPU-0", 16 * GIB)
    book.reserve("a", Reservation(4 * GIB, 6 * GIB))
    book.reserve("b", Reservation(2 * GIB, 2 * GIB))
    with pytest.raises(OutOfMemoryError) as caught:
        book.reserve("c", Reservation(9 * GIB, 12 * GIB))
    assert str(caught.value) == (
        "out of memory on GPU-0: c asks for 12.00 GiB (9.00 GiB of it persistent), 8.00 GiB of 16.00 GiB usable are free, "
        "the rest is held by a 4.00 GiB, b 2.00 GiB"
    )


def test_the_message_on_an_empty_device():
    with pytest.raises(OutOfMemoryError, match=r"0\.50 GiB of 0\.50 GiB usable are free, the rest is held by nobody$"):
        MemoryBook("GPU-0", GIB // 2).reserve("a", Reservation(GIB, GIB))


def test_measured_reservations_may_fill_the_nominal_memory():
    book = MemoryBook("GPU-0", 37, sum_of_peaks, nominal_bytes=40)
    with pytest.raises(OutOfMemoryError):
        book.reserve("profiled", Reservation(0, 38))
    book.reserve("a", Reservation(30, 30, measured=True))
    with pytest.raises(OutOfMemoryError, match=r"0\.00 GiB of 0\.00 GiB nominal are free"):
        book.reserve("b", Reservation(11, 11, measured=True))
    book.reserve("b", Reservation(10, 10, measured=True))
    assert book.used_bytes == 40


@given(st.lists(st.integers(0, 40), max_size=4), st.integers(0, 37))
def test_each_kind_uses_up_its_part_of_the_memory(measured, profiled):
    book = MemoryBook("GPU-0", 37, sum_of_peaks, nominal_bytes=40)
    fits = sum(measured) / 40 + profiled / 37 <= 1 + 1e-12
    try:
        for number, held in enumerate(measured):
            book.reserve(str(number), Reservation(held, held, measured=True))
        book.reserve("profiled", Reservation(0, profiled))
    except OutOfMemoryError:
        assert not fits
    else:
        assert fits


def test_another_memory_counts_for_later_reservations():
    book = MemoryBook("GPU-0", 37, nominal_bytes=40)
    book.resize(74, 80)
    book.reserve("a", Reservation(80, 80, measured=True))
