"""The inventory's one format: what comes out goes in again, every mistake is named by its path."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device, MigPlace, device_uuid
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.node.inventory import (
    Compat,
    Cuda,
    DeviceEntry,
    Inventory,
    ResourceEntry,
    is_resource_name,
    mig_facts,
    split_device_id,
)

GOOD = {
    "version": 1,
    "node": "worker1",
    "pool": "default",
    "compat": {"nvidiaEnv": True},
    "resources": [
        {
            "name": "emugpu.dev/emuGPU",
            "replicas": 2,
            "sharing": "fair",
            "failRequestsGreaterThanOne": True,
            "longestUnitNs": 30_000_000_000,
            "devices": [
                {
                    "index": 3,
                    "gpu_type": "A100-SXM4-80GB",
                    "memory_bytes": 85899345920,
                    "numa_node": 1,
                    "link_group": 2,
                    "healthy": False,
                    "reason": "XID 79",
                }
            ],
        }
    ],
}


def test_the_contracts_example():
    inventory = Inventory.from_json(json.dumps(GOOD), "inventory.json")
    device = Device("worker1", 3, "A100-SXM4-80GB", 85899345920)
    entry = DeviceEntry(device, 1, 2, False, "XID 79")
    resource = ResourceEntry("emugpu.dev/emuGPU", (entry,), 2, True, "fair", 30 * NS_PER_S)
    assert inventory == Inventory("worker1", (resource,), "default", Compat(True))
    assert json.loads(inventory.to_json()) == GOOD
    programs = Inventory.from_json(json.dumps(GOOD | {"cuda": {"enabled": False, "constantNs": 5}}), "inventory.json")
    assert programs.cuda == Cuda(enabled=False, constant_ns=5)
    assert Inventory.from_json(programs.to_json(), "") == programs
    uuid = device_uuid("worker1", 3)
    shared = [{"name": "storage", "speed": 1.0, "devices": []}, {"name": "link-0", "speed": 2.5, "devices": [uuid]}]
    host = Inventory.from_json(json.dumps(GOOD | {"hostResources": shared}), "inventory.json")
    assert host.host_resources == (HostResource("storage"), HostResource("link-0", 2.5, (uuid,)))
    assert json.loads(host.to_json()) == GOOD | {"hostResources": shared}
    assert resource.device_ids(entry) == (f"{uuid}::0", f"{uuid}::1")
    assert list(inventory.entries()) == [entry]


def test_what_may_be_left_out():
    text = '{"version":1,"node":"n","resources":[{"name":"a.b/c","devices":[{"index":0,"gpu_type":"T4","memory_bytes":1}]}]}'
    inventory = Inventory.from_json(text, "x")
    assert inventory == Inventory("n", (ResourceEntry("a.b/c", (DeviceEntry(Device("n", 0, "T4", 1)),)),))


def changed(path: list[str | int], value: object) -> str:
    document = json.loads(json.dumps(GOOD))
    target = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return json.dumps(document)


DEVICE = GOOD["resources"][0]["devices"][0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "here:1:2: is not JSON"),
        ("[1]", "here: must be an object, not an array"),
        ("[" * 100_000, "here: is nested too deeply"),
        ('{"version":1,"version":1}', "here: has the key 'version' twice"),
        ('{"version":NaN}', "here: has the value NaN"),
        ("{}", "here: version is missing"),
        (changed(["version"], 2), "here: version: must be 1, got 2"),
        (changed(["version"], True), "here: version: must be a whole number, not true"),
        (changed(["node"], ""), "here: node: must be a text of 1 to 253 characters"),
        (changed(["node"], "\ud800"), "here: node: must be a text"),
        (changed(["nodes"], 1), "here: unknown field 'nodes'; did you mean node"),
        (changed(["cuda"], {"enabled": 1}), "here: cuda.enabled: must be true or false, not 1"),
        (changed(["compat"], {"nvidiaEnv": 1}), "here: compat.nvidiaEnv: must be true or false, not 1"),
        (changed(["hostResources"], [{"name": "storage", "speed": 0}]), "hostResources[0].speed: must be >= 0.001"),
        (changed(["hostResources"], [{"name": "storage", "speed": 1e300}]), "hostResources[0].speed: "),
        (
            changed(["hostResources"], [{"name": "x"}, {"name": "x"}]),
            "hostResources: has two resources of the same name",
        ),
        (changed(["resources"], {}), "here: resources: must be an array, not an object"),
        (changed(["resources", 0, "name"], "emuGPU"), "resources[0].name: 'emuGPU' is no name of an extended resource"),
        (changed(["resources", 0, "replicas"], 0), "resources[0].replicas: must be from 1 to 1024, got 0"),
        (
            changed(["resources", 0, "devices", 0, "memory_bytes"], 0),
            "resources[0].devices[0].memory_bytes: must be >= 1",
        ),
        (changed(["resources", 0, "devices", 0, "gpu_type"], 4), "devices[0].gpu_type: must be a string, not 4"),
        (changed(["resources", 0, "devices", 0], {"index": 0}), "resources[0].devices[0]: gpu_type is missing"),
        (changed(["resources", 0, "devices"], [DEVICE, DEVICE]), "resources: has the device index 3 twice"),
        (changed(["resources"], GOOD["resources"] * 2), "resources: has emugpu.dev/emuGPU twice"),
        (
            changed(["resources", 0, "devices"], [DEVICE | {"index": n} for n in range(1025)]),
            "resources: has 1025 devices; a node has 1024 at most",
        ),
    ],
)
def test_mistakes(text, message):
    with pytest.raises(InputError) as wrong:
        Inventory.from_json(text, "here")
    assert message in str(wrong.value)


def test_device_ids():
    assert split_device_id("GPU-1::3") == ("GPU-1", 3)
    assert split_device_id("GPU-1") == ("GPU-1", None)
    assert split_device_id("GPU-1::x") == ("GPU-1::x", None)
    assert split_device_id("GPU-1::٣") == ("GPU-1::٣", None)
    shared = ResourceEntry("a.b/c", tuple(DeviceEntry(Device("n", i, "T4", 1)) for i in (2, 0)), 2)
    assert [split_device_id(i) for i in shared.by_id()] == [(device_uuid("n", i), r) for i in (0, 2) for r in (0, 1)]
    assert max(len(i) for i in ResourceEntry("a.b/c", shared.devices, 1024).by_id()) <= 63  # the kubelet's limit


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("emugpu.dev/emuGPU", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.5gb", True),
        ("emuGPU", False),
        ("kubernetes.io/gpu", False),
        ("requests.emugpu.dev/gpu", False),
        ("Emugpu.dev/gpu", False),
        ("emugpu.dev/gpu/2", False),
        ("emugpu.dev/", False),
        ("emugpu.dev/-gpu", False),
        ("emugpu.dev/" + "g" * 64, False),
        ("emugpu.dev/gpu\n", False),
        ("a." * 130 + "b/gpu", False),
    ],
)
def test_resource_names(name, good):
    assert is_resource_name(name) is good


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
devices = st.builds(
    DeviceEntry,
    st.builds(Device, st.just("n"), st.integers(0, 65535), text, st.integers(1, 2**53)),
    st.integers(0, 7),
    st.integers(0, 7),
    st.booleans(),
    text,
)


@given(
    st.lists(devices, max_size=6, unique_by=lambda entry: entry.device.index), st.integers(1, 9), st.booleans(), text
)
def test_round_trip(entries, replicas, flag, pool):
    first = ResourceEntry("a.b/c", tuple(entries[:3]), replicas, flag)
    inventory = Inventory("n", (first, ResourceEntry("a.b/d", tuple(entries[3:]))), pool, Compat(flag))
    assert Inventory.from_json(inventory.to_json(), "x") == inventory


def test_cleanup_goes_with_no_resources():
    leaving = Inventory("worker1", (), cleanup=True)
    assert Inventory.from_json(leaving.to_json(), "here") == leaving
    text = json.dumps(GOOD | {"cleanup": True})
    with pytest.raises(InputError, match=r"cleanup.*no resources"):
        Inventory.from_json(text, "here")


A100 = "NVIDIA_A100-SXM4-40GB"


def instances(**changes: object) -> str:
    devices = [
        {"index": 1 + n, "gpu_type": f"{A100}-MIG-3g.20gb", "memory_bytes": 20, "mig": {"gpu": 0, "start": start}}
        for n, start in enumerate((4, 0))
    ]
    devices[1] |= changes
    resource = {
        "name": "emugpu.dev/emuGPU",
        "devices": [{k: v for k, v in d.items() if v is not None} for d in devices],
    }
    resource |= {"replicas": 2} if changes.get("shared") else {}
    devices[1].pop("shared", None)
    resource["devices"][1].pop("shared", None)
    return json.dumps({"version": 1, "node": "n", "resources": [resource]})


def test_instances_go_in_and_out():
    inventory = Inventory.from_json(instances(), "file")
    assert [entry.device.mig for entry in inventory.entries()] == [MigPlace(0, 4), MigPlace(0, 0)]
    assert Inventory.from_json(inventory.to_json(), "file") == inventory
    assert mig_facts(next(inventory.entries()).device) == {"mig": {"gpu": 0, "gpu_uuid": device_uuid("n", 0)}}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mig": None}, "file: resources: device 2: an instance has mig and a type"),
        ({"gpu_type": A100}, "file: resources: device 2: an instance has mig and a type"),
        ({"gpu_type": f"{A100}-MIG-3g.40gb"}, "file: resources: device 2: an instance has mig and a type"),
        ({"gpu_type": "Tesla-T4-MIG-1g.5gb"}, "file: resources: device 2: an instance has mig and a type"),
        ({"mig": {"gpu": 0, "start": 2}}, "file: resources: device 2: 3g.20gb starts at 0, 4, not 2"),
        ({"mig": {"gpu": 0, "start": 4}}, "file: resources: GPU 0: device 2 overlaps another instance"),
        ({"mig": {"gpu": 0, "start": 8}}, r"file: resources\[0\].devices\[1\].mig.start: must be from 0 to 7, got 8"),
        ({"mig": {"gpu": 0}}, r"file: resources\[0\].devices\[1\].mig: start is missing"),
        ({"shared": True}, r"file: resources\[0\].devices: has MIG instances, .* but is shared \(fifo\)"),
    ],
)
def test_instances_that_can_not_be(changes, problem):
    with pytest.raises(InputError, match=problem):
        Inventory.from_json(instances(**changes), "file")
