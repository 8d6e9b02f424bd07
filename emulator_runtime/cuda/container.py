"""What makes CUDA programs run in a container with emulated GPUs, whatever its image: a settings file, and variables.

The device plugin writes the file for what the kubelet allocated, and the manager again if the container gets other devices when
it attaches. The file has no token, since every user of the node can read it: the core takes the token from the environment.
Variables that a pod itself states count more than these: with an empty LD_AUDIT a container is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from emulator_runtime.cuda.launch import DeviceSettings, ProcessSettings, environment, settings_text
from emulator_runtime.domain.errors import InputError
from emulator_runtime.node import layout as names
from emulator_runtime.node.inventory import Cuda, DeviceEntry, ResourceEntry
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.profiles.cuda_properties import cuda_properties

STAND_IN = "NVIDIA_A100-SXM4-40GB"
"""The GPU whose processors, rates and links a GPU type has that the catalogue doesn't know."""
_LIBRARIES = Path(names.CONTAINER_TOOLS_DIR) / names.CUDA_LIBRARIES
_SETTINGS = Path(names.CONTAINER_CUDA_DIR) / names.CUDA_SETTINGS
_MPS = "mps"


def container_environment() -> dict[str, str]:
    """The variables of a container with such a settings file."""
    return environment(_LIBRARIES, _SETTINGS, {})


def container_settings(cuda: Cuda, resource: ResourceEntry, device_ids: Sequence[str]) -> str:
    """The settings file of a container that has these ids; empty if its pool has no CUDA programs.

    A process of a container whose device is shared by MPS may use its part of the memory, as NVIDIA's device plugin limits it; in
    the other modes holders have a device's memory together.
    """
    if not cuda.enabled:
        return ""
    known = resource.by_id()
    entries = {known[device_id].device.index: known[device_id] for device_id in device_ids}
    held = Counter(known[device_id].device.index for device_id in device_ids)
    devices = [_device(entry, resource, held[index]) for index, entry in sorted(entries.items())]
    process = ProcessSettings(
        estimator="constant" if cuda.constant_ns else "roofline",
        constant_ns=cuda.constant_ns or None,
        manager=Path(names.CONTAINER_MANAGER_SOCKET),
    )
    unknown = sorted({device.shown_as for device in devices if device.shown_as})
    notes = (f"# {name}: not in the catalogue; except for its memory, it is like {STAND_IN}\n" for name in unknown)
    return settings_text(process, devices) + "".join(notes)


def _device(entry: DeviceEntry, resource: ResourceEntry, held: int) -> DeviceSettings:
    device = entry.device
    memory = device.memory_bytes
    if resource.sharing == _MPS:
        memory = memory * held // resource.replicas
    found = DeviceSettings(device.gpu_type, device.uuid, memory)
    try:
        cuda_properties(gpu_spec(device.gpu_type, "gpu_type").gpu_type, "gpu_type")
    except InputError:
        return replace(found, gpu_type=STAND_IN, shown_as=device.gpu_type)
    return found
