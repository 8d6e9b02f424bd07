"""Makes jobs be as the loop has decided, although writes fail and objects change meanwhile, and the loop can't wait for that.

A start is one write while the loop waits; a stop and a new division of CPUs and memory are wanted from then on, and tried until
they are so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from emulator_runtime.domain.errors import EmuGpuError
from operators.controllers.leader_election import LeadershipLostError
from operators.kube.api import EMUJOB, JOB, POD, ConflictError, NotThereError
from operators.kube.informer import Pauses
from operators.objects.names import ALLOCATION
from operators.scheduling.act.actuators import ACTUATORS, state_of
from operators.scheduling.act.writer import NotYetError, Wanted, Writer
from operators.scheduling.complaints import Complaint, Kind
from operators.scheduling.see.cluster_objects import ClusterObjects
from operators.scheduling.see.job_objects import JobObjects, ScheduledEmuJob
from operators.scheduling.see.job_state import State
from operators.scheduling.track.job_reading import gpus_of, noted
from operators.scheduling.track.tracked_job import HOLDS, LoopPhase, TrackedJob
from scheduler_sims.interface.plan import Allocation

ATTEMPTS = 3
"""So often a start looks again and writes again where the Job has changed under it, such as its status."""


class Enforcer:
    """`lost` is raised as soon as it may not act any more, or breaks; somebody must wait for it, and `close` in the end."""

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
        """Raises NotYetError (a retry helps) where the job can't be started at the moment, or nobody knows whether it was."""
        if tracked.known is not LoopPhase.QUEUED:
            raise NotYetError(f"job {tracked.job_id!r} is not waiting any more")
        tracked.writing = True
        try:
            await self._start(tracked, allocation)
        except (ConflictError, NotThereError) as error:
            raise NotYetError(f"job {tracked.job_id!r} has changed at this moment: {error}") from error
        except (LeadershipLostError, NotYetError):
            raise
        except EmuGpuError as error:
            text = f"job {tracked.job_id!r} can't be started: {error}; trying again"
            self._complain(Complaint(Kind.START_REFUSED, text, tracked.job_id, tracked.uid))
            raise NotYetError(str(error)) from error
        finally:
            tracked.writing = False

    def enforce(self, tracked: TrackedJob) -> None:
        """See to it that the job is as it should be; one task per job at a time."""
        if not self._closed and (tracked.enforcing is None or tracked.enforcing.done()):
            tracked.enforcing = asyncio.create_task(self._enforcing(tracked))
            self._tasks.add(tracked.enforcing)
            tracked.enforcing.add_done_callback(self._enforced)

    async def close(self) -> None:
        """Nothing is enforced any more when this returns."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def annotate(self, order: ScheduledEmuJob, name: str, text: str | None) -> None:
        """Writes an annotation, or removes it (None). A failure is only printed: no decision depends on the annotation."""
        try:
            await self._writer.patch(
                EMUJOB, replace(order.key, version=""), {"metadata": {"annotations": {name: text}}}
            )
        except NotThereError:
            return
        except EmuGpuError as error:
            self._say(str(error))

    async def _start(self, tracked: TrackedJob, allocation: Allocation) -> None:
        for attempt in range(ATTEMPTS):
            job_objects = self._objects.job_objects(tracked)
            if job_objects.order is None or state_of(job_objects) is not State.IDLE:
                raise NotYetError(f"job {tracked.job_id!r} is not ready to be started")
            note, devices = noted(allocation)
            gpus = gpus_of(job_objects.order, allocation.configuration)
            try:
                wanted = Wanted(note, devices, gpus, self._objects.hosts(note.nodes))
                await ACTUATORS[job_objects.order.actuator].start(self._writer, job_objects, wanted)
                return
            except ConflictError:
                if attempt == ATTEMPTS - 1:
                    raise
                await self._look_again(job_objects)

    async def _look_again(self, job_objects: JobObjects) -> None:
        if job_objects.job is not None:
            await self._writer.look_again(JOB, job_objects.job.facts.key)
        for pod in job_objects.live:
            await self._writer.look_again(POD, pod.facts.key)

    def _enforced(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.lost.done():
            self.lost.set_exception(task.exception() or RuntimeError())

    async def _enforcing(self, tracked: TrackedJob) -> None:
        failures = 0
        while not tracked.writing:
            job_objects = self._objects.job_objects(tracked)
            try:
                if not await self._act(tracked, job_objects):
                    return
                failures = 0
            except (ConflictError, NotThereError):
                failures += 1
                await self._look_again_or_not(job_objects)
            except LeadershipLostError:
                raise
            except EmuGpuError as error:
                failures += 1
                self._say(str(error))
            if failures:
                await asyncio.sleep(self._pauses.after(failures) if failures > 1 else 0)

    async def _look_again_or_not(self, job_objects: JobObjects) -> None:
        try:
            await self._look_again(job_objects)
        except EmuGpuError as error:
            self._say(str(error))

    async def _act(self, tracked: TrackedJob, job_objects: JobObjects) -> bool:
        """One write towards what is wanted; False where all is so."""
        order = job_objects.order
        if order is None or state_of(job_objects) not in HOLDS:
            return False
        if tracked.known in (LoopPhase.STOPPING, LoopPhase.STRANGE, LoopPhase.QUEUED):
            await ACTUATORS[order.actuator].stop(self._writer, job_objects)
            return True
        if tracked.known not in (LoopPhase.STARTING, LoopPhase.RUNNING) or tracked.allocation is None:
            return False
        return await self._divide(order, job_objects, noted(tracked.allocation)[0].to_json())

    async def _divide(self, order: ScheduledEmuJob, job_objects: JobObjects, text: str) -> bool:
        """The pods' annotation is what counts; the EmuJob's is the record."""
        note = {"metadata": {"annotations": {ALLOCATION: text}}}
        pod = next((each for each in job_objects.live if each.allocation != text and not each.deleting), None)
        if pod is not None:
            await self._writer.patch(POD, replace(pod.facts.key, version=""), note)
        elif order.annotations.get(ALLOCATION) != text and job_objects.live:
            await self._writer.patch(EMUJOB, replace(order.key, version=""), note)
        else:
            return False
        return True
