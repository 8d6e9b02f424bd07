"""Why jobs waited, on clusters small enough to say it by hand."""

from __future__ import annotations

import pytest

from scheduler_sims.reports.explanation import APART, FULL, ROOM, TOO_FEW, Stay, Wait, explain, sentences
from scheduler_sims.reports.files import JobRow
from scheduler_sims.reports.spans_file import SpanRow


def job(name: str, submit_s: float, start_s: float | None, finish_s: float, status: str = "finished") -> JobRow:
    delay_s = (finish_s if start_s is None else start_s) - submit_s
    times = (submit_s, start_s, finish_s, finish_s - submit_s, delay_s)
    return JobRow("fifo", "simulated", 0, name, "ann", status, *times, 0, (), "no room" if status == "failed" else "")


def span(name: str, place: str, start_s: float, end_s: float) -> SpanRow:
    return SpanRow("fifo", "simulated", 0, name, place, start_s, end_s)


def test_a_wait_is_divided_by_what_was_free() -> None:
    """Two nodes of two GPUs; `j` needs two on one node and waits from 10 to 60."""
    jobs = [
        *(job("a", 0, 0, 30), job("b", 0, 0, 40), job("c", 0, 0, 50), job("d", 0, 0, 45)),
        *(job("j", 10, 60, 100), job("late", 20, 30, 32), job("early", 5, 70, 80)),
    ]
    spans = [
        *(span("a", "n1/0", 0, 30), span("b", "n1/1", 0, 50), span("c", "n2/0", 0, 40), span("d", "n2/1", 0, 55)),
        *(span("j", "n2/0", 60, 100), span("j", "n2/1", 60, 100), span("late", "n1/0", 30, 32)),
    ]
    found = explain(jobs[4], jobs, spans, 4)
    wait, stay = found.history
    assert isinstance(wait, Wait) and isinstance(stay, Stay)
    # 10-32 all held; 32-40 one free; 40-50 one free on each node; from 50 on both of n1 are free, and from 55 all
    assert wait.reasons_s == {FULL: 22, TOO_FEW: 8, APART: 10, ROOM: 10}
    assert (wait.needs, wait.overtook, wait.ahead, wait.freed_by) == ((2,), ("late",), 1, ())
    assert wait.holders_s == {"d": 45, "b": 40, "c": 30, "a": 20, "late": 2}
    assert (stay.places, stay.successors, found.waited_s) == (("n2/0", "n2/1"), (), 50)


def test_a_stopped_job_waits_twice_and_says_who_came_instead() -> None:
    jobs = [job("j", 0, 0, 50), job("short", 10, 10, 30)]
    spans = [span("j", "n/0", 0, 10), span("short", "n/0", 10, 30), span("j", "n/0", 30, 50)]
    found = explain(jobs[0], jobs, spans, 1)
    first, wait, last = found.history
    assert isinstance(first, Stay) and first.successors == ("short",)
    assert isinstance(wait, Wait) and (wait.reasons_s, wait.freed_by, wait.overtook) == (
        {FULL: 20},
        ("short",),
        ("short",),
    )
    assert isinstance(last, Stay) and last.successors == ()
    assert sentences(found) == [
        "j of ann, fifo on the simulated cluster: finished after 50.0 s; it waited 20.0 s, 40% of its JCT",
        "       0.000 s holds n/0 for 10.0 s",
        "    stopped; its devices went to short",
        "      10.000 s waits 20.0 s for 1 GPU on one node",
        "    20.0 s: every GPU was held",
        "    overtaken by 1 job that came later: short",
        "    GPUs were held by (GPU-seconds): short (20.0)",
        "    it ended as short let devices go",
        "      30.000 s holds n/0 for 20.0 s",
    ]


def test_a_gang_needs_several_nodes() -> None:
    jobs = [job("a", 0, 0, 20), job("g", 0, 20, 30)]
    spans = [span("a", "n1/0", 0, 20), *(span("g", f"n{n}/0", 20, 30) for n in (1, 2))]
    wait = explain(jobs[1], jobs, spans, 2).history[0]
    assert isinstance(wait, Wait)
    assert (wait.needs, wait.reasons_s) == ((1, 1), {TOO_FEW: 20})
    assert "for 2 GPUs on 2 nodes" in sentences(explain(jobs[1], jobs, spans, 2))[1]


def test_gpus_that_nobody_ever_used_are_free() -> None:
    jobs = [job("a", 0, 0, 20), job("j", 0, 20, 30)]
    spans = [span("a", "n/0", 0, 20), span("j", "n/0", 20, 30)]
    for gpus, reason in ((1, FULL), (2, ROOM)):
        wait = explain(jobs[1], jobs, spans, gpus).history[0]
        assert isinstance(wait, Wait) and wait.reasons_s == {reason: 20}


def test_shared_devices_and_cpus() -> None:
    jobs = [job("a", 0, 0, 20), job("b", 0, 0, 10), job("c", 0, 20, 30), job("j", 0, 20, 30)]
    spans = [span("a", "n/0", 0, 20), span("b", "n/0", 0, 10), span("c", "n/cpu", 20, 30), span("j", "n/0", 20, 30)]
    wait = explain(jobs[3], jobs, spans, 1).history[0]
    assert isinstance(wait, Wait) and wait.reasons_s == {FULL: 20}  # one of two users leaves: it is still held
    wait = explain(jobs[2], jobs, spans, 1).history[0]
    assert isinstance(wait, Wait) and (wait.needs, wait.reasons_s) == ((), {})


@pytest.mark.parametrize("start_s", [None, 5.0])
def test_failed_jobs(start_s: float | None) -> None:
    failed = job("f", 0, start_s, 25, "failed")
    spans = [] if start_s is None else [span("f", "n/0", 5, 10)]
    found = explain(failed, [failed], spans, 1)
    last = found.history[-1]
    assert isinstance(last, Wait) and last.end_s == 25 and last.needs == ()
    assert sentences(found)[-1] == "it failed: no room"


def test_a_replica_leaves() -> None:
    replica = job("s/1@0", 0, 30, 100, "removed")
    first, *_ = sentences(explain(replica, [replica], [span("s/1@0", "n1/0", 30, 100)], 1))
    assert first.endswith("left, since it wasn't needed any more, after 100.0 s; it waited 30.0 s, 30% of its time")
