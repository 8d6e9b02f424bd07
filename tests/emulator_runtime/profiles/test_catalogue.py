from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.units import GIB, MIB
from emulator_runtime.profiles.catalogue import bundled_catalogue, gpu_spec

SPECS = tuple(bundled_catalogue().specs.values())


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("K80", "Tesla_K80"),
        ("Tesla-K80", "Tesla_K80"),
        ("tesla k80", "Tesla_K80"),
        ("m40", "Tesla_M40"),
        ("P100", "Tesla_P100-PCIE-16GB"),
        ("RTX-6000", "Quadro_RTX_6000"),
        ("rtx_6000", "Quadro_RTX_6000"),
        ("v100", "Tesla_V100-PCIE-32GB"),
        (" V100 ", "Tesla_V100-PCIE-32GB"),
        ("A100", "NVIDIA_A100-SXM4-40GB"),
        ("a100-40gb", "NVIDIA_A100-SXM4-40GB"),
        ("NVIDIA-A100-SXM4-40GB", "NVIDIA_A100-SXM4-40GB"),
        ("A100-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("T4", "Tesla-T4"),
        ("a10g", "NVIDIA-A10G"),
        ("L4", "NVIDIA-L4"),
        ("H100", "NVIDIA-H100-80GB-HBM3"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3"),
        ("H200", "NVIDIA-H200"),
        ("B200", "NVIDIA-B200"),
        ("a100_mig_3g.20gb", "NVIDIA_A100-SXM4-40GB-MIG-3g.20gb"),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
    ],
)
def test_names_and_aliases_lead_to_one_type(name: str, canonical: str) -> None:
    assert gpu_spec(name, "test").gpu_type == canonical


def test_an_unknown_name_says_where_and_what_comes_nearest() -> None:
    with pytest.raises(
        UnknownNameError, match=r"^c\.yaml: gpu: unknown GPU type 'NVIDIA-H20'; did you mean NVIDIA-H200"
    ):
        gpu_spec("NVIDIA-H20", "c.yaml: gpu")


def test_no_two_types_share_a_spelling() -> None:
    catalogue = bundled_catalogue()
    assert len(catalogue.specs) == 13
    for spec in SPECS:
        assert catalogue.spec(spec.gpu_type, "test") is spec
        assert catalogue.short_names(spec.gpu_type), spec.gpu_type
        assert all(catalogue.find(name) == spec.gpu_type for name in catalogue.short_names(spec.gpu_type))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.gpu_type)
def test_figures_are_plausible_and_have_a_source(spec: GpuSpec) -> None:
    assert 10 * GIB < spec.usable_memory_bytes < spec.memory_bytes < 192 * GIB
    assert spec.memory_bytes % MIB == 0
    assert str(spec.memory_bytes // MIB) in spec.source, "the source says the same as the figure"
    assert 11e9 <= spec.host_link_bytes_per_s <= 63e9
    assert spec.peer_link_bytes_per_s == 0 or spec.peer_link_bytes_per_s > spec.host_link_bytes_per_s
    assert 3.5 <= float(spec.compute_capability) <= 10.0
    assert spec.architecture


def test_nominal_memory_of_the_profiled_types_is_the_measurements_own() -> None:
    mib = {
        name: gpu_spec(name, "test").memory_bytes // MIB for name in ("K80", "M40", "P100", "RTX6000", "V100", "A100")
    }
    assert mib == {"K80": 11441, "M40": 11448, "P100": 16280, "RTX6000": 24220, "V100": 32510, "A100": 40536}


def test_an_instance_has_its_part_of_memory_and_host_link_and_no_peer_link() -> None:
    whole, part = gpu_spec("H100", "test"), gpu_spec("H100-MIG-3g.40gb", "test")
    assert part.memory_bytes == whole.memory_bytes // 2
    assert part.host_link_bytes_per_s == whole.host_link_bytes_per_s * 0.428
    assert (part.peer_link_bytes_per_s, part.compute_capability) == (0.0, whole.compute_capability)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("A100-MIG-3g.40gb", "did you mean NVIDIA_A100-SXM4-40GB-MIG-"),
        ("T4-MIG-1g.5gb", "unknown GPU type 'T4-MIG-1g.5gb'; known: NVIDIA"),
        ("A10O-MIG-1g.5gb", "unknown GPU type 'A10O-MIG-1g.5gb'"),
    ],
)
def test_an_unknown_instance_says_which_there_are(name: str, problem: str) -> None:
    with pytest.raises(UnknownNameError, match=problem):
        gpu_spec(name, "c.yaml: gpu")
