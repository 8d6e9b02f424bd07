"""How a local cluster waits: for as long as a policy says, though the poller bears less."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest

from emulator_runtime.ipc.poller import Poller
from scheduler_sims.clusters.local.time_keeper import RunningTime, WarpTime

YEARS_NS = 10**18
"""31 of them, as LAS asks for whose threshold no job gets to."""


def test_a_wait_of_years_ends_with_news(tmp_path):
    heard = threading.Event()
    mine, theirs = socket.socketpair()
    with mine, theirs, contextlib.closing(Poller()) as poller:

        def readable():
            mine.recv(1)
            heard.set()

        poller.watch(mine, readable)
        keeper = RunningTime(tmp_path / "clock", poller, 1.0)
        keeper.run()
        sender = threading.Timer(0.02, theirs.send, [b"x"])
        sender.start()
        keeper.wait(YEARS_NS, heard.is_set)
        sender.join()
        poller.unwatch(mine)
        keeper.close()
    assert heard.is_set()


@pytest.mark.parametrize("speed", [1.0, 0.1])
def test_between_jumps_a_warp_clock_runs_at_its_speed(tmp_path, speed):
    woken = []
    with contextlib.closing(Poller()) as poller:
        keeper = WarpTime(tmp_path / "clock", poller, speed, woken.append)
        keeper.participants.register("job")
        began_ns = time.monotonic_ns()
        keeper.run()
        time.sleep(0.1)
        passed_ns = keeper.now_ns()
        assert 0.1 * speed <= passed_ns / 1e9 <= (time.monotonic_ns() - began_ns) * speed / 1e9
        keeper.participants.waits("job", 10**12)
        keeper.wait(None, lambda: bool(woken))
        assert keeper.now_ns() >= 10**12
        keeper.close()
    assert woken == ["job"]
