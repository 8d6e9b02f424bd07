"""Carries out what was decided, one request per action; there is no policy here."""

from __future__ import annotations

from operators.emujob.names import CONTAINER
from operators.emujob.objects import Key
from operators.events import Regarding, event_document
from operators.jobs.plan import Action, CreateJob, CreateService, DeleteJob, ResizePod, SuspendJob, Tell, WriteStatus
from operators.kube import EMUJOB, EVENT, JOB, POD_SIZE, SERVICE, Api, Json, applied

FIELD_MANAGER = "emugpu-operator"
"""Under this name the controller owns fields (Kubernetes API concepts, server-side apply)."""


async def write(api: Api, action: Action, wall_ns: int) -> Json | None:
    """The object as it is afterwards; None for an event or a delete. Raises what Api raises."""
    match action:
        case CreateJob(_, document):
            return await api.create(JOB, dict(document), FIELD_MANAGER)
        case CreateService(_, document):
            return await api.create(SERVICE, dict(document), FIELD_MANAGER)
        case SuspendJob(key, suspend):
            document = applied(JOB, key.name, key.uid, metadata=_exactly(key), spec={"suspend": suspend})
            return await api.apply(JOB, key.name, document, FIELD_MANAGER)
        case DeleteJob(key):
            await api.delete(JOB, key.name, key.namespace, uid=key.uid)
            return None
        case ResizePod(key, resources):
            container = {"name": CONTAINER, "resources": dict(resources)}
            metadata = {"name": key.name, "namespace": key.namespace, "uid": key.uid}
            document = {"metadata": metadata, "spec": {"containers": [container]}}
            return await api.patch(POD_SIZE, key.name, document, FIELD_MANAGER)
        case WriteStatus(key, status):
            document = applied(EMUJOB, key.name, key.uid, metadata=_exactly(key), status=dict(status))
            return await api.apply(EMUJOB.Status, key.name, document, FIELD_MANAGER)
        case Tell(key, news):
            about = Regarding("EmuJob", key.name, key.uid, key.namespace)
            await api.create(EVENT, event_document(about, news, "jobs", wall_ns))
            return None


def _exactly(key: Key) -> dict[str, str]:
    """A version in an applied object is a precondition: what somebody else has changed since is looked at first."""
    return {"namespace": key.namespace, "resourceVersion": key.version}
