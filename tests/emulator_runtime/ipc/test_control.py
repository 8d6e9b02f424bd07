from __future__ import annotations

import socket

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError, ProtocolError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.control import ControlChannel, resize_message
from emulator_runtime.ipc.warp import WAKE

FD_SETSIZE = 1024
FOUR, FIVE = HostShare(4000, 7), HostShare(5000, 8)


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.settimeout(5)
    control, cluster = ControlChannel(ours), Channel(theirs)
    yield control, cluster
    control.close()
    cluster.close()


def test_new_shares_come_on_descriptors_that_select_does_not_take(crowded, ends):
    control, cluster = ends
    assert control.fileno() >= FD_SETSIZE
    assert control.new_share() is None
    cluster.send(resize_message(FOUR))
    assert control.new_share() == FOUR


def test_without_a_message_there_is_no_new_share(ends):
    control, _ = ends
    assert control.new_share() is None


def test_the_last_of_several_shares_counts_once(ends):
    control, cluster = ends
    cluster.send(resize_message(FOUR))
    cluster.send(resize_message(FIVE))
    assert control.new_share() == FIVE
    assert control.new_share() is None


def test_a_share_that_comes_before_an_answer_is_kept_for_the_run(ends):
    control, cluster = ends
    cluster.send(resize_message(FOUR))
    cluster.send(WAKE)
    assert control.request({"op": "wait"}) == WAKE
    assert control.new_share() == FOUR


def test_looking_for_a_share_leaves_other_messages_in_order(ends):
    control, cluster = ends
    cluster.send({"op": "run", "n": 1})
    cluster.send(resize_message(FOUR))
    cluster.send({"op": "run", "n": 2})
    assert control.new_share() == FOUR
    assert [control.receive()["n"], control.receive()["n"]] == [1, 2]


def test_a_share_that_came_before_the_order_of_a_run_is_not_for_that_run(ends):
    control, cluster = ends
    cluster.send(resize_message(FOUR))
    cluster.send({"op": "run"})
    assert control.receive_order() == {"op": "run"}
    assert control.new_share() is None
    cluster.send(resize_message(FIVE))
    assert control.new_share() == FIVE


@pytest.mark.parametrize("wrong", [{}, {"cpu_milli": 0}, {"cpu_milli": "4"}, {"cpu_milli": 4, "memory_bytes": -1}])
def test_a_wrong_share_names_the_field(ends, wrong):
    control, cluster = ends
    cluster.send({"op": "resize"} | wrong)
    with pytest.raises(ProtocolError, match=r"field '(cpu_milli|memory_bytes)'"):
        control.new_share()


def test_the_end_of_the_stream_is_no_share_and_still_an_end(ends):
    control, cluster = ends
    cluster.send(resize_message(FOUR))
    cluster.close()
    assert control.new_share() == FOUR
    assert control.new_share() is None
    with pytest.raises(ManagerUnavailableError, match="closed the connection"):
        control.receive()
