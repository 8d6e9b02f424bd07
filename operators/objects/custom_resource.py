"""The base of the custom resources: one declaration gives the parser, its checks and the CustomResourceDefinition.

A specification is a pydantic model. What JSON Schema can say (types, bounds, patterns) is in the types of its fields; what it
can't say is a `Rule`: CEL for the API server beside a function for this program, which also checks objects that were stored under
an older schema. Specifications are read strictly; a status, which other programs may write too, is read leniently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic import model_validator as model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from emulator_runtime.domain.errors import InputError, UnknownNameError

Json = dict[str, Any]
M = TypeVar("M", bound=BaseModel)

RULES = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that a value must meet. `cel` is evaluated by the API server, `holds` here; without `holds` only the API
    server can know (transitions), without `cel` only this program. `at`: the member of the value that the message is about."""

    message: str
    cel: str = ""
    holds: Callable[[Any], bool] | None = None
    at: str = ""

    def check(self, value: Any) -> None:
        if self.holds is not None and not self.holds(value):
            raise problem(self.message, *filter(None, self.at.split(".")))


class Schema:
    """Metadata of an annotated type: rules, and keywords of the schema that pydantic doesn't know."""

    def __init__(self, *rules: Rule, **keywords: Any) -> None:
        self.rules = rules
        self.keywords = {k.replace("_", "-") if k.startswith("x_") else k: value for k, value in keywords.items()}

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner, checks = handler(source), [rule for rule in self.rules if rule.holds is not None]
        if not checks:
            return inner

        def check(value: Any) -> Any:
            for rule in checks:
                rule.check(value)
            return value

        return core_schema.no_info_after_validator_function(check, inner)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        schema = {**handler(core), **self.keywords}
        return _with_rules(schema, self.rules)


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """Metadata of a type that JSON writes in another way: how a value is read (raising `problem`), and its schema."""

    read: Callable[[object], Any]
    schema: Mapping[str, Any]
    rules: tuple[Rule, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return _with_rules(dict(self.schema), self.rules)


def served(default: Any, description: str = "", **more: Any) -> Any:
    """A field whose default the API server fills in too; `schema_default`: as JSON writes it, where that differs."""
    written = more.pop("schema_default", default)
    return Field(default, description=description or None, json_schema_extra={"default": written}, **more)


def problem(text: str, *at: str | int) -> PydanticCustomError:
    """The error of a validator; `at`: where below the value that is validated."""
    return PydanticCustomError("problem", "{text}", {"text": text, "at": at})


def unknown_name(kind: str, name: str, known: Collection[str]) -> PydanticCustomError:
    """The error for a name that is in no table."""
    return PydanticCustomError("unknown_name", "{name}", {"kind": kind, "name": name, "known": tuple(known), "at": ()})


class Part(BaseModel):
    """An object of a specification: frozen, and a member that it doesn't know is a mistake."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, allow_inf_nan=False, ignored_types=(Rule,))
    rules: ClassVar[tuple[Rule, ...]] = ()
    keywords: ClassVar[Mapping[str, Any]] = {}

    def has(self, name: str) -> bool:
        """Whether the field was given: CEL's has()."""
        return name in self.model_fields_set

    @model_validator(mode="before")
    @classmethod
    def _check_members(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            raise problem(f"must be an object, not {_kind(document)}")
        for name in document:
            if name not in _members_of(cls):
                raise unknown_name("field", str(name), _members_of(cls))
        least, most = cls.keywords.get("minProperties", 0), cls.keywords.get("maxProperties", len(document))
        if not least <= len(document) <= most:
            raise problem(f"give {'one' if least == most else 'at least one'} of {', '.join(sorted(_members_of(cls)))}")
        return document

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            rule.check(self)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return _object_schema(cls, core, handler)


class Report(BaseModel):
    """An object of a status, read leniently: each field has a default. `keywords` may have `required`, for the API server."""

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, extra="ignore", allow_inf_nan=False)
    rules: ClassVar[tuple[Rule, ...]] = ()
    keywords: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return _object_schema(cls, core, handler)


def read_strictly(model: type[M], document: object, place: str, path: str = "spec") -> M:
    """Raises InputError naming `place` (the object, or empty) and the path of the first mistake; UnknownNameError for a name that
    is in no table."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _input_error(error, place, path) from None


def read_leniently(model: type[M], document: object) -> M:
    """Members that don't fit are left out, and with them an object that can't be without them."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        cleaned, problems = deepcopy(document), error
    while True:
        for each in sorted((each["loc"] for each in problems.errors(include_url=False)), key=repr, reverse=True):
            if not _removed(cleaned, each):
                return model.model_validate({})
        try:
            return model.model_validate(cleaned)
        except ValidationError as error:
            problems = error


def _removed(document: Any, place: Sequence[str | int]) -> bool:
    """Removes the value at this place, or the nearest existing object that contains it; returns whether there was one."""
    holders = [document]
    for step in place:
        holder = holders[-1]
        known = isinstance(holder, dict) and step in holder
        if not known and not (isinstance(holder, list) and isinstance(step, int) and step < len(holder)):
            break
        holders.append(holder[step])
    depth = len(holders) - 1
    if not depth:
        return False
    del holders[depth - 1][place[depth - 1]]
    return True


def _input_error(error: ValidationError, place: str, path: str) -> InputError:
    first = error.errors(include_url=False)[0]
    location, context, given = first["loc"], first.get("ctx", {}), first["input"]
    location = (*location, *context.get("at", ()))
    kind, named = first["type"], f"{place}: " if place else ""
    if kind == "missing":
        return InputError(f"{named}{_path(path, location[:-1])}", f"{location[-1]} is missing")
    where = f"{named}{_path(path, location)}"
    if kind == "unknown_name":
        return UnknownNameError(where, context["kind"], context["name"], context["known"])
    if kind == "literal_error":
        return UnknownNameError(where, str(location[-1]), str(given), re.findall(r"'([^']*)'", context["expected"]))
    if kind == "problem":
        return InputError(where, _without_path(context["text"], _path(path, location)))
    wanted = _WANTED.get(kind)
    if wanted is not None:
        return InputError(where, f"must be {wanted}, not {_kind(given)}")
    bound = _BOUNDS.get(kind)
    if bound is not None:
        words, name = bound
        return InputError(where, f"must {words.format(context[name])}, got {_size(given)}")
    return InputError(where, f"{first['msg']}, not {_kind(given)}")


_WANTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
}
_BOUNDS = {
    "greater_than_equal": ("be at least {}", "ge"),
    "less_than_equal": ("be at most {}", "le"),
    "too_short": ("have at least {}", "min_length"),
    "too_long": ("have at most {}", "max_length"),
    "string_too_short": ("have at least {} characters", "min_length"),
    "string_too_long": ("have at most {} characters", "max_length"),
}


def _without_path(text: str, path: str) -> str:
    """A rule's message without the path, or its end, that it begins with: the API server's errors don't always have one."""
    steps = path.split(".")
    paths = {".".join(steps[depth:]) for depth in range(len(steps))}
    named, colon, rest = text.partition(": ")
    return rest if colon and named in paths else text


def _path(path: str, location: Sequence[str | int]) -> str:
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def _size(value: object) -> str:
    return str(len(value)) if isinstance(value, (str, list, dict, tuple)) else str(value)


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    return "an object" if isinstance(value, dict) else json.dumps(value, default=repr)


_MEMBERS: dict[type[BaseModel], frozenset[str]] = {}


def _members_of(model: type[BaseModel]) -> frozenset[str]:
    """The names of a model's fields in JSON."""
    if model not in _MEMBERS:
        _MEMBERS[model] = frozenset(field.alias or name for name, field in model.model_fields.items())
    return _MEMBERS[model]


def _object_schema(model: Any, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
    schema = handler(core)
    body = handler.resolve_ref_schema(schema)
    for name in ("title", "description", "additionalProperties"):  # the docstring speaks to readers of this code
        body.pop(name, None)
    body.update(model.keywords)
    _with_rules(body, model.rules)
    return schema


def _with_rules(schema: Json, rules: Sequence[Rule]) -> Json:
    known = [{"rule": rule.cel, "message": rule.message} for rule in rules if rule.cel]
    if known:
        schema[RULES] = [*schema.get(RULES, ()), *known]
    return schema


# -- the CustomResourceDefinition --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; `priority` 1: with -o wide only."""

    name: str
    type: str
    path: str
    description: str = ""
    priority: int = 0

    def document(self) -> Json:
        document: Json = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            document["description"] = self.description
        return document | ({"priority": self.priority} if self.priority else {})


@dataclass(frozen=True, slots=True)
class Definition:
    """What the API server must know of a custom resource."""

    kind: str
    plural: str
    short_name: str
    scope: str
    description: str
    spec: type[Part]
    status: type[Report]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    group: str = "emugpu.dev"
    version: str = "v1alpha1"

    def document(self) -> Json:
        """The CustomResourceDefinition."""
        schema: Json = {
            "description": self.description,
            "type": "object",
            "required": ["spec"],
            **_with_rules({}, self.rules),
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": schema_of(self.spec),
                "status": schema_of(self.status),
            },
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{self.plural}.{self.group}",
                "labels": {"app.kubernetes.io/name": "emugpu", "app.kubernetes.io/part-of": "emugpu"},
            },
            "spec": {
                "group": self.group,
                "scope": self.scope,
                "names": {
                    "kind": self.kind,
                    "listKind": f"{self.kind}List",
                    "plural": self.plural,
                    "singular": self.kind.lower(),
                    "shortNames": [self.short_name],
                    "categories": ["emugpu"],
                },
                "versions": [
                    {
                        "name": self.version,
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "additionalPrinterColumns": [column.document() for column in self.columns],
                        "schema": {"openAPIV3Schema": schema},
                    }
                ],
            },
        }


class _StructuralSchema(GenerateJsonSchema):
    """JSON Schema as a CustomResourceDefinition has it: no titles, no null, defaults only where the API server sets them."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> Json:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> Json:
        return self.generate_inner(schema["schema"])


def schema_of(model: type[BaseModel]) -> Json:
    """The structural schema of a model, without references (source: Kubernetes, "Specifying a structural schema")."""
    document = model.model_json_schema(by_alias=True, schema_generator=_StructuralSchema)
    found = _inlined(document, document.pop("$defs", {}))
    assert isinstance(found, dict)
    return found


def _inlined(node: Any, definitions: Json) -> Any:
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    own = {name: _inlined(value, definitions) for name, value in node.items() if name != "$ref"}
    if "$ref" not in node:
        return own
    target = _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
    rules = [*own.get(RULES, ()), *target.get(RULES, ())]
    return {**target, **own} | ({RULES: rules} if rules else {})
