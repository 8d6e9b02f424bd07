from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.job import ModelWork
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import Phase
from scheduler_sims.loop.books import JobBooks
from scheduler_sims.record import Span
from scheduler_sims.testing import Job, Node

S = 1_000_000_000


@pytest.fixture
def books(job_specs, cluster_spec):
    """Books of two jobs, `a` (two GPUs or CPUs) submitted at 1 s and `b` at 0."""
    jobs = job_specs([Job("a", gpu_s=10, gpus=2, cpu_s=20, submit_s=1.0), Job("b", gpu_s=5)])
    return JobBooks(jobs, cluster_spec([Node("n1", gpus=4), Node("n2")]))


def on(*indexes, node="n1"):
    shares = tuple(DeviceShare(device_uuid(node, i), "Tesla-T4") for i in indexes)
    return Allocation("gpu" if indexes else "cpu", (TaskPlacement(node, shares, 1000),))


def submit(books):
    while books.waiting:
        books.submit(books.waiting.pop())


def run(books, job_id, start_s, end_s, what, allocation, steps_done=0, reason=""):
    row = books.specs[job_id].row
    books.starting(job_id, allocation)
    books.started(Event(round(start_s * S), Happening.STARTED, job_id, row))
    books.released(Event(round(end_s * S), what, job_id, row, steps_done, reason))


def test_jobs_come_in_order_of_submission_then_row(job_specs, cluster_spec):
    jobs = job_specs([Job("late", gpu_s=1, submit_s=2), Job("b", gpu_s=1), Job("c", gpu_s=1), Job("a", gpu_s=1)])
    books = JobBooks(reversed(jobs), cluster_spec([Node("n1", gpus=1)]))
    submit(books)
    assert list(books.views) == ["b", "c", "a", "late"]


def test_the_phases_of_a_run(books):
    submit(books)
    assert books.views["a"].phase is Phase.QUEUED
    assert books.views["a"].queued_since_s == 1.0
    books.starting("a", on(0, 1))
    assert books.views["a"].phase is Phase.STARTING
    assert books.views["a"].allocation == on(0, 1)
    books.started(Event(2 * S, Happening.STARTED, "a", 0))
    assert (books.views["a"].phase, books.views["a"].running_since_s) == (Phase.RUNNING, 2.0)
    books.stopping("a")
    assert books.views["a"].phase is Phase.STOPPING
    books.released(Event(6 * S, Happening.STOPPED, "a", 0, steps_done=3))
    view = books.views["a"]
    assert (view.phase, view.allocation, view.running_since_s) == (Phase.QUEUED, None, None)
    assert (view.steps_done, view.attained_gpu_s, view.queued_since_s, view.preemptions) == (3, 8.0, 6.0, 1)


def test_a_job_that_is_told_to_stop_while_it_starts_stays_stopping(books):
    submit(books)
    books.starting("a", on(0, 1))
    books.stopping("a")
    books.started(Event(2 * S, Happening.STARTED, "a", 0))
    assert (books.views["a"].phase, books.views["a"].running_since_s) == (Phase.STOPPING, 2.0)


def test_a_start_that_fails_leaves_no_trace(books):
    submit(books)
    before = books.views["a"]
    books.starting("a", on(0, 1))
    books.not_started("a")
    assert books.views["a"] == before


def test_a_record_tells_all_places_and_the_first_start(books):
    submit(books)
    run(books, "a", 2, 6, Happening.STOPPED, on(0, 1), steps_done=3)
    run(books, "a", 8, 9, Happening.STOPPED, on(node="n2"), steps_done=4)
    run(books, "a", 10, 14, Happening.FINISHED, on(1, 3), steps_done=10)
    (record,) = books.records()
    assert (record.submit_s, record.start_s, record.finish_s, record.preemptions) == (1.0, 2.0, 14.0, 2)
    assert record.devices == ("n1/0", "n1/1", "n2/cpu", "n1/3")
    assert (record.jct_s, record.queueing_delay_s, record.status) == (13.0, 1.0, "finished")
    assert books.spans == [
        Span("a", "n1", 0, 2.0, 6.0),
        Span("a", "n1", 1, 2.0, 6.0),
        Span("a", "n2", None, 8.0, 9.0),
        Span("a", "n1", 1, 10.0, 14.0),
        Span("a", "n1", 3, 10.0, 14.0),
    ]
    assert "a" not in books.views


def test_attained_service_adds_up_over_runs(books):
    submit(books)
    run(books, "a", 2, 6, Happening.STOPPED, on(0, 1), steps_done=3)
    run(books, "a", 8, 9, Happening.STOPPED, on(2, 3), steps_done=4)
    assert (books.views["a"].attained_gpu_s, books.views["a"].preemptions) == (8.0 + 2.0, 2)


def test_samples_add_up_over_runs_with_other_batches(job_specs, cluster_spec):
    """100 steps of 64 samples on each of two GPUs; 10 of them done before, then runs of other batches."""
    (spec,) = job_specs([Job("m", gpu_s=1, gpus=2, steps=100)])
    spec = replace(spec, work={"gpu": ModelWork("resnet50", 64)})
    books = JobBooks([], cluster_spec([Node("n1", gpus=4)]))
    books.adopt(PresentJob(spec, steps_done=9))
    books.progressed(Event(0, Happening.PROGRESS, "m", 0, 10))
    seen = [books.views["m"]]
    for batch_size, steps_done in ((0, 12), (100, 15), (128, 16)):
        run(books, "m", 1, 2, Happening.STOPPED, replace(on(0, 1), batch_size=batch_size), steps_done)
        seen.append(books.views["m"])
    assert (seen[0].batch_size, seen[0].samples_total) == (128, 12800)
    assert [view.samples_done for view in seen] == [1280, 1280 + 256, 1536 + 300, 1836 + 128]
    assert [view.steps_done for view in seen] == [10, 12, 15, 16]


def test_cpus_give_no_gpu_service(books):
    submit(books)
    run(books, "a", 2, 6, Happening.STOPPED, on(node="n2"))
    assert books.views["a"].attained_gpu_s == 0.0


def test_a_job_that_failed_before_it_held_anything_has_no_start(books):
    submit(books)
    books.starting("b", on(2))
    books.released(Event(4 * S, Happening.FAILED, "b", 1, 0, "no room"))
    (record,) = books.records()
    assert (record.status, record.reason, record.start_s, record.finish_s) == ("failed", "no room", None, 4.0)
    assert (record.devices, record.queueing_delay_s, books.spans) == ((), 4.0, [])


def test_records_are_in_workload_order_and_the_end_is_when_all_have_one(books):
    assert not books.done
    submit(books)
    run(books, "b", 0, 5, Happening.FINISHED, on(2), 1)
    assert (books.done, books.ended) == (False, 1)
    run(books, "a", 2, 6, Happening.FINISHED, on(0, 1), 1)
    assert [record.job_id for record in books.records()] == ["a", "b"]
    assert (books.done, books.ended) == (True, 2)


def test_the_books_know_who_holds_who_lives_and_who_leaves(job_specs, cluster_spec):
    jobs = job_specs([Job(name, gpu_s=1) for name in "abc"])
    books = JobBooks(jobs, cluster_spec([Node("n1", gpus=4)]))
    submit(books)
    for name, device in (("c", 2), ("a", 0), ("b", 1)):
        books.starting(name, on(device))
    assert (list(books.held), list(books.live), list(books.leaving)) == (["a", "b", "c"], ["a", "b", "c"], [])
    books.stopping("a")
    assert (list(books.held), list(books.live), dict(books.leaving)) == (["a", "b", "c"], ["b", "c"], {"a": on(0)})
    books.not_started("b")
    books.released(Event(3 * S, Happening.STOPPED, "a", books.specs["a"].row))
    assert (list(books.held), list(books.live), len(books.leaving)) == (["c"], ["c"], 0)
    assert ("b" in books.live, books.live.get("b"), books.live.get("c")) == (False, None, on(2))
    books.released(Event(4 * S, Happening.FINISHED, "c", books.specs["c"].row))
    assert not books.held


def test_leaving_jobs_are_found_by_their_nodes(job_specs, cluster_spec):
    jobs = job_specs([Job(name, gpu_s=1) for name in "abcd"])
    books = JobBooks(jobs, cluster_spec([Node("n1", gpus=4), Node("n2", gpus=4)]))
    submit(books)
    for name, where in (("c", on(2)), ("a", on(0)), ("b", on(1, node="n2")), ("d", on(3))):
        books.starting(name, where)
    for name in "bca":
        books.stopping(name)
    assert books.leaving.on(["n1"]) == [("a", on(0)), ("c", on(2))]
    assert [job_id for job_id, _ in books.leaving.on(["n2", "n1", "n3"])] == ["a", "b", "c"]
    books.released(Event(3 * S, Happening.STOPPED, "a", books.specs["a"].row))
    assert [job_id for job_id, _ in books.leaving.on(["n1", "n2"])] == ["b", "c"]
