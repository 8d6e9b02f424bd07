"""The GPU types that can be emulated, with the names that NVIDIA's tools print and short aliases.

The catalogue has the memory and the links of a GPU type. Step times of models on it are in the profiles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.mig import (
    TYPE_SEPARATOR,
    MigProfile,
    instance_type,
    instance_types,
    mig_profiles,
    profile_of,
)
from emulator_runtime.domain.units import MIB

_DATA = Path(__file__).with_name("gpus.json")


def gpu_spec(name: str, place: str) -> GpuSpec:
    """The GPU type `name`, which may be an alias such as V100. Raises UnknownNameError naming `place`."""
    return bundled_catalogue().spec(name, place)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """GPU types by canonical name, and their aliases (keys as returned by `spelling`)."""

    specs: Mapping[str, GpuSpec]
    aliases: Mapping[str, str]

    def find(self, name: str) -> str | None:
        """The canonical name of `name`; case is ignored, and `-`, `_` and blanks are equal. None if there is none."""
        wanted = spelling(name)
        if wanted in self.aliases:
            return self.aliases[wanted]
        whole, profile = self._cut(wanted)
        return instance_type(whole, profile) if profile in mig_profiles(whole) else None

    def spec(self, name: str, place: str) -> GpuSpec:
        """The GPU type `name`, which may be that of a MIG instance. Raises UnknownNameError naming `place`."""
        canonical = self.find(name)
        if canonical is None:
            whole, _ = self._cut(spelling(name))
            raise UnknownNameError(place, "GPU type", name, instance_types(whole) or self.specs)
        whole, profile = profile_of(canonical)
        spec = self.specs[whole]
        return spec if profile is None else _instance(spec, profile)

    def _cut(self, wanted: str) -> tuple[str, str]:
        """The whole GPU's type, "" if there is none, and the profile, in a name in its compared form."""
        alias, _, profile = wanted.rpartition(spelling(TYPE_SEPARATOR))
        return self.aliases.get(alias, ""), profile

    def short_names(self, gpu_type: str) -> tuple[str, ...]:
        """The aliases of a canonical name."""
        own = spelling(gpu_type)
        return tuple(alias.upper() for alias, name in self.aliases.items() if name == gpu_type and alias != own)

    def with_spec(self, spec: GpuSpec) -> Catalogue:
        """A new catalogue with `spec` added; the caller has checked that its name isn't used."""
        specs = {**self.specs, spec.gpu_type: spec}
        aliases = {**self.aliases, spelling(spec.gpu_type): spec.gpu_type}
        return Catalogue(MappingProxyType(specs), MappingProxyType(aliases))


def spelling(name: str) -> str:
    """The form in which names are compared: lower case, words joined by hyphens."""
    return name.strip().casefold().replace("_", "-").replace(" ", "-")


@cache
def bundled_catalogue() -> Catalogue:
    """The catalogue that is distributed with emugpu; constant, so it is read once."""
    rows = json.loads(_DATA.read_text(encoding="utf-8"))["gpus"]
    specs = {row["gpu_type"]: _spec(row) for row in rows}
    aliases = {spelling(name): row["gpu_type"] for row in rows for name in (row["gpu_type"], *row["aliases"])}
    return Catalogue(MappingProxyType(specs), MappingProxyType(aliases))


def _instance(spec: GpuSpec, profile: MigProfile) -> GpuSpec:
    """An instance has its part of the memory and of the host link. It has no peer link: instances communicate through the host
    (NVIDIA Multi-Instance GPU User Guide, release 580, "Application Considerations")."""
    return replace(
        spec,
        gpu_type=instance_type(spec.gpu_type, profile.name),
        memory_bytes=profile.memory_bytes(spec.memory_bytes),
        host_link_bytes_per_s=spec.host_link_bytes_per_s * profile.rate_milli / 1000,
        peer_link_bytes_per_s=0.0,
        step_times_of=spec.gpu_type,
    )


def _spec(row: Mapping[str, str | float]) -> GpuSpec:
    return GpuSpec(
        gpu_type=str(row["gpu_type"]),
        memory_bytes=int(row["memory_mib"]) * MIB,
        host_link_bytes_per_s=float(row["host_link_gb_per_s"]) * 1e9,
        peer_link_bytes_per_s=float(row["peer_link_gb_per_s"]) * 1e9,
        architecture=str(row["architecture"]),
        compute_capability=str(row["compute_capability"]),
        source=str(row["source"]),
        step_times_of=str(row.get("step_times_of", "")),
    )
