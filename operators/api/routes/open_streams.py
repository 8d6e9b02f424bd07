"""The event streams that are open, so that no user can take all of them."""

from __future__ import annotations

import asyncio

from operators.api.replies.problems import BusyError


class OpenStream:
    """The place of one stream. `deadline`: the timeout under which it runs, once it does."""

    def __init__(self) -> None:
        self.evicted = False
        self.deadline: asyncio.Timeout | None = None

    def evict(self) -> None:
        """End the stream now; its client may connect again and is then admitted or refused like everybody."""
        self.evicted = True
        if self.deadline is not None:
            self.deadline.reschedule(asyncio.get_running_loop().time())


class OpenStreams:
    """At most `most` streams, at most `most_each` of one tenant.

    When all are taken, a tenant gets the place of the oldest stream of another tenant that has more streams than it would have.
    Example with most=4: A has 4 streams. B opens one: A keeps 3. B opens another: 2 and 2. B opens a third one: refused.
    """

    def __init__(self, *, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self._by_tenant: dict[str, list[OpenStream]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_tenant.values()))

    def enter(self, tenant: str) -> OpenStream:
        """A place for one more stream, until `leave`. Raises BusyError."""
        own = len(self._by_tenant.get(tenant, ()))
        if own >= self._most_each:
            raise BusyError(f"you have {own} event streams open, the most for one user; close other tabs or programs")
        if len(self) >= self._most:
            largest = max(self._by_tenant, key=lambda name: len(self._by_tenant[name]))
            if len(self._by_tenant[largest]) <= own + 1:
                raise BusyError(f"all {self._most} event streams are taken by other users; try again later")
            oldest = self._by_tenant[largest][0]
            self.leave(largest, oldest)
            oldest.evict()
        stream = OpenStream()
        self._by_tenant.setdefault(tenant, []).append(stream)
        return stream

    def leave(self, tenant: str, stream: OpenStream) -> None:
        """Give the place back; a second call does nothing."""
        streams = self._by_tenant.get(tenant, [])
        if stream in streams:
            streams.remove(stream)
        if not streams:
            self._by_tenant.pop(tenant, None)
