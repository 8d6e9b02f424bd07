"""Carries out what was decided, one request per action; there is no policy here."""

from __future__ import annotations

from operators.controllers.writer import Author, exactly, write_common
from operators.experiments.controller.names import FIELD_MANAGER, KIND
from operators.experiments.controller.plan import (
    Action,
    CreateRunner,
    DeleteExperiment,
    DeleteRunNamespace,
    SetFinalizer,
)
from operators.experiments.run_namespace import request_deletion
from operators.kube.api import EXPERIMENT, JOB, Api

_AUTHOR = Author(FIELD_MANAGER, EXPERIMENT, KIND, "experiments")


async def write(api: Api, action: Action, wall_ns: int) -> None:
    """Raises what Api raises."""
    match action:
        case SetFinalizer(key, finalizers):
            document = {"metadata": {**exactly(key), "finalizers": list(finalizers)}}
            await api.patch(EXPERIMENT, key.name, document, FIELD_MANAGER)
        case CreateRunner(document):
            await api.create(JOB, dict(document), FIELD_MANAGER)
        case DeleteRunNamespace(key):
            await request_deletion(api, key.name)
        case DeleteExperiment(key):
            await api.delete(EXPERIMENT, key.name, key.namespace, uid=key.uid)
        case _:
            await write_common(api, action, _AUTHOR, wall_ns)
