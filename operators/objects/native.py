"""spec.native of an EmuJob: what its pods really request of their machine. Little, since nothing is computed there; on demand a
share of the emulated CPUs and memory, which follows them when a scheduler changes them (spec.native.follow).

Source of what may change while a container runs: Kubernetes, "Resize CPU and Memory Resources assigned to Containers": requests
and limits of cpu and memory, but never the pod's QoS class. So requests only grow above what is stated, and a limit keeps its
distance from the request.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Annotated, Self

from annotated_types import Len
from pydantic import Field, model_validator

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.sensitivity import HostShare
from operators.kube.quantities import parse_quantity
from operators.objects.custom_resource import Part, Rule, Scalar, Schema, problem
from operators.objects.forms import QUANTITY_SCHEMA, is_key, read_amount

DEFAULT_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
RESIZABLE = ("cpu", "memory")
ALIAS = "emuGPU"
OURS = "emugpu.dev"
_BUILT_IN = ("cpu", "memory", "ephemeral-storage")
_HUGE = "hugepages-"
_MIB = 2**20

Amounts = Mapping[str, str]
"""Quantities by resource, as Kubernetes writes them."""


def _read_written(value: object) -> str:
    """A quantity, kept as it is written."""
    read_amount(value)
    return str(value)


def _read_ratio(value: object) -> Fraction:
    ratio = read_amount(value)
    if not 0 < ratio <= 1:
        raise problem(f"must be the real amount for each emulated one, above 0 and at most 1, not {value}")
    return ratio


_RATIO_RULE = Rule(
    'write the real amount for each emulated one, above 0 and at most 1, such as "0.05" or 50m',
    "type(self) == string ? isQuantity(self) && quantity(self).isGreaterThan(quantity('0')) && "
    "!quantity(self).isGreaterThan(quantity('1')) : self == 1",
)
Ratio = Annotated[Fraction, Scalar(_read_ratio, QUANTITY_SCHEMA, (_RATIO_RULE,))]
Written = Annotated[str, Scalar(_read_written, QUANTITY_SCHEMA)]


def _check_names(amounts: Amounts) -> Amounts:
    """Kubernetes would refuse the Job for a resource that no node has, or that the operator adds to it."""
    for name, text in amounts.items():
        domain, slash, own = name.rpartition("/")
        if name == ALIAS or (slash and (domain == OURS or domain.endswith(f".{OURS}"))):
            raise problem(
                "is counted by spec.resources.emuGPU; native says what the pods request of their machine", name
            )
        built_in = not slash and (own in _BUILT_IN or own.startswith(_HUGE))
        if not built_in and not (slash and is_key(name)):
            raise problem(f"is no resource: {', '.join(_BUILT_IN)}, {_HUGE}SIZE or DOMAIN/NAME", name)
        if _exact(text).denominator != 1 and not _is_built_in(name):
            raise problem(f"must be a whole number, not {text}", name)
    return amounts


_RESOURCES = Schema(
    Rule(
        "emulated GPUs are counted by spec.resources.emuGPU; native says what the pods request of their machine",
        "self.all(name, name != 'emuGPU' && !name.startsWith('emugpu.dev/'))",
        lambda amounts: bool(_check_names(amounts)) or not amounts,
    ),
)
ResourceAmounts = Annotated[dict[str, Written], Len(max_length=8), _RESOURCES]


class Follow(Part):
    """The real amount for each emulated one."""

    keywords = {"minProperties": 1}
    cpu: Ratio | None = None
    memory: Ratio | None = None


class Native(Part):
    """What the pods request. `stated`, `limits`: as written; `requests`: with the defaults."""

    stated: ResourceAmounts = Field({}, alias="requests")
    limits: ResourceAmounts = {}
    shares: Follow = Field(
        Follow.model_construct(),
        alias="follow",
        description="Share of the job's emulated CPUs and memory that the pods request in addition, also while the job runs "
        "(pods/resize, Kubernetes 1.35): the real amount for each emulated CPU or byte, above 0 and at most 1. A resource that "
        "is absent here follows nothing.",
    )

    @cached_property
    def requests(self) -> Amounts:
        defaults = {name: amount for name, amount in DEFAULT_REQUESTS.items() if name not in self.limits}
        return {**defaults, **self.stated}

    @cached_property
    def follow(self) -> Mapping[str, Fraction]:
        """The real amount for each emulated one, by cpu and memory."""
        ratios = {"cpu": self.shares.cpu, "memory": self.shares.memory}
        return {name: ratio for name, ratio in ratios.items() if ratio is not None}

    @model_validator(mode="after")
    def _check_amounts(self) -> Self:
        for name, limit in self.limits.items():
            if name in self.requests:
                _check_pair(name, limit, self.requests[name])
        for name in self.requests:
            if name not in self.limits and not _is_built_in(name):
                raise problem(f"{name} is a device's resource: give it in limits", "requests")
        for name in self.follow:
            if not _exact(self.requests.get(name, self.limits.get(name, "0"))):
                raise problem(f"needs a request of {name} above 0, from which it grows", "follow", name)
        return self

    def resources(self, share: HostShare) -> tuple[dict[str, str], dict[str, str]]:
        """Requests and limits of each pod with this share of emulated CPUs and memory.

        Example: follow.cpu 50m, request 10m, 4 emulated CPUs: 200m are requested.
        """
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
        """The part of `resources` that follows the share."""
        requests, limits = self.resources(share)
        return {n: requests[n] for n in self.follow}, {n: limits[n] for n in self.follow if n in limits}


def exact_amounts(amounts: Amounts) -> dict[str, Fraction]:
    """Quantities as numbers; a text that is no quantity is left out."""
    found = {}
    for name, text in amounts.items():
        with contextlib.suppress(InputError):
            found[name] = _exact(text)
    return found


def _check_pair(name: str, limit: str, request: str) -> None:
    most, asked = _exact(limit), _exact(request)
    if asked > most:
        raise problem(f"{limit} is below the request, {request}", "limits", name)
    if asked != most and not _is_built_in(name):
        raise problem(f"{limit} must be the same as the request, {request}: it can't be shared", "limits", name)


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
