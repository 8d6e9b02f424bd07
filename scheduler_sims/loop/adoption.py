"""Enters a job that is already in the cluster into a loop's books, with its allocation and its history."""

from __future__ import annotations

from dataclasses import replace

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import to_ns
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.loop.books import JobBooks
from scheduler_sims.loop.ledger import Ledger


def adopt(books: JobBooks, ledger: Ledger, job: PresentJob) -> Allocation | None:
    """Enter the job; returns its allocation with all devices named.

    Raises InputError, with nothing changed, if the ledger contradicts the allocation.
    """
    job_id, resolved = job.spec.job_id, None
    if job.allocation is not None:
        resolved = ledger.resolve(job.allocation, held=True)
        if resolved is None:
            where = ", ".join(job.allocation.nodes)
            problem = "that isn't there or another job holds it; look at the cluster again"
            raise InputError(f"job {job_id!r}", f"can't be running on {where}: {problem}")
    books.adopt(job)
    if resolved is None:
        return None
    books.starting(job_id, resolved)
    ledger.take(job_id, resolved)
    if job.started:
        books.started(Event(to_ns(job.running_since_s), Happening.STARTED, job_id, job.spec.row))
    if job.stopping:
        books.stopping(job_id)
    return resolved


def on_any_devices(job: PresentJob) -> PresentJob:
    """The job with the same nodes, but any devices of them."""
    if job.allocation is None:
        return job
    tasks = (
        replace(task, shares=tuple(replace(share, device=None) for share in task.shares))
        for task in job.allocation.tasks
    )
    return replace(job, allocation=replace(job.allocation, tasks=tuple(tasks)))
