from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_sims.record import JobRecord, RunRecord, Span
from scheduler_sims.reports.page.series import TimeScale, cumulative, gpus_held, queue_length

times = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)).map(sorted), min_size=1, max_size=12
)


def value_at(series, time):
    return next((length for at, length in reversed(list(zip(*series, strict=True))) if at <= time), 0)


def test_cumulative_by_hand():
    assert cumulative([3.0, 1.0]) == ([1.0, 1.0, 3.0], [0.0, 0.5, 1.0])
    assert cumulative([]) == ([], [])


def test_cumulative_of_many_keeps_both_ends_and_stays_small():
    xs, shares = cumulative((float(i) for i in range(100_000)), most=50)
    assert len(xs) == 51
    assert (xs[1], xs[-1]) == (0.0, 99_999.0)
    assert (shares[1], shares[-1]) == (pytest.approx(1e-5), 1.0)


def test_a_preempted_job_waits_twice_and_a_failed_one_until_its_end(job, run):
    record = run(
        [job("a", 0, 2, 10, preemptions=1), job("b", 1, None, 5, status="failed")],
        [Span("a", "n", 0, 2, 4), Span("a", "n", 1, 2, 4), Span("a", "n", 0, 7, 10)],
    )
    assert queue_length(record) == ([0, 1, 2, 4, 5, 7, 10], [1, 2, 1, 2, 1, 0, 0])


@given(times)
def test_queue_length_is_the_count_of_waiting_jobs(jobs):
    records = tuple(JobRecord(f"j{i}", "u", i, a, b, c, 0, ()) for i, (a, b, c) in enumerate(jobs))
    spans = tuple(Span(f"j{i}", "n", 0, b, c) for i, (_, b, c) in enumerate(jobs))
    series = queue_length(RunRecord("p", "simulated", 0, 1, ("n",), records, spans))
    for time in range(51):
        waiting = sum(a <= time < (b if b < c else c) for a, b, c in jobs)
        assert value_at(series, time) == waiting


def test_thinning_shows_each_peak_where_it_is(job, run):
    crowd = [job(f"c{i}", 50, 50.01, 60) for i in range(7)]
    others = [job(f"o{i}", i, i + 0.5, i + 0.9) for i in range(100)]
    record = run([*crowd, *others], [Span(j.job_id, "n", 0, j.start_s, j.finish_s) for j in [*crowd, *others]])
    thinned = queue_length(record, most=20)
    assert len(thinned[0]) == 21
    assert max(thinned[1]) == max(queue_length(record)[1]) == 8
    assert value_at(thinned, 45) == 1
    assert value_at(thinned, 60) == 1
    assert thinned[1][-1] == 0


def test_thinning_does_not_stretch_a_peak_over_quiet_time(job, run):
    early = [job(f"e{i}", 0, 0.001 * (i + 1), 1) for i in range(30)]
    record = run([*early, job("late", 100, 101, 102)])
    thinned = queue_length(record, most=10)
    assert thinned[1][0] == 30
    assert value_at(thinned, 50) == 0


@pytest.mark.parametrize(("longest", "unit"), [(0, "s"), (7200, "s"), (7201, "h"), (8 * 86400, "h"), (700_000, "days")])
def test_time_scale(longest, unit):
    assert TimeScale.for_longest(longest).unit == unit


def test_gpus_of_each_job_over_time(job, run):
    """`a` has two GPUs and later three, of which it had one before; `b` has CPUs; `c` never runs."""
    spans = [
        ("a", 0, 2, 4),
        ("a", 1, 2, 4),
        ("a", 0, 7, 10),
        ("a", 2, 7, 10),
        ("a", 3, 7, 10),
        ("b", None, 0, 9),
        ("d", 5, 1, 4),
    ]
    record = run(
        [job("c", 0, None, 5), job("a", 0, 2, 10)], [Span(name, "n", device, *times) for name, device, *times in spans]
    )
    times, held = gpus_held(record)
    assert times == [1, 2, 4, 7, 10]
    assert held == {"c": [0, 0, 0, 0, 0], "a": [0, 2, 0, 3, 0], "d": [1, 1, 0, 0, 0]}
