"""Carries out what was decided, one request per action; there is no policy here."""

from __future__ import annotations

from operators.emujob.objects import Key
from operators.events import Regarding, event_document
from operators.experiments.arena import delete
from operators.experiments.controlling.names import FIELD_MANAGER, KIND
from operators.experiments.controlling.plan import (
    Action,
    CreateRunner,
    DeleteArena,
    DeleteExperiment,
    DeleteRunner,
    SetFinalizer,
    SuspendRunner,
    Tell,
    WriteStatus,
)
from operators.kube import EVENT, EXPERIMENT, JOB, Api, applied


async def write(api: Api, action: Action, wall_ns: int) -> None:
    """Raises what Api raises."""
    match action:
        case SetFinalizer(key, finalizers):
            document = {"metadata": {**_exactly(key), "finalizers": list(finalizers)}}
            await api.patch(EXPERIMENT, key.name, document, FIELD_MANAGER)
        case CreateRunner(document):
            await api.create(JOB, dict(document), FIELD_MANAGER)
        case SuspendRunner(key, suspend):
            document = applied(JOB, key.name, key.uid, metadata=_exactly(key), spec={"suspend": suspend})
            await api.apply(JOB, key.name, document, FIELD_MANAGER)
        case DeleteRunner(key):
            await api.delete(JOB, key.name, key.namespace, uid=key.uid)
        case DeleteArena(key):
            await delete(api, key.name)
        case DeleteExperiment(key):
            await api.delete(EXPERIMENT, key.name, key.namespace, uid=key.uid)
        case WriteStatus(key, status):
            document = applied(EXPERIMENT, key.name, key.uid, metadata=_exactly(key), status=dict(status))
            await api.apply(EXPERIMENT.Status, key.name, document, FIELD_MANAGER)
        case Tell(key, news):
            about = Regarding(KIND, key.name, key.uid, key.namespace)
            await api.create(EVENT, event_document(about, news, "experiments", wall_ns))


def _exactly(key: Key) -> dict[str, str]:
    """A version is a precondition: what somebody else has changed since is looked at first."""
    return {"namespace": key.namespace, "resourceVersion": key.version}
