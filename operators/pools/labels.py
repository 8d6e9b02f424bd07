"""Labels that describe a node's emulated GPUs to schedulers: emugpu's own, and NVIDIA's if the pool asks for them.

NVIDIA's names: GPU feature discovery, "Generated Labels" (k8s-device-plugin, docs/gpu-feature-discovery). Left out of its list:
gfd.timestamp (it would change Nodes without need), gpu.clique (needs an NVLink fabric) and the details of MIG. Its product has
hyphens where nvidia-smi prints spaces, which the catalogue writes as underscores. A node with several GPU types is labelled with
the most frequent one; of equally frequent ones, with the first.
"""

from __future__ import annotations

import re
from collections import Counter

from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.units import MIB
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
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
    gpu_type = Counter(entry.device.gpu_type for entry in entries).most_common(1)[0][0]
    spec = bundled_catalogue().specs[gpu_type]
    memory_bytes = next(entry.device.memory_bytes for entry in entries if entry.device.gpu_type == gpu_type)
    shared = max(inventory.resources, key=lambda resource: resource.replicas)
    replicas = shared.replicas
    facts = _facts(spec, memory_bytes, entries, shared)
    labels = {f"{OWN_PREFIX}{name}": value for name, value in facts.items()} | pool
    if nvidia:
        renamed = all(resource.name.endswith(".shared") for resource in inventory.resources if resource.replicas > 1)
        product = facts["gpu.product"].replace("_", "-") + ("-SHARED" if replicas > 1 and not renamed else "")
        imitated = facts | {"gpu.product": label_value(product)} | _nvidia_only()
        labels |= {f"{NVIDIA_PREFIX}{name}": value for name, value in imitated.items()}
    return labels


def label_value(text: str) -> str:
    """`text` as a label's value: letters, digits, `-`, `_`, `.`, at most 63, the ends alphanumeric."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-_.")


def _facts(spec: GpuSpec, memory_bytes: int, entries: list[DeviceEntry], shared: ResourceEntry) -> dict[str, str]:
    """`shared`: the resource with the most replicas."""
    major, _, minor = spec.compute_capability.partition(".")
    return {
        "gpu.present": "true",
        "gpu.product": label_value(spec.gpu_type),
        "gpu.count": str(len(entries)),
        "gpu.memory": str(memory_bytes // MIB),
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
        "mig.capable": "false",
        "mps.capable": "false",
        "vgpu.present": "false",
    }
