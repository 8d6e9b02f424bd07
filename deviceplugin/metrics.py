"""What the plugin counts, as an interface: with metrics off, another object counts nothing and no metrics library is loaded."""

from __future__ import annotations

from typing import Protocol


class Metrics(Protocol):
    """Told by the plugin's parts as things happen; from any thread."""

    def allocated(self, resource: str, duration_s: float) -> None:
        """An Allocate succeeded; host seconds from request to reply."""
        ...

    def devices(self, resource: str, healthy: int, unhealthy: int) -> None:
        """How many device ids the resource has now."""
        ...

    def forget(self, resource: str) -> None:
        """The resource is no longer offered."""
        ...

    def registered(self, resource: str) -> None:
        """The kubelet accepted a registration."""
        ...

    def error(self, kind: str) -> None:
        """Something failed: `allocate`, `preferred`, `register` or `inventory`."""
        ...


class NoMetrics:
    """Counts nothing."""

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
