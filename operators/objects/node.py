"""A Node as the API server sends it, read once for all programs.

Other people's programs write to Nodes, so a missing or malformed member reads as "not there" and never as an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import INVENTORY_ANNOTATION
from operators.kube.documents import object_at, objects_in, text_at, texts_of
from operators.kube.quantities import parse_quantity

FIELD_MANAGER = "emugpu-pools"
"""The pool controller owns fields of Nodes and pools under this name (Kubernetes API concepts, server-side apply)."""
POOL_LABEL = "emugpu.dev/pool"
HOSTNAME_LABEL = "kubernetes.io/hostname"
"""Set by the node's kubelet; node selectors and topology keys refer to it (Kubernetes, well-known labels)."""

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


@dataclass(frozen=True, slots=True)
class Node:
    """`owned`: the labels and annotations that the pool controller has applied, as `labels/<key>`, `annotations/<key>`.

    `annotations` has the inventory only. `cordoned`: nothing new is scheduled there. `allocatable`: extended resources, as the
    kubelet offers them. `cpu_milli`, `memory_bytes`: the machine's own capacity, 0 where it isn't known.
    """

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owned: frozenset[str] = frozenset()
    control_plane: bool = False
    ready: bool = True
    cordoned: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_bytes: int = 0

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """A Node as the API server sends it."""
        metadata, spec, status = (object_at(document, part) for part in ("metadata", "spec", "status"))
        labels = texts_of(metadata, "labels")
        roles = {*labels, *(taint.get("key") for taint in objects_in(spec, "taints"))}
        ready = [c.get("status") for c in objects_in(status, "conditions") if c.get("type") == "Ready"]
        # Other annotations may be large, and there may be thousands of Nodes.
        annotations = {k: v for k, v in texts_of(metadata, "annotations").items() if k == INVENTORY_ANNOTATION}
        return cls(
            name=text_at(metadata, "name"),
            uid=text_at(metadata, "uid"),
            labels=labels,
            annotations=annotations,
            owned=frozenset(_owned(metadata)),
            control_plane=any(role in roles for role in _CONTROL_PLANE),
            ready=ready == ["True"],
            cordoned=spec.get("unschedulable") is True,
            allocatable=dict(_extended_resources(status)),
            cpu_milli=int(_capacity(status, "cpu") * 1000),
            memory_bytes=int(_capacity(status, "memory")),
        )

    @property
    def pool(self) -> str:
        """The pool whose devices the node has, by its label; empty for none."""
        return self.labels.get(POOL_LABEL, "")

    @property
    def hostname(self) -> str:
        """The value by which a node selector names it."""
        return self.labels.get(HOSTNAME_LABEL, self.name)

    @property
    def inventory_text(self) -> str | None:
        return self.annotations.get(INVENTORY_ANNOTATION)

    def inventory(self) -> Inventory | None:
        """The devices that its pool gave the node; None for none. Raises InputError for a format that this version can't read."""
        text = self.inventory_text
        return None if text is None else Inventory.from_json(text, f"inventory of node {self.name}")


def _owned(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Keys below metadata that the pool controller has applied, from managedFields (fieldsV1: `f:<name>` for each name)."""
    for entry in objects_in(metadata, "managedFields"):
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply":
            fields = object_at(entry, "fieldsV1", "f:metadata")
            for part in ("labels", "annotations"):
                yield from (f"{part}/{key[2:]}" for key in object_at(fields, f"f:{part}") if key.startswith("f:"))


def _extended_resources(status: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Names with a domain; their amounts are whole numbers."""
    for name, amount in object_at(status, "allocatable").items():
        if "/" in name:
            try:
                yield name, int(parse_quantity(str(amount), name))
            except InputError:
                continue


def _capacity(status: Mapping[str, Any], name: str) -> Fraction:
    try:
        return parse_quantity(str(object_at(status, "capacity").get(name, "0")), name)
    except InputError:
        return Fraction(0)
