"""Actuator `jobs`: a Job waits suspended; one patch says where and how its pods run, and resumes it.

Kubernetes lets the pod template of a suspended Job be changed once nothing of its last run is left, and only then
(batch/v1, mutable scheduling directives and pod resources of suspended Jobs).
"""

from __future__ import annotations

from operators.kube.api import JOB, Json
from operators.objects.names import CONTAINER
from operators.objects.pool import DEFAULT_RESOURCE
from operators.scheduling.actuators.by_pods import notes
from operators.scheduling.job_state import State, is_running
from operators.scheduling.objects import Mine
from operators.scheduling.writer import Wanted, Writer


class Jobs:
    """Suspends and resumes the Job. Pods are bound by whoever their schedulerName names."""

    one_size = False

    def look(self, mine: Mine) -> State:
        assert mine.job is not None
        job = mine.job.facts
        if not job.suspended:
            return State.RUNNING if is_running(mine) else State.HELD
        never_ran_or_ended = job.stopped or not job.started
        if mine.live or job.active or job.terminating or not never_ran_or_ended:
            return State.LEAVING
        return State.IDLE

    async def start(self, writer: Writer, mine: Mine, wanted: Wanted) -> None:
        assert mine.job is not None
        await writer.patch(JOB, mine.job.facts.key, {"spec": {"suspend": False, "template": template(wanted)}})

    async def stop(self, writer: Writer, mine: Mine) -> None:
        assert mine.job is not None
        await writer.patch(JOB, mine.job.facts.key, {"spec": {"suspend": True}})


def template(wanted: Wanted) -> Json:
    """What of the pod template says where and how."""
    # One term per node, by name: the API server takes one name in each, and the scheduler of pods looks at those only.
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in wanted.allocation.nodes
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    gpus = str(wanted.gpus) if wanted.gpus else None  # none at all rather than 0, see operators/jobs/manifests.py
    container = {"name": CONTAINER, "resources": {"limits": {DEFAULT_RESOURCE: gpus}}}
    return {"metadata": {"annotations": notes(wanted)}, "spec": {"affinity": affinity, "containers": [container]}}
