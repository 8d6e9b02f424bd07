"""What a job-level scheduler gives a job, as the annotation of the Job's pod template says it.

{"configuration": "gpu", "nodes": ["worker1"], "cpu_milli": 4000, "memory_bytes": 17179869184, "devices": ["EMU-..."]}

`cpu_milli` and `memory_bytes` are emulated amounts of each node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.json_document import parse

_MOST_NODES = 1024


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where and how a job runs; `devices` empty: whichever the kubelet takes."""

    configuration: str
    nodes: tuple[str, ...]
    cpu_milli: int = 0
    memory_bytes: int = 0
    devices: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One line of JSON, the same for equal allocations."""
        document = {
            "configuration": self.configuration,
            "nodes": list(self.nodes),
            "cpu_milli": self.cpu_milli,
            "memory_bytes": self.memory_bytes,
            "devices": list(self.devices),
        }
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, place: str) -> Allocation:
        """Raises InputError naming `place` and the field that is wrong."""
        members = parse(text, place).members(("configuration", "nodes"), ("cpu_milli", "memory_bytes", "devices"))
        nodes = tuple(name.text(least=1, most=253) for name in members["nodes"].elements())
        if not 0 < len(nodes) <= _MOST_NODES:
            raise members["nodes"].error(f"must name 1 to {_MOST_NODES} nodes")
        return cls(
            configuration=members["configuration"].text(),
            nodes=nodes,
            cpu_milli=members["cpu_milli"].whole() if "cpu_milli" in members else 0,
            memory_bytes=members["memory_bytes"].whole() if "memory_bytes" in members else 0,
            devices=tuple(d.text() for d in members["devices"].elements()) if "devices" in members else (),
        )

    def to_status(self, gpus: int) -> Mapping[str, Any]:
        """The status member; `gpus` of the whole job."""
        return {
            "configuration": self.configuration,
            "nodes": list(self.nodes),
            "gpus": gpus,
            "cpu": f"{self.cpu_milli}m",
            "memory": str(self.memory_bytes),
            "devices": list(self.devices),
        }


def read_allocation(text: str, place: str) -> Allocation | None:
    """The allocation; None where there is none, or one that can't be read (its scheduler's mistake, not the job's)."""
    try:
        return Allocation.from_json(text, place) if text else None
    except InputError:
        return None
