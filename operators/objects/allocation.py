"""A job-level scheduler's annotation (emulator_runtime/node/allocation.py) as operators read it, and as a status has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.allocation import Allocation


def read_allocation(text: str, place: str) -> Allocation | None:
    """The allocation; None where there is none, or one that can't be read (its scheduler's mistake, not the job's)."""
    try:
        found = Allocation.from_json(text, place) if text else None
    except InputError:
        return None
    return found if found is not None and found.configuration and found.nodes else None


def allocation_status(allocation: Allocation, gpus: int, batch_size: int) -> Mapping[str, Any]:
    """The status member; `gpus` of the whole job. `batch_size`: of an elastic job, else 0."""
    return {
        "configuration": allocation.configuration,
        "nodes": list(allocation.nodes),
        "gpus": gpus,
        "cpu": f"{allocation.cpu_milli}m",
        "memory": str(allocation.memory_bytes),
        "devices": list(allocation.devices),
        **({"batchSize": batch_size} if batch_size else {}),
    }
