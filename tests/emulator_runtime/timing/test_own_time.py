"""A program's own time: CPU and device work overlap, leases are back to back, and the emulator's lateness doesn't add up."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import LateError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.timing.clocks import ManualClock
from emulator_runtime.timing.own_time import OwnTime
from emulator_runtime.timing.waiter import Waiter
from tests.support.private_clock import private_clock

MS = 1_000_000


class Stream:
    """Work of a program on a device of its own, one piece after the other; `request`: what each request for time does."""

    def __init__(self, clock, request=lambda: None):
        self._time, self._request, self._end_ns = OwnTime(clock), request, 0

    @property
    def lag_ns(self) -> int:
        return self._time.lag_ns

    def issue(self, duration_ns) -> Lease:
        with self._time.call() as now_ns:
            self._request()
            lease = Lease(max(now_ns, self._end_ns), max(now_ns, self._end_ns) + duration_ns)
        self._end_ns = lease.end_ns
        return lease

    def synchronize(self) -> int:
        self._time.wait_until_ns(self._end_ns)
        return self.lag_ns

    def step(self, duration_ns):
        self.issue(duration_ns)
        self.synchronize()


@pytest.mark.parametrize(("cpu_ms", "step_ms"), [(60, 100), (0, 100), (100, 100), (150, 150)])
def test_cpu_work_beside_device_work_takes_the_longer_of_both(cpu_ms, step_ms):
    clock = ManualClock()
    stream = Stream(clock)
    for _ in range(10):
        stream.issue(100 * MS)
        clock.advance_ns(cpu_ms * MS)
        stream.synchronize()
    assert clock.now_ns() == 10 * step_ms * MS


def test_synchronous_steps_add_up():
    clock = ManualClock()
    stream = Stream(clock)
    for _ in range(3):
        stream.step(20 * MS)
        clock.advance_ns(5 * MS)
    assert clock.now_ns() == 75 * MS
    assert clock.waits == [20 * MS, 45 * MS, 70 * MS]


def test_issued_work_queues_and_the_caller_goes_on():
    clock = ManualClock(7)
    stream = Stream(clock)
    assert [stream.issue(10), stream.issue(20), stream.issue(5)] == [Lease(7, 17), Lease(17, 37), Lease(37, 42)]
    assert clock.now_ns() == 7
    assert stream.synchronize() == 0
    assert clock.now_ns() == 42


def test_nothing_issued_is_nothing_to_wait_for():
    clock = ManualClock(7)
    assert Stream(clock).synchronize() == 0
    assert clock.waits == []


def test_lateness_does_not_add_up():
    clock = ManualClock(oversleep=lambda: 3 * MS)
    stream = Stream(clock)
    for _ in range(1_000):
        stream.step(20 * MS)
    assert clock.now_ns() == 20_003 * MS
    assert stream.lag_ns == 3 * MS


def test_lateness_beyond_a_step_is_made_up_by_the_next_ones():
    clock = ManualClock(oversleep=itertools.chain([70 * MS], itertools.repeat(0)).__next__)
    stream = Stream(clock)
    lags = []
    for _ in range(6):
        stream.step(20 * MS)
        lags.append(stream.lag_ns // MS)
    assert lags == [70, 50, 30, 10, 0, 0]
    assert clock.now_ns() == 120 * MS


def test_cpu_time_counts_even_when_the_emulator_was_late():
    clock = ManualClock(oversleep=lambda: 3 * MS)
    stream = Stream(clock)
    for _ in range(100):
        stream.step(20 * MS)
        clock.advance_ns(5 * MS)
    assert clock.now_ns() == (100 * 25 + 3) * MS


def test_what_needs_no_wait_leaves_the_lag_as_it_was():
    clock = ManualClock(oversleep=itertools.count(MS, MS).__next__)
    stream = Stream(clock)
    stream.step(20 * MS)
    stream.step(20 * MS)
    stream.issue(10 * MS)
    clock.advance_ns(50 * MS)
    assert stream.synchronize() == 2 * MS


def test_a_slow_request_for_device_time_does_not_slow_the_job_down():
    clock = ManualClock()
    stream = Stream(clock, lambda: clock.advance_ns(3 * MS))
    for _ in range(100):
        stream.issue(20 * MS)
        clock.advance_ns(19 * MS)
        stream.synchronize()
    assert clock.now_ns() == 100 * 22 * MS  # 3 + 19 ms pass in each step, whatever the device does
    assert stream.lag_ns == 200 * MS  # and the job knows that 20 would have
    for _ in range(20):
        stream.step(20 * MS)
    assert clock.now_ns() == 120 * 20 * MS


def test_a_strict_clock_is_heard(fake_host):
    host = fake_host(lambda: 5 * MS)
    stream = Stream(private_clock(1.0, Waiter(0, host.now, host.sleep), strict_ns=MS))
    with pytest.raises(LateError, match="run fewer processes per core"):
        stream.step(20 * MS)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("compute"), st.integers(0, 50)),
        st.tuples(st.just("issue"), st.integers(0, 50)),
        st.tuples(st.just("synchronize"), st.just(0)),
    ),
    max_size=60,
)


def leases_of(program, oversleep) -> tuple[list[Lease], list[int], Stream, ManualClock]:
    clock = ManualClock(oversleep=oversleep)
    stream, leases, issued = Stream(clock), [], []
    for operation, amount in program:
        if operation == "compute":
            clock.advance_ns(amount)
        elif operation == "issue":
            issued.append(clock.now_ns() - stream.lag_ns)
            leases.append(stream.issue(amount))
        else:
            stream.synchronize()
    return leases, issued, stream, clock


@given(operations, st.lists(st.integers(0, 120), min_size=1))
def test_a_late_emulator_grants_what_a_punctual_one_would(program, oversleeps):
    punctual, _, _, true_time = leases_of(program, lambda: 0)
    late, _, stream, clock = leases_of(program, itertools.cycle(oversleeps).__next__)
    assert late == punctual
    assert clock.now_ns() - stream.lag_ns == true_time.now_ns()


@given(operations, st.lists(st.integers(0, 120), min_size=1))
def test_leases_are_in_order_never_overlap_and_leave_no_gap_that_the_caller_did_not(program, oversleeps):
    leases, issued, _, _ = leases_of(program, itertools.cycle(oversleeps).__next__)
    free = 0
    for lease, issue in zip(leases, issued, strict=True):
        assert lease.start_ns == max(issue, free)
        free = lease.end_ns


@given(operations)
def test_synchronize_returns_at_the_end_of_all_work_or_later(program):
    leases, _, stream, clock = leases_of(program, lambda: 0)
    stream.synchronize()
    assert clock.now_ns() >= max((lease.end_ns for lease in leases), default=0)
