"""What the user wants in the pods of an EmuJob, as Kubernetes writes it: refused here is what would make the Job impossible.

The API server tells such mistakes when the Job is made, long after the EmuJob was taken; the user is told at the EmuJob instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.node.fields import Field, required
from emulator_runtime.node.layout import JOB_UID_LABEL
from operators.objects.forms import key_of_map, label_text, qualified, subdomain, variable_name
from operators.objects.names import ALLOCATION, CONFIGURATION, JOB_LABEL

_BATCH = "batch.kubernetes.io/"
"""Such labels are the Job's; annotations may be anybody's."""
_RESERVED = {
    "labels": (JOB_LABEL, JOB_UID_LABEL, "job-name", "controller-uid"),
    "annotations": (CONFIGURATION, ALLOCATION),
}
"""Kubernetes refuses a Job whose pods have other ones; emugpu's own would be overwritten."""
_MOST_ANNOTATIONS_BYTES = 256 * 1024
_FIELDS = ("labels", "annotations", "tolerations", "priorityClassName", "serviceAccountName", "env")
_SOURCES = ("fieldRef", "configMapKeyRef", "secretKeyRef")
_TOLERATION = ("key", "operator", "value", "effect", "tolerationSeconds")


@dataclass(frozen=True, slots=True)
class Template:
    """What the user wants in the pods, as Kubernetes writes it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    env: tuple[Mapping[str, Any], ...] = ()
    pod: Mapping[str, Any] = field(default_factory=dict)


def parse_template(document: Field | None) -> Template:
    """Of spec.template; None: nothing is wanted. Raises InputError naming the field."""
    if document is None:
        return Template()
    members = document.members(_FIELDS)
    pod: dict[str, Any] = {
        name: subdomain(members[name]) for name in ("priorityClassName", "serviceAccountName") if name in members
    }
    if "tolerations" in members:
        pod["tolerations"] = [_toleration(element) for element in members["tolerations"].elements()]
    return Template(
        labels={key: label_text(member) for key, member in _keyed(members, "labels").items()},
        annotations=_annotations(members),
        env=tuple(_variable(element) for element in members["env"].elements()) if "env" in members else (),
        pod=pod,
    )


def _keyed(members: Mapping[str, Field], name: str) -> dict[str, Field]:
    """Labels or annotations by their keys."""
    if name not in members:
        return {}
    document = members[name]
    if not isinstance(document.value, dict):
        raise document.error("must be an object")
    for key in document.value:
        qualified(document, key)
        if key in _RESERVED[name] or (name == "labels" and key.startswith(_BATCH)):
            raise document.error(f"{key} is set by emugpu or Kubernetes; take another key")
    return document.members(document.value)


def _annotations(members: Mapping[str, Field]) -> dict[str, str]:
    found = {key: member.text(most=2**14) for key, member in _keyed(members, "annotations").items()}
    size = sum(len(key.encode()) + len(text.encode()) for key, text in found.items())
    if size > _MOST_ANNOTATIONS_BYTES:
        raise members["annotations"].error(f"must have at most {_MOST_ANNOTATIONS_BYTES} bytes together, not {size}")
    return found


def _variable(document: Field) -> Mapping[str, Any]:
    members = document.members(("name", "value", "valueFrom"))
    variable_name(required(members, "name", document))
    if "value" in members and members["value"].text(most=2**14) and "valueFrom" in members:
        raise document.error("give either value or valueFrom")
    if "valueFrom" in members:
        _source(members["valueFrom"])
    return {name: member.value for name, member in members.items()}


def _source(document: Field) -> None:
    members = document.members(_SOURCES)
    if len(members) != 1:
        raise document.error(f"give one of {', '.join(_SOURCES)}")
    ((kind, member),) = members.items()
    if kind == "fieldRef":
        within = member.members(("apiVersion", "fieldPath"))
        required(within, "fieldPath", member).text(least=1)
        return
    within = member.members(("name", "key", "optional"))
    subdomain(required(within, "name", member))
    key_of_map(required(within, "key", member))


def _toleration(document: Field) -> Any:
    members = document.members(_TOLERATION)
    operator = members["operator"].text() if "operator" in members else "Equal"
    key = members["key"].text() if "key" in members else ""
    value = members["value"].text() if "value" in members else ""
    if key:
        qualified(members["key"], key)
    elif operator != "Exists":
        raise document.error("without a key the operator must be Exists")
    if operator == "Exists" and value:
        raise members["value"].error("must be empty where the operator is Exists")
    if value:
        label_text(members["value"])
    effect = members["effect"].text() if "effect" in members else ""
    if "tolerationSeconds" in members and effect != "NoExecute":
        raise members["tolerationSeconds"].error("belongs to the effect NoExecute")
    return document.value
