"""Executes planned actions, one request each; decisions are made in reconcile.py."""

from __future__ import annotations

from operators.controllers.events import News, Regarding, event_document
from operators.kube.api import EVENT, NODE, POOL, Api, Json, applied
from operators.objects.node import FIELD_MANAGER
from operators.pools.actions import Action, PatchNode, PatchStatus, RecordEvent


async def write(api: Api, action: Action, wall_ns: int) -> Json | None:
    """The object after the write; None for an event. Raises what Api raises."""
    match action:
        case PatchNode(name, uid, labels, annotations):
            metadata = {"labels": dict(labels), "annotations": dict(annotations)}
            return await api.apply(NODE, name, applied(NODE, name, uid, metadata=metadata), FIELD_MANAGER)
        case PatchStatus(name, uid, status):
            return await api.apply(POOL.status, name, applied(POOL, name, uid, status=dict(status)), FIELD_MANAGER)
        case RecordEvent():
            await api.create(EVENT, event_of(action, wall_ns))
            return None


def event_of(event: RecordEvent, wall_ns: int) -> Json:
    """The Event of this action."""
    about = Regarding("EmuGPUPool", event.pool, event.uid)
    return event_document(about, News(event.kind, event.reason, event.note), "pools", wall_ns)
