"""The event stream of a node's sharing manager, for tests of the programs that read it."""

from __future__ import annotations

from operators.results.events import JobEvent

T0_NS = 1_700_000_000 * 1_000_000_000
"""The default start of a test's events: 2023-11-14T22:13:20Z."""


class EventStream:
    """The events of one node, about pods of `namespace`; `tell` appends the next one.

    Times are seconds after `begin_ns`. The node's clock is ahead of the receiver's by `ahead_s`.
    """

    def __init__(self, node: str, ahead_s: float = 0.0, *, begin_ns: int = T0_NS, namespace: str = "team") -> None:
        self.node, self._ahead_s, self._begin_ns, self._namespace = node, ahead_s, begin_ns, namespace
        self._reached: dict[str, int] = {}
        self.events: list[JobEvent] = []

    def tell(
        self,
        kind: str,
        at_s: float,
        steps: int | None = None,
        *,
        key: str = "job/0",
        detail: str = "",
        pod: str = "pod-1",
        from_step: int | None = None,
    ) -> JobEvent:
        """Append an event after which `steps` are done; None: the same number as before."""
        start = self._reached.get(key, 0) if from_step is None else from_step
        done = start if steps is None else steps
        self._reached[key] = done
        number = len(self.events) + 1
        wall_ns = self._begin_ns + round((at_s + self._ahead_s) * 1e9)
        received_ns = self._begin_ns + round(at_s * 1e9) + 5_000_000
        fields = (kind, key, start, done, detail, self._namespace, pod, 0, received_ns)
        event = JobEvent(f"emugpu:events:{self.node}", 1000, number, self.node, number, 7, wall_ns, *fields)
        self.events.append(event)
        return event
