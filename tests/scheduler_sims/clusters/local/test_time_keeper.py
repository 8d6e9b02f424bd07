"""How a local cluster waits: for as long as a policy says, though the poller bears less."""

from __future__ import annotations

import contextlib
import socket
import threading

from emulator_runtime.ipc.poller import Poller
from scheduler_sims.clusters.local.time_keeper import RunningTime

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
