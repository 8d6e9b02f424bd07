"""Labels that describe a node's emulated GPUs to schedulers: emugpu's own, and NVIDIA's if the pool asks for them.

NVIDIA's names: GPU feature discovery, "Generated Labels" (k8s-device-plugin, docs/gpu-feature-discovery). Left out of its list:
gfd.timestamp (it would change Nodes without need), gpu.clique (needs an NVLink fabric), multiprocessors and engines of MIG
instances. Its product has hyphens where nvidia-smi prints spaces, which the catalogue writes as underscores. A node with several
GPU types is labelled with the most frequent one; of equally frequent ones, with the first.

MIG instances that a pool offers under its own resource are the node's GPUs (strategy single). Those that it offers as
mig-<profile> (mixed) have labels of that name, and the labels of GPUs count and describe the GPUs on which they are, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.mig import MEMORY_SLICES, MigProfile, mig_profiles, profile_of
from emulator_runtime.domain.units import MIB
from emulator_runtime.node.inventory import Inventory, ResourceEntry, is_mig_resource
from emulator_runtime.profiles.catalogue import bundled_catalogue
from operators.objects.node import POOL_LABEL

OWN_PREFIX = "emugpu.dev/"
NVIDIA_PREFIX = "nvidia.com/"

DRIVER_VERSION = ("550", "54", "15")
CUDA_VERSION = ("12", "4")
"""The version of the emulated driver: the pair of NVIDIA's release notes of CUDA 12.4 Update 1."""


def labels_of(inventory: Inventory, *, nvidia: bool) -> dict[str, str]:
    """All labels of a node with these devices; without devices, the label of its pool only."""
    pool = {POOL_LABEL: label_value(inventory.pool)}
    entries = list(inventory.entries())
    if not entries:
        return pool
    mixed = [r for r in inventory.resources if is_mig_resource(r.name) and all(e.device.mig for e in r.devices)]
    gpus = _gpus([entry.device for entry in entries], mixed)
    gpu_type = Counter(gpu.gpu_type for gpu in gpus).most_common(1)[0][0]
    gpu = next(gpu for gpu in gpus if gpu.gpu_type == gpu_type)
    shared = max(inventory.resources, key=lambda resource: resource.replicas)
    replicas = shared.replicas
    facts = _facts(gpu, len(gpus), shared) | _mig_facts([entry.device for entry in entries], mixed)
    labels = {f"{OWN_PREFIX}{name}": value for name, value in facts.items()} | pool
    if nvidia:
        renamed = all(resource.name.endswith(".shared") for resource in inventory.resources if resource.replicas > 1)
        product = facts["gpu.product"].replace("_", "-") + ("-SHARED" if replicas > 1 and not renamed else "")
        capable = str(bool(mig_profiles(profile_of(gpu_type)[0]))).lower()
        imitated = facts | {"gpu.product": label_value(product), "mig.capable": capable} | _nvidia_only()
        labels |= {f"{NVIDIA_PREFIX}{name}": value for name, value in imitated.items()}
    return labels


def label_value(text: str) -> str:
    """`text` as a label's value: letters, digits, `-`, `_`, `.`, at most 63, the ends alphanumeric."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-_.")


def _gpus(devices: Sequence[Device], mixed: Sequence[ResourceEntry]) -> list[Device]:
    """The devices that count as GPUs: where instances have a resource of their own, the GPUs on which they are."""
    own = {entry.device.uuid for resource in mixed for entry in resource.devices}
    gpus: dict[str, Device] = {}
    for device in devices:
        if device.uuid in own:
            whole, profile = profile_of(device.gpu_type)
            assert profile is not None
            memory_bytes = device.memory_bytes * MEMORY_SLICES // profile.memory_slices
            gpus[device.gpu_uuid] = Device(device.node, device.gpu_index, whole, memory_bytes)
        else:
            gpus[device.uuid] = device
    return list(gpus.values())


def _mig_facts(devices: Sequence[Device], mixed: Sequence[ResourceEntry]) -> dict[str, str]:
    """What GPU feature discovery says of MIG instances; nothing where there are none."""
    if not any(device.mig for device in devices):
        return {}
    if not mixed:
        profile = profile_of(devices[0].gpu_type)[1]
        return {"mig.strategy": "single"} | _slices("gpu", profile)
    facts = {"mig.strategy": "mixed"}
    for resource in mixed:
        device = resource.devices[0].device
        name, profile = resource.name.partition("/")[2], profile_of(device.gpu_type)[1]
        facts |= {
            f"{name}.product": label_value(device.gpu_type.replace("_", "-")),
            f"{name}.count": str(len(resource.devices)),
            f"{name}.replicas": "1",
            f"{name}.memory": str(device.memory_bytes // MIB),
        } | _slices(name, profile)
    return facts


def _slices(name: str, profile: MigProfile | None) -> dict[str, str]:
    """Compute slices of the GPU instance, and of the one compute instance that it has."""
    return {f"{name}.slices.{kind}": str(profile.compute_slices) for kind in ("gi", "ci")} if profile else {}


def _facts(gpu: Device, count: int, shared: ResourceEntry) -> dict[str, str]:
    """`gpu`: one of the `count` GPUs, of the most frequent type; `shared`: the resource with the most replicas."""
    spec = bundled_catalogue().spec(gpu.gpu_type, "the node's inventory")
    major, _, minor = spec.compute_capability.partition(".")
    return {
        "gpu.present": "true",
        "gpu.product": label_value(spec.gpu_type),
        "gpu.count": str(count),
        "gpu.memory": str(gpu.memory_bytes // MIB),
        "gpu.family": label_value(spec.architecture.casefold()),
        "gpu.compute.major": major,
        "gpu.compute.minor": minor or "0",
        "gpu.replicas": str(shared.replicas),
        "gpu.sharing-strategy": _strategy(shared),
    }


def _strategy(shared: ResourceEntry) -> str:
    """NVIDIA's names; every way in which holders take turns is time slicing."""
    if shared.replicas == 1:
        return "none"
    return "mps" if shared.sharing == "mps" else "time-slicing"


def _nvidia_only() -> dict[str, str]:
    driver, cuda = DRIVER_VERSION, CUDA_VERSION
    return {
        "gpu.machine": "emugpu",
        "gpu.mode": "compute",
        "cuda.driver-version.major": driver[0],
        "cuda.driver-version.minor": driver[1],
        "cuda.driver-version.revision": driver[2],
        "cuda.driver-version.full": ".".join(driver),
        "cuda.runtime-version.major": cuda[0],
        "cuda.runtime-version.minor": cuda[1],
        "cuda.runtime-version.full": ".".join(cuda),
        "cuda.driver.major": driver[0],
        "cuda.driver.minor": driver[1],
        "cuda.driver.rev": driver[2],
        "cuda.runtime.major": cuda[0],
        "cuda.runtime.minor": cuda[1],
        "mps.capable": "false",
        "vgpu.present": "false",
    }
