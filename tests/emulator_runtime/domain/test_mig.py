"""MIG: names of profiles, and which instances fit on a GPU together (NVIDIA Multi-Instance GPU User Guide)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain import mig
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device, MigPlace
from emulator_runtime.domain.mig import (
    check_places,
    instance_type,
    instance_types,
    instances,
    mig_profiles,
    placed,
    profile_of,
    rate_milli,
    slowest_type,
)
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.catalogue import bundled_catalogue

A100 = "NVIDIA_A100-SXM4-40GB"


def test_names_are_nvidias() -> None:
    assert list(mig_profiles(A100)) == ["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
    assert list(mig_profiles("NVIDIA-B200")) == ["1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"]
    assert mig_profiles("Tesla_V100-PCIE-32GB") == {}


def test_every_type_with_mig_is_in_the_catalogue() -> None:
    for gpu_type in mig._MEMORY_GB:
        device_bytes = bundled_catalogue().spec(gpu_type, "test").memory_bytes
        for name, profile in mig_profiles(gpu_type).items():
            named_bytes = int(name.partition(".")[2].removesuffix("gb")) * GIB
            assert profile.memory_bytes(device_bytes) == pytest.approx(named_bytes, rel=0.03)


@pytest.mark.parametrize(
    ("names", "fits"),
    [
        (["1g.5gb"] * 7, True),
        (["1g.5gb"] * 8, False),
        (["1g.10gb"] * 4, True),
        (["1g.10gb"] * 5, False),
        (["2g.10gb"] * 3 + ["1g.5gb"], True),
        (["2g.10gb"] * 4, False),
        (["3g.20gb", "3g.20gb"], True),
        (["3g.20gb", "3g.20gb", "1g.5gb"], False),  # a compute slice is left, no memory slice
        (["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"], True),
        (["4g.20gb", "3g.20gb"], True),
        (["3g.20gb", "4g.20gb"], True),
        (["4g.20gb", "4g.20gb"], False),
        (["4g.20gb", "2g.10gb", "1g.5gb"], True),
        (["7g.40gb"], True),
        (["7g.40gb", "1g.5gb"], False),
        ([], True),
    ],
)
def test_which_instances_fit_together(names: list[str], fits: bool) -> None:
    if fits:
        assert [instance.profile.name for instance in placed(A100, names, "pool p")] == names
    else:
        with pytest.raises(InputError, match=r"pool p: .* don't fit on one NVIDIA_A100-SXM4-40GB together"):
            placed(A100, names, "pool p")


def test_wrong_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"pool p: unknown MIG profile of .*'3g.40gb'.*3g.20gb"):
        placed(A100, ["3g.40gb"], "pool p")
    with pytest.raises(InputError, match="pool p: Tesla-T4 has no MIG; types with MIG: NVIDIA_A100"):
        placed("Tesla-T4", ["1g.5gb"], "pool p")


@given(st.lists(st.sampled_from(list(mig_profiles(A100))), max_size=8))
def test_instances_never_overlap_and_begin_where_they_may(names: list[str]) -> None:
    try:
        instances = placed(A100, names, "pool p")
    except InputError:
        return
    ordered = sorted(instances, key=lambda instance: instance.start)
    assert all(before.start + before.profile.memory_slices <= after.start for before, after in pairwise(ordered))
    assert all(instance.start in instance.profile.starts for instance in instances)
    assert sum(instance.profile.compute_slices for instance in instances) <= 7
    assert sum(instance.profile.rate_milli for instance in instances) <= 1000


def test_the_type_of_an_instance_says_its_part_of_the_throughput() -> None:
    three = instance_type(A100, "3g.20gb")
    assert three == f"{A100}-MIG-3g.20gb" and three in instance_types(A100)
    assert profile_of(three) == (A100, mig_profiles(A100)["3g.20gb"])
    assert [rate_milli(each) for each in (three, A100, f"{A100}-MIG-3g.40gb", "Lab-MIG-1")] == [428, 1000, 1000, 1000]
    assert slowest_type([A100, three, instance_type(A100, "4g.20gb")]) == three
    assert slowest_type([]) is None


def test_the_instances_of_a_gpu_are_devices() -> None:
    gpu = Device("n1", 1, A100, 40 * GIB)
    four, three = instances(gpu, 2, ["4g.20gb", "3g.20gb"], "pool p")
    assert (four.index, three.index) == (9, 10)
    assert (four.gpu_type, four.memory_bytes) == (f"{A100}-MIG-4g.20gb", 20 * GIB)
    assert (four.mig, three.mig) == (MigPlace(1, 0), MigPlace(1, 4))
    assert {four.gpu_uuid, three.gpu_uuid, gpu.gpu_uuid} == {gpu.uuid} and four.gpu_index == 1
    assert len({gpu.uuid, four.uuid, three.uuid}) == 3 and four.uuid.startswith("MIG-") and len(four.uuid) == 40
    other = next(instances(Device("n1", 0, A100, 40 * GIB), 2, ["4g.20gb"], "pool p"))
    assert other.uuid != four.uuid
    check_places([four, three, Device("n1", 0, A100, 40 * GIB)], "pool p")


def device(index: int, profile: str, gpu: int = 0, start: int = 0, gpu_type: str = A100) -> Device:
    return Device("n1", index, instance_type(gpu_type, profile), GIB, MigPlace(gpu, start))


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        ([Device("n1", 5, A100, 1, MigPlace(0, 0))], "device 5: an instance has mig and a type such as"),
        ([Device("n1", 5, f"{A100}-MIG-3g.20gb", 1)], "device 5: an instance has mig and a type such as"),
        ([device(5, "3g.20gb", start=1)], "device 5: 3g.20gb starts at 0, 4, not 1"),
        ([device(5, "3g.20gb"), device(6, "2g.10gb", start=2)], "GPU 0: device 6 overlaps another instance"),
        ([device(5, "3g.20gb"), device(6, "3g.40gb", 0, 4, "NVIDIA-A100-SXM4-80GB")], "GPU 0 has instances of .*; a GPU has one"),
        ([device(5, "1g.10gb", start=s) for s in (0, 2)] + [device(6, "3g.20gb", start=4), Device("n1", 0, A100, 1)],
         "GPU 0 is whole and cut at once"),
    ],
)  # fmt: skip
def test_what_instances_can_not_be(devices: list[Device], problem: str) -> None:
    with pytest.raises(InputError, match=f"inventory: {problem}"):
        check_places(devices, "inventory")
