"""One observed run: submit each job at its time, and follow the EmuJobs until all have ended.

The code here is the same for every scheduler. Failures that may pass are tried again; other failures end the run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.job import JobSpec, TimedWork
from emulator_runtime.domain.units import to_ns, to_s
from operators.experiments.emujobs import RunTarget, emujob_document
from operators.experiments.records import ObservedJob, observed_job
from operators.kube.api import EMUJOB, Api, ConflictError, Json
from operators.kube.informer import Followed, Pauses, follow
from operators.kube.store import Store

SETTLE_S = 60.0
"""Maximum wait for the event log's times of the last jobs, after all jobs have ended."""
STALLED_S = 20.0
"""After this many seconds without a change a run reports what it waits for; again after twice the time, and so on."""
_POLL_S = 0.2
_TRIES = 10

Progress = Callable[[int, float], None]
"""Gets the number of jobs that have ended and the seconds since the run's time 0."""


@dataclass(frozen=True, slots=True)
class RunJobs:
    """The jobs of a run, and the names of their EmuJobs by job id.

    `begin_ns`: the wall clock at time 0. `limit_s` after time 0 the run is given up.
    """

    jobs: Sequence[JobSpec]
    names: Mapping[str, str]
    to: RunTarget
    begin_ns: int
    limit_s: float


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a run calls. `check` is called several times a second and raises an error that ends the run.

    `say` gets sentences for the user.
    """

    wall_ns: Callable[[], int]
    progress: Progress
    check: Callable[[], None] = lambda: None
    say: Callable[[str], None] = lambda _text: None
    pauses: Pauses = field(default_factory=Pauses)


async def observe(api: Api, run: RunJobs, hooks: Hooks) -> list[ObservedJob]:
    """Raises ClusterError where the cluster refuses a job or can't be reached for long, and whatever `check` raises."""
    store: Store[ObservedJob] = Store(observed_job)
    failures: list[EmuGpuError] = []
    emujobs = Followed(EMUJOB, store, {"namespace": run.to.namespace})
    following = asyncio.create_task(follow(api, emujobs, hooks.pauses, lambda: None, failures.append))
    submitting = asyncio.create_task(submit(api, run, hooks))
    try:
        await _until_ended(store, run, hooks, submitting, failures)
        return _own(store, run)
    finally:
        for task in (following, submitting):
            task.cancel()
        await asyncio.wait([following, submitting])


async def submit(api: Api, run: RunJobs, hooks: Hooks) -> None:
    """Creates each EmuJob at its time; jobs of one instant one directly after the other, in the workload's order."""
    ordered = sorted(run.jobs, key=lambda job: (job.submit_s, job.row))
    batches = [list(batch) for _, batch in groupby(ordered, key=lambda job: job.submit_s)]
    documents = [[_document(job, batch, run) for job in batch] for batch in batches]
    for batch, wanted in zip(batches, documents, strict=True):
        left_ns = run.begin_ns + to_ns(batch[0].submit_s) - hooks.wall_ns()
        await asyncio.sleep(max(0.0, to_s(left_ns)))
        for document in wanted:
            await _create(api, document, hooks.pauses)


def _document(job: JobSpec, batch: Sequence[JobSpec], run: RunJobs) -> Json:
    together = f"{run.names[batch[0].job_id]}/{len(batch)}" if len(batch) > 1 else ""
    return emujob_document(job, run.names[job.job_id], run.to, together, run.begin_ns + to_ns(job.submit_s))


async def _create(api: Api, document: Json, pauses: Pauses) -> None:
    for failed in range(1, _TRIES + 1):
        try:
            await api.create(EMUJOB, document)
            return
        except ConflictError:
            return  # an earlier attempt succeeded, and only its reply was lost
        except EmuGpuError as error:
            if not error.retry_helps or failed == _TRIES:
                raise
            await asyncio.sleep(pauses.after(failed))


async def _until_ended(
    store: Store[ObservedJob],
    run: RunJobs,
    hooks: Hooks,
    submitting: asyncio.Task[None],
    failures: Sequence[EmuGpuError],
) -> None:
    """Until all jobs have ended and the event log has their times, or a limit is reached."""
    last_ended_ns = run.begin_ns
    stall = StallDetector(run, hooks.wall_ns())
    while True:
        observed = _own(store, run)
        ended, now_ns = sum(job.ended for job in observed), hooks.wall_ns()
        hooks.progress(ended, max(0.0, to_s(now_ns - run.begin_ns)))
        if submitting.done():
            submitting.result()
        if ended < len(run.jobs):
            hooks.check()  # not afterwards: the scheduler may exit when all jobs have ended
            if waits := stall.sentence(observed, now_ns):
                hooks.say(waits)
            last_ended_ns = now_ns
            if now_ns - run.begin_ns > to_ns(run.limit_s):
                return
        elif all(job.settled for job in observed) or now_ns - last_ended_ns > to_ns(SETTLE_S):
            return
        for error in failures:
            if not error.retry_helps:
                raise ClusterError(f"the run can't be followed: {error}") from error
        await asyncio.sleep(_POLL_S)


def _own(store: Store[ObservedJob], run: RunJobs) -> list[ObservedJob]:
    """Without the jobs of earlier parts of a calibration, which are in the same namespace."""
    return [job for job in store.values() if job.job_id in run.names]


class StallDetector:
    """Detects that no phase and no number of finished steps has changed for a while. Its only state is the last observation."""

    def __init__(self, run: RunJobs, now_ns: int) -> None:
        self._run = run
        self._patience_ns = to_ns(max(STALLED_S, 3 * max(map(_step_s, run.jobs), default=0.0)))
        self._state: frozenset[tuple[str, str, int]] = frozenset()
        self._changed_ns = max(now_ns, run.begin_ns)
        self._next_ns = self._changed_ns + self._patience_ns

    def sentence(self, observed: Sequence[ObservedJob], now_ns: int) -> str:
        """What the run waits for; empty: something has changed lately, or all submitted jobs have ended."""
        state = frozenset((job.job_id, job.phase, job.steps_done) for job in observed)
        waiting = self._due(now_ns) > sum(job.ended for job in observed)
        if state != self._state or not waiting:
            self._state, self._changed_ns = state, now_ns
            self._next_ns = now_ns + self._patience_ns
            return ""
        if now_ns < self._next_ns:
            return ""
        quiet_ns = now_ns - self._changed_ns
        self._next_ns = now_ns + max(quiet_ns, self._patience_ns)
        return f"no progress for {to_s(quiet_ns):.0f} s: {waits_for(self._run, observed)}"

    def _due(self, now_ns: int) -> int:
        """How many jobs should have been submitted by now."""
        return sum(self._run.begin_ns + to_ns(job.submit_s) <= now_ns for job in self._run.jobs)


def waits_for(run: RunJobs, observed: Sequence[ObservedJob]) -> str:
    """Which jobs have not ended, by phase, with the reason that one of them gives, and where to look."""
    live = [job for job in observed if not job.ended]
    counts = ", ".join(f"{count} {phase}" for phase, count in Counter(job.phase or "new" for job in live).items())
    missing = len(run.jobs) - len(observed)
    parts = [f"{len(observed) - len(live)} of {len(run.jobs)} jobs have ended"]
    parts += [counts] if counts else []
    parts += [f"{missing} not submitted yet"] if missing else []
    reason = next((f"; {job.job_id}: {job.waiting}" for job in live if job.waiting), "")
    return f"{', '.join(parts)}{reason} (`kubectl -n {run.to.namespace} get emujobs,pods`)"


def _step_s(job: JobSpec) -> float:
    """The longest stated step time of a job; a model's steps are short."""
    return max((work.duration_s / job.steps for work in job.work.values() if isinstance(work, TimedWork)), default=0.0)
