"""Shares of the node's CPUs and memory by pod: which source has priority, and the messages on the job socket."""

import pytest

from emulator_runtime.node.allocation import Allocation
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.service.attaching import Attaching
from sharing_manager.service.job_service import JobService

ONE, TWO, THREE = (Allocation(cpu_milli=1000 * n, memory_bytes=n) for n in (1, 2, 3))


@pytest.fixture
def shares():
    made, told = HostShares(), []
    made.on_change = lambda uid, share: told.append((uid, share))
    made.told = told
    return made


def test_what_the_watch_says_counts_and_a_glimpse_before_that(shares):
    shares.set_listed({"a": ONE})
    assert (shares.of("a"), shares.of("b")) == (ONE.host, None)
    shares.changed("a", TWO)
    shares.set_listed({"a": ONE})  # a list that is older
    assert shares.of("a") == TWO.host
    shares.set_listed({})
    assert shares.of("a") == TWO.host


def test_only_changes_are_reported(shares):
    shares.set_listed({"a": ONE})
    shares.set_watched({"a": ONE, "b": TWO})
    shares.changed("b", TWO)
    shares.changed("a", THREE)
    assert shares.told == [("b", TWO.host), ("a", THREE.host)]


def test_a_pod_that_is_gone_has_none(shares):
    shares.set_watched({"a": ONE, "b": TWO})
    shares.set_watched({"b": TWO})
    assert (shares.of("a"), shares.of("b")) == (None, TWO.host)
    shares.ended("b")
    shares.ended("b")
    assert shares.of("b") is None


class Connection:
    """The manager's end of one."""

    group = ""

    def __init__(self, pid):
        self.peer = type("Peer", (), {"pid": pid})()
        self.sent, self.open, self.peer_is_gone = [], True, True

    def send(self, message):
        self.sent.append(message)

    def close(self):
        self.open = False

    def pause(self):
        """Nothing more is read."""

    resume = prefer = pause


class Identifier:
    def __init__(self, pods):
        self.pods = pods

    def identify(self, pid, done):
        done(self.pods[pid])


@pytest.fixture
def attach(pods, pod, shares, uuids):
    """`attach(name of the pod, device, **fields)`: a connection that has attached."""
    identifier = Identifier({1: pod("a"), 2: pod("b")})
    service = JobService(pods.manager, Attaching(pods.manager, None, identifier), shares=shares)

    def attach(name, device, **fields):
        token = pods.mint(f"token-{name}", uuids[device])
        pods.manager._grants.add(pods.grant(token))
        connection = Connection({"a": 1, "b": 2}[name])
        service.on_open(connection)
        service.on_message(connection, {"op": "attach", "version": 2, "token": token, **fields})
        connection.service = service
        return connection

    return attach


def test_a_process_that_wants_to_know_hears_its_share_and_the_next_ones(attach, shares):
    shares.changed("uid-a", ONE)
    mine, other = attach("a", 0, host=True), attach("b", 1, host=True)
    assert mine.sent[0]["host"] == {"cpu_milli": 1000, "memory_bytes": 1}
    assert "host" not in other.sent[0]  # of that one nothing was said yet
    shares.changed("uid-a", TWO)
    shares.changed("uid-b", THREE)
    assert mine.sent[1:] == [{"op": "resize", "cpu_milli": 2000, "memory_bytes": 2}]
    assert other.sent[1:] == [{"op": "resize", "cpu_milli": 3000, "memory_bytes": 3}]


@pytest.mark.parametrize("fields", [{}, {"host": False}, {"host": 1}])
def test_a_process_of_before_gets_nothing_that_it_did_not_ask_for(attach, shares, fields):
    shares.changed("uid-a", ONE)
    old = attach("a", 0, **fields)
    shares.changed("uid-a", TWO)
    (reply,) = old.sent
    assert "host" not in reply


def test_who_has_left_hears_nothing(attach, shares):
    mine = attach("a", 0, host=True)
    mine.service.on_close(mine)
    shares.changed("uid-a", TWO)
    assert len(mine.sent) == 1
