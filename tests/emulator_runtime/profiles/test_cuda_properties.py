from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.mig import instance_types
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.profiles.cuda_properties import PRECISIONS, cuda_properties

SPECS = tuple(bundled_catalogue().specs.values())


CORES = {"3.7": 192, "5.2": 128, "6.0": 64, "7.0": 64, "7.5": 64, "8.0": 64}
"""FP32 lanes of a multiprocessor by compute capability (CUDA C++ Programming Guide, "Arithmetic Instructions"); 128 in others."""


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.gpu_type)
def test_figures_agree_with_each_other(spec: GpuSpec) -> None:
    found = cuda_properties(spec.gpu_type, "test")
    rates = found.operations_per_s
    cores = CORES.get(spec.compute_capability, 128) * found.multiprocessors
    assert set(rates) == set(PRECISIONS)
    assert found.name.replace(" ", "-") == spec.gpu_type.replace("_", "-")
    assert rates["fp32"] > rates["fp64"] > 0
    assert rates["bf16"] in (0, rates["fp16"])
    assert rates["fp8"] in (0, rates["int8"])
    assert rates["fp32"] == pytest.approx(2 * cores * found.clock_khz * 1000, rel=0.03)
    transfers_per_s = 2 * found.memory_clock_khz * 1000
    assert found.memory_bytes_per_s == pytest.approx(transfers_per_s * found.memory_bus_bits / 8, rel=0.03)
    assert found.context_bytes < spec.memory_bytes / 20
    assert found.shared_bytes_per_block <= found.shared_bytes_per_multiprocessor
    assert found.source


@pytest.mark.parametrize("whole", [spec.gpu_type for spec in SPECS if instance_types(spec.gpu_type)])
def test_instances_have_their_part(whole: str) -> None:
    all_of_it = cuda_properties(whole, "test")
    for gpu_type in instance_types(whole):
        found = cuda_properties(gpu_type, "test")
        assert 0 < found.multiprocessors <= all_of_it.multiprocessors
        assert found.memory_bytes_per_s <= all_of_it.memory_bytes_per_s
        assert found.operations_per_s["fp32"] <= all_of_it.operations_per_s["fp32"]


def test_the_smallest_instance_of_an_a100_has_14_multiprocessors() -> None:
    """NVIDIA Multi-Instance GPU User Guide, the output of `nvidia-smi mig -lgip`."""
    assert cuda_properties("NVIDIA_A100-SXM4-40GB-MIG-1g.5gb", "test").multiprocessors == 14


def test_a_type_of_the_users_own_is_told() -> None:
    with pytest.raises(InputError, match=r"^c\.yaml: CUDA programs can't run on Mine"):
        cuda_properties("Mine", "c.yaml")


def test_products_of_16_bits_have_a_part_of_their_own_where_it_is_known() -> None:
    constants = cuda_properties("NVIDIA_A100-SXM4-40GB", "").roofline
    assert [constants.part_of_products(name) for name in ("fp32", "tf32", "fp16", "bf16", "fp8")] == [
        0.636,
        0.636,
        0.726,
        0.726,
        0.636,
    ]
    constants = cuda_properties("Tesla_V100-PCIE-32GB", "").roofline
    assert constants.part_of_products("fp16") == constants.part_of_products("fp32") == 0.695
