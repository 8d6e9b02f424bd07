"""What actuators have in common that place a Job's pods one by one: the Job's own template stays as it was made.

A gang is let go all at once or not at all: where a program died between two pods, or one pod of several was replaced, the
pods that have a place are deleted, and the Job controller makes others that wait. Pods that have done their part are done for
good: where a job is stopped as it ends, only the others run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from operators.objects.names import ALLOCATION, CONFIGURATION
from operators.scheduling.job_state import State, is_running
from operators.scheduling.names import PLANNED_DEVICES
from operators.scheduling.objects import Mine, ScheduledPod
from operators.scheduling.writer import Wanted, Writer


class ByPods(ABC):
    """An actuator says when a pod has its place, and how it gets one."""

    one_size = True

    @abstractmethod
    def has_place(self, pod: ScheduledPod) -> bool:
        """Whether the pod was let go."""

    @abstractmethod
    async def let_go(self, writer: Writer, pod: ScheduledPod, node: str, wanted: Wanted) -> None:
        """Give the pod its place."""

    def look(self, mine: Mine) -> State:
        assert mine.job is not None and mine.order is not None
        own = [pod for pod in mine.own if pod.live]
        if len(own) < len(mine.live) or any(pod.deleting for pod in own):
            return State.LEAVING
        placed, job = [pod for pod in own if self.has_place(pod)], mine.job.facts
        if job.suspended:
            return State.LEAVING if own else State.UNREADY
        if placed and len(placed) < len(own):
            return State.TORN
        if placed:
            return State.RUNNING if is_running(mine) else State.HELD
        done = sum(pod.facts.phase == "Succeeded" for pod in mine.own)
        return State.IDLE if own and len(own) + done == mine.order.nodes else State.UNREADY

    async def start(self, writer: Writer, mine: Mine, wanted: Wanted) -> None:
        waiting = sorted((pod for pod in mine.own if pod.live), key=lambda pod: pod.facts.key.name)
        for pod, node in zip(waiting, wanted.allocation.nodes, strict=False):
            await self.let_go(writer, pod, node, wanted)

    async def stop(self, writer: Writer, mine: Mine) -> None:
        for pod in mine.own:
            if pod.live and not pod.deleting and self.has_place(pod):
                await writer.delete_pod(pod.facts.key)


def notes(wanted: Wanted) -> dict[str, str]:
    """The annotations of a pod that was let go."""
    return {
        CONFIGURATION: wanted.allocation.configuration,
        ALLOCATION: wanted.allocation.to_json(),
        PLANNED_DEVICES: ",".join(wanted.devices),
    }
