"""The device plugin as a process with a fake kubelet: registration, its repetition, changes of the inventory, the end."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from dataclasses import replace

import grpc
import pytest

from deviceplugin.plugin import SessionState, reason_to_register, socket_name
from deviceplugin.service import Stream

EMUGPU = "emugpu.dev/emuGPU"
SHARED = "emugpu.dev/emuGPU.shared"

pytestmark = pytest.mark.processes


@pytest.fixture
def served(node, kubelet, resource):
    """A running plugin with eight devices."""
    node.publish(resource(8))
    process = node.start()
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 8)
    yield process
    assert kubelet.overlaps == 0  # never a second registration while the old stream was open


def test_registers_with_name_endpoint_and_options(served, kubelet, node):
    (request,) = kubelet.registrations
    assert (request.version, request.resource_name) == ("v1beta1", EMUGPU)
    assert request.endpoint == "emugpu-emugpu.dev_emuGPU.sock"
    assert request.options.get_preferred_allocation_available
    assert not request.options.pre_start_required
    assert (node.kubelet_dir / request.endpoint).is_socket()


def test_ids_and_topology_are_stable_over_restarts(served, kubelet, node, resource, eventually):
    before = kubelet.numa_nodes(EMUGPU)
    assert before == {i: [e.numa_node] for i, e in resource(8).by_id().items()}
    served.send_signal(signal.SIGTERM)
    assert served.wait(5) == 0
    kubelet.wait_for(lambda: not kubelet.devices(EMUGPU))
    again = node.start()
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 8)
    assert kubelet.numa_nodes(EMUGPU) == before
    again.kill()
    again.wait()
    kubelet.wait_for(lambda: not kubelet.devices(EMUGPU))
    node.start()  # over the socket that the killed one left
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 8)


def test_kubelet_restart(served, kubelet):
    for restarts in range(1, 3):
        kubelet.restart()
        kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 8)
        assert len(kubelet.registrations) == 1 + restarts
    assert served.poll() is None  # in the same process


def test_kubelet_away_for_a_while(served, kubelet, node, in_time):
    kubelet.stop()
    (node.kubelet_dir / "kubelet.sock").unlink(missing_ok=True)
    time.sleep(0.8)
    assert served.poll() is None
    kubelet.start()
    began = time.monotonic()
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 8)
    assert in_time(most_s=4, since_s=began)  # sooner than the next retry
    assert node.log.count("the kubelet has no socket there") == 1  # waiting is quiet


def test_own_socket_deleted(served, kubelet, node):
    (node.kubelet_dir / socket_name(EMUGPU)).unlink()
    kubelet.wait_for(lambda: len(kubelet.registrations) == 2 and len(kubelet.devices(EMUGPU)) == 8)
    time.sleep(0.7)
    assert len(kubelet.registrations) == 2  # and then it stays


def test_stream_closed_by_the_kubelet(served, kubelet):
    kubelet.close_stream(EMUGPU)
    kubelet.wait_for(lambda: len(kubelet.registrations) == 2 and len(kubelet.devices(EMUGPU)) == 8)


def test_health_change_reaches_the_stream(served, kubelet, node, resource, in_time):
    whole = resource(8)
    sick = replace(whole.devices[3], healthy=False, reason="XID 79")
    began = time.monotonic()
    node.publish(replace(whole, devices=(*whole.devices[:3], sick, *whole.devices[4:])))
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU).get(sick.device.uuid) == "Unhealthy")
    assert in_time(most_s=2, since_s=began)
    assert list(kubelet.devices(EMUGPU).values()).count("Healthy") == 7
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.allocate(EMUGPU, [sick.device.uuid])
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is unhealthy (XID 79); create the pod again" in refused.value.details()
    began = time.monotonic()
    node.publish(whole)
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU).get(sick.device.uuid) == "Healthy")
    assert in_time(most_s=2, since_s=began)
    assert len(kubelet.registrations) == 1


def test_devices_come_and_go(served, kubelet, node, resource):
    node.publish(resource(2))
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 2)
    node.publish(resource(12))
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 12)
    assert len(kubelet.registrations) == 1


def test_a_resource_is_added_renamed_and_removed(served, kubelet, node, resource):
    other = "emugpu.dev/t4"
    node.publish(resource(8), resource(2, other, first=8))
    kubelet.wait_for(lambda: len(kubelet.devices(other)) == 2)
    assert len(kubelet.devices(EMUGPU)) == 8
    node.publish(resource(8, SHARED, replicas=4), resource(2, other, first=8))
    kubelet.wait_for(lambda: len(kubelet.devices(SHARED)) == 32 and not kubelet.devices(EMUGPU))
    assert len(kubelet.devices(other)) == 2
    assert not (node.kubelet_dir / socket_name(EMUGPU)).exists()
    assert [request.resource_name for request in kubelet.registrations] == [EMUGPU, other, SHARED]


def test_a_broken_inventory_changes_nothing_and_is_said_once(served, kubelet, node, resource, eventually):
    node.layout.inventory_file.write_text('{"version": 1, "node": 3, "resources": []}')
    eventually(lambda: "inventory.json: node: must be a string" in node.log)
    time.sleep(0.7)
    assert node.log.count("must be a string") == 1
    node.layout.inventory_file.unlink()
    eventually(lambda: "doesn't exist yet; waiting for the sharing manager" in node.log)
    assert len(kubelet.devices(EMUGPU)) == 8
    node.publish(resource(1))
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 1)


def test_inventory_and_kubelet_that_come_later(node, kubelet, resource, eventually):
    kubelet.stop()
    node.start()
    eventually(lambda: "doesn't exist yet; waiting for the sharing manager" in node.log)
    node.publish(resource(2))
    eventually(lambda: "; waiting" in node.log)
    kubelet.start()
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 2)


def test_a_refused_registration_is_tried_again(node, kubelet, resource, eventually):
    kubelet.refuse = "invalid resource name"
    node.publish(resource(2))
    node.start()
    eventually(lambda: "can't register emugpu.dev/emuGPU: invalid resource name (unknown)" in node.log)
    kubelet.refuse = ""
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 2)


def test_something_in_the_sockets_place(node, kubelet, resource, eventually):
    in_the_way = node.kubelet_dir / socket_name(EMUGPU)
    in_the_way.mkdir()
    node.publish(resource(2))
    node.start()
    eventually(lambda: f"{in_the_way}: can't be served: " in node.log)
    in_the_way.rmdir()
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 2)


def test_sigterm_ends_within_two_seconds_and_leaves_no_socket(served, kubelet, node, in_time):
    began = time.monotonic()
    served.send_signal(signal.SIGTERM)
    assert served.wait(30) == 0
    assert in_time(most_s=2, since_s=began)
    assert [path.name for path in node.kubelet_dir.iterdir()] == ["kubelet.sock"]


def test_sigterm_while_a_kubelet_hangs_in_register(node, resource, eventually, in_time):
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(node.kubelet_dir / "kubelet.sock"))
        mute.listen()
        node.publish(resource(2))
        process = node.start()
        eventually(lambda: (node.kubelet_dir / socket_name(EMUGPU)).exists())
        time.sleep(0.2)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert in_time(most_s=2, since_s=began)


def test_a_second_signal_ends_at_once(served, kubelet):
    os.kill(served.pid, signal.SIGSTOP)  # so that both are there before the first is looked at
    os.kill(served.pid, signal.SIGTERM)
    os.kill(served.pid, signal.SIGINT)
    os.kill(served.pid, signal.SIGCONT)
    assert served.wait(5) == 1


def test_modes_of_the_node_directory(served, node):
    def mode(path):
        return stat.S_IMODE(path.stat().st_mode)

    layout = node.layout
    assert [mode(path) for path in (layout.root, layout.run_dir, layout.grants_dir, layout.tools_dir)] == [0o755] * 4
    assert [mode(path) for path in (layout.admin_dir, layout.state_dir)] == [0o700] * 2


def test_why_again():
    start = SessionState((1, 1, 1), (1, 2, 1), Stream.NONE, 0)
    assert reason_to_register(start, replace(start, age_s=29)) is None
    assert reason_to_register(start, replace(start, stream=Stream.OPEN, age_s=1e6)) is None
    assert reason_to_register(start, replace(start, stream=Stream.OPEN, kubelet=None)) is None
    assert reason_to_register(start, replace(start, kubelet=(1, 1, 2))) == "there is a new kubelet"
    assert reason_to_register(start, replace(start, socket=None)) == "the plugin's socket was removed"
    assert reason_to_register(start, replace(start, socket=(1, 2, 9))) == "the plugin's socket was removed"
    assert reason_to_register(start, replace(start, stream=Stream.ENDED)) == "the kubelet has closed its stream"
    assert reason_to_register(start, replace(start, age_s=31)) == "the kubelet hasn't opened its stream"


def test_socket_names_differ_and_fit():
    names = ["a.b/c", "a-b/c", "a.b/c_d", "a.b/c-d", "x" * 200 + ".dev/gpu", "x" * 200 + ".dev/gpv", EMUGPU, SHARED]
    assert len({socket_name(name) for name in names}) == len(names)
    assert all(len(f"/var/lib/kubelet/device-plugins/{socket_name(name)}") < 108 for name in names)
