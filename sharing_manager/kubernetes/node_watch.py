"""Follows one Node of the API server for as long as the daemon lives, through restarts, hangs and lost history.

list -> watch from the list's version -> the server ends the watch every two minutes -> watch on from the last version seen.
Whatever goes wrong: wait a little, list again. Only the object's metadata is transferred (a Node's status is large, and
changes often).

Source: Kubernetes API concepts: "Efficient detection of changes", "410 Gone", "Watch bookmarks", PartialObjectMetadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from threading import Event

from emulator_runtime.domain.units import to_ns
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.kubernetes import objects
from sharing_manager.kubernetes.api_server import ApiServer, ApiServerError
from sharing_manager.kubernetes.objects import NodeFacts
from sharing_manager.kubernetes.waiting import BackOff, Complaint

_PATH = "/api/v1/nodes"
_WATCH_S = 120
_STEADY_S = 5.0
"""A watch that lasted this long was a good one: the next failure is a new one (host seconds)."""
_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_WATCH = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_GONE = 410


class NodeWatch:
    """Calls `on_node` in its own thread with the Node as it is, after each list and change."""

    def __init__(self, api: ApiServer, node: str, on_node: Callable[[NodeFacts], None]) -> None:
        self._api = api
        self._node = node
        self._on_node = on_node
        self._back_off = BackOff(Random(f"{node}/node watch"))
        self._complaint = Complaint(f"node {node}: the API server answers again")
        self._version = ""

    def run(self, stopping: Event) -> None:
        """Returns after `stopping` was set and the API server's client was closed."""
        while not stopping.is_set():
            since_ns = monotonic_ns()
            try:
                self._follow()
            except ApiServerError as error:
                self._version = ""
                if stopping.is_set():
                    return
                if error.status != _GONE:  # which is no failure: the server doesn't keep its history for ever
                    self._complaint.say(f"node {self._node}: can't follow its annotations: {error}")
            if monotonic_ns() - since_ns >= to_ns(_STEADY_S):
                self._back_off.reset()
            else:
                stopping.wait(self._back_off.next_s())

    def _follow(self) -> None:
        """Until the server ends the watch."""
        if not self._version:
            self._list()
        query = self._query(watch="1", allowWatchBookmarks="true", timeoutSeconds=str(_WATCH_S))
        with contextlib.closing(self._api.watch(_PATH, {**query, "resourceVersion": self._version}, _WATCH)) as lines:
            for line in lines:
                change = objects.change(line)
                self._version = change.resource_version
                if change.kind in ("ADDED", "MODIFIED"):
                    self._on_node(objects.node(change.item))
                    self._complaint.over()

    def _list(self) -> None:
        found = objects.listing(self._api.get(_PATH, self._query(), _LIST))
        for item in found.items:
            self._on_node(objects.node(item))
        if not found.items:
            self._complaint.say(
                f"node {self._node}: the API server has no such Node (yet); is EMUGPU_MANAGER_NODE right?"
            )
        else:
            self._complaint.over()
        self._version = found.resource_version

    def _query(self, **more: str) -> dict[str, str]:
        return {"fieldSelector": f"metadata.name={self._node}", **more}
