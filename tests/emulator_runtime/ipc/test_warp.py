"""The warp clock of a job process: each wait is a message, and time is what the shared file says."""

import socket
import threading

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.warp import WAKE, WarpClock
from emulator_runtime.timing.shared_clock import SharedClockFile


@pytest.fixture
def warp(tmp_path):
    writer = SharedClockFile.create(tmp_path / "clock", 0.0, "warp")
    reader = SharedClockFile.open(tmp_path / "clock")
    ours, theirs = socket.socketpair()
    channel, owner = Channel(ours), Channel(theirs)
    yield writer, WarpClock(reader, channel), owner
    for thing in (channel, owner, writer, reader):
        thing.close()


def test_a_wait_ends_when_time_has_come_and_not_with_the_first_wake(warp):
    writer, clock, owner = warp
    asked = []

    def own():
        for moment in (400, 1_000, 1_700):
            asked.append(owner.receive())
            writer.jump_to_ns(moment)
            owner.send(WAKE)

    thread = threading.Thread(target=own)
    thread.start()
    assert clock.wait_until_ns(1_500) == 200
    thread.join(5)
    assert asked == [{"op": "wait", "deadline_ns": 1_500, "handled": handled, "frames": {}} for handled in range(3)]
    assert clock.now_ns() == 1_700
    assert clock.wait_until_ns(1_600) == 100  # past already: nobody is asked


def test_the_owner_is_gone(warp):
    _, clock, owner = warp
    owner.close()
    with pytest.raises(ManagerUnavailableError):
        clock.wait_until_ns(1)
