"""What the pods of an EmuJob really ask of their machine: little, since nothing is computed there; on demand a share of the
emulated CPUs and memory, which follows them when a scheduler divides them anew (spec.native.follow).

Source of what may change while a container runs: Kubernetes, "Resize CPU and Memory Resources assigned to Containers": requests
and limits of cpu and memory, but never the pod's QoS class. So what is asked only grows above what is stated, and a limit keeps
its distance from the request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.node.fields import Field
from operators.quantity import parse_quantity

DEFAULT_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
RESIZABLE = ("cpu", "memory")
_MIB = 2**20

Amounts = Mapping[str, str]
"""Quantities by resource, as Kubernetes writes them."""


@dataclass(frozen=True, slots=True)
class Native:
    """`requests` and `limits` as stated, or by default. `follow`: the real amount for each emulated one, by cpu and memory."""

    requests: Amounts = field(default_factory=lambda: dict(DEFAULT_REQUESTS))
    limits: Amounts = field(default_factory=dict)
    follow: Mapping[str, Fraction] = field(default_factory=dict)

    def resources(self, share: HostShare) -> tuple[dict[str, str], dict[str, str]]:
        """Requests and limits of each pod with this share of emulated CPUs and memory."""
        requests, limits = dict(self.requests), dict(self.limits)
        for name, ratio in self.follow.items():
            stated = requests.setdefault(name, limits.get(name, "0"))  # as the API server fills it in
            more = _rounded(ratio * _emulated(share, name), name) - _exact(stated)
            if more > 0:
                requests[name] = _text(_exact(stated) + more, name)
                if name in limits:
                    limits[name] = _text(_exact(limits[name]) + more, name)
        return requests, limits

    def followed(self, share: HostShare) -> tuple[dict[str, str], dict[str, str]]:
        """Those of them that follow the share."""
        requests, limits = self.resources(share)
        return {n: requests[n] for n in self.follow}, {n: limits[n] for n in self.follow if n in limits}


def parse_native(document: Field | None) -> Native:
    """Of spec.native; None: nothing is stated. Raises InputError naming the field."""
    members = document.members(("requests", "limits", "follow")) if document is not None else {}
    limits = _amounts(members.get("limits"))
    defaults = {name: amount for name, amount in DEFAULT_REQUESTS.items() if name not in limits}
    requests = {**defaults, **_amounts(members.get("requests"))}
    follow = {}
    for name, member in members["follow"].members(RESIZABLE).items() if "follow" in members else ():
        follow[name] = amount_of(member)
        if not 0 < follow[name] <= 1:
            raise member.error(
                f"must be the real amount for each emulated one, above 0 and at most 1, not {member.value}"
            )
        if not _exact(requests.get(name, limits.get(name, "0"))):
            raise member.error(f"needs a request of {name} above 0, from which it grows")
    return Native(requests, limits, follow)


def amount_of(document: Field) -> Fraction:
    """A quantity from 0 on, written as a number or a text. Raises InputError naming the field."""
    text = str(document.value) if type(document.value) in (int, float) else document.text()
    amount = parse_quantity(text, f"{document.place}: {document.path}")
    if amount < 0:
        raise document.error(f"must not be negative, got {text}")
    return amount


def exact_amounts(amounts: Amounts) -> dict[str, Fraction]:
    """The numbers that they mean, however they are written; what is no quantity is left out."""
    found = {}
    for name, text in amounts.items():
        with contextlib.suppress(InputError):
            found[name] = _exact(text)
    return found


def _amounts(document: Field | None) -> dict[str, str]:
    if document is None:
        return {}
    members = document.members(document.value if isinstance(document.value, dict) else {})
    for member in members.values():
        amount_of(member)
    return {name: str(member.value) for name, member in members.items()}


def _exact(text: str) -> Fraction:
    return parse_quantity(text, "resources")


def _emulated(share: HostShare, name: str) -> Fraction:
    return Fraction(share.cpu_milli, 1000) if name == "cpu" else Fraction(share.memory_bytes)


def _rounded(amount: Fraction, name: str) -> Fraction:
    """Up to thousandths of a CPU, or to MiB."""
    return Fraction(ceil(amount * 1000), 1000) if name == "cpu" else Fraction(ceil(amount / _MIB) * _MIB)


def _text(amount: Fraction, name: str) -> str:
    if name == "cpu":
        return f"{ceil(amount * 1000)}m"
    whole = ceil(amount)
    return f"{whole // _MIB}Mi" if whole % _MIB == 0 else str(whole)
