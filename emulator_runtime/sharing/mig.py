"""Multi-Instance GPU: which profiles a GPU type has, and where their instances may be placed beside each other.

A GPU has 7 compute slices and 8 memory slices. An instance of a profile takes some of both; its memory slices must begin at
one of few places. Profiles and places are those that `nvidia-smi mig -lgip` and `-lgipp` list (NVIDIA Multi-Instance GPU User
Guide, release 580, "Supported MIG Profiles"); media extensions (+me, +gfx) are left out, since nothing of them is emulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.sharing.constant_rate import ConstantRate
from emulator_runtime.sharing.demands import WHOLE_MILLI

COMPUTE_SLICES, MEMORY_SLICES = 7, 8
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
        return WHOLE_MILLI * self.compute_slices // COMPUTE_SLICES

    def memory_bytes(self, device_bytes: int) -> int:
        """Its part of a GPU with so much memory (a real instance has up to 3% less)."""
        return device_bytes * self.memory_slices // MEMORY_SLICES

    def engine(self) -> ConstantRate:
        """An instance is a device of its own for one session."""
        return ConstantRate(self.rate_milli)


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
