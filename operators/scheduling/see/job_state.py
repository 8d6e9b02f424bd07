"""Derives one State of an EmuJob from its Job, pods and scheduling gates. Pure: the same objects give the same state."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from operators.scheduling.see.job_objects import JobObjects


class State(StrEnum):
    """The state of a job according to its objects."""

    ABSENT = "absent"
    """The EmuJob was deleted, and no pod is left."""
    SUSPENDED = "suspended"
    """The owner set spec.suspend, and no pod is left."""
    UNREADY = "unready"
    """There is no Job yet, or its pods are not all created."""
    IDLE = "idle"
    """The job holds nothing and can be started."""
    PLACED = "placed"
    """The job was started, but not all of its pods run yet."""
    RUNNING = "running"
    PARTLY_RELEASED = "partly released"
    """Some pods of a gang were released and others not: the gang must not run like this."""
    LEAVING = "leaving"
    """The job was stopped, but some of its pods still exist."""
    FINISHED = "finished"
    FAILED = "failed"


def read_state(job_objects: JobObjects, by_actuator: Callable[[JobObjects], State]) -> State:
    """`by_actuator` derives the state of a job that has a Job and is neither deleted, ended nor suspended by its owner."""
    emujob = job_objects.emujob
    if emujob is None or emujob.deleting:
        return State.LEAVING if job_objects.live else State.ABSENT
    ended = State.FAILED if emujob.phase == "Failed" else State.FINISHED if _is_done(job_objects) else None
    if ended is not None:
        return State.LEAVING if job_objects.live else ended
    if emujob.suspended:
        return State.LEAVING if job_objects.live else State.SUSPENDED
    if job_objects.job is None:
        return State.LEAVING if job_objects.live else State.UNREADY
    return by_actuator(job_objects)


def _is_done(job_objects: JobObjects) -> bool:
    """Whether all pods have succeeded. The EmuJob's phase follows later, when the controller has the last event."""
    assert job_objects.emujob is not None
    if job_objects.emujob.phase == "Succeeded" or (job_objects.job is not None and job_objects.job.complete):
        return True
    return sum(pod.phase == "Succeeded" for pod in job_objects.own) >= job_objects.emujob.nodes


def is_running(job_objects: JobObjects) -> bool:
    """Whether each of the job's pods runs or has succeeded."""
    assert job_objects.emujob is not None
    busy = sum(pod.phase in ("Running", "Succeeded") and not pod.deleting for pod in job_objects.own)
    return busy >= job_objects.emujob.nodes
