"""HTTP connections that don't wait for ever for their client, so that no client keeps others, or probes, from an answer.

uvicorn alone has no deadline for the first request of a connection, nor for a client that doesn't read its answer, and it
answers everybody with 503 when too many connections are open.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from uvicorn.protocols.http.h11_impl import H11Protocol


class LimitedConnection(H11Protocol):
    """A connection that waits at most `client_s` for its client: for a whole request, or for reading a part of the answer.

    When `most` connections are open, a new one closes the oldest of those that wait, of the host that has most of them.
    Connections whose requests are being answered, such as event streams, aren't closed.
    """

    client_s = 10.0
    most = 500
    _timer: asyncio.TimerHandle | None = None
    _unread_bytes = 0

    @property
    def host(self) -> str:
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._make_room()
        super().connection_made(transport)
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._update()

    def handle_events(self) -> None:
        super().handle_events()
        self._update()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update()

    def _update(self) -> None:
        """Starts the timer when the connection begins to wait for its client; stops it at the end."""
        request = self.cycle
        is_answered = request is not None and not request.more_body and not request.response_complete
        waits = self in self.connections and (self.flow.write_paused or not is_answered)
        if waits and self._timer is None:
            self._start_timer()
        elif not waits:
            self._stop_timer()

    def _start_timer(self) -> None:
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.client_s, self._late)

    def _late(self) -> None:
        """A large answer may take longer, as long as the client reads it."""
        if 0 < self.transport.get_write_buffer_size() < self._unread_bytes:
            self._start_timer()
        else:
            self._close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._stop_timer()
        self.transport.abort()

    def _make_room(self) -> None:
        if len(self.connections) < self.most:
            return
        others = [each for each in self.connections if isinstance(each, LimitedConnection)]
        since = {each: each._timer.when() for each in others if each._timer is not None}
        sizes = Counter(each.host for each in since)
        if since:
            max(since, key=lambda each: (sizes[each.host], -since[each]))._close()
