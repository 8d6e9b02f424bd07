"""The warp clock of a participant: it reads time from the shared file and waits by a message to the clock's owner."""

from __future__ import annotations

from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import Message
from emulator_runtime.timing.shared_clock import SharedClockFile


def wait_message(deadline_ns: int) -> Message:
    """The message of a participant that has nothing to do until `deadline_ns`."""
    return {"op": "wait", "deadline_ns": deadline_ns}


WAKE: Message = {"op": "wake"}
"""The owner's reply when the deadline has passed."""


class WarpClock:
    """A clock whose waits end as soon as every participant waits. One per process, on a channel to the clock's owner."""

    def __init__(self, source: SharedClockFile, channel: Channel) -> None:
        self._source = source
        self._channel = channel

    def now_ns(self) -> int:
        return self._source.now_ns()

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Wait until `deadline_ns` and return the lag. Raises ManagerUnavailableError if the clock's owner has ended."""
        while (now_ns := self._source.now_ns()) < deadline_ns:
            self._channel.request(wait_message(deadline_ns))
        return now_ns - deadline_ns
