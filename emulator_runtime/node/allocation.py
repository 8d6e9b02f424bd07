"""What a job-level scheduler gives a job, as an annotation of the Job's pod template and pods says it.

{"configuration": "gpu", "nodes": ["worker1"], "cpu_milli": 4000, "memory_bytes": 17179869184, "row": 7,
 "devices": ["EMU-..."], "milli": [500], "priority": [0]}

`cpu_milli` and `memory_bytes` are emulated amounts of each node; 0 or missing: those of the job's configuration. The scheduler
may change them while the job runs. `devices` are those of all nodes; `milli` (thousandths of the device) and `priority` have a
number for each of them, or are missing where nobody shares them. `row`: the job's place in its workload. An elastic job also
has `gpus`, its GPUs on each node, and `batch_size`, the samples of a step on all of them, if it differs from the submitted one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from emulator_runtime.domain.json_document import Field, parse
from emulator_runtime.domain.samples import MAX_BATCH_SIZE
from emulator_runtime.domain.sensitivity import HostShare

ALLOCATION_ANNOTATION = "emugpu.dev/allocation"
_MOST_NODES = 1024
_MOST_PRIORITY = 2**31
_WHOLE_MILLI = 1000
_MOST_GPUS = 1024


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where and how a job runs; `devices` empty: whichever the kubelet takes. `nodes` empty: not stated. `gpus` and
    `batch_size` 0: those of the configuration."""

    configuration: str = ""
    nodes: tuple[str, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    devices: tuple[str, ...] = ()
    milli: tuple[int, ...] = ()
    priority: tuple[int, ...] = ()
    row: int = 0
    gpus: int = 0
    batch_size: int = 0

    @property
    def host(self) -> HostShare:
        """The CPUs and host memory of each node."""
        return HostShare(self.cpu_milli, self.memory_bytes)

    def to_json(self) -> str:
        """One line of JSON, the same for equal allocations."""
        document: dict[str, object] = {
            "configuration": self.configuration,
            "nodes": list(self.nodes),
            "cpu_milli": self.cpu_milli,
            "memory_bytes": self.memory_bytes,
            "devices": list(self.devices),
        }
        if self.milli:
            document |= {"milli": list(self.milli), "priority": list(self.priority), "row": self.row}
        document |= {name: value for name, value in (("gpus", self.gpus), ("batch_size", self.batch_size)) if value}
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, place: str) -> Allocation:
        """Raises InputError naming `place` and the member that is wrong. Unknown members are those of a newer scheduler."""
        document = parse(text, place)
        if not isinstance(document.value, dict):
            raise document.error("must be an object, as job-level schedulers write it")
        members = document.members((), tuple(document.value))
        nodes = _elements(members, "nodes")
        if len(nodes) > _MOST_NODES:
            raise members["nodes"].error(f"must name {_MOST_NODES} nodes at most")
        found = cls(
            configuration=members["configuration"].text() if "configuration" in members else "",
            nodes=tuple(name.text(least=1, most=253) for name in nodes),
            cpu_milli=_amount(members, "cpu_milli"),
            memory_bytes=_amount(members, "memory_bytes"),
            devices=tuple(uuid.text(least=1) for uuid in _elements(members, "devices")),
            milli=tuple(each.whole(least=1, most=_WHOLE_MILLI) for each in _elements(members, "milli")),
            priority=tuple(
                each.whole(least=-_MOST_PRIORITY, most=_MOST_PRIORITY) for each in _elements(members, "priority")
            ),
            row=_amount(members, "row"),
            gpus=_amount(members, "gpus", _MOST_GPUS),
            batch_size=_amount(members, "batch_size", MAX_BATCH_SIZE),
        )
        for name in ("milli", "priority"):
            if (numbers := len(getattr(found, name))) not in (0, len(found.devices)):
                raise members[name].error(f"must have a number for each of {len(found.devices)} devices, not {numbers}")
        return found


def _amount(members: dict[str, Field], name: str, most: int = 2**53) -> int:
    return members[name].whole(most=most) if name in members else 0


def _elements(members: dict[str, Field], name: str) -> list[Field]:
    return members[name].elements() if name in members else []
