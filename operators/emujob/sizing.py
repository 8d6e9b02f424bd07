"""What a pod's container asks of its machine, and what its kubelet says to that: read from the pod as the API server sends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from operators.kube.documents import condition_of, object_at, objects_in, text_at, texts_of, whole_at
from operators.objects.names import CONTAINER
from operators.objects.native import RESIZABLE, exact_amounts

GOES_ON = "InProgress"
_OTHERWISE = {"PodResizePending": "Deferred", "PodResizeInProgress": GOES_ON}
"""Conditions of a pod whose container hasn't what it asks for (core/v1), and their reason where none is given."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """CPUs and bytes. `trouble`: reason (Infeasible, Deferred, Error, InProgress) and message while the container doesn't have
    what it asks for; `heard`: its kubelet has seen what it asks for now."""

    requests: Mapping[str, Fraction] = field(default_factory=dict)
    limits: Mapping[str, Fraction] = field(default_factory=dict)
    trouble: tuple[str, str] = ("", "")
    heard: bool = True


def sizing_of(pod: Mapping[str, Any]) -> Sizing:
    """Of the container that the operator made; others may have been put beside it."""
    containers = [c for c in objects_in(object_at(pod, "spec"), "containers") if text_at(c, "name") == CONTAINER]
    resources = object_at(containers[0], "resources") if containers else {}
    requests, limits = (_resizable(texts_of(resources, kind)) for kind in ("requests", "limits"))
    generation, status = whole_at(object_at(pod, "metadata"), "generation"), object_at(pod, "status")
    heard = (
        whole_at(status, "observedGeneration") or generation
    )  # 0: seen by no kubelet yet, or by one that doesn't say it
    return Sizing(requests, limits, _trouble(status), heard >= generation)


def _resizable(amounts: Mapping[str, str]) -> dict[str, Fraction]:
    return exact_amounts({name: amount for name, amount in amounts.items() if name in RESIZABLE})


def _trouble(status: Mapping[str, Any]) -> tuple[str, str]:
    for kind, otherwise in _OTHERWISE.items():
        condition = condition_of(status, kind)
        if condition.get("status") == "True":
            return text_at(condition, "reason") or otherwise, text_at(condition, "message")
    return "", ""
