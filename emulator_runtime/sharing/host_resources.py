"""How the jobs of a node share its storage, its network and its links: all at once, each with an equal part."""

from __future__ import annotations

from emulator_runtime.domain.stages import HostResource
from emulator_runtime.sharing.processor_sharing import ProcessorSharing


def engine_of(resource: HostResource) -> ProcessorSharing:
    """The engine that divides the resource."""
    return ProcessorSharing(lambda _number: resource.speed)
