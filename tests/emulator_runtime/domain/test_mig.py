"""MIG: names of profiles, and which instances fit on a GPU together (NVIDIA Multi-Instance GPU User Guide)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.sharing import mig
from emulator_runtime.sharing.demands import Demand, Piece, Session
from emulator_runtime.sharing.mig import Instance, mig_profiles, placed

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


def test_an_instance_has_its_part_of_the_throughput() -> None:
    profile = mig_profiles(A100)["3g.20gb"]
    engine = profile.engine()
    engine.join(Session("a"))
    engine.submit(Demand("a", 0, 0, 3000))
    assert engine.advance(0)[0].piece == Piece(0, 7010, 3000)  # 428 thousandths
    assert Instance(profile, 0).overlaps(Instance(profile, 0))
