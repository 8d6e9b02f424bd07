"""Where one EmuJob is, in one word: so that nobody else has to make sense of its Job, pods and gates. Pure, without memory."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from operators.scheduling.see.job_objects import JobObjects


class State(StrEnum):
    """Where a job is, as its objects show it."""

    ABSENT = "absent"
    """Nobody wants it any more, and nothing of it is left."""
    WITHHELD = "withheld"
    """Its owner holds it back (spec.suspend)."""
    UNREADY = "unready"
    """There is no Job yet, or it is being made anew."""
    IDLE = "idle"
    """It holds nothing: it can be started."""
    HELD = "held"
    """It was started: its pods are on their way."""
    RUNNING = "running"
    TORN = "torn"
    """Some of its pods were let go and others not: a gang that must not run like this."""
    LEAVING = "leaving"
    """It was stopped; something of it is still there."""
    FINISHED = "finished"
    FAILED = "failed"


def look(job_objects: JobObjects, by_actuator: Callable[[JobObjects], State]) -> State:
    """`by_actuator` says what a job looks like that is there and has neither ended nor been taken back."""
    order = job_objects.order
    if order is None or order.facts.deleting:
        return State.LEAVING if job_objects.live else State.ABSENT
    ended = State.FAILED if order.phase == "Failed" else State.FINISHED if _is_done(job_objects) else None
    if ended is not None:
        return State.LEAVING if job_objects.live else ended
    if order.held:
        return State.LEAVING if job_objects.live else State.WITHHELD
    if job_objects.job is None:
        return State.LEAVING if job_objects.live else State.UNREADY
    return by_actuator(job_objects)


def _is_done(job_objects: JobObjects) -> bool:
    """As soon as all pods have done their part: what is to be said of it comes later."""
    assert job_objects.order is not None
    if job_objects.order.phase == "Succeeded" or (job_objects.job is not None and job_objects.job.facts.complete):
        return True
    return sum(pod.facts.phase == "Succeeded" for pod in job_objects.own) >= job_objects.order.nodes


def is_running(job_objects: JobObjects) -> bool:
    """All its pods run, or have done their part already."""
    assert job_objects.order is not None
    busy = sum(pod.facts.phase in ("Running", "Succeeded") and not pod.deleting for pod in job_objects.own)
    return busy >= job_objects.order.nodes
