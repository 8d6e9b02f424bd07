"""Stands between the job socket and its service in a cluster, and delays peers that use too much of the manager's time.
The rules are in `time_budgets`; this module applies them.

    listener --- admit ---> connection --- request ---> service
       |  too many connections of a peer: rejected   |
       |  many rejections: paused for a tick         +--- budget used up, or answers not read: held, bytes stay in the kernel

A held connection isn't read. Its peer fills the socket's buffer and then blocks in its own `send`, at no cost to others. A
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
    DOOR_TURNED_AWAY,
    MAX_CONNECTIONS,
    OPEN_NS,
    REFUSED_NS,
    TICK_NS,
    GuardCounts,
    Purses,
    Sayings,
    price_ns,
)

MAX_UNREAD_BYTES = 64 * 1024
"""Maximum size of the answers that a peer hasn't read. Above it, the peer's connection is held until it has read some."""
_FULL = f"this container has {MAX_CONNECTIONS} connections open; close some"
_log = logging.getLogger("sharing_manager")


class Served(Protocol):
    """The service behind the guard."""

    def on_open(self, connection: Connection) -> None: ...
    def on_message(self, connection: Connection, message: Message) -> None: ...
    def on_close(self, connection: Connection) -> None: ...


class Guard:
    """Passes connections and requests on to `served`. `name` returns which container a peer is, or "" if that isn't
    known; then each connection has a time budget of its own and isn't counted. `counts` receives what the guard did."""

    def __init__(
        self,
        served: Served,
        name: Callable[[Peer], str],
        now: Callable[[], int] = monotonic_ns,
        counts: GuardCounts | None = None,
    ) -> None:
        self._served, self._name, self._now = served, name, now
        self._counts = counts or GuardCounts()
        self._purses, self._sayings, self._numbers = Purses(), Sayings(), count(1)
        self._held: dict[str, deque[Connection]] = {}
        self._turned_away = 0
        self._tick_ns: int | None = None
        self._resting: Listener | None = None

    # --- callbacks of the poller ------------------------------------------------------------------------------------

    def admit(self, peer: Peer, door: Listener) -> str:
        """The name of a peer that has connected. Raises ManagerUnavailableError to reject the connection."""
        name = self._name(peer) or f"connection {next(self._numbers)}"
        if self._purses.enter(name):
            return name
        self._counts.turned_away += 1
        self._say(name, f"has {MAX_CONNECTIONS} connections open; more of them are turned away")
        self._turned_away += 1
        if self._turned_away >= DOOR_TURNED_AWAY:
            self._resting = door
            door.rest()
        self._tick_later()
        raise ManagerUnavailableError(_FULL)

    def on_open(self, connection: Connection) -> None:
        if not self._purses.spend(connection.group, OPEN_NS, self._now()):
            self._hold(connection)
        self._served.on_open(connection)

    def on_message(self, connection: Connection, message: Message) -> None:
        """Answer the request and take its price. Raises what the service raises."""
        price = REFUSED_NS
        try:
            self._served.on_message(connection, message)
            price = price_ns(message.get("op"))
        finally:
            solvent = self._purses.spend(connection.group, price, self._now())
            if connection.open and (not solvent or connection.unsent_bytes > MAX_UNREAD_BYTES):
                self._hold(connection)

    def on_close(self, connection: Connection) -> None:
        self._purses.leave(connection.group)
        waiting = self._held.get(connection.group, ())
        if connection in waiting:
            self._held[connection.group].remove(connection)
        self._served.on_close(connection)

    # --- time -------------------------------------------------------------------------------------------------------

    def due_ns(self) -> int | None:
        """When `turn` should be called next (host time)."""
        return self._tick_ns

    def turn(self) -> None:
        """Release one held connection of each peer whose budget has refilled."""
        now_ns = self._now()
        if self._tick_ns is None or now_ns < self._tick_ns:
            return
        self._tick_ns, self._turned_away = None, 0
        if self._resting is not None:
            self._resting.wake()
            self._resting = None
        for name, waiting in list(self._held.items()):
            if not waiting:
                del self._held[name]
            elif self._purses.solvent(name, now_ns):
                self._release_one(waiting)
        if self._held:
            self._tick_later()

    def _release_one(self, waiting: deque[Connection]) -> None:
        connection = waiting.popleft()
        if connection.unsent_bytes > MAX_UNREAD_BYTES:
            waiting.append(connection)
        else:
            connection.release()

    def _hold(self, connection: Connection) -> None:
        connection.hold()
        self._counts.held += 1
        self._say(connection.group, "waits: it asks for more than its share of the manager's time, or reads no answers")
        self._held.setdefault(connection.group, deque()).append(connection)
        self._tick_later()

    def _say(self, name: str, what: str) -> None:
        if self._sayings.due(name, what, self._now()):
            _log.warning("job socket: %s %s", name, what)

    def _tick_later(self) -> None:
        if self._tick_ns is None:
            self._tick_ns = self._now() + TICK_NS
