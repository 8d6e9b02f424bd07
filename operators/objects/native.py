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
from operators.objects.quantities import parse_quantity
from operators.objects.selector import is_key

DEFAULT_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
RESIZABLE = ("cpu", "memory")
ALIAS = "emuGPU"
OURS = "emugpu.dev"
_BUILT_IN = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
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
    for name in limits:
        if name in requests:
            _check_pair(members["limits"].members(limits)[name], name, requests[name])
    for name in requests:
        if name not in limits and not _is_built_in(name):
            raise members["requests"].error(f"{name} is a device's resource: give it in limits")
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
    for name, member in members.items():
        _check_name(member, name)
        if amount_of(member).denominator != 1 and not _is_built_in(name):
            raise member.error(f"must be a whole number, not {member.value}")
    return {name: str(member.value) for name, member in members.items()}


def _check_name(document: Field, name: str) -> None:
    """The Job would be refused with a resource that nobody has, or that we add to it ourselves."""
    domain, slash, own = name.rpartition("/")
    if name == ALIAS or (slash and (domain == OURS or domain.endswith(f".{OURS}"))):
        raise document.error(
            "is counted by spec.resources.emuGPU; here is what the pods ask of their machine beside it"
        )
    built_in = not slash and (own in _BUILT_IN or own.startswith(_HUGE))
    if not built_in and not (slash and is_key(name)):
        raise document.error(f"is no resource: {', '.join(_BUILT_IN)}, {_HUGE}SIZE or DOMAIN/NAME")


def _check_pair(limit: Field, name: str, request: str) -> None:
    most, asked = amount_of(limit), _exact(request)
    if asked > most:
        raise limit.error(f"{limit.value} is below the request, {request}")
    if asked != most and not _is_built_in(name):
        raise limit.error(f"{limit.value} must be the same as the request, {request}: it can't be shared")


def _is_built_in(name: str) -> bool:
    """Whether the machine may give less than the limit (Kubernetes: overcommit)."""
    return name in _BUILT_IN


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
