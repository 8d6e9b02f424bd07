"""What the API server tells of a Job's pods, as events of the same form: the source where no Redis is, and the cross-check.

A pod's containers say when they were started and when they ended, in whole seconds and by their kubelet's clock. The id of
such an event derives from the pod and its start, so that seeing a pod again tells nothing new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.node.layout import HOST_RESOURCE, WORK_UID_LABELS
from operators.kube.documents import object_at, objects_in, text_at, texts_of
from operators.kube.timestamps import ns_of
from operators.results.events import BEGINS, FAILED, FINISHED, KUBERNETES, JobEvent

_INDEX = "batch.kubernetes.io/job-completion-index"
_OURS = "emugpu.dev/"
"""Resources of device plugins of emugpu. One of them is no device, but a place on an emulated node."""
_STOPPED = 143
"""A trainer that was asked to stop exits with this (128 + SIGTERM), having written its checkpoint."""
_BEGIN, _END = 1, 2


@dataclass(frozen=True, slots=True)
class Demand:
    """What the containers of a pod (or of a Job's template) ask of emugpu: how many of them do, and for how many devices
    together."""

    containers: tuple[str, ...]
    devices: int


def demand_of(pod_spec: Mapping[str, Any]) -> Demand:
    """No containers where the pod has nothing to do with emugpu."""
    asked: dict[str, int] = {}
    for container in objects_in(pod_spec, "containers"):
        if (devices := _devices(container)) is not None:
            asked[text_at(container, "name")] = devices
    return Demand(tuple(asked), sum(asked.values()))


def devices_of(pod_spec: Mapping[str, Any]) -> int | None:
    """How many devices of emugpu a pod holds on its node; None where it has nothing to do with emugpu.

    As Kubernetes counts: what runs before the others, one after the other, has what they have later.
    """
    beside, before = (
        [devices for container in objects_in(pod_spec, kind) if (devices := _devices(container)) is not None]
        for kind in ("containers", "initContainers")
    )
    return max(sum(beside), *before, 0) if beside or before else None


def _devices(container: Mapping[str, Any]) -> int | None:
    """What it asks for; 0: a place alone, None: nothing of ours."""
    limits = object_at(container, "resources", "limits")
    ours = {name: str(amount) for name, amount in limits.items() if name.startswith(_OURS) and str(amount) != "0"}
    counts = (int(text) for name, text in ours.items() if name != HOST_RESOURCE and text.isdecimal())
    return sum(counts) if ours else None


def _asking(pod_spec: Mapping[str, Any]) -> int:
    """Containers that ask for devices, whosever: where there are several the manager gives each work of its own."""
    every = [c for kind in ("containers", "initContainers") for c in objects_in(pod_spec, kind)]
    return sum(any("/" in name for name in object_at(c, "resources", "limits")) for c in every)


def events_of_pod(pod: Mapping[str, Any], received_ns: int) -> list[JobEvent]:
    """The events of the containers that ask for devices of emugpu, of the first one where none says so; containers of a pod
    that begin and end tell it, whatever they work for."""
    spec, statuses = object_at(pod, "spec"), objects_in(object_at(pod, "status"), "containerStatuses")
    names, alone = demand_of(spec).containers, _asking(spec) < 2
    told = [status for status in statuses if text_at(status, "name") in names] if names else statuses[:1]
    found: dict[tuple[str, int, int], JobEvent] = {}
    for status in told:
        part = "" if alone else f"/{text_at(status, 'name')}"
        for member in ("lastState", "state"):
            for event in _events_of_state(pod, part, object_at(status, member), received_ns):
                found[event.place] = event
    return list(found.values())


def _events_of_state(pod: Mapping[str, Any], part: str, state: Mapping[str, Any], received_ns: int) -> list[JobEvent]:
    """`part`: what its job key has after that of the pod."""
    told = state.get("running") or state.get("terminated") or {}
    started_ns, finished_ns = time_ns(told.get("startedAt")), time_ns(told.get("finishedAt"))
    if not started_ns:
        return []
    events = [_event(pod, part, started_ns, (_BEGIN, BEGINS, started_ns), received_ns)]
    if finished_ns:
        end = (_END, _end_of(pod, told), finished_ns)
        events.append(_event(pod, part, started_ns, end, received_ns))
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


def _event(
    pod: Mapping[str, Any], part: str, started_ns: int, told: tuple[int, str, int], received_ns: int
) -> JobEvent:
    sequence, kind, at_ns = told
    metadata = pod["metadata"]
    return JobEvent(
        stream=f"{KUBERNETES}{metadata['uid']}{part}",
        epoch=started_ns // 1_000_000,
        sequence=sequence,
        node=pod.get("spec", {}).get("nodeName", ""),
        number=sequence,
        at_ns=time_ns(metadata.get("creationTimestamp")),
        wall_ns=at_ns,
        kind=kind,
        job_key=f"{job_key_of(pod)}{part}",
        from_step=0,
        steps_done=0,
        namespace=metadata.get("namespace", ""),
        pod=metadata["name"],
        received_ns=received_ns,
    )


def work_uid_of(pod: Mapping[str, Any]) -> str:
    """The UID of its EmuJob or Job, else its own."""
    metadata = object_at(pod, "metadata")
    labels = texts_of(metadata, "labels")
    return next((labels[name] for name in WORK_UID_LABELS if labels.get(name)), "") or text_at(metadata, "uid")


def job_key_of(pod: Mapping[str, Any]) -> str:
    """As the node's manager names the work (sharing_manager.identity.PodIdentity)."""
    metadata = object_at(pod, "metadata")
    labels, uid = texts_of(metadata, "labels"), work_uid_of(pod)
    index = labels.get(_INDEX) or texts_of(metadata, "annotations").get(_INDEX) or "0"
    return f"{uid}/{index}" if any(labels.get(name) for name in WORK_UID_LABELS) else uid


def time_ns(text: object) -> int:
    """A time of the API server in nanoseconds since 1970; 0 for none or for what is no time."""
    return ns_of(str(text)) or 0
