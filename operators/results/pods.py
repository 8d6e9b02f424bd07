"""What the API server tells of a Job's pods, as events of the same form: the source where no Redis is, and the cross-check.

A pod's containers say when they were started and when they ended, in whole seconds and by their kubelet's clock. The id of
such an event derives from the pod and its start, so that seeing a pod again tells nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from operators.results.events import BEGINS, FAILED, FINISHED, KUBERNETES, JobEvent

_UIDS = ("emugpu.dev/job-uid", "batch.kubernetes.io/controller-uid", "controller-uid")
"""Labels with the UID of a pod's EmuJob or Job, the first one that there is: as the node's manager reads them."""
_INDEX = "batch.kubernetes.io/job-completion-index"
_STOPPED = 143
"""A trainer that was asked to stop exits with this (128 + SIGTERM), having written its checkpoint."""
_BEGIN, _END = 1, 2


def events_of_pod(pod: Mapping[str, Any], received_ns: int, container: str = "") -> list[JobEvent]:
    """The events of one container of a Job's pod (default: its first one); none for a pod of no Job."""
    key, statuses = _job_key(pod), pod.get("status", {}).get("containerStatuses", [])
    named = [status for status in statuses if container in ("", status.get("name"))]
    if not key or not named:
        return []
    states = (named[0].get(member, {}) for member in ("lastState", "state"))
    found: dict[tuple[str, int, int], JobEvent] = {}
    for state in states:
        for event in _events_of_state(pod, key, state, received_ns):
            found[event.place] = event
    return list(found.values())


def _events_of_state(pod: Mapping[str, Any], key: str, state: Mapping[str, Any], received_ns: int) -> list[JobEvent]:
    told = state.get("running") or state.get("terminated") or {}
    started_ns, finished_ns = time_ns(told.get("startedAt")), time_ns(told.get("finishedAt"))
    if not started_ns:
        return []
    events = [_event(pod, key, started_ns, (_BEGIN, BEGINS, started_ns), received_ns)]
    if finished_ns:
        end = (_END, _end_of(pod, told), finished_ns)
        events.append(_event(pod, key, started_ns, end, received_ns))
    return events


def _end_of(pod: Mapping[str, Any], terminated: Mapping[str, Any]) -> str:
    """A pod that is taken away was preempted, whatever its exit code: one that is killed has none of its own."""
    if terminated.get("exitCode") == 0:
        return FINISHED
    disrupted = any(
        condition.get("type") == "DisruptionTarget" and condition.get("status") == "True"
        for condition in pod.get("status", {}).get("conditions", [])
    )
    if terminated.get("exitCode") == _STOPPED:
        return "released"
    return "gone" if disrupted or pod["metadata"].get("deletionTimestamp") else FAILED


def _event(pod: Mapping[str, Any], key: str, started_ns: int, told: tuple[int, str, int], received_ns: int) -> JobEvent:
    sequence, kind, at_ns = told
    metadata = pod["metadata"]
    return JobEvent(
        stream=f"{KUBERNETES}{metadata['uid']}",
        epoch=started_ns // 1_000_000,
        sequence=sequence,
        node=pod.get("spec", {}).get("nodeName", ""),
        number=sequence,
        at_ns=0,
        wall_ns=at_ns,
        kind=kind,
        job_key=key,
        from_step=0,
        steps_done=0,
        namespace=metadata.get("namespace", ""),
        pod=metadata["name"],
        received_ns=received_ns,
    )


def _job_key(pod: Mapping[str, Any]) -> str:
    """As the node's manager names the work (sharing_manager.identity.PodIdentity)."""
    metadata = pod["metadata"]
    labels = metadata.get("labels", {})
    uid = next((labels[name] for name in _UIDS if labels.get(name)), "")
    index = labels.get(_INDEX) or metadata.get("annotations", {}).get(_INDEX) or "0"
    return f"{uid}/{index}" if uid else ""


def time_ns(text: object) -> int:
    """A time of the API server in nanoseconds since 1970; 0 for none or for what is no time."""
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1_000_000) * 1000
    except ValueError:
        return 0
