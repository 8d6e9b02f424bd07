"""What CUDA programs in a container get: the settings file for what the kubelet allocated, and the variables."""

from __future__ import annotations

import pytest

from emulator_runtime.cuda.container import STAND_IN, container_environment, container_settings
from emulator_runtime.domain.gpu import Device, MigPlace
from emulator_runtime.domain.units import GIB
from emulator_runtime.node.inventory import Cuda, DeviceEntry, ResourceEntry

A100 = "NVIDIA_A100-SXM4-40GB"


def resource(*devices, **more):
    return ResourceEntry("emugpu.dev/emuGPU", tuple(DeviceEntry(device) for device in devices), **more)


def a100(index):
    return Device("n1", index, A100, 40 * GIB)


def settings(text):
    """The process's values, and those of each device."""
    first, *lines = text.splitlines()
    assert first == "emugpu-cuda 1"
    parts = [{}]
    for line in lines:
        if line.startswith("#"):
            continue
        key, _, value = line.partition(" ")
        if key == "device":
            assert value == str(len(parts) - 1)
            parts.append({})
        else:
            parts[-1][key] = value
    return parts


def test_devices_are_in_the_order_of_their_indexes_and_the_token_is_left_out():
    text = container_settings(Cuda(), resource(a100(3), a100(1)), (a100(3).uuid, a100(1).uuid))
    process, first, second = settings(text)
    assert process == {"estimator": "roofline", "manager": "/run/emugpu/manager.sock"}
    assert (first["uuid"], second["uuid"]) == (a100(1).uuid, a100(3).uuid)
    assert (first["name"], first["gpu_type"]) == ("NVIDIA A100-SXM4-40GB", A100)
    assert int(first["memory_bytes"]) == 40 * GIB
    assert (first["capability_major"], first["multiprocessors"]) == ("8", "108")


def test_each_kernel_may_take_a_constant_time():
    process, _ = settings(container_settings(Cuda(constant_ns=20_000), resource(a100(0)), (a100(0).uuid,)))
    assert (process["estimator"], process["constant_ns"]) == ("constant", "20000")


def test_a_pool_without_cuda_programs():
    assert container_settings(Cuda(enabled=False), resource(a100(0)), (a100(0).uuid,)) == ""


@pytest.mark.parametrize(("mode", "held", "memory"), [("fifo", 1, 40), ("mps", 1, 10), ("mps", 3, 30)])
def test_memory_of_a_shared_device(mode, held, memory):
    """As in NVIDIA's device plugin, MPS limits each holder's memory; otherwise holders have it together."""
    shared = resource(a100(0), replicas=4, sharing=mode)
    _, device = settings(container_settings(Cuda(), shared, tuple(shared.by_id())[:held]))
    assert int(device["memory_bytes"]) == memory * GIB


def test_a_mig_instance_has_its_part_of_the_gpu():
    instance = Device("n1", 0, f"{A100}-MIG-1g.5gb", 5 * GIB, MigPlace(0, 0))
    _, device = settings(container_settings(Cuda(), resource(instance), (instance.uuid,)))
    assert device["uuid"].startswith("MIG-")
    assert device["multiprocessors"] == "14"
    assert int(device["memory_bytes"]) == 5 * GIB


def test_a_gpu_that_the_catalogue_doesnt_know_is_like_another_except_for_name_and_memory():
    own = Device("n1", 0, "My-GPU", 7 * GIB)
    text = container_settings(Cuda(), resource(own), (own.uuid,))
    _, device = settings(text)
    assert (device["name"], device["gpu_type"], int(device["memory_bytes"])) == ("My-GPU", "My-GPU", 7 * GIB)
    assert device["multiprocessors"] == "108"
    assert f"# My-GPU: not in the catalogue; except for its memory, it is like {STAND_IN}" in text


def test_the_variables():
    assert container_environment() == {
        "EMUGPU_CUDA_SETTINGS": "/run/emugpu-cuda/settings",
        "LD_AUDIT": "/usr/local/emugpu/lib/libemugpu_redirect.so",
        "TRITON_LIBCUDA_PATH": "/usr/local/emugpu/lib",
        "USE_PYTORCH_KERNEL_CACHE": "0",
    }


def test_the_core_reads_the_file_and_takes_the_token_from_the_environment(run_core, monkeypatch):
    text = container_settings(Cuda(), resource(a100(0)), (a100(0).uuid,)).replace("/run/emugpu/manager.sock", "/absent")
    monkeypatch.setenv("EMUGPU_TOKEN", "T" * 64)
    assert run_core("print(core.library.emu_start(), core.library.emu_device_count())", text=text) == "0 1\n"


def test_a_token_that_is_too_long_is_reported(run_core, monkeypatch):
    monkeypatch.setenv("EMUGPU_TOKEN", "T" * 5000)
    text = container_settings(Cuda(), resource(a100(0)), (a100(0).uuid,))
    assert "EMUGPU_TOKEN is too long" in run_core("core.library.emu_start()", text=text)
