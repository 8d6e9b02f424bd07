from __future__ import annotations

import time

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from sharing_manager.grants.identity import PodAllocation
from sharing_manager.kubernetes import pod_resources
from sharing_manager.kubernetes.api import podresources_pb2
from sharing_manager.kubernetes.pod_resources import KubeletError, PodResources
from tests.support.fake_node_api import HANG

PROTO = "sharing_manager/kubernetes/api/podresources.proto"
HELD = PodAllocation("default", "train", "main", "emugpu.dev/emuGPU", frozenset({"GPU-a", "GPU-b::3"}))


@pytest.fixture
def client(kubelet):
    client = PodResources(kubelet.path)
    yield client
    client.close()


def test_generating_again_gives_the_committed_messages(tmp_path, pytestconfig, monkeypatch) -> None:
    monkeypatch.chdir(pytestconfig.rootpath)
    out = tmp_path / "descriptors"
    assert protoc.main(["protoc", "-I.", f"--descriptor_set_out={out}", PROTO]) == 0
    (made,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    committed = descriptor_pb2.FileDescriptorProto()
    podresources_pb2.DESCRIPTOR.CopyToProto(committed)
    for message in made.message_type:  # protoc writes the JSON names out, the module leaves them to be derived
        for field in message.field:
            field.ClearField("json_name")
    assert made == committed


def test_bytes_are_those_of_the_kubelet() -> None:
    """Field numbers by hand: pod_resources=1 {name=1 namespace=2 containers=3 {name=1 devices=2 {resource=1 ids=2}}}."""
    devices = b"\x0a\x01r" + b"\x12\x02d0" + b"\x1a\x00"  # and topology=3, which we skip
    container = b"\x0a\x01c" + b"\x12" + bytes([len(devices)]) + devices + b"\x18\x07"  # and cpu_ids=3
    pod = b"\x0a\x01p" + b"\x12\x02ns" + b"\x1a" + bytes([len(container)]) + container
    answer = podresources_pb2.ListPodResourcesResponse.FromString(b"\x0a" + bytes([len(pod)]) + pod)
    assert [a for p in answer.pod_resources for a in pod_resources._allocations(p)] == [
        PodAllocation("ns", "p", "c", "r", frozenset({"d0"}))
    ]


def test_devices_of_several_entries_are_one_allocation(kubelet, client) -> None:
    bare = PodAllocation("default", "web", "", "", frozenset())
    kubelet.allocations = [HELD, bare]
    assert client.list() == [HELD, bare]


def test_the_kubelets_restart_is_survived(kubelet, client, eventually) -> None:
    kubelet.allocations = [HELD]
    assert client.list() == [HELD]
    kubelet.stop()
    with pytest.raises(
        KubeletError, match=r"kubelet\.sock: the kubelet doesn't list .*UNAVAILABLE.*is the kubelet running"
    ):
        client.list()
    kubelet.start()

    def answers() -> bool:
        try:
            return client.list() == [HELD]
        except KubeletError:
            return False

    eventually(answers)


def test_a_list_without_the_managers_own_pod_is_no_list(kubelet) -> None:
    """A kubelet that restarts while the API server is away answers, but doesn't know its pods."""
    own = PodAllocation("emugpu-system", "emugpu-node-x", "", "", frozenset())
    client = PodResources(kubelet.path, "emugpu-node-x")
    kubelet.allocations = [own, HELD]
    assert client.list() == [own, HELD]
    for allocations, count in (([], 0), ([HELD], 1)):
        kubelet.allocations = allocations
        says = rf"lists {count} pods, but not this manager's own, emugpu-node-x: .*EMUGPU_MANAGER_POD is wrong"
        with pytest.raises(KubeletError, match=says):
            client.list()
    client.close()


def test_where_the_own_pod_is_not_known_every_list_counts(kubelet, client) -> None:
    assert client.list() == []


def test_a_kubelet_that_hangs_is_given_up_after_the_deadline(kubelet, client, monkeypatch, in_time) -> None:
    monkeypatch.setattr(pod_resources, "ANSWER_S", 0.2)
    kubelet.fault = HANG
    began = time.monotonic()
    with pytest.raises(KubeletError, match="DEADLINE_EXCEEDED"):
        client.list()
    assert in_time(most_s=2, since_s=began)


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED])
def test_a_refusal_is_no_empty_list(kubelet, client, code) -> None:
    kubelet.fault = code
    with pytest.raises(KubeletError, match=code.name) as caught:
        client.list()
    assert caught.value.retry_helps


def test_a_socket_that_was_never_there(tmp_path) -> None:
    client = PodResources(tmp_path / "none.sock")
    with pytest.raises(KubeletError, match="UNAVAILABLE"):
        client.list()
    client.close()
