"""Names of peers: processes of one container have the same name, which is cached for a second."""

from types import SimpleNamespace

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError, RefusedError
from emulator_runtime.ipc.poller import Peer
from sharing_manager.kubernetes.peers import KEEP_NS, PeerNames

UID, CONTAINER = "11111111-2222-4333-8444-555555555555", "c" * 64
OTHER, OWN = "22222222-2222-4333-8444-555555555555", "33333333-2222-4333-8444-555555555555"


class Names(PeerNames):
    """In manual time, of the processes that a test makes."""

    def __init__(self, proc, **more):
        self.now_ns, self.proc = 0, proc
        super().__init__(lambda: self.now_ns, proc, **more)


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
    assert names.name(Peer(99, 0, 0)) == "gone"
    assert names.name(Peer(0, 5, 5)) == ""


def test_those_of_no_pod_are_nobody_where_pods_arent_identified(names):
    names = Names(names.proc, by_user=False)
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}")
    process(names, 4, "/user.slice")
    assert names.name(Peer(1, 7, 7)) == f"{UID}/{CONTAINER}"
    assert names.name(Peer(4, 7, 7)) == ""


def test_a_container_that_makes_cgroups_gets_no_other_name(names):
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}/kubepods/pod{OTHER}/{'d' * 64}")
    assert names.name(Peer(1, 0, 0)) == f"{UID}/{CONTAINER}"


AROUND = f"/kubepods/pod{OTHER}/{'e' * 64}/kubelet/kubepods"


@pytest.mark.parametrize(
    ("own", "path", "name"),
    [
        (f"{AROUND}/pod{OWN}/{'f' * 64}", f"{AROUND}/pod{UID}/{CONTAINER}", f"{UID}/{CONTAINER}"),
        (f"{AROUND}/pod{OWN}/{'f' * 64}", f"{AROUND}/pod{UID}/{CONTAINER}/pod{OWN}", f"{UID}/{CONTAINER}"),
        (f"{AROUND}/pod{OWN}/{'f' * 64}", f"{AROUND}/pod{OWN}/{'f' * 64}", f"{OWN}/{'f' * 64}"),
        (AROUND, f"{AROUND}/pod{UID}/{CONTAINER}", f"{UID}/{CONTAINER}"),
        (AROUND, AROUND, f"{OTHER}/{'e' * 64}"),
        ("/", f"/../../pod{UID}/{CONTAINER}/pod{OTHER}", f"{UID}/{CONTAINER}"),
    ],
)
def test_a_node_that_is_a_pod_itself_has_names_for_its_own_pods(names, own, path, name):
    process(names, "self", own)
    process(names, 1, path)
    assert Names(names.proc).name(Peer(1, 0, 0)) == name


# --- the same process still? ------------------------------------------------------------------------------------------


def connection(names, pid, *, ended=False):
    """As the manager has it: named when it was opened."""
    return SimpleNamespace(peer=Peer(pid, 0, 0), group=names.name(Peer(pid, 0, 0)), connector_has_ended=ended)


def test_a_peer_that_stays_is_itself(names):
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}")
    one = connection(names, 1)
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}/below")
    names.check(one)


def test_a_process_id_that_another_pod_has_now_speaks_for_nobody(names):
    """Without waiting for what was seen to be forgotten; and who connects anew is named anew."""
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}")
    one = connection(names, 1)
    process(names, 1, f"/kubepods/pod{OTHER}/{'d' * 64}")
    with pytest.raises(ManagerUnavailableError, match="process 1 is not in the container that opened this connection"):
        names.check(one)
    names.check(connection(names, 1))


def test_who_has_ended_is_refused(names):
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}")
    for one in (connection(names, 1, ended=True), connection(names, 99)):
        with pytest.raises(
            RefusedError, match="which opened this connection, has ended; connect from the training process"
        ):
            names.check(one)


def test_a_process_id_may_be_anothers_later(names):
    process(names, 1, f"/kubepods/pod{UID}/{CONTAINER}")
    before = names.name(Peer(1, 0, 0))
    process(names, 1, "/user.slice")
    names.now_ns = KEEP_NS - 1
    assert names.name(Peer(1, 0, 0)) == before
    names.now_ns = KEEP_NS
    assert names.name(Peer(1, 0, 0)) == "user 0"
