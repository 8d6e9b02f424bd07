"""NVIDIA's time-slicing file, as users have it, applied to an inventory."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.mig import instances
from emulator_runtime.domain.units import MAX_UNIT_NS, NS_PER_S
from emulator_runtime.node.inventory import EXCLUSIVE, SHARING_MODES, DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.node.sharing_file import apply_sharing
from emulator_runtime.sharing.modes import MODES

EMUGPU = "emugpu.dev/emuGPU"


def entries(*indexes: int) -> tuple[DeviceEntry, ...]:
    return tuple(DeviceEntry(Device("n", index, "T4", 1)) for index in indexes)


FOUR = Inventory("n", (ResourceEntry(EMUGPU, entries(0, 1, 2, 3)),))
TWO_KINDS = Inventory("n", (ResourceEntry("emugpu.dev/a", entries(0)), ResourceEntry("emugpu.dev/b", entries(1))))


def slicing(*resources: dict[str, object], **more: object) -> dict[str, object]:
    return {"timeSlicing": {"resources": list(resources), **more}}


def shapes(inventory: Inventory) -> list[tuple[str, int, list[int]]]:
    return [(r.name, r.replicas, [entry.device.index for entry in r.devices]) for r in inventory.resources]


def apply(inventory: Inventory, mapping: dict[str, object]) -> list[tuple[str, int, list[int]]]:
    return shapes(apply_sharing(inventory, mapping, "sharing.yaml"))


def test_a_whole_file_as_in_upstreams_readme():
    file = {
        "version": "v1",
        "flags": {"migStrategy": "none"},
        "sharing": slicing({"name": "nvidia.com/gpu", "replicas": 10}, failRequestsGreaterThanOne=True),
    }
    shared = apply_sharing(FOUR, file, "sharing.yaml")
    assert shapes(shared) == [(EMUGPU, 10, [0, 1, 2, 3])]
    assert shared.resources[0].fail_requests_greater_than_one


def test_renaming():
    line = {"name": EMUGPU, "replicas": 2}
    assert apply(FOUR, slicing(line, renameByDefault=True)) == [(f"{EMUGPU}.shared", 2, [0, 1, 2, 3])]
    named = slicing(line | {"rename": "emugpu.dev/slice"}, renameByDefault=True)
    assert apply(FOUR, named) == [("emugpu.dev/slice", 2, [0, 1, 2, 3])]
    assert apply(FOUR, slicing(line | {"replicas": 1}, renameByDefault=True)) == [(EMUGPU, 1, [0, 1, 2, 3])]


@pytest.mark.parametrize(
    ("devices", "shared"),
    [
        ("all", [0, 1, 2, 3]),
        (None, [0, 1, 2, 3]),
        (2, [0, 1]),
        ([3, "1"], [1, 3]),
        ([Device("n", 2, "", 1).uuid, 2], [2]),
    ],
)
def test_some_devices(devices, shared):
    whole = [index for index in range(4) if index not in shared]
    expected = ([(EMUGPU, 1, whole)] if whole else []) + [(f"{EMUGPU}.shared", 2, shared)]
    line = {"name": "nvidia.com/gpu", "devices": devices, "replicas": 2}
    assert apply(FOUR, slicing(line, renameByDefault=True)) == expected


def test_nvidias_name_means_what_has_no_line_of_its_own():
    file = slicing({"name": "nvidia.com/gpu", "replicas": 4}, {"name": "emugpu.dev/b", "replicas": 2})
    assert apply(TWO_KINDS, file) == [("emugpu.dev/a", 4, [0]), ("emugpu.dev/b", 2, [1])]
    nvidia = Inventory("n", (ResourceEntry("nvidia.com/gpu", entries(0)), ResourceEntry(EMUGPU, entries(1))))
    assert apply(nvidia, slicing({"name": "gpu", "replicas": 4})) == [("nvidia.com/gpu", 4, [0]), (EMUGPU, 1, [1])]
    mig = slicing({"name": "nvidia.com/mig-1g.5gb", "replicas": 2}, {"name": EMUGPU, "replicas": 3})
    assert apply(FOUR, mig) == [(EMUGPU, 3, [0, 1, 2, 3])]


@pytest.mark.parametrize("nothing", [{}, {"version": "v1"}, {"version": "v1", "sharing": None}, {"timeSlicing": {}}])
def test_nothing_to_share(nothing):
    assert apply_sharing(FOUR, nothing, "x") == FOUR


LINE = {"name": EMUGPU, "replicas": 2}


@pytest.mark.parametrize(
    ("file", "sharing"),
    [
        (slicing(LINE), "time-slicing"),
        ({"mps": {"resources": [LINE]}}, "mps"),
        (slicing(LINE) | {"mode": "fair"}, "fair"),
        ({"version": "v1", "sharing": {"mps": {"resources": [LINE]}, "mode": "weighted"}}, "weighted"),
        (slicing(LINE | {"replicas": 1}), "exclusive"),
    ],
)
def test_the_section_or_the_mode_says_how_holders_share(file, sharing):
    assert [resource.sharing for resource in apply_sharing(FOUR, file, "x").resources] == [sharing]


@pytest.mark.parametrize(
    ("own", "longest_s"), [({}, 10), ({"longestUnit": "1.5m"}, 90), ({"longestUnit": "20ms"}, 0.02)]
)
def test_how_long_the_holders_of_a_shared_device_may_have_to_wait(own, longest_s):
    file = slicing(LINE | {"devices": 1, "rename": "emugpu.dev/part"}) | own
    whole, shared = apply_sharing(FOUR, file, "x").resources
    assert (whole.longest_unit_ns, shared.longest_unit_ns) == (MAX_UNIT_NS, longest_s * NS_PER_S)


def test_every_way_to_share_has_a_mode():
    assert {EXCLUSIVE, *SHARING_MODES} == set(MODES)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"version": "v2"}, "file: version: must be v1"),
        ({"version": "v1", "share": {}}, "file: unknown field 'share'"),
        (slicing(LINE) | {"mps": {"resources": [LINE]}}, "file: mps: goes not together with timeSlicing; keep one"),
        ({"mode": "fair"}, "file: mode: goes with timeSlicing or mps, which say which devices are shared by how many"),
        ({"longestUnit": "5s"}, "file: longestUnit: goes with timeSlicing or mps"),
        (slicing(LINE) | {"longestUnit": "601s"}, "longestUnit: must be a time above 0 and up to 600s, such as 500ms"),
        (slicing(LINE) | {"longestUnit": "0s"}, "longestUnit: must be a time above 0 and up to 600s, such as 500ms"),
        (slicing(LINE) | {"mode": "fairr"}, "file: mode: unknown way to share a GPU 'fairr'; did you mean fair?"),
        ({"timeSlicing": 4}, "file: timeSlicing: must be an object, not 4"),
        ({"timeSlicing": {"renameByDefault": True}}, "file: timeSlicing: resources is missing"),
        (slicing(), "timeSlicing.resources: must name at least one resource"),
        (slicing(LINE, strategy="packed"), "timeSlicing.strategy: must be left out"),
        (slicing(LINE, renameByDefault="yes"), 'timeSlicing.renameByDefault: must be true or false, not "yes"'),
        (slicing({"replicas": 2}), "resources[0]: name is missing"),
        (slicing({"name": EMUGPU}), "resources[0]: replicas is missing"),
        (slicing(LINE | {"replicas": 0}), "resources[0].replicas: must be from 1 to 1024, got 0"),
        (slicing(LINE | {"name": "a/b/c"}), "resources[0].name: 'a/b/c' is no name of an extended resource"),
        (slicing(LINE, LINE), "resources[1]: emugpu.dev/emuGPU is named twice"),
        (slicing(LINE | {"name": "nope"}), "resources[0].name: unknown resource 'nvidia.com/nope'"),
        (
            slicing(LINE | {"name": "emugpu.dev/emuGP"}),
            "resources[0].name: unknown resource 'emugpu.dev/emuGP'; did you",
        ),
        (slicing(LINE | {"devices": "some"}), 'resources[0].devices: must be "all", a number of devices, or a list'),
        (slicing(LINE | {"devices": True}), "resources[0].devices: must be a whole number, not true"),
        (slicing(LINE | {"devices": 5}), "resources[0].devices: must be from 1 to 4, got 5"),
        (slicing(LINE | {"devices": []}), "resources[0].devices: must name at least one device"),
        (slicing(LINE | {"devices": [9]}), "resources[0].devices[0]: unknown device of emugpu.dev/emuGPU '9'"),
        (slicing(LINE | {"devices": 1}), "resources[0]: leaves devices of emugpu.dev/emuGPU whole under the same name"),
    ],
)
def test_mistakes(mapping, message):
    with pytest.raises(InputError) as wrong:
        apply_sharing(FOUR, mapping, "file")
    assert message in str(wrong.value)


def test_two_resources_under_one_name():
    file = slicing({"name": "nvidia.com/gpu", "rename": "emugpu.dev/x", "replicas": 2})
    with pytest.raises(InputError, match=r"file: timeSlicing.resources: emugpu.dev/x would be two resources"):
        apply_sharing(TWO_KINDS, file, "file")


def test_whole_gpus_are_shared_beside_mig_instances_but_no_instance_is():
    gpu = Device("n", 1, "NVIDIA_A100-SXM4-40GB", 40)
    cut = tuple(DeviceEntry(each) for each in instances(gpu, 2, ["3g.20gb"], "test"))
    mixed = Inventory("n", (ResourceEntry(EMUGPU, entries(0)), ResourceEntry("emugpu.dev/mig-3g.20gb", cut)))
    shared = [(EMUGPU, 2, [0]), ("emugpu.dev/mig-3g.20gb", 1, [9])]
    assert apply(mixed, slicing({"name": "nvidia.com/gpu", "replicas": 2})) == shared
    with pytest.raises(
        InputError, match=r"resources\[0\]: emugpu.dev/mig-3g.20gb has MIG instances, which have one holder"
    ):
        apply(mixed, slicing({"name": "emugpu.dev/mig-3g.20gb", "replicas": 2}))
