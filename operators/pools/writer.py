"""Carries out what was decided, one request per action; there is no policy here."""

from __future__ import annotations

import hashlib

from operators.clock import rfc3339_micro
from operators.kube import EVENT, NODE, POOL, Api, Json, applied
from operators.pools.actions import Action, PatchNode, PatchStatus, RecordEvent
from operators.pools.objects import FIELD_MANAGER

EVENT_NAMESPACE = "default"
"""Where events about objects without a namespace go (events.k8s.io/v1)."""


async def write(api: Api, action: Action, wall_ns: int) -> Json | None:
    """The object as it is afterwards; None for an event. Raises what Api raises."""
    match action:
        case PatchNode(name, uid, labels, annotations):
            metadata = {"labels": dict(labels), "annotations": dict(annotations)}
            return await api.apply(NODE, name, applied(NODE, name, uid, metadata=metadata), FIELD_MANAGER)
        case PatchStatus(name, uid, status):
            return await api.apply(POOL.Status, name, applied(POOL, name, uid, status=dict(status)), FIELD_MANAGER)
        case RecordEvent():
            await api.create(EVENT, event_document(action, wall_ns))
            return None


def event_document(event: RecordEvent, wall_ns: int) -> Json:
    """An events.k8s.io/v1 Event. Its name holds the time, so the same news at another time is another event."""
    digest = hashlib.sha256(f"{event.uid}/{event.reason}/{wall_ns}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{event.pool}.{digest}", "namespace": EVENT_NAMESPACE},
        "eventTime": rfc3339_micro(wall_ns),
        "reportingController": "emugpu.dev/pools",
        "reportingInstance": "emugpu-pools",
        "action": "Reconcile",
        "reason": event.reason,
        "note": event.note[:1024],
        "type": event.kind,
        "regarding": {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuGPUPool", "name": event.pool, "uid": event.uid},
    }
