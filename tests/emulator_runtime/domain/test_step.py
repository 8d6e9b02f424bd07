from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.stages import NO_STAGES, StageTimes
from emulator_runtime.domain.step import StepProfile, StepTimes

totals = st.integers(0, 10**14)
inputs = st.one_of(st.just(0), st.integers(0, 10**12))


@st.composite
def runs(draw):
    """Step times, the first step of a run, and the number of its steps."""
    steps = draw(st.integers(1, 60))
    stages = draw(st.just(NO_STAGES) | st.builds(StageTimes, inputs, inputs, inputs))
    times = StepTimes(steps, draw(totals), draw(inputs), draw(inputs), stages)
    first = draw(st.integers(0, steps - 1))
    return times, first, draw(st.integers(1, steps - first))


def double_buffered(times, first, count):
    """When each step is issued and ends, one after the other: input k+1 begins when step k is issued, and the host works before
    each step."""
    issues, ends = [], [0]
    input_ready_ns = prepared_ns = times.stages.fetch_ns + times.input_ns + times.stages.transfer_ns
    for step in range(first, first + count):
        issues.append(max(ends[-1], input_ready_ns) + times.host_ns)
        input_ready_ns = issues[-1] + prepared_ns
        ends.append(issues[-1] + times.device_ns(step) + times.stages.exchange_ns)
    return issues, ends


@settings(deadline=None)
@given(steps=st.integers(1, 300), total_ns=totals)
def test_steps_add_up_to_the_total_to_the_nanosecond(steps, total_ns):
    times = StepTimes(steps, total_ns)
    each = [times.device_ns(step) for step in range(steps)]
    assert sum(each) == total_ns
    assert max(each) - min(each) <= 1


@settings(deadline=None)
@given(times=st.builds(StepTimes, st.integers(1, 100), totals), cut=st.floats(0, 1))
def test_any_cut_of_the_steps_adds_up(times, cut):
    first = round(cut * times.steps)
    assert times.device_ns(0, first) + times.device_ns(first, times.steps - first) == times.total_device_ns


@settings(deadline=None)
@given(run=runs())
def test_ends_and_issues_are_those_of_the_double_buffered_recurrence(run):
    times, first, count = run
    issues, ends = double_buffered(times, first, count)
    assert [times.end_ns(first, n) for n in range(count + 1)] == ends
    assert [times.issue_ns(first, n) for n in range(count)] == issues


@settings(deadline=None)
@given(run=runs())
def test_a_loop_issues_its_steps_at_the_same_times(run):
    times, first, count = run
    issues, ends = double_buffered(times, first, count)
    issued_ns = times.next_issue_ns(0, times.prepared_ns)
    for index in range(count):
        assert issued_ns == issues[index]
        issued_ns = times.next_issue_ns(ends[index + 1], issued_ns + times.prepared_ns)


@settings(deadline=None)
@given(run=runs(), beyond=st.integers(-3, 3))
def test_steps_done_and_issued_count_what_has_ended_and_begun(run, beyond):
    times, first, count = run
    left = times.steps - first
    issues, ends = double_buffered(times, first, left)
    for elapsed_ns in (ends[count] + beyond, issues[count - 1] + beyond):
        assert times.steps_done(first, elapsed_ns) == sum(end <= elapsed_ns for end in ends[1:])
        assert times.steps_issued(first, elapsed_ns) == sum(issue <= elapsed_ns for issue in issues)


def test_a_slow_input_pipeline_hides_the_device():
    times = StepTimes(10, 10 * 100, input_ns=250)
    assert times.end_ns(0, 10) == 10 * 250 + 100


def test_a_fast_input_pipeline_costs_its_first_input_only():
    assert StepTimes(10, 10 * 100, input_ns=60).end_ns(0, 10) == 60 + 1000


def test_the_host_works_before_each_step():
    assert StepTimes(10, 10 * 100, host_ns=7).end_ns(0, 10) == 10 * 107
    assert StepTimes(10, 10 * 100, 60, 7).end_ns(0, 10) == 60 + 10 * 107


def test_each_run_waits_for_its_first_input_again():
    times = StepTimes(10, 10 * 100, input_ns=60)
    assert times.end_ns(0, 4) + times.end_ns(4, 6) == times.end_ns(0, 10) + 60


def test_no_step_is_done_before_the_run_begins():
    times = StepTimes(3, 300)
    assert times.steps_done(0, -1) == 0
    assert times.steps_issued(0, -1) == 0
    assert times.steps_issued(0, 0) == 1


def test_a_profile_gives_transfer_forward_and_backward_for_each_step():
    profile = StepProfile(0.001, 0.010, 0.020, persistent_bytes=1, peak_bytes=2)
    assert profile.device_s == pytest.approx(0.031)
    assert StepTimes.of_profile(profile, 1000, input_s=0.05) == StepTimes(1000, 31_000_000_000, 50_000_000)
