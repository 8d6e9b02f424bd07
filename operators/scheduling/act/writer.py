"""The writes of a scheduler, each with its precondition: what is planned on old news fails, and is looked at again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from operators.controllers.leader_election import LeadershipLostError
from operators.kube.api import POD, Api, Json, NotThereError, Resource
from operators.kube.documents import Key
from operators.kube.store import Store
from operators.objects.allocation import Allocation
from operators.scheduling.names import FIELD_MANAGER


class NotYetError(ClusterError):
    """A job can't be started at the moment: it has changed, or the API server didn't take it."""

    code = "not-yet"
    retry_helps = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a job is to run. `devices` as the scheduler's books count them; `gpus` of each pod; `hosts`: node -> hostname label."""

    allocation: Allocation
    devices: tuple[str, ...]
    gpus: int
    hosts: Mapping[str, str]


class Writer:
    """Writes for one scheduler, as long as it may act; what comes back is known at once, before any watch tells it."""

    def __init__(
        self, api: Api, stores: Mapping[Resource, Store[Any]], may_act: Callable[[], bool], changed: Callable[[], None]
    ) -> None:
        self._api, self._stores, self._may_act, self._changed = api, stores, may_act, changed

    async def patch(self, resource: Resource, key: Key, document: Json) -> None:
        """Merge into this very version of the object (of any version where the key has none).

        Raises ConflictError, NotThereError, LeadershipLostError and what Api raises.
        """
        self._check()
        exactly = {name: value for name, value in (("uid", key.uid), ("resourceVersion", key.version)) if value}
        metadata = {"name": key.name, "namespace": key.namespace, **exactly, **document.get("metadata", {})}
        found = await self._api.patch(resource, key.name, {**document, "metadata": metadata}, FIELD_MANAGER)
        self._learn(resource, "MODIFIED", found)

    async def bind(self, key: Key, node: str) -> None:
        """Give a pod to a node."""
        self._check()
        await self._api.bind(key.name, key.namespace, key.uid, node)
        await self.look_again(POD, key)

    async def delete_pod(self, key: Key) -> None:
        """Its grace period begins."""
        self._check()
        await self._api.delete(POD, key.name, key.namespace, uid=key.uid)
        await self.look_again(POD, key)

    async def look_again(self, resource: Resource, key: Key) -> None:
        """Don't wait for the watch."""
        try:
            found = await self._api.get(resource, key.name, key.namespace)
        except NotThereError:
            self._stores[resource].forget(str(key))
            self._changed()
            return
        self._learn(resource, "MODIFIED", found)

    def _learn(self, resource: Resource, kind: str, document: Json) -> None:
        if self._stores[resource].update(kind, document):
            self._changed()

    def _check(self) -> None:
        if not self._may_act():
            raise LeadershipLostError("another scheduler of this name may act now; ending")
