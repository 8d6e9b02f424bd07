"""One observed run: jobs are submitted when the workload says so, and followed until all have ended.

Nothing here knows who schedules them. What fails for a moment is tried again; what can't work ends the run with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.units import to_ns, to_s
from operators.experiments.emujobs import Destination, emujob_document
from operators.experiments.records import Told, told_by
from operators.kube.api import EMUJOB, Api, ConflictError, Json
from operators.kube.informer import Followed, Pauses, follow
from operators.kube.store import Store

SETTLE_S = 60.0
"""So long the event log's word on the last jobs' ends is waited for."""
_TICK_S = 0.2
_TRIES = 10

Progress = Callable[[int, float], None]
"""Told how many jobs have ended and how many seconds have passed."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What is run: these jobs under these names. `begin_ns`: the wall clock at time 0; `limit_s` after it nobody waits longer."""

    jobs: Sequence[JobSpec]
    names: Mapping[str, str]
    to: Destination
    begin_ns: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Whom a run talks to. `check` is asked all the time, and raises what makes it useless to go on."""

    wall_ns: Callable[[], int]
    progress: Progress
    check: Callable[[], None] = lambda: None
    pauses: Pauses = field(default_factory=Pauses)


async def observe(api: Api, orders: Orders, around: Surroundings) -> list[Told]:
    """Raises ClusterError where the cluster refuses a job, can't be reached for long, or what `check` raises."""
    store: Store[Told] = Store(told_by)
    failures: list[EmuGpuError] = []
    emujobs = Followed(EMUJOB, store, {"namespace": orders.to.namespace})
    following = asyncio.create_task(follow(api, emujobs, around.pauses, lambda: None, failures.append))
    submitting = asyncio.create_task(submit(api, orders, around))
    try:
        await _until_ended(store, orders, around, submitting, failures)
        return _own(store, orders)
    finally:
        for task in (following, submitting):
            task.cancel()
        await asyncio.wait([following, submitting])


async def submit(api: Api, orders: Orders, around: Surroundings) -> None:
    """Creates each EmuJob at its time; jobs of one instant directly one after the other, in the workload's order."""
    ordered = sorted(orders.jobs, key=lambda job: (job.submit_s, job.row))
    batches = [list(batch) for _, batch in groupby(ordered, key=lambda job: job.submit_s)]
    documents = [[_document(job, batch, orders) for job in batch] for batch in batches]
    for batch, wanted in zip(batches, documents, strict=True):
        left_ns = orders.begin_ns + to_ns(batch[0].submit_s) - around.wall_ns()
        await asyncio.sleep(max(0.0, to_s(left_ns)))
        for document in wanted:
            await _create(api, document, around.pauses)


def _document(job: JobSpec, batch: Sequence[JobSpec], orders: Orders) -> Json:
    together = f"{orders.names[batch[0].job_id]}/{len(batch)}" if len(batch) > 1 else ""
    return emujob_document(job, orders.names[job.job_id], orders.to, together)


async def _create(api: Api, document: Json, pauses: Pauses) -> None:
    for failed in range(1, _TRIES + 1):
        try:
            await api.create(EMUJOB, document)
            return
        except ConflictError:
            return  # an earlier try came through, only its answer didn't
        except EmuGpuError as error:
            if not error.retry_helps or failed == _TRIES:
                raise
            await asyncio.sleep(pauses.after(failed))


async def _until_ended(
    store: Store[Told],
    orders: Orders,
    around: Surroundings,
    submitting: asyncio.Task[None],
    failures: Sequence[EmuGpuError],
) -> None:
    """Until all have ended and the log has told when, or nobody waits any longer."""
    last_ended_ns = orders.begin_ns
    while True:
        told = _own(store, orders)
        ended, now_ns = sum(one.ended for one in told), around.wall_ns()
        around.progress(ended, max(0.0, to_s(now_ns - orders.begin_ns)))
        if submitting.done():
            submitting.result()
        if ended < len(orders.jobs):
            around.check()  # a scheduler that has nothing more to do may go
            last_ended_ns = now_ns
            if now_ns - orders.begin_ns > to_ns(orders.limit_s):
                return
        elif all(one.settled for one in told) or now_ns - last_ended_ns > to_ns(SETTLE_S):
            return
        _raise_what_stays(failures)
        await asyncio.sleep(_TICK_S)


def _own(store: Store[Told], orders: Orders) -> list[Told]:
    """Of these jobs; others may be in the namespace from an earlier part of the same run."""
    return [one for one in store.values() if one.job_id in orders.names]


def _raise_what_stays(failures: Sequence[EmuGpuError]) -> None:
    """Failures to follow that time won't heal."""
    for error in failures:
        if not error.retry_helps:
            raise ClusterError(f"the run can't be followed: {error}") from error
