"""A namespace of its own for each run: nothing of the run before is left in it, and nothing of it stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.units import to_ns
from operators.kube.api import EMUJOB, NAMESPACE, Api, NotThereError
from operators.objects.names import EXPERIMENT_LABEL

GONE_S = 180.0
"""Pods get seconds to end; a namespace waits for all of them."""
_LOOK_S = 0.5


async def make(
    api: Api,
    name: str,
    experiment: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """With these labels beside its own. Raises ConflictError where there is such a namespace already."""
    own = {EXPERIMENT_LABEL: experiment, "app.kubernetes.io/managed-by": "emugpu-experiment"}
    metadata = {"name": name, "labels": {**own, **(labels or {})}, "annotations": dict(annotations or {})}
    await api.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


async def clear(api: Api, name: str, wall_ns: Callable[[], int]) -> None:
    """Deletes the EmuJobs, whose owner then takes what belongs to them, then the namespace, and waits until all is gone.

    Whatever may heal is tried again. Raises ClusterError where it isn't gone after GONE_S.
    """
    limit_ns, asked = wall_ns() + to_ns(GONE_S), False
    while True:
        trouble = "is still being deleted"
        try:
            if not asked:
                await delete(api, name)
                asked = True
            if not await _is_there(api, name):
                return
        except EmuGpuError as error:
            if not error.retry_helps:
                raise
            trouble = f"may still be there ({error})"
        if wall_ns() > limit_ns:
            raise ClusterError(
                f"namespace {name} {trouble} after {GONE_S:g} s; see `kubectl get namespace {name} -o yaml`"
            )
        await asyncio.sleep(_LOOK_S)


async def delete(api: Api, name: str) -> None:
    """The EmuJobs first, whose owner then takes what belongs to them; returns before all is gone. Twice is once."""
    try:
        _, found = await api.list(EMUJOB, namespace=name)
    except NotThereError:  # the kind is gone, so there are none of it
        found = []
    for document in found:
        await api.delete(EMUJOB, document["metadata"]["name"], name)
    await api.delete(NAMESPACE, name)


async def _is_there(api: Api, name: str) -> bool:
    try:
        await api.get(NAMESPACE, name)
    except NotThereError:
        return False
    return True


def limit_s(predicted_makespan_s: float) -> float:
    """How long an observed run is waited for: one that takes three times as long as predicted won't tell anything any more."""
    return 3 * predicted_makespan_s + 600.0
