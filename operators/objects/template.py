"""spec.template of an EmuJob: what the user wants in the pods, as Kubernetes writes it.

The API server refuses a Job with such mistakes long after the EmuJob was accepted; here they are found at the EmuJob.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import Field, StrictBool, StrictInt

from emulator_runtime.node.layout import JOB_LABEL, JOB_UID_LABEL
from operators.objects.custom_resource import Part, Rule, Schema
from operators.objects.forms import (
    AnnotationValue,
    LabelValue,
    MapKey,
    Reference,
    Subdomain,
    VariableName,
    is_key,
    is_value,
    text_type,
)
from operators.objects.names import ALLOCATION, BATCH_SIZE, CONFIGURATION

_BATCH = "batch.kubernetes.io/"
"""Labels with this prefix are reserved for the Job; annotations with it are not."""
_MOST_ANNOTATIONS_BYTES = 256 * 1024
_KEYS = "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"


def _keys_of(what: str, reserved: tuple[str, ...], prefix: str = "") -> tuple[Rule, ...]:
    """Rules of the keys of labels or annotations; Kubernetes refuses a Job whose pods have the reserved ones."""
    listed = "[" + ", ".join(f"'{key}'" for key in reserved) + "]"
    none_with_prefix = f" && !key.startsWith('{prefix}')" if prefix else ""
    names = ", ".join([*reserved, *([f"{prefix}..."] if prefix else [])])

    def is_free(key: str) -> bool:
        return key not in reserved and not (prefix and key.startswith(prefix))

    return (
        Rule(
            f"template.{what}: emugpu and Kubernetes set {names}; take another key",
            f"self.all(key, !(key in {listed}){none_with_prefix})",
            lambda texts: all(map(is_free, texts)),
        ),
        Rule(
            f"template.{what}: write keys as NAME or DOMAIN/NAME, with letters, digits, -, _ and . between them",
            f"self.all(key, key.matches('{_KEYS}'))",
            lambda texts: all(map(is_key, texts)),
        ),
    )


def _size_of(annotations: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(text.encode()) for key, text in annotations.items())


_LABELS = _keys_of("labels", ("job-name", "controller-uid", JOB_LABEL, JOB_UID_LABEL), _BATCH)
_ANNOTATIONS = (
    *_keys_of("annotations", (CONFIGURATION, BATCH_SIZE, ALLOCATION)),
    Rule(
        f"must have at most {_MOST_ANNOTATIONS_BYTES} bytes together",
        holds=lambda annotations: _size_of(annotations) <= _MOST_ANNOTATIONS_BYTES,
    ),
)


class Toleration(Part):
    """Of core/v1."""

    rules = (
        Rule("without a key the operator must be Exists", holds=lambda t: bool(t.key) or t.operator == "Exists"),
        Rule(
            "must be empty where the operator is Exists",
            holds=lambda t: t.operator != "Exists" or not t.value,
            at="value",
        ),
        Rule(
            "belongs to the effect NoExecute",
            holds=lambda t: t.toleration_seconds is None or t.effect == "NoExecute",
            at="tolerationSeconds",
        ),
    )
    key: Annotated[
        str,
        text_type(
            most=317,
            also=lambda text: not text or is_key(text),
            wanted="is no key: write NAME or DOMAIN/NAME, with letters, digits, -, _ and . between them",
        ),
    ] = ""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] = "Equal"
    value: Annotated[
        str,
        text_type(most=63, also=is_value, wanted="is no label's value: letters, digits, and between them -, _ and ."),
    ] = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = Field(
        "", json_schema_extra={"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}
    )
    toleration_seconds: Annotated[StrictInt, Schema(format="int64")] | None = None


class FieldReference(Part):
    """A field of the pod."""

    api_version: Annotated[str, text_type(most=63)] = ""
    field_path: Annotated[str, text_type(most=512)]

    rules = (Rule("must not be empty", holds=lambda reference: bool(reference.field_path), at="fieldPath"),)


class KeyReference(Part):
    """A key of a ConfigMap or a Secret."""

    name: Reference
    key: MapKey
    optional: StrictBool = False


class Source(Part):
    """Where the value of an environment variable comes from."""

    keywords = {"minProperties": 1, "maxProperties": 1}
    field_ref: FieldReference | None = None
    config_map_key_ref: KeyReference | None = None
    secret_key_ref: KeyReference | None = None


class Variable(Part):
    """An environment variable."""

    rules = (Rule("give either value or valueFrom", holds=lambda v: not v.value or v.value_from is None),)
    name: VariableName = Field(description="Printable ASCII characters without =.")
    value: Annotated[str, text_type(most=2**14)] = ""
    value_from: Source | None = None


class Template(Part):
    """What is merged into the pods. A field that isn't named in `_ELSEWHERE` goes to the pods' specification as it is."""

    labels: Annotated[dict[str, LabelValue], Len(max_length=32), Schema(*_LABELS)] = {}
    annotations: Annotated[dict[str, AnnotationValue], Len(max_length=32), Schema(*_ANNOTATIONS)] = {}
    tolerations: Annotated[tuple[Toleration, ...], Len(max_length=32)] = ()
    priority_class_name: Subdomain = ""
    service_account_name: Subdomain = ""
    variables: Annotated[tuple[Variable, ...], Len(max_length=64)] = Field((), alias="env")

    @cached_property
    def env(self) -> tuple[Mapping[str, Any], ...]:
        """The variables, as the user wrote them."""
        return tuple(variable.model_dump(mode="json", by_alias=True, exclude_unset=True) for variable in self.variables)

    @cached_property
    def pod(self) -> Mapping[str, Any]:
        """Members of the pods' specification, as the user wrote them."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=_ELSEWHERE)


_ELSEWHERE = {"labels", "annotations", "variables"}
