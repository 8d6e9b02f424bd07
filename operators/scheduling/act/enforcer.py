"""Carries out the loop's decisions although writes fail and objects change meanwhile, without blocking the loop.

A start is written while the loop waits. Stops and resizes are desired states: a task per job repeats its writes until the job's
objects agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from emulator_runtime.domain.errors import EmuGpuError
from operators.controllers.leader_election import LeadershipLostError
from operators.kube.api import EMUJOB, JOB, POD, ConflictError, NotThereError
from operators.kube.informer import Pauses
from operators.objects.emujob import EmuJob
from operators.objects.names import ALLOCATION
from operators.scheduling.act.actuators import ACTUATORS, state_of
from operators.scheduling.act.writer import NotYetError, StartRequest, Writer
from operators.scheduling.complaints import Complaint, Kind
from operators.scheduling.see.cluster_objects import ClusterObjects
from operators.scheduling.see.job_objects import JobObjects
from operators.scheduling.see.job_state import State
from operators.scheduling.track.job_reading import annotation_of, gpus_of
from operators.scheduling.track.tracked_job import HOLDING, LoopPhase, TrackedJob
from scheduler_sims.interface.plan import Allocation

ATTEMPTS = 3
"""How often a start is written if the Job changes between read and write, such as its status."""


class Enforcer:
    """`lost` raises when this scheduler may not act any more or a task fails; await it, and call `close` at the end."""

    def __init__(
        self,
        objects: ClusterObjects,
        writer: Writer,
        pauses: Pauses,
        say: Callable[[str], None],
        complain: Callable[[Complaint], None],
    ) -> None:
        self._objects, self._writer, self._pauses, self._say = objects, writer, pauses, say
        self._complain = complain
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, tracked: TrackedJob, allocation: Allocation) -> None:
        """Raises NotYetError (a retry helps) if the job can't be started now, or if it isn't known whether it was started."""
        if tracked.phase is not LoopPhase.QUEUED:
            raise NotYetError(f"job {tracked.job_id!r} is no longer waiting")
        tracked.writing = True
        try:
            await self._start(tracked, allocation)
        except (ConflictError, NotThereError) as error:
            raise NotYetError(f"job {tracked.job_id!r} changed while it was being started: {error}") from error
        except (LeadershipLostError, NotYetError):
            raise
        except EmuGpuError as error:
            text = f"job {tracked.job_id!r} can't be started: {error}; trying again"
            self._complain(Complaint(Kind.START_REFUSED, text, tracked.job_id, tracked.uid))
            raise NotYetError(str(error)) from error
        finally:
            tracked.writing = False

    def enforce(self, tracked: TrackedJob) -> None:
        """Starts a task that brings the job into its desired state, unless one runs already."""
        if not self._closed and (tracked.enforcing is None or tracked.enforcing.done()):
            tracked.enforcing = asyncio.create_task(self._enforce(tracked))
            self._tasks.add(tracked.enforcing)
            tracked.enforcing.add_done_callback(self._task_done)

    async def close(self) -> None:
        """Cancels all tasks and waits for them."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def annotate(self, emujob: EmuJob, name: str, text: str | None) -> None:
        """Writes an annotation, or removes it (None). A failure is only printed: no decision depends on the annotation."""
        note = {"metadata": {"annotations": {name: text}}}
        try:
            await self._writer.patch(EMUJOB, replace(emujob.key, version=""), note)
        except NotThereError:
            return
        except EmuGpuError as error:
            self._say(str(error))

    async def _start(self, tracked: TrackedJob, allocation: Allocation) -> None:
        for attempt in range(ATTEMPTS):
            job_objects = self._objects.job_objects(tracked)
            if job_objects.emujob is None or state_of(job_objects) is not State.IDLE:
                raise NotYetError(f"job {tracked.job_id!r} is not ready to be started")
            annotation = annotation_of(allocation, tracked.row, elastic=tracked.elastic)
            gpus = annotation.gpus or gpus_of(job_objects.emujob, allocation.configuration)
            batch_size = tracked.batch_size(allocation)
            try:
                request = StartRequest(annotation, gpus, self._objects.hosts(annotation.nodes), batch_size)
                await ACTUATORS[job_objects.emujob.actuator].start(self._writer, job_objects, request)
                return
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                await self._refresh(job_objects)

    async def _refresh(self, job_objects: JobObjects) -> None:
        if job_objects.job is not None:
            await self._writer.refresh(JOB, job_objects.job.key)
        for pod in job_objects.live:
            await self._writer.refresh(POD, pod.key)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.lost.done():
            self.lost.set_exception(task.exception() or RuntimeError())

    async def _enforce(self, tracked: TrackedJob) -> None:
        failures = 0
        while not tracked.writing:
            job_objects = self._objects.job_objects(tracked)
            try:
                if not await self._write_next(tracked, job_objects):
                    return
                failures = 0
            except (ConflictError, NotThereError):
                failures += 1
                await self._try_refresh(job_objects)
            except LeadershipLostError:
                raise
            except EmuGpuError as error:
                failures += 1
                self._say(str(error))
            if failures:
                await asyncio.sleep(self._pauses.after(failures) if failures > 1 else 0)

    async def _try_refresh(self, job_objects: JobObjects) -> None:
        try:
            await self._refresh(job_objects)
        except EmuGpuError as error:
            self._say(str(error))

    async def _write_next(self, tracked: TrackedJob, job_objects: JobObjects) -> bool:
        """One write towards the desired state; returns False if the job's objects agree with it."""
        emujob = job_objects.emujob
        if emujob is None or state_of(job_objects) not in HOLDING:
            return False
        if tracked.phase in (LoopPhase.STOPPING, LoopPhase.FOREIGN, LoopPhase.QUEUED):
            await ACTUATORS[emujob.actuator].stop(self._writer, job_objects)
            return True
        if tracked.phase not in (LoopPhase.STARTING, LoopPhase.RUNNING) or tracked.allocation is None:
            return False
        annotation = annotation_of(tracked.allocation, tracked.row, elastic=tracked.elastic)
        return await self._annotate_allocation(emujob, job_objects, annotation.to_json())

    async def _annotate_allocation(self, emujob: EmuJob, job_objects: JobObjects, text: str) -> bool:
        """Writes the next annotation that differs: those of the pods take effect, that of the EmuJob is a record."""
        note = {"metadata": {"annotations": {ALLOCATION: text}}}
        pod = next((each for each in job_objects.live if each.allocation != text and not each.deleting), None)
        if pod is not None:
            await self._writer.patch(POD, replace(pod.key, version=""), note)
        elif emujob.annotations.get(ALLOCATION) != text and job_objects.live:
            await self._writer.patch(EMUJOB, replace(emujob.key, version=""), note)
        else:
            return False
        return True
