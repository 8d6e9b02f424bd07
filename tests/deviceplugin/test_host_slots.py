"""Host slots: when a node offers them, what Allocate replies, and that GPUs are unaffected."""

from __future__ import annotations

import json

import grpc
import pytest

from deviceplugin.daemon import offers_of
from deviceplugin.resources.gpus import GpuOffer
from deviceplugin.resources.host_slots import HOST_SLOTS, HostSlotOffer
from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.inventory import Inventory

EMUGPU = "emugpu.dev/emuGPU"
HOST = "emugpu.dev/host"


@pytest.fixture
def grants(node):
    return GrantFiles(node.layout.grants_dir, now=lambda: 0)


@pytest.mark.parametrize(
    ("more", "host", "names"),
    [
        ({"pool": "gpus"}, True, [EMUGPU, HOST]),
        ({"pool": "gpus"}, False, [EMUGPU]),
        ({"pool": "gpus", "cleanup": True}, True, [EMUGPU]),
        ({}, True, [EMUGPU, HOST]),  # devices of a file, which has no pool
    ],
)
def test_every_node_that_is_in_use_offers_places(resource, more, host, names):
    offers = offers_of(Inventory("worker1", (resource(1),), **more), host=host, nvidia_smi=True)
    assert [offer.name for offer in offers] == names


def test_a_pool_without_gpus_offers_places_alone_and_a_node_without_a_pool_nothing():
    assert offers_of(Inventory("worker1", (), pool="cpu"), host=True, nvidia_smi=True) == [HostSlotOffer()]
    assert offers_of(Inventory("worker1", ()), host=True, nvidia_smi=True) == []


def test_places_are_no_devices():
    places = HostSlotOffer()
    announced = list(places.announced())
    assert len({one.device_id for one in announced}) == HOST_SLOTS == 110
    assert all(one.healthy and one.numa_node is None for one in announced)
    assert places.device_counts == (0, 0)
    assert places.device_files(["place-0"]) == {}


def test_preferred_places():
    places = HostSlotOffer(4)
    assert places.preferred(["place-3", "place-1", "place-2"], [], 2) == ["place-1", "place-2"]
    assert places.preferred(["place-3", "place-1"], ["place-3"], 2) == ["place-3", "place-1"]
    assert places.preferred(["place-9"], [], 1) == []
    with pytest.raises(InputError, match="2 host slots must be included in an allocation of 1"):
        places.preferred([], ["place-0", "place-1"], 1)


@pytest.mark.parametrize(
    ("requested", "problem"),
    [
        ([], "must name each host slot once"),
        (["place-1", "place-1"], "must name each host slot once"),
        (["place-110"], "unknown host slot 'place-110'"),
        (["EMU-1"], "unknown host slot 'EMU-1'"),
    ],
)
def test_places_that_cannot_be_had(requested, problem):
    with pytest.raises(InputError, match=problem):
        HostSlotOffer().checked_ids(requested)
    assert HostSlotOffer().checked_ids(["place-10", "place-9"]) == ("place-9", "place-10")


def test_what_one_container_gets_of_a_gpu_and_a_place_does_not_collide(node, resource):
    """The kubelet keeps one of two variables or mounts with the same name, by chance: so they differ, or are the same."""
    for file in (node.layout.nvidia_smi, node.layout.python_dir / "emulator_runtime" / "__init__.py"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    found = []
    for offer, edev in ((GpuOffer("worker1", resource(1)), "gpu"), (HostSlotOffer(), "place")):
        first = next(iter(offer.announced())).device_id
        variables = offer.environment([first], f"token of {offer.name}")
        mounts = offer.mounts(node.layout, node.layout.root / edev, lambda path: path.is_file())
        found.append(variables | {mount.container_path: mount.host_path for mount in mounts})
    gpu, place = found
    assert {name for name in gpu.keys() & place.keys() if gpu[name] != place[name]} == set()
    assert place.keys() == {"EMUGPU_HOST_TOKEN", "EMUGPU_MANAGER_SOCKET", "/run/emugpu", "/usr/local/emugpu"}


@pytest.mark.processes
def test_allocate_mints_a_grant_without_devices(node, kubelet, resource, grants):
    node.publish(resource(2), pool="default")
    node.start(HOST="1")
    kubelet.wait_for(lambda: len(kubelet.devices(HOST)) == 110 and len(kubelet.devices(EMUGPU)) == 2)
    assert set(kubelet.devices(HOST).values()) == {"Healthy"}
    assert kubelet.preferred(HOST, ["place-7", "place-3"], 1) == ["place-3"]
    reply = kubelet.allocate(HOST, ["place-3"])
    token = reply.envs["EMUGPU_HOST_TOKEN"]
    assert dict(reply.envs) == {"EMUGPU_HOST_TOKEN": token, "EMUGPU_MANAGER_SOCKET": "/run/emugpu/manager.sock"}
    assert [(m.container_path, m.host_path, m.read_only) for m in reply.mounts] == [
        ("/run/emugpu", str(node.layout.run_dir), True)
    ]
    record = grants.read(token)
    assert (record.resource, record.device_ids) == (HOST, ("place-3",))
    assert list(grants.edev_dir(record.grant_id).iterdir()) == []
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.allocate(HOST, ["place-300"])
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "unknown host slot 'place-300'" in refused.value.details()


@pytest.mark.processes
def test_places_come_and_go_with_the_nodes_pool(node, kubelet, resource, eventually):
    node.publish(pool="cpu")
    process = node.start(HOST="1", CDI_DIR=str(node.layout.root / "cdi"))
    kubelet.wait_for(lambda: len(kubelet.devices(HOST)) == 110)
    reply = kubelet.allocate(HOST, ["place-0"])
    (spec,) = (node.layout.root / "cdi").iterdir()
    (device,) = json.loads(spec.read_text())["devices"]
    assert [m["containerPath"] for m in device["containerEdits"]["mounts"]] == ["/run/emugpu"]
    assert len(reply.cdi_devices) == 1
    node.publish()
    kubelet.wait_for(lambda: not kubelet.devices(HOST))
    node.publish(pool="cpu", cleanup=True)
    node.publish(resource(1), pool="default")
    kubelet.wait_for(lambda: len(kubelet.devices(HOST)) == 110 and len(kubelet.devices(EMUGPU)) == 1)
    assert process.poll() is None
