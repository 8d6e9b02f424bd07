"""The webhook's answer as a pure function: replaces the short resource name in containers' resources by the full one.

Kubernetes refuses a resource name without a domain (API validation of containers, after mutating admission), so the
short name can only be offered by rewriting it before. The chart's MutatingAdmissionPolicy does the same in CEL; one table
of cases is tested against both.

Rules: a container may name the alias in limits, requests or both; requests alone count as limits too, because extended
resources can't be overcommitted. A count must be a whole number >= 0. If the manifest has the full name too, with another
count, it is refused. Exception: that count is from the old object (an edit of a manifest with the alias reaches the API server
as alias beside full name) or from a LimitRange; then the alias wins.
Sources: JSON Patch, RFC 6902; admission.k8s.io/v1; the annotation is that of Kubernetes' admission plugin LimitRanger.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

from emulator_runtime.domain.errors import InputError, ProtocolError
from emulator_runtime.node.layout import GPU_RESOURCE
from operators.kube.quantities import parse_quantity

ALIAS = "emuGPU"
LIMIT_RANGER = "kubernetes.io/limit-ranger"
"""A pod's annotation that lists which resources a LimitRange has filled in, as text."""

PARTS = ("limits", "requests")
MOST_DEVICES = 2**31 - 1
"""More than any node has; the chart's policy has the same bound (emugpu.mostDevices), since CEL's whole numbers overflow."""

_POD_SPEC = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
}
_TEMPLATE_SPEC = ("spec", "template", "spec")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod or pod template; `path` are the keys that lead to it."""

    path: tuple[str, ...]
    name: str
    resources: Mapping[str, Any]

    def amount(self, part: str, resource: str) -> str | None:
        """The amount of `resource` in `part` (limits or requests); None if there is none."""
        amounts = self.resources.get(part)
        value = amounts.get(resource) if isinstance(amounts, dict) else None
        return None if value is None else str(value)

    @property
    def place(self) -> str:
        """The path in messages: spec.containers[0]."""
        return f"{'.'.join(self.path[:-1])}[{self.path[-1]}]"

    @property
    def described(self) -> str:
        """The path with the container's name."""
        return f'{self.place} ("{self.name}")'


def review(body: object, alias: str = ALIAS, resource: str = GPU_RESOURCE) -> Json:
    """The AdmissionReview that answers `body`. Raises ProtocolError if `body` is not an AdmissionReview, or of a deletion."""
    request = _member(body, "request")
    uid, kind, document = _member(request, "uid"), _member(_member(request, "kind"), "kind"), _member(request, "object")
    asking = [c for c in containers(str(kind), document) if _asks(c, alias)]
    response: Json = {"uid": uid, "allowed": True}
    stood = {
        (c.name, part): c.amount(part, resource)
        for c in containers(str(kind), request.get("oldObject"))
        for part in PARTS
    }
    miscounts = (_miscount(c, alias) for c in asking)
    clashes = (_clash(c, alias, resource, stood) for c in asking if not _is_limited(document, resource))
    problem = next((text for text in chain(miscounts, clashes) if text is not None), None)
    if problem is not None:
        response["allowed"] = False
        response["status"] = {"code": 422, "reason": "Invalid", "message": problem}
    elif asking:
        patch = [operation for container in asking for operation in _rewrite(container, alias, resource)]
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def containers(kind: str, document: object) -> Iterator[Container]:
    """The containers of an object of this kind, then its init containers; none if it has no pod spec."""
    path = _POD_SPEC.get(kind, _TEMPLATE_SPEC)
    spec = document
    for key in path:
        spec = spec.get(key) if isinstance(spec, dict) else None
    for group in ("containers", "initContainers"):
        members = spec.get(group) if isinstance(spec, dict) else None
        for index, container in enumerate(members if isinstance(members, list) else []):
            if isinstance(container, dict):
                resources = container.get("resources")
                resources = resources if isinstance(resources, dict) else {}
                yield Container((*path, group, str(index)), str(container.get("name", "")), resources)


def _asks(container: Container, alias: str) -> bool:
    return any(container.amount(part, alias) is not None for part in PARTS)


def _miscount(container: Container, alias: str) -> str | None:
    """Why the container's count is invalid, or None."""
    for part in PARTS:
        amount = container.amount(part, alias)
        if amount is None:
            continue
        where = f"in {container.described}"
        try:
            count = parse_quantity(amount, container.place)
        except InputError:
            return f"{alias} counts whole devices: {amount!r} {where} is no number; ask for 1, or use a pool with timeSlicing"
        if count > MOST_DEVICES:
            return f"{alias} counts whole devices: {amount} {where} is more than any node has; ask for fewer"
        if count < 0 or count.denominator != 1:
            least = 1 if count < 1 else int(count) + 1
            return (
                f"{alias} counts whole devices: {_shown(count)} {where} is not possible; "
                f"ask for {least}, or use a pool with timeSlicing"
            )
    return None


def _is_limited(document: object, resource: str) -> bool:
    """Whether a LimitRange filled in counts of the resource."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(notes, dict) and resource in str(notes.get(LIMIT_RANGER, ""))


def _clash(container: Container, alias: str, resource: str, stood: Mapping[tuple[str, str], str | None]) -> str | None:
    """How the count of the alias (a good one) and one under the full name that is new contradict each other, or None."""
    asked = next(text for part in PARTS if (text := container.amount(part, alias)) is not None)
    for part in PARTS:
        amount = container.amount(part, resource)
        if amount is None or amount == stood.get((container.name, part)) or _equal(amount, asked, container.place):
            continue
        return (
            f"{alias} is short for {resource}, but {container.described} asks for {asked} of the one "
            f"and {amount} of the other; leave one of them out"
        )
    return None


def _equal(one: str, other: str, place: str) -> bool:
    try:
        return parse_quantity(one, place) == parse_quantity(other, place)
    except InputError:
        return False


def _rewrite(container: Container, alias: str, resource: str) -> list[Json]:
    base = "".join(f"/{key}" for key in (*container.path, "resources"))
    full = resource.replace("~", "~0").replace("/", "~1")
    limits, requests = f"{base}/limits/{full}", f"{base}/requests/{full}"
    given = [part for part in PARTS if container.amount(part, alias) is not None]
    patch: list[Json] = [
        {"op": "move", "from": f"{base}/{part}/{alias}", "path": f"{base}/{part}/{full}"} for part in given
    ]
    if given == ["requests"]:
        if not isinstance(container.resources.get("limits"), dict):
            patch.append({"op": "add", "path": f"{base}/limits", "value": {}})
        patch.append({"op": "copy", "from": requests, "path": limits})
    elif given == ["limits"] and container.amount("requests", resource) is not None:
        patch.append({"op": "copy", "from": limits, "path": requests})
    return patch


def _shown(count: Fraction) -> str:
    """Without an exponent or needless zeros: 0.5, -1, 2.5."""
    text = f"{Decimal(count.numerator) / Decimal(count.denominator):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _member(document: object, name: str) -> Any:
    if not isinstance(document, dict) or document.get(name) is None:
        raise ProtocolError(
            f"AdmissionReview: {name} is missing; the webhook expects admission.k8s.io/v1 of a create or update"
        )
    return document[name]
