"""Protects the job service of a cluster's node: delays containers that use too much of the manager's time. The rules are in
`time_budgets`; this module applies them.

    listener --- admit ---> connection --- request ---> service
       |  too many connections of a peer: rejected   |
       |  many rejections: paused for a tick         +--- budget used up, or answers not read: paused, bytes stay in the kernel

A paused connection isn't read. Its peer fills the socket's buffer and then blocks in its own `send`, at no cost to others. A
local cluster has no guard, because all its jobs belong to one user.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Protocol

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Connection, Listener, Peer
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.service.time_budgets import (
    MAX_CONNECTIONS,
    MAX_REJECTIONS,
    OPEN_NS,
    REFUSED_NS,
    TICK_NS,
    GuardCounts,
    LogLimiter,
    TimeBudgets,
    price_ns,
)

MAX_UNREAD_BYTES = 64 * 1024
"""Maximum size of the answers that a peer hasn't read. Above it, the peer's connection is paused until it has read some."""
_FULL = f"this container has {MAX_CONNECTIONS} connections open; close some"
_log = logging.getLogger("sharing_manager")


class Served(Protocol):
    """The service behind the guard."""

    def on_open(self, connection: Connection) -> None: ...
    def on_message(self, connection: Connection, message: Message) -> None: ...
    def on_close(self, connection: Connection) -> None: ...


class ServedJobs(Served, Protocol):
    """A service that knows how many devices its peers have."""

    def whole_devices(self, connection: Connection) -> int:
        """How many times the budget of a device the connection's container has."""
        ...


class Guard:
    """Passes connections and requests on to `served`. `name` returns which container a peer is, or "" if that isn't
    known; then each connection has a time budget of its own and isn't counted. `counts` receives what the guard did."""

    def __init__(
        self,
        served: ServedJobs,
        name: Callable[[Peer], str],
        now: Callable[[], int] = monotonic_ns,
        counts: GuardCounts | None = None,
    ) -> None:
        self._served, self._name, self._now = served, name, now
        self._counts = counts or GuardCounts()
        self._budgets, self._log_limiter, self._numbers = TimeBudgets(), LogLimiter(), count(1)
        self._paused: dict[str, deque[Connection]] = {}
        self._rejections = 0
        self._tick_ns: int | None = None
        self._resting_listener: Listener | None = None

    # --- callbacks of the poller ------------------------------------------------------------------------------------

    def admit(self, peer: Peer, listener: Listener) -> str:
        """The name of a peer that has connected. Raises ManagerUnavailableError to reject the connection."""
        name = self._name(peer) or f"connection {next(self._numbers)}"
        if self._budgets.open_connection(name):
            return name
        self._counts.rejected += 1
        self._log(name, f"has {MAX_CONNECTIONS} connections open; further ones are rejected")
        self._rejections += 1
        if self._rejections >= MAX_REJECTIONS:
            self._resting_listener = listener
            listener.rest()
        self._schedule_tick()
        raise ManagerUnavailableError(_FULL)

    def on_open(self, connection: Connection) -> None:
        if not self._budgets.spend(connection.group, OPEN_NS, self._now()):
            self._pause(connection)
        self._served.on_open(connection)

    def on_message(self, connection: Connection, message: Message) -> None:
        """Answer the request and take its price. Raises what the service raises."""
        price = REFUSED_NS
        try:
            self._served.on_message(connection, message)
            price = price_ns(message.get("op")) // self._served.whole_devices(connection)
        finally:
            has_budget = self._budgets.spend(connection.group, price, self._now())
            if connection.open and (not has_budget or connection.unsent_bytes > MAX_UNREAD_BYTES):
                self._pause(connection)

    def on_close(self, connection: Connection) -> None:
        self._budgets.close_connection(connection.group)
        waiting = self._paused.get(connection.group, ())
        if connection in waiting:
            self._paused[connection.group].remove(connection)
        self._served.on_close(connection)

    # --- time -------------------------------------------------------------------------------------------------------

    def due_ns(self) -> int | None:
        """When `turn` should be called next (host time)."""
        return self._tick_ns

    def turn(self) -> None:
        """Resume one paused connection of each peer whose budget has refilled."""
        now_ns = self._now()
        if self._tick_ns is None or now_ns < self._tick_ns:
            return
        self._tick_ns, self._rejections = None, 0
        if self._resting_listener is not None:
            self._resting_listener.wake()
            self._resting_listener = None
        for name, waiting in list(self._paused.items()):
            if not waiting:
                del self._paused[name]
            elif self._budgets.has_budget(name, now_ns):
                self._release_one(waiting)
        if self._paused:
            self._schedule_tick()

    def _release_one(self, waiting: deque[Connection]) -> None:
        connection = waiting.popleft()
        if connection.unsent_bytes > MAX_UNREAD_BYTES:
            waiting.append(connection)
        else:
            connection.release()

    def _pause(self, connection: Connection) -> None:
        connection.hold()
        self._counts.paused += 1
        self._log(
            connection.group,
            "is delayed: it uses more than its share of the manager's time, or doesn't read its answers",
        )
        self._paused.setdefault(connection.group, deque()).append(connection)
        self._schedule_tick()

    def _log(self, name: str, what: str) -> None:
        if self._log_limiter.due(name, what, self._now()):
            _log.warning("job socket: %s %s", name, what)

    def _schedule_tick(self) -> None:
        if self._tick_ns is None:
            self._tick_ns = self._now() + TICK_NS
