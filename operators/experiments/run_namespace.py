"""The namespace of one run: every run gets a new one, and it is deleted with everything in it when the run is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.units import to_ns
from operators.kube.api import CONFIG_MAP, EMUJOB, NAMESPACE, Api, NotThereError
from operators.objects.names import EXPERIMENT_LABEL

DELETED_S = 180.0
"""Maximum time until a deleted namespace is gone: Kubernetes waits for all pods in it, which take seconds to end."""
PROGRAM_FILES = "program-files"
"""The ConfigMap with the files of a run's programs."""
_POLL_S = 0.5


async def create(
    api: Api,
    name: str,
    experiment: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """`labels` are added to the namespace's own. Raises ConflictError where there is a namespace of this name."""
    own = {EXPERIMENT_LABEL: experiment, "app.kubernetes.io/managed-by": "emugpu-experiment"}
    metadata = {"name": name, "labels": {**own, **(labels or {})}, "annotations": dict(annotations or {})}
    await api.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


async def add_program_files(api: Api, namespace: str, files: Mapping[str, str]) -> None:
    """The files of the run's programs, which go with the namespace."""
    metadata = {"name": PROGRAM_FILES, "namespace": namespace}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(files), "immutable": True}
    await api.create(CONFIG_MAP, document)


async def remove(api: Api, name: str, wall_ns: Callable[[], int]) -> None:
    """Delete the namespace and wait until it is gone; failures that may pass are tried again.

    Raises ClusterError where it is not gone after DELETED_S.
    """
    limit_ns, requested = wall_ns() + to_ns(DELETED_S), False
    while True:
        problem = "is still being deleted"
        try:
            if not requested:
                await request_deletion(api, name)
                requested = True
            if not await _exists(api, name):
                return
        except EmuGpuError as error:
            if not error.retry_helps:
                raise
            problem = f"may not be deleted yet ({error})"
        if wall_ns() > limit_ns:
            raise ClusterError(
                f"namespace {name} {problem} after {DELETED_S:g} s; see `kubectl get namespace {name} -o yaml`"
            )
        await asyncio.sleep(_POLL_S)


async def request_deletion(api: Api, name: str) -> None:
    """Delete the EmuJobs, so that their controller deletes what belongs to them, then the namespace. Doesn't wait; idempotent."""
    try:
        _, emujobs = await api.list(EMUJOB, namespace=name)
    except NotThereError:  # the CRD is gone, and all EmuJobs with it
        emujobs = []
    for document in emujobs:
        await api.delete(EMUJOB, document["metadata"]["name"], name)
    await api.delete(NAMESPACE, name)


async def _exists(api: Api, name: str) -> bool:
    try:
        await api.get(NAMESPACE, name)
    except NotThereError:
        return False
    return True
