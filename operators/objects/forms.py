"""The types of the fields of specifications: quantities, durations, names, labels and other texts that Kubernetes gives a form.

The API server refuses a whole Job for a mistake in one of these texts, so they are checked when the EmuJob is read.
Source: Kubernetes documentation, "Object Names and IDs" and "Labels and Selectors"; API reference, core/v1 EnvVar and ConfigMap.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from annotated_types import Le
from pydantic import Field, StrictFloat, StrictInt, StrictStr

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import MAX_UNIT_NS, read_duration_ns
from emulator_runtime.profiles.catalogue import bundled_catalogue
from operators.kube.quantities import parse_quantity
from operators.kube.timestamps import ns_of
from operators.objects.custom_resource import Report, Rule, Scalar, Schema, problem, unknown_name

# Source: Kubernetes API, labels: a name of 63 characters, after a DNS subdomain and a slash if it has one; a value may be empty.
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_DNS}(\.{_DNS})*/)?{_NAME}")
_VALUE = re.compile(rf"({_NAME})?")
NO_KEY = "is no key of a label; write a name such as zone or example.com/zone"
NO_VALUE = "is no value of a label; write at most 63 letters, digits, -, _ and ., with a letter or digit at both ends, or nothing"


def is_key(text: str) -> bool:
    """Whether it can be the key of a label, an annotation or a taint, or the name of a resource: NAME or DOMAIN/NAME."""
    return _KEY.fullmatch(text) is not None


def is_value(text: str) -> bool:
    """Whether it can be the value of a label."""
    return _VALUE.fullmatch(text) is not None


# -- texts -------------------------------------------------------------------------------------------------------------


def text_type(
    pattern: str = "",
    wanted: str = "",
    *,
    least: int | None = None,
    most: int,
    also: Callable[[str], bool] = lambda text: True,
    in_schema: bool = True,
) -> Scalar:
    """A text. `wanted`: what is wrong with one that doesn't match `pattern` or `also`, which a schema can't say.

    `in_schema` False: the schema says nothing of `pattern`.
    """
    form = re.compile(pattern or ".*", re.ASCII | re.DOTALL)

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise problem(f"must be a string, not {json.dumps(value, default=repr)}")
        if not (least or 0) <= len(value) <= most or any("\ud800" <= character <= "\udfff" for character in value):
            raise problem(f"must be a text of {least or 0} to {most} characters")
        if not form.fullmatch(value) or not also(value):
            raise problem(f"{value!r} {wanted}")
        return value

    schema: dict[str, Any] = {"type": "string", "maxLength": most}
    schema |= {"minLength": least} if least is not None else {}
    return Scalar(read, schema | ({"pattern": pattern} if pattern and in_schema else {}))


def _is_printable(text: str) -> bool:
    return all(unicodedata.category(character) not in ("Cc", "Zl", "Zp") for character in text)


_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_NO_SUBDOMAIN = "is no name of Kubernetes: small letters, digits, - and . between them"

Name = Annotated[str, text_type(least=1, most=63)]
"""A name that is looked up elsewhere."""
Subdomain = Annotated[str, text_type(_SUBDOMAIN, _NO_SUBDOMAIN, least=1, most=253)]
"""The name of most objects."""
Reference = Annotated[str, text_type(_SUBDOMAIN, _NO_SUBDOMAIN, most=253, in_schema=False)]
"""The name of an object that the schema doesn't check."""
Line = Annotated[str, text_type(r"^[^\x00-\x1f\x7f]+$", "has control characters", least=1, most=63, also=_is_printable)]
"""A text for people, without control characters and ends of lines."""
Word = Annotated[str, text_type(r"^[^\s\x00-\x1f\x7f]+$", "has blanks or control characters in it", least=1, most=253)]
"""A text without blanks and control characters."""
Image = Annotated[
    str,
    text_type(
        r"^\S+$", "has blanks in it", least=1, most=1024, also=lambda text: not any(each.isspace() for each in text)
    ),
]
"""Where an image is; the container runtime checks the rest."""
VariableName = Annotated[
    str, text_type(r"^[ -<>-~]+$", "is no variable's name: printable ASCII characters without =", least=1, most=253)
]
"""The name of an environment variable."""
MapKey = Annotated[
    str,
    text_type(
        r"^[-._A-Za-z0-9]+$",
        "is no key of a ConfigMap or Secret: letters, digits, -, _ and .",
        most=253,
        in_schema=False,
    ),
]
"""A key of a ConfigMap or Secret."""
LabelValue = Annotated[
    str,
    text_type(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", NO_VALUE, most=63),
]
Texts = tuple[StrictStr, ...]
AnnotationValue = Annotated[str, text_type(most=2**14)]


# -- numbers, quantities, times ----------------------------------------------------------------------------------------

Int32 = Annotated[StrictInt, Schema(format="int32")]
Int64 = Annotated[StrictInt, Schema(format="int64")]
Positive = Annotated[
    StrictFloat, Le(1_000_000), Schema(Rule("must be a number above 0", "self > 0.0", lambda value: value > 0))
]


def quantity_type(unit: int, hint: str, *, above_0: bool = False) -> Scalar:
    """A quantity as a field: a whole number of 1/`unit` (1000: thousandths of a CPU; 1: bytes), rounded down.

    `hint`: what to write, such as `memory as a quantity of bytes, such as 16Gi`.
    """

    def read(value: object) -> int:
        amount = int(read_amount(value) * unit)
        if above_0 and amount < 1:
            raise problem(f"must be above 0, got {value}; write {hint}")
        return amount

    sign, compared, plain = ("", "isGreaterThan", "self > 0") if above_0 else ("!", "isLessThan", "self >= 0")
    cel = f"type(self) == string ? isQuantity(self) && {sign}quantity(self).{compared}(quantity('0')) : {plain}"
    return Scalar(read, QUANTITY_SCHEMA, (Rule(f"write {hint}", cel),))


QUANTITY_SCHEMA: Mapping[str, Any] = {"x-kubernetes-int-or-string": True, "maxLength": 32}


def read_amount(value: object) -> Fraction:
    """A quantity from 0 on, written as a text or a whole number. Raises a validator's `problem`."""
    if type(value) is not int and not isinstance(value, str):
        raise problem(f"must be a quantity (a text or a whole number), not {json.dumps(value, default=repr)}")
    try:
        amount = parse_quantity(str(value), "")
    except InputError as error:
        raise problem(str(error).removeprefix(": ")) from None
    if amount < 0:
        raise problem(f"must not be negative, got {value}")
    return amount


DURATION = "^[0-9]+([.][0-9]+)?(ns|us|ms|s|m|h)$"


def _read_duration_ns(value: object) -> int:
    duration_ns = read_duration_ns(value) if isinstance(value, str) else None
    if not duration_ns:
        raise problem(f"must be a time above 0 such as 80ms or 1.5s, not {value!r}")
    return duration_ns


DurationNs = Annotated[
    int,
    Scalar(_read_duration_ns, {"type": "string", "maxLength": 32, "pattern": DURATION}),
]
"""Nanoseconds, written as 80ms."""


def _read_stage_ns(value: object) -> int:
    duration_ns = _read_duration_ns(value)
    if duration_ns > MAX_UNIT_NS:
        raise problem(f"must be at most 10m, got {value}; others share what serves it")
    return duration_ns


StageNs = Annotated[
    int,
    Scalar(_read_stage_ns, {"type": "string", "maxLength": 32, "pattern": DURATION}),
]
"""Nanoseconds of a resource that others share, written as 80ms."""


def _read_time_ns(value: object) -> int:
    found = ns_of(value) if isinstance(value, str) else None
    if found is None:
        raise problem(f"must be a time such as 2026-01-02T03:04:05Z, not {value!r}")
    return found


TimeNs = Annotated[int, Scalar(_read_time_ns, {"type": "string", "format": "date-time"})]
"""Nanoseconds since 1970, written as RFC 3339 has it."""


# -- names in the catalogue --------------------------------------------------------------------------------------------


def _read_gpu_type(value: object) -> str:
    """A GPU type by name or alias; the error offers both, because people type the short ones."""
    catalogue = bundled_catalogue()
    if not isinstance(value, str):
        raise problem(f"must be a string, not {json.dumps(value, default=repr)}")
    name = catalogue.find(value)
    if name is None:
        aliases = [short for gpu_type in catalogue.specs for short in catalogue.short_names(gpu_type)]
        raise unknown_name("GPU type", value, [*catalogue.specs, *aliases])
    return name


GpuType = Annotated[str, Scalar(_read_gpu_type, {"type": "string", "minLength": 1, "maxLength": 63})]
"""A GPU type's own name, written as such or as an alias."""


# -- conditions --------------------------------------------------------------------------------------------------------


class Condition(Report):
    """A condition of a status (metav1.Condition). `since_ns`: when its status changed last, in nanoseconds since 1970."""

    keywords = {"required": ["type", "status", "lastTransitionTime", "reason", "message"]}
    type: StrictStr = ""
    status: Literal["True", "False", "Unknown"] = "Unknown"
    observed_generation: Int64 = 0
    since_ns: TimeNs | None = Field(None, alias="lastTransitionTime")
    reason: StrictStr = ""
    message: Annotated[StrictStr, Schema(maxLength=32768)] = ""

    @property
    def holds(self) -> bool:
        return self.status == "True"


Conditions = Annotated[tuple[Condition, ...], Schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["type"])]


NO_CONDITION = Condition.model_construct()


def condition(conditions: Iterable[Condition], kind: str) -> Condition:
    """The condition of this type; NO_CONDITION if there is none."""
    return next((each for each in conditions if each.type == kind), NO_CONDITION)
