"""Watches the Node that this manager runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

from sharing_manager.kubernetes import objects
from sharing_manager.kubernetes.api_server import ApiServer
from sharing_manager.kubernetes.objects import NodeFacts
from sharing_manager.kubernetes.watching import Watch


class NodeWatch:
    """Calls `on_node` in its own thread with the current Node, after each list and change."""

    def __init__(self, api: ApiServer, node: str, on_node: Callable[[NodeFacts], None]) -> None:
        self._node, self._on_node = node, on_node
        query = {"fieldSelector": f"metadata.name={node}"}
        self._watch = Watch(api, node, self, path="/api/v1/nodes", query=query, what="its annotations")

    def run(self, stopping: Event) -> None:
        """Returns after `stopping` was set and the API server's client was closed."""
        self._watch.run(stopping)

    def listed(self, items: Sequence[object]) -> str:
        for item in items:
            self._on_node(objects.node(item))
        return (
            "" if items else f"node {self._node}: the API server has no such Node (yet); is EMUGPU_MANAGER_NODE right?"
        )

    def changed(self, item: object, *, deleted: bool) -> None:
        """A deleted Node changes nothing until it is created again."""
        if not deleted:
            self._on_node(objects.node(item))
