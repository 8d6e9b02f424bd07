"""Multi-Instance GPU: which profiles a GPU type has, where their instances may be placed, and the devices that they are.

An instance is a device with a GPU type of its own, named as GPU feature discovery names its product: NVIDIA-H100-80GB-HBM3 cut
to 3g.40gb is NVIDIA-H100-80GB-HBM3-MIG-3g.40gb. So everything that knows GPU types knows instances.

A GPU has 7 compute slices and 8 memory slices. An instance of a profile takes some of both; its memory slices must begin at
one of few places. Profiles and places are those that `nvidia-smi mig -lgip` and `-lgipp` list (NVIDIA Multi-Instance GPU User
Guide, release 580, "Supported MIG Profiles"); media extensions (+me, +gfx) are left out, since nothing of them is emulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.gpu import Device, MigPlace

COMPUTE_SLICES, MEMORY_SLICES = 7, 8
TYPE_SEPARATOR = "-MIG-"
"""Between a GPU type and the profile to which it is cut."""
_SHAPES = {
    (1, 1): (0, 1, 2, 3, 4, 5, 6),
    (1, 2): (0, 2, 4, 6),
    (2, 2): (0, 2, 4),
    (3, 4): (0, 4),
    (4, 4): (0,),
    (7, 8): (0,),
}
"""Compute and memory slices of a profile, and where its memory slices may begin."""
_MEMORY_GB = {
    "NVIDIA_A100-SXM4-40GB": (5, 10, 10, 20, 20, 40),
    "NVIDIA-A100-SXM4-80GB": (10, 20, 20, 40, 40, 80),
    "NVIDIA-H100-80GB-HBM3": (10, 20, 20, 40, 40, 80),
    "NVIDIA-H200": (18, 35, 35, 71, 71, 141),
    "NVIDIA-B200": (23, 45, 45, 90, 90, 180),
}
"""By GPU type: the memory in the names of the profiles, in the order of _SHAPES."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One size of an instance, such as 3g.20gb: 3 compute slices, 4 memory slices. `starts`: first memory slices allowed."""

    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]

    @property
    def rate_milli(self) -> int:
        """Its throughput, in thousandths of the whole GPU's: work that scales with compute slices."""
        return 1000 * self.compute_slices // COMPUTE_SLICES

    def memory_bytes(self, device_bytes: int) -> int:
        """Its part of a GPU with so much memory (a real instance has up to 3% less)."""
        return device_bytes * self.memory_slices // MEMORY_SLICES


@dataclass(frozen=True, slots=True)
class Instance:
    """A profile at its place: its memory slices are [start, start + profile.memory_slices)."""

    profile: MigProfile
    start: int

    def overlaps(self, other: Instance) -> bool:
        return (
            self.start < other.start + other.profile.memory_slices
            and other.start < self.start + self.profile.memory_slices
        )


@cache
def mig_profiles(gpu_type: str) -> dict[str, MigProfile]:
    """The profiles of a GPU type by name; none if it has no MIG."""
    found = {}
    for (shape, starts), gigabytes in zip(_SHAPES.items(), _MEMORY_GB.get(gpu_type, ()), strict=False):
        compute, memory = shape
        name = f"{compute}g.{gigabytes}gb"
        found[name] = MigProfile(name, compute, memory, starts)
    return found


def instance_type(gpu_type: str, profile: str) -> str:
    """The GPU type of an instance of `profile` on a GPU of `gpu_type`."""
    return f"{gpu_type}{TYPE_SEPARATOR}{profile}"


def instance_types(gpu_type: str) -> list[str]:
    """All types of instances of a GPU type."""
    return [instance_type(gpu_type, profile) for profile in mig_profiles(gpu_type)]


def profile_of(gpu_type: str) -> tuple[str, MigProfile | None]:
    """The type of the whole GPU, and the profile if `gpu_type` is that of an instance."""
    whole, _, name = gpu_type.rpartition(TYPE_SEPARATOR)
    profile = mig_profiles(whole).get(name)
    return (whole, profile) if profile is not None else (gpu_type, None)


@cache
def rate_milli(gpu_type: str) -> int:
    """The throughput of a device of this type, in thousandths of the whole GPU's: 1000 unless it is an instance.

    This is the one place that says how much slower an instance is. Profiles (profiles/table.py), stated times
    (workloads/step_costs) and the work of a user's own program (program/device.py) are divided by it.
    """
    profile = profile_of(gpu_type)[1]
    return 1000 if profile is None else profile.rate_milli


def slowest_type(gpu_types: Iterable[str]) -> str | None:
    """The type with the lowest rate, the first of equal ones; None if there are none."""
    kinds = dict.fromkeys(gpu_types)
    return min(kinds, key=rate_milli) if len(kinds) > 1 else next(iter(kinds), None)


def instances(gpu: Device, gpus: int, profiles: Sequence[str], place: str) -> Iterator[Device]:
    """The devices into which `gpu` is cut, in the order of `profiles`. Raises InputError as `placed` does.

    `gpus`: how many GPUs the node has. Indexes of instances follow those of the GPUs, seven for each GPU, so another cut of one
    GPU changes no index on another one. Example: of 2 GPUs, GPU 1 cut in two has the indexes 9 and 10.
    """
    for number, instance in enumerate(placed(gpu.gpu_type, profiles, place)):
        yield Device(
            gpu.node,
            gpus + COMPUTE_SLICES * gpu.index + number,
            instance_type(gpu.gpu_type, instance.profile.name),
            instance.profile.memory_bytes(gpu.memory_bytes),
            MigPlace(gpu.index, instance.start),
        )


def check_places(devices: Iterable[Device], place: str) -> None:
    """Raises InputError, beginning with `place`, for an instance where its profile can't be, for instances that overlap or
    are of different GPU types on one GPU, and for a GPU that is cut and whole at once."""
    found: dict[int, list[tuple[str, Instance]]] = {}
    whole_gpus = set()
    for device in devices:
        whole, profile = profile_of(device.gpu_type)
        if device.mig is None or profile is None:
            if device.mig is not None or profile is not None:
                problem = (
                    f"device {device.index}: an instance has mig and a type such as {next(iter(_MEMORY_GB))}-MIG-1g.5gb"
                )
                raise InputError(place, f"{problem}; a whole GPU has neither")
            whole_gpus.add(device.index)
            continue
        instance, gpu = Instance(profile, device.mig.start), f"GPU {device.mig.gpu}"
        if instance.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            raise InputError(place, f"device {device.index}: {profile.name} starts at {starts}, not {instance.start}")
        beside = found.setdefault(device.mig.gpu, [])
        if any(other_type != whole for other_type, _ in beside):
            raise InputError(place, f"{gpu} has instances of {whole} and of {beside[0][0]}; a GPU has one type")
        if any(instance.overlaps(other) for _, other in beside):
            raise InputError(
                place, f"{gpu}: device {device.index} overlaps another instance; see nvidia-smi mig -lgipp"
            )
        beside.append((whole, instance))
        if sum(other.profile.compute_slices for _, other in beside) > COMPUTE_SLICES:
            raise InputError(
                place, f"{gpu} has more than {COMPUTE_SLICES} compute slices; use fewer or smaller instances"
            )
    for gpu_index in sorted(whole_gpus & found.keys()):
        raise InputError(place, f"GPU {gpu_index} is whole and cut at once; remove the device or its instances")


def placed(gpu_type: str, names: Sequence[str], place: str) -> tuple[Instance, ...]:
    """Instances of these profiles on one GPU, in the order of `names`.

    Raises InputError, beginning with `place`, if the GPU type has no such profile, or if they don't fit together. Example:
    an A100 with 40 GB takes 4g.20gb and 3g.20gb, but not two of 4g.20gb, which begin at the same slice.
    """
    known = mig_profiles(gpu_type)
    if not known:
        raise InputError(place, f"{gpu_type} has no MIG; types with MIG: {', '.join(_MEMORY_GB)}")
    for name in names:
        if name not in known:
            raise UnknownNameError(place, f"MIG profile of {gpu_type}", name, known)
    wanted = sorted(enumerate(known[name] for name in names), key=lambda item: -item[1].memory_slices)
    found = _placed([profile for _, profile in wanted], ())
    if found is None:
        raise InputError(
            place, f"{' + '.join(names)} don't fit on one {gpu_type} together; use fewer or smaller instances"
        )
    by_number = {number: instance for (number, _), instance in zip(wanted, found, strict=True)}
    return tuple(by_number[number] for number in range(len(names)))


def _placed(wanted: Sequence[MigProfile], beside: tuple[Instance, ...]) -> tuple[Instance, ...] | None:
    """Places the rest one after the other, from the last place on, which leaves room for profiles that begin at 0."""
    if not wanted:
        return beside
    if sum(profile.compute_slices for profile in wanted) > COMPUTE_SLICES - sum(
        i.profile.compute_slices for i in beside
    ):
        return None
    for start in reversed(wanted[0].starts):
        instance = Instance(wanted[0], start)
        if not any(instance.overlaps(other) for other in beside):
            found = _placed(wanted[1:], (*beside, instance))
            if found is not None:
                return found
    return None
