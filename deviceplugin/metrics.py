"""The interface of the plugin's metrics. Without metrics, NoMetrics is used and no metrics library is imported."""

from __future__ import annotations

from typing import Protocol


class Metrics(Protocol):
    """Gets notified of events by all parts of the plugin. Thread-safe."""

    def allocated(self, resource: str, duration_s: float) -> None:
        """An Allocate succeeded; `duration_s` is host seconds from request to reply."""
        ...

    def devices(self, resource: str, healthy: int, unhealthy: int) -> None:
        """The current number of device ids of the resource."""
        ...

    def forget(self, resource: str) -> None:
        """The resource is no longer offered."""
        ...

    def registered(self, resource: str) -> None:
        """The kubelet accepted a registration."""
        ...

    def error(self, kind: str) -> None:
        """An error of this kind: `allocate`, `preferred`, `register` or `inventory`."""
        ...


class NoMetrics:
    """Ignores all events."""

    def allocated(self, resource: str, duration_s: float) -> None:
        return

    def devices(self, resource: str, healthy: int, unhealthy: int) -> None:
        return

    def forget(self, resource: str) -> None:
        return

    def registered(self, resource: str) -> None:
        return

    def error(self, kind: str) -> None:
        return
