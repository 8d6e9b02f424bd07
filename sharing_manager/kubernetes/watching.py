"""Watches some objects of the API server for the life of the daemon, through restarts, hangs and lost history.

list -> watch from the list's version -> the server ends the watch every two minutes -> watch from the last version seen.
After any error: pause, then list again. Only the objects' metadata is transferred (a Node's status is large and changes
often).

Source: Kubernetes API concepts: "Efficient detection of changes", "410 Gone", "Watch bookmarks", PartialObjectMetadata.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Protocol

from emulator_runtime.domain.units import to_ns
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.kubernetes import objects
from sharing_manager.kubernetes.api_server import ApiServer, ApiServerError, request_backoff
from sharing_manager.kubernetes.problem_log import ProblemLog

_WATCH_S = 120
_STEADY_S = 5.0
"""A watch that lasted this long counts as a success, which resets the pauses (host seconds)."""
_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_WATCH = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_GONE = 410


class Follower(Protocol):
    """Receives the objects, in the watch's thread. Both methods raise ApiServerError for an invalid object."""

    def listed(self, items: Sequence[object]) -> str:
        """Receives all current objects. Returns a problem with them, "" if there is none."""
        ...

    def changed(self, item: object, *, deleted: bool) -> None:
        """An object was created, changed or deleted."""
        ...


class Watch:
    """Watches the objects at `path` that `query` selects. `what` completes the line "node <node>: can't follow ..."."""

    def __init__(
        self, api: ApiServer, node: str, follower: Follower, *, path: str, query: Mapping[str, str], what: str
    ) -> None:
        self._api, self._follower = api, follower
        self._path, self._selection = path, query
        self._problem = f"node {node}: can't follow {what}"
        self._backoff = request_backoff(f"{node}/{what}")
        self._problems = ProblemLog(f"node {node}: the API server answers again")
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
                if error.status != _GONE:  # normal: the server keeps its history for a limited time
                    self._problems.report(f"{self._problem}: {error}")
            if monotonic_ns() - since_ns >= to_ns(_STEADY_S):
                self._backoff.reset()
            else:
                stopping.wait(self._backoff.next_s())

    def _follow(self) -> None:
        """Watch until the server ends the stream."""
        if not self._version:
            self._list()
        query = {**self._selection, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_S)}
        with contextlib.closing(
            self._api.watch(self._path, {**query, "resourceVersion": self._version}, _WATCH)
        ) as lines:
            for line in lines:
                change = objects.change(line)
                self._version = change.resource_version
                if change.kind != "BOOKMARK":
                    self._follower.changed(change.item, deleted=change.kind == "DELETED")
                    self._problems.clear()

    def _list(self) -> None:
        listing = objects.listing(self._api.get(self._path, self._selection, _LIST))
        problem = self._follower.listed(listing.items)
        if problem:
            self._problems.report(problem)
        else:
            self._problems.clear()
        self._version = listing.resource_version
