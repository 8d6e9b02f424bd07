"""The warp clock of a participant: it reads time from the shared file and waits by a message to the clock's owner."""

from __future__ import annotations

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.ipc.channel import Channel, wait_readable
from emulator_runtime.ipc.frames import Message
from emulator_runtime.timing.shared_clock import SharedClockFile
from emulator_runtime.timing.warp import NEVER_NS, Frames

_LONG_S = 3600.0


def wait_message(deadline_ns: int, handled: int, frames: Frames) -> Message:
    """The message of a participant that has nothing to do until `deadline_ns` (see WarpCoordinator.waits)."""
    return {"op": "wait", "deadline_ns": deadline_ns, "handled": handled, "frames": dict(frames)}


def counts_in(frames: Message) -> Frames:
    """The counts in the field `frames` of such a message. Raises ProtocolError."""
    counts: dict[str, tuple[int, int] | None] = {}
    for name, pair in frames.items():
        match pair:
            case None:
                counts[name] = None
            case [int(sent), int(received)]:
                counts[name] = sent, received
            case _:
                raise ProtocolError(f"field 'frames': {name} must have the numbers of messages sent and received")
    return counts


WAKE: Message = {"op": "wake"}
"""The owner's reply when the deadline has passed."""


class WarpClock:
    """A clock whose waits end as soon as every participant waits. One per process, on a channel to the clock's owner.

    Connections to other participants are `watched`: what arrives there is read at once, so that time doesn't wait for it.
    """

    def __init__(self, source: SharedClockFile, channel: Channel) -> None:
        self._source = source
        self._channel = channel
        self._watched: dict[str, Channel] = {}
        self._handled = 0

    def now_ns(self) -> int:
        return self._source.now_ns()

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Wait until `deadline_ns` and return the lag. Raises ManagerUnavailableError if the clock's owner has ended."""
        while (now_ns := self._source.now_ns()) < deadline_ns:
            self._pause(deadline_ns)
        return now_ns - deadline_ns

    def watch(self, name: str, channel: Channel) -> None:
        """From now on count the messages of a connection to another participant, which knows it by this name."""
        self._watched[name] = channel

    def wait_for_message(self, *channels: Channel) -> None:
        """Wait until something has arrived on one of these watched channels, or it was closed. Raises ManagerUnavailableError if
        the clock's owner has ended."""
        received = [channel.received for channel in channels]
        while not any(channel.ended for channel in channels) and [c.received for c in channels] == received:
            self._pause(NEVER_NS)

    def _pause(self, deadline_ns: int) -> None:
        """Wait until the owner wakes this process, or something arrives on a watched channel."""
        self._watched = {name: channel for name, channel in self._watched.items() if not channel.ended}
        frames = {name: (channel.sent, channel.received) for name, channel in self._watched.items()}
        self._channel.send(wait_message(deadline_ns, self._handled, frames))
        watched = list(self._watched.values())
        while (message := self._channel.arrived() if watched else self._channel.receive()) is None:
            wait_readable([self._channel, *watched], _LONG_S)
            arrived = [channel for channel in watched if wait_readable([channel], 0)]
            for channel in arrived:
                channel.fill()
            if arrived:
                return
        if message != WAKE:
            raise ProtocolError(f"the clock's owner sent {message.get('op')!r} where {WAKE['op']!r} was due")
        self._handled += 1
