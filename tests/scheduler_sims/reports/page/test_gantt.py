from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from scheduler_sims.record import Span
from scheduler_sims.reports.page.gantt import MOST_BARS, bars_by_row, drawn_share, gantt_figure, row_name, rows_of

spans = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 1), st.integers(0, 30), st.integers(1, 9)), max_size=20
)


def test_rows_are_filled_up_and_in_the_clusters_order(run):
    one = run([], [Span("a", "n2", 1, 0, 1)], nodes=("n2", "n10", "cpu"))
    two = run([], [Span("a", "n10", 0, 0, 1), Span("a", "cpu", None, 0, 1)], nodes=("n2", "n10", "cpu"))
    assert [row_name(row) for row in rows_of([one, two])] == ["n2/0", "n2/1", "n10/0", "cpu/cpu"]


def test_touching_spans_of_a_job_are_one_bar_and_gaps_stay():
    bars = bars_by_row([Span("a", "n", 0, 0, 5), Span("a", "n", 0, 5, 8), Span("a", "n", 0, 9, 10)])
    assert [(bar.span.start_s, bar.span.end_s, bar.lane) for bar in bars["n", 0]] == [(0, 8, 0), (9, 10, 0)]


@given(spans)
def test_no_two_bars_of_a_lane_overlap_and_no_lane_is_wasted(parts):
    given_spans = [Span(job, "n", device, start, start + length) for job, device, start, length in parts]
    for (node, device), bars in bars_by_row(given_spans).items():
        own = [s for s in given_spans if (s.node, s.device) == (node, device)]
        most = max(len({s.job_id for s in own if s.start_s <= t < s.end_s}) for t in range(40))
        assert {bar.lane for bar in bars} == set(range(most))
        for lane in range(most):
            in_lane = sorted((bar.span.start_s, bar.span.end_s) for bar in bars if bar.lane == lane)
            assert all(a[1] <= b[0] for a, b in pairwise(in_lane))


def test_a_bar_lies_in_its_row_with_its_times_and_its_jobs_user(runs):
    rows = rows_of(runs)
    figure = gantt_figure(runs[0], rows, 50.0, bars_by_row(runs[0].spans))
    (trace,) = figure["data"]
    axis = figure["layout"]["yaxis"]
    assert axis["ticktext"] == ["node-0/0", "node-0/1", "cpu-0/cpu"]
    at = trace["customdata"].index([5.0, 40.0])
    assert trace["y"][at] == axis["tickvals"][1]
    assert (trace["base"][at], trace["x"][at], trace["text"][at]) == (5.0, 35.0, "c")
    assert "user alice" in trace["hovertext"][at]


def test_a_failed_job_says_so_on_hover(job, run):
    record = run([job("a", 0, 0, 5, status="failed")])
    assert (
        "(failed)" in gantt_figure(record, rows_of([record]), 5.0, bars_by_row(record.spans))["data"][0]["hovertext"][0]
    )


def test_too_many_bars_leave_out_the_shortest(job, run):
    many = [Span("a", "n", 0, 10.0 * i, 10.0 * i + 1 + i / 1e4) for i in range(MOST_BARS + 50)]
    record = run([job("a", 0, 0, 1e5)], many)
    packed = bars_by_row(record.spans)
    assert drawn_share(packed) == (MOST_BARS, MOST_BARS + 50)
    (trace,) = gantt_figure(record, rows_of([record]), 1e5, packed)["data"]
    assert len(trace["x"]) == MOST_BARS
    assert 0.0 not in trace["base"]
    assert "text" not in trace
