"""Figures of many jobs, beside the plain way to count them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.api.model.snapshot import Job, JobRun
from operators.api.model.statistics import (
    Line,
    Window,
    cumulative,
    error_of,
    held_share,
    holding,
    mean,
    occupancy,
    quantile,
    queue_length,
    summarised,
    union,
    whole_window,
)
from operators.api.model.visibility import View

times = st.integers(0, 30).map(float)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Job], dict[str, tuple[JobRun, ...]]]:
    """Jobs that wait, run on one of two devices, wait again, and perhaps end."""
    jobs, runs = [], {}
    for number in range(draw(st.integers(0, 5))):
        marks = sorted(draw(st.lists(times, min_size=3, max_size=7)))
        ends = draw(st.booleans())
        stays = [
            JobRun("w", (f"w/{draw(st.integers(0, 1))}",), begin, end)
            for begin, end in zip(marks[1:-1:2], marks[2::2], strict=False)
        ]
        jobs.append(
            Job(
                f"u{number}",
                f"j{number}",
                "",
                marks[0],
                "Succeeded" if ends else "Queued",
                finished_s=marks[-1] if ends else None,
            )
        )
        runs[f"u{number}"] = tuple(stays)
    return jobs, runs


def at(line: Line, time: float) -> float:
    """The value of a step line between its points."""
    found = 0.0
    for begin, value in zip(line.times_s, line.values, strict=True):
        found = value if begin <= time else found
    return found


@given(stories(), times, times)
def test_queue_and_held_devices_at_any_moment(
    story: tuple[list[Job], dict[str, tuple[JobRun, ...]]], since: float, length: float
) -> None:
    jobs, runs = story
    window = Window(since, since + length, 40.0)
    waiting, held = queue_length(jobs, runs, window), holding(jobs, runs, window)
    for half in range(int(since * 2), int((since + length) * 2)):
        moment = half / 2 + 0.25
        if not since < moment < since + length:
            continue
        runs_now = {j.uid: [r for r in runs[j.uid] if r.from_s < moment < (r.to_s or 0)] for j in jobs}
        in_system = [j for j in jobs if j.submitted_s < moment < (40.0 if j.finished_s is None else j.finished_s)]
        assert at(waiting, moment) == sum(not runs_now[j.uid] for j in in_system)
        assert at(held, moment) == len({r.devices for found in runs_now.values() for r in found})


@given(stories())
def test_the_held_share_is_the_area_below_the_line(story: tuple[list[Job], dict[str, tuple[JobRun, ...]]]) -> None:
    jobs, runs = story
    window = Window(0.0, 30.0, 40.0)
    line = holding(jobs, runs, window)
    spans = zip(line.values, line.times_s, line.times_s[1:], strict=False)
    area = sum(value * (end - begin) for value, begin, end in spans)
    assert held_share(jobs, runs, ["w/0", "w/1"], window) == pytest.approx(area / 60)
    assert held_share(jobs, runs, ["w/0", "w/1"], window, there_are=4) == pytest.approx(area / 120)


def test_a_long_line_is_thinned_to_its_tops() -> None:
    jobs = [Job(f"u{n}", "j", "", float(n), "Succeeded", finished_s=n + 0.5) for n in range(1000)]
    line = queue_length(jobs, {}, Window(0.0, 1000.0, 1000.0), most=10)
    assert len(line.times_s) == 11
    assert set(line.values[:-1]) == {1.0}
    assert line.values[-1] == 0.0


def test_devices_that_nobody_tells_are_counted_all_the_same() -> None:
    job = Job("u", "j", "", 0.0, "Running", gpus=2, nodes=("w",))
    runs = {"u": (JobRun("w", (), 0.0),)}
    window = Window(0.0, 10.0, 10.0)
    assert max(holding([job], runs, window).values) == 2
    assert held_share([job], runs, ["w/0", "w/1", "w/2", "w/3"], window) == 0.5
    assert [span.device for span in occupancy([job], runs, window)] == ["w/?"]


def test_a_rejected_job_waits_for_nothing() -> None:
    job = Job("u", "j", "", 0.0, "Rejected")
    assert max(queue_length([job], {}, Window(0.0, 10.0, 10.0)).values) == 0


def test_an_empty_window_has_no_line() -> None:
    assert queue_length([], {}, Window(5.0, 5.0, 5.0)) == Line()
    assert holding([], {}, Window(5.0, 5.0, 5.0)) == Line()
    assert held_share([], {}, ["w/0"], Window(5.0, 5.0, 5.0)) is None
    assert held_share([], {}, [], Window(0.0, 5.0, 5.0)) is None


def test_what_came_of_jobs() -> None:
    jobs = [
        Job(
            "a",
            "a",
            "",
            0.0,
            "Succeeded",
            finished_s=4.0,
            jct_s=4.0,
            predicted_jct_s=5.0,
            error=0.25,
            queueing_delay_s=1.0,
        ),
        Job("b", "b", "", 1.0, "Succeeded", finished_s=9.0, jct_s=8.0, queueing_delay_s=3.0, preemptions=2),
        Job("c", "c", "", 2.0, "Failed", finished_s=5.0),
    ]
    found = summarised(jobs)
    assert (found.jobs, found.finished, found.failed, found.running, found.waiting) == (3, 2, 1, 0, 0)
    assert (found.mean_jct_s, found.quantiles_s["0.5"], found.makespan_s) == (6.0, 6.0, 9.0)
    assert (found.mean_predicted_jct_s, found.mean_error, found.median_abs_error) == (5.0, 0.25, 0.25)
    assert (found.mean_queueing_delay_s, found.preemptions) == (2.0, 2)
    assert found.jct_cdf == Line((4.0, 4.0, 8.0), (0.0, 0.5, 1.0))
    assert summarised([*jobs, Job("d", "d", "", 3.0, "Running")]).makespan_s is None
    assert summarised([]).quantiles_s == {}


def test_quantiles_are_those_of_the_reports() -> None:
    numpy = pytest.importorskip("numpy")
    values = sorted([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0])
    for share in (0.0, 0.05, 0.3, 0.5, 0.95, 1.0):
        assert quantile(values, share) == pytest.approx(numpy.quantile(values, share))
    assert quantile([], 0.5) is None
    assert mean([]) is None


def test_a_distribution_of_many_is_thinned() -> None:
    line = cumulative(range(10_000), most=100)
    assert len(line.times_s) == 101
    assert (line.times_s[0], line.times_s[-1], line.values[0], line.values[-1]) == (0, 9999, 0.0, 1.0)


@pytest.mark.parametrize(
    ("predicted", "observed", "error"), [(11.0, 10.0, 0.1), (None, 1.0, None), (1.0, None, None), (1.0, 0.0, None)]
)
def test_an_error_needs_both(predicted: float | None, observed: float | None, error: float | None) -> None:
    found = error_of(predicted, observed)
    assert found == (None if error is None else pytest.approx(error))


def test_intervals_that_touch_are_one() -> None:
    assert union([(3.0, 4.0), (0.0, 1.0), (1.0, 2.0), (5.0, 5.0), (3.5, 3.6)]) == [(0.0, 2.0), (3.0, 4.0)]


def test_the_window_of_a_snapshot(make_snapshot: Any) -> None:
    snapshot = make_snapshot()
    assert whole_window(snapshot, snapshot.jobs) == Window(1.0, 10.0, 10.0)
    assert whole_window(snapshot, [job for job in snapshot.jobs if job.uid == "u3"]) == Window(3.0, 7.0, 10.0)
    assert whole_window(snapshot, []) == Window(10.0, 10.0, 10.0)
    assert View(snapshot, snapshot.jobs).window(8.0, 2.0) == Window(8.0, 8.0, 10.0)
