"""What the controller knows of Nodes and pools: the border where the API's JSON becomes types.

Other people's programs write to Nodes, so whatever is missing or odd in one is read as "not there", never as an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.layout import INVENTORY_ANNOTATION
from operators.kube.documents import object_at, objects_in, texts_of
from operators.objects.quantities import parse_quantity

FIELD_MANAGER = "emugpu-pools"
"""Under this name the controller owns fields of Nodes and pools (Kubernetes API concepts, server-side apply)."""
POOL_LABEL = "emugpu.dev/pool"
HOSTNAME_LABEL = "kubernetes.io/hostname"
"""Of each Node, set by its kubelet: what node selectors and topology keys can name (Kubernetes, well-known labels)."""

_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One Node. `owned`: the labels and annotations that this controller has applied, as `labels/<key>`, `annotations/<key>`.

    `cordoned`: nothing new is to come there. `cpu_milli`, `memory_bytes`: the machine's own capacity, 0 where it isn't known.
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

    @property
    def pool(self) -> str:
        """The pool whose devices the node has, as its label says; empty for none."""
        return self.labels.get(POOL_LABEL, "")

    @property
    def hostname(self) -> str:
        """What a node selector calls it."""
        return self.labels.get(HOSTNAME_LABEL, self.name)

    @property
    def inventory_text(self) -> str | None:
        return self.annotations.get(INVENTORY_ANNOTATION)


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One EmuGPUPool. `created` is an RFC 3339 time, which sorts as text; `status` is what the API server has."""

    name: str
    uid: str
    created: str
    generation: int = 1
    deleting: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


def node_facts(document: Mapping[str, Any]) -> NodeFacts:
    """A Node as the API server sends it."""
    metadata, status = object_at(document, "metadata"), object_at(document, "status")
    labels, taints = texts_of(metadata, "labels"), objects_in(object_at(document, "spec"), "taints")
    roles = {*labels, *(taint.get("key") for taint in taints)}
    ready = [c.get("status") for c in objects_in(status, "conditions") if c.get("type") == "Ready"]
    # Only our own annotation is kept: the others may be large, and there may be thousands of Nodes.
    annotations = {k: v for k, v in texts_of(metadata, "annotations").items() if k == INVENTORY_ANNOTATION}
    return NodeFacts(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        labels=labels,
        annotations=annotations,
        owned=frozenset(_owned(metadata)),
        control_plane=any(role in roles for role in _CONTROL_PLANE),
        ready=ready == ["True"],
        cordoned=object_at(document, "spec").get("unschedulable") is True,
        allocatable=dict(_counts(status)),
        cpu_milli=int(_capacity(status, "cpu") * 1000),
        memory_bytes=int(_capacity(status, "memory")),
    )


def pool_facts(document: Mapping[str, Any]) -> PoolFacts:
    """An EmuGPUPool as the API server sends it."""
    metadata = object_at(document, "metadata")
    return PoolFacts(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        created=str(metadata.get("creationTimestamp", "")),
        generation=int(metadata.get("generation", 0)),
        deleting=metadata.get("deletionTimestamp") is not None,
        spec=object_at(document, "spec"),
        status=object_at(document, "status"),
    )


def _owned(metadata: Mapping[str, Any]) -> list[str]:
    """Keys below metadata that our field manager has applied, from managedFields (fieldsV1: `f:<name>` for each name)."""
    found: list[str] = []
    for entry in objects_in(metadata, "managedFields"):
        if entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Apply":
            fields = object_at(entry, "fieldsV1", "f:metadata")
            for part in ("labels", "annotations"):
                found += [f"{part}/{key[2:]}" for key in object_at(fields, f"f:{part}") if key.startswith("f:")]
    return found


def _counts(status: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Extended resources of the node; their amounts are whole numbers."""
    counts: list[tuple[str, int]] = []
    for name, amount in object_at(status, "allocatable").items():
        if "/" in name:
            try:
                counts.append((name, int(parse_quantity(str(amount), name))))
            except InputError:
                continue
    return counts


def _capacity(status: Mapping[str, Any], name: str) -> Fraction:
    try:
        return parse_quantity(str(object_at(status, "capacity").get(name, "0")), name)
    except InputError:
        return Fraction(0)
