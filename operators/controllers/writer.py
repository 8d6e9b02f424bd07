"""Performs the actions that several controllers share (actions.py), one request each; decisions are made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from operators.controllers.actions import CommonAction, DeleteJob, RecordEvent, SuspendJob, WriteStatus
from operators.controllers.events import Regarding, event_document
from operators.kube.api import EVENT, JOB, Api, Json, Resource, applied
from operators.kube.documents import Key


@dataclass(frozen=True, slots=True)
class Author:
    """A controller: its field manager, the kind of objects that it reports on, and its name in events."""

    field_manager: str
    resource: Resource
    kind: str
    reporter: str


async def write_common(api: Api, action: CommonAction, author: Author, wall_ns: int) -> Json | None:
    """The object after the write; None for an event or a delete. Raises what Api raises."""
    match action:
        case SuspendJob(key, suspend, _):
            document = applied(JOB, key.name, key.uid, metadata=exactly(key), spec={"suspend": suspend})
            return await api.apply(JOB, key.name, document, author.field_manager)
        case DeleteJob(key, _):
            await api.delete(JOB, key.name, key.namespace, uid=key.uid)
            return None
        case WriteStatus(key, status, _):
            document = applied(author.resource, key.name, key.uid, metadata=exactly(key), status=dict(status))
            return await api.apply(author.resource.status, key.name, document, author.field_manager)
        case RecordEvent(key, event):
            about = Regarding(author.kind, key.name, key.uid, key.namespace)
            await api.create(EVENT, event_document(about, event, author.reporter, wall_ns))
            return None


def exactly(key: Key) -> dict[str, str]:
    """Metadata with the resourceVersion as a precondition: the write fails if the object has changed since it was read."""
    return {**({"namespace": key.namespace} if key.namespace else {}), "resourceVersion": key.version}
