"""The scheduler's writes, each with a precondition: a write that is planned on outdated objects fails and is planned again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.node.allocation import Allocation
from operators.controllers.leader_election import LeadershipLostError
from operators.kube.api import POD, Api, Json, NotThereError, Resource
from operators.kube.documents import Key
from operators.kube.store import Store
from operators.scheduling.names import FIELD_MANAGER


class NotYetError(ClusterError):
    """A job can't be started at the moment: it has changed, or the API server refused or did not answer."""

    code = "not-yet"
    retry_helps = True


@dataclass(frozen=True, slots=True)
class StartRequest:
    """How a job is to run. `gpus` of each pod; `hosts`: hostname labels by node. `batch_size`: of an elastic job, the samples of
    one step; 0: the job isn't elastic."""

    allocation: Allocation
    gpus: int
    hosts: Mapping[str, str]
    batch_size: int = 0


class Writer:
    """Writes for one scheduler while `may_act` is true. Answers enter the stores at once, before the watch reports them."""

    def __init__(
        self, api: Api, stores: Mapping[Resource, Store[Any]], may_act: Callable[[], bool], changed: Callable[[], None]
    ) -> None:
        self._api, self._stores, self._may_act, self._changed = api, stores, may_act, changed

    async def patch(self, resource: Resource, key: Key, document: Json) -> None:
        """Merges the document into exactly this version of the object (into any version if the key has none).

        Raises ConflictError, NotThereError, LeadershipLostError and what Api raises.
        """
        self._check()
        exactly = {name: value for name, value in (("uid", key.uid), ("resourceVersion", key.version)) if value}
        metadata = {"name": key.name, "namespace": key.namespace, **exactly, **document.get("metadata", {})}
        answer = await self._api.patch(resource, key.name, {**document, "metadata": metadata}, FIELD_MANAGER)
        self._update(resource, answer)

    async def bind(self, key: Key, node: str) -> None:
        """Binds a pod to a node."""
        self._check()
        await self._api.bind(key.name, key.namespace, key.uid, node)
        await self.refresh(POD, key)

    async def delete_pod(self, key: Key) -> None:
        """Requests the deletion; the pod's grace period begins."""
        self._check()
        await self._api.delete(POD, key.name, key.namespace, uid=key.uid)
        await self.refresh(POD, key)

    async def refresh(self, resource: Resource, key: Key) -> None:
        """Reads the object now instead of waiting for the watch."""
        try:
            document = await self._api.get(resource, key.name, key.namespace)
        except NotThereError:
            self._stores[resource].forget(str(key))
            self._changed()
            return
        self._update(resource, document)

    def _update(self, resource: Resource, document: Json) -> None:
        if self._stores[resource].update("MODIFIED", document):
            self._changed()

    def _check(self) -> None:
        if not self._may_act():
            raise LeadershipLostError("another scheduler of this name may act now; ending")
