"""Executes planned actions, one request each; decisions are made in plan.py."""

from __future__ import annotations

from operators.controllers.writer import Author, write_common
from operators.jobs.plan import Action, CreateJob, CreateService, ResizePod
from operators.kube.api import EMUJOB, JOB, POD_SIZE, SERVICE, Api, Json
from operators.objects.names import CONTAINER

FIELD_MANAGER = "emugpu-operator"
"""The controller owns fields under this name (Kubernetes API concepts, server-side apply)."""
_AUTHOR = Author(FIELD_MANAGER, EMUJOB, "EmuJob", "jobs")


async def write(api: Api, action: Action, wall_ns: int) -> Json | None:
    """The object after the write; None for an event or a delete. Raises what Api raises."""
    match action:
        case CreateJob(_, document):
            return await api.create(JOB, dict(document), FIELD_MANAGER)
        case CreateService(_, document):
            return await api.create(SERVICE, dict(document), FIELD_MANAGER)
        case ResizePod(key, resources):
            container = {"name": CONTAINER, "resources": dict(resources)}
            metadata = {"name": key.name, "namespace": key.namespace, "uid": key.uid}
            document = {"metadata": metadata, "spec": {"containers": [container]}}
            return await api.patch(POD_SIZE, key.name, document, FIELD_MANAGER)
        case _:
            return await write_common(api, action, _AUTHOR, wall_ns)
