from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_sims.record import JobRecord, RunRecord, Span
from scheduler_sims.reports.metrics import figures, held_gpu_s, mean_figures, union

intervals = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8)


def test_three_jobs_by_hand(job, run):
    record = run(
        [job("a", 10, 10, 20), job("b", 10, 20, 40, preemptions=2), job("c", 12, 12, 72)],
        [Span("a", "node-0", 0, 10, 20), Span("b", "node-0", 0, 20, 40), Span("c", "node-0", 1, 12, 72)],
    )
    found = figures(record)
    assert found.mean_jct_s == pytest.approx((10 + 30 + 60) / 3)
    assert found.median_jct_s == 30
    assert found.p95_jct_s == pytest.approx(30 + 0.9 * 30)  # rank 1.9 of 0, 1, 2
    assert found.makespan_s == 62
    assert found.utilisation == pytest.approx((30 + 60) / (2 * 62))
    assert found.mean_queueing_delay_s == pytest.approx(10 / 3)
    assert (found.preemptions, found.finished, found.failed) == (2, 3, 0)


def test_failed_jobs_count_in_the_makespan_but_not_in_the_jct(job, run):
    failed = job("b", 0, None, 100, status="failed", reason="out of memory")
    found = figures(run([job("a", 0, 1, 10), failed]))
    assert (found.mean_jct_s, found.mean_queueing_delay_s) == (10, 1)
    assert (found.finished, found.failed, found.makespan_s) == (1, 1, 100)


def test_nothing_finished_and_no_jobs_at_all_are_undefined_not_zero(job, run):
    found = figures(run([job("a", 0, None, 5, status="failed")]))
    assert (found.mean_jct_s, found.median_jct_s, found.p95_jct_s, found.mean_queueing_delay_s) == (None,) * 4
    empty = figures(run([]))
    assert (empty.makespan_s, empty.utilisation, empty.finished) == (None, None, 0)


def test_utilisation_is_undefined_without_gpus_and_without_time(job, run):
    assert figures(run([job("a", 0, 0, 10)], gpus=0)).utilisation is None
    assert figures(run([job("a", 3, 3, 3)])).utilisation is None


def test_a_shared_device_is_held_once_and_cpu_spans_hold_none(run):
    record = run(
        [],
        [
            Span("a", "node-0", 0, 0, 10),
            Span("b", "node-0", 0, 5, 12),
            Span("c", "node-1", 0, 0, 4),
            Span("d", "node-1", None, 0, 50),
        ],
    )
    assert held_gpu_s(record, (0, 100)) == 12 + 4
    assert held_gpu_s(record, (2, 6)) == 4 + 2


def test_mean_over_repeats_leaves_out_what_a_repeat_does_not_define(job, run):
    one = figures(run([job("a", 0, 0, 10, preemptions=1)]))
    none = figures(run([job("a", 0, None, 4, status="failed")]))
    both = mean_figures([one, none])
    assert both.mean_jct_s == 10
    assert (both.preemptions, both.finished, both.failed) == (0.5, 0.5, 0.5)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_percentiles_are_those_of_numpy(jcts):
    jobs = tuple(JobRecord(f"j{i}", "u", i, 0.0, 0.0, jct, 0, ()) for i, jct in enumerate(jcts))
    found = figures(RunRecord("p", "simulated", 0, 1, ("n",), jobs, ()))
    assert found.p95_jct_s == pytest.approx(np.percentile(jcts, 95))
    assert found.median_jct_s == pytest.approx(np.median(jcts))


@given(intervals)
def test_union_covers_the_same_points_in_disjoint_intervals(pairs):
    merged = union(pairs)
    assert all(a[1] < b[0] for a, b in pairwise(merged))
    covered = {x for start, end in pairs for x in range(start, end)}
    assert {x for start, end in merged for x in range(int(start), int(end))} == covered
