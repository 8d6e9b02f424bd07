"""Peers of one container have one name; what was seen is kept for a second."""

import pytest

from emulator_runtime.ipc.poller import Peer
from sharing_manager.kubernetes.peers import KEEP_NS, PeerNames

UID, CONTAINER = "11111111-2222-4333-8444-555555555555", "c" * 64


class Names(PeerNames):
    """In manual time, of the processes that a test makes."""

    def __init__(self, proc):
        self.now_ns, self.proc = 0, proc
        super().__init__(lambda: self.now_ns, proc)


@pytest.fixture
def names(tmp_path):
    return Names(tmp_path)


def process(names, pid, path):
    (names.proc / str(pid)).mkdir(exist_ok=True)
    (names.proc / str(pid) / "cgroup").write_text(f"0::{path}\n")


def test_the_processes_of_a_container_have_one_name(names):
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}")
    process(names, 2, f"/kubepods/pod{UID}/{CONTAINER}/below")
    process(names, 3, f"/kubepods/pod{UID}/{'d' * 64}")
    process(names, 4, "/user.slice")
    one, below, other, outside = (names.name(Peer(pid, 7, 7)) for pid in (1, 2, 3, 4))
    assert one == below == f"{UID}/{CONTAINER}"
    assert other == f"{UID}/{'d' * 64}"
    assert outside == "user 7"


def test_who_is_gone_or_not_to_be_seen(names):
    assert names.name(Peer(99, 0, 0)) == names.name(Peer(0, 5, 5)) == "gone"


def test_a_process_id_may_be_anothers_later(names):
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}")
    before = names.name(Peer(1, 0, 0))
    process(names, 1, "/user.slice")
    names.now_ns = KEEP_NS - 1
    assert names.name(Peer(1, 0, 0)) == before
    names.now_ns = KEEP_NS
    assert names.name(Peer(1, 0, 0)) == "user 0"
