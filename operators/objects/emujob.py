"""The specification of an EmuJob as types: the short form becomes one configuration, aliases and quantities are resolved.

The API server has checked the schema already; this is the second gate, for what a schema can't know (GPU types) and for
objects that were stored under an older schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.domain.sensitivity import HostShare, Knots, Sensitivity
from emulator_runtime.node.fields import Field, required
from operators.objects.forms import image, line, word
from operators.objects.names import SCHEDULER_NAME, SCHEDULER_NAME_FORM
from operators.objects.native import Native, amount_of, parse_native
from operators.objects.pool import named_spec
from operators.objects.template import Template, parse_template

ACTUATORS = ("none", "jobs", "gated", "binding")
DEFAULT_CONFIGURATION = "default"
DEFAULT_SCHEDULER = "default-scheduler"
_PROFILE = ("model", "batchSize", "stepTime", "memory", "sensitivity")
_SHORT = ("resources", "gpuType", "gpuTypes", *_PROFILE)
_FIELDS = (
    *("tenant", "weight", "nodes", "steps", "image", "imagePullPolicy", "template", "scheduler"),
    *("configurations", "native", "suspend", *_SHORT),
)
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ns|us|ms|s|m|h)", re.ASCII)
_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to run: emulated amounts of each node, and the work. `gpu_types` canonical, empty: any.

    Either `model` and `batch_size` (of the whole job) or `step_time_ns` and `gpu_memory_bytes`. `gpus` 0: on CPUs alone.
    With a `sensitivity`, `step_time_ns` holds at speed 1 and the emulated CPUs and memory that it is given change it.
    """

    name: str
    gpus: int = 1
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpu_types: tuple[str, ...] = ()
    model: str = ""
    batch_size: int = 0
    step_time_ns: int = 0
    gpu_memory_bytes: int = 0
    sensitivity: Sensitivity | None = None


@dataclass(frozen=True, slots=True)
class EmuJobSpec:
    """What a user asks for. `image` and `pull_policy` empty: the operator's own. `scheduler` empty: there is none."""

    tenant: str
    weight: float
    nodes: int
    steps: int
    configurations: tuple[Configuration, ...]
    image: str = ""
    pull_policy: str = ""
    template: Template = field(default_factory=Template)
    actuator: str = "none"
    scheduler: str = ""
    pod_scheduler: str = DEFAULT_SCHEDULER
    native: Native = field(default_factory=Native)
    suspend: bool = False

    def configuration(self, name: str) -> Configuration:
        """The configuration of this name; the first one where there is none."""
        return next((c for c in self.configurations if c.name == name), self.configurations[0])


def parse_spec(namespace: str, name: str, spec: object) -> EmuJobSpec:
    """Raises InputError naming the EmuJob and the field; UnknownNameError for a GPU type that isn't known."""
    document = Field(f"EmuJob {namespace}/{name}", "spec", spec)
    members = document.members(_FIELDS)
    scheduler = members["scheduler"].members(("actuator", "name", "schedulerName")) if "scheduler" in members else {}
    actuator = scheduler["actuator"].text() if "actuator" in scheduler else "none"
    if actuator not in ACTUATORS:
        raise UnknownNameError(f"{document.place}: spec.scheduler.actuator", "actuator", actuator, ACTUATORS)
    scheduler_name = scheduler["name"].text() if "name" in scheduler else ""
    if (actuator == "none") != (not scheduler_name):
        raise members["scheduler"].error("a name belongs to an actuator (jobs, gated, binding), and one needs a name")
    if scheduler_name and not SCHEDULER_NAME.fullmatch(scheduler_name):
        raise scheduler["name"].error(f"{scheduler_name!r} {SCHEDULER_NAME_FORM}")
    return EmuJobSpec(
        tenant=line(members["tenant"], most=63) if "tenant" in members else namespace,
        weight=_above_0(members["weight"]) if "weight" in members else 1.0,
        nodes=members["nodes"].whole(least=1, most=1024) if "nodes" in members else 1,
        steps=required(members, "steps", document).whole(least=1, most=2**40),
        configurations=_configurations(document, members),
        image=image(members["image"]) if "image" in members else "",
        pull_policy=members["imagePullPolicy"].text() if "imagePullPolicy" in members else "",
        template=parse_template(members.get("template")),
        actuator=actuator,
        scheduler=scheduler_name,
        pod_scheduler=word(scheduler["schedulerName"], most=253) if "schedulerName" in scheduler else DEFAULT_SCHEDULER,
        native=parse_native(members.get("native")),
        suspend=members["suspend"].flag() if "suspend" in members else False,
    )


def _configurations(document: Field, members: Mapping[str, Field]) -> tuple[Configuration, ...]:
    short = {name: members[name] for name in _SHORT if name in members}
    if "configurations" in members:
        if short:
            raise document.error(f"write either configurations, or {next(iter(short))} directly")
        found = tuple(_named(element) for element in members["configurations"].elements())
        if not found or len({c.name for c in found}) < len(found):
            raise members["configurations"].error("must have at least one, each with a name of its own")
        return found
    types = [short["gpuType"]] if "gpuType" in short else _elements(short.get("gpuTypes"))
    return (_configuration(DEFAULT_CONFIGURATION, short.get("resources"), types, short, document),)


def _named(document: Field) -> Configuration:
    members = document.members(("name", "resources", "gpuTypes", "profile"))
    profile = required(members, "profile", document)
    name = required(members, "name", document).text(least=1, most=63)
    return _configuration(
        name, members.get("resources"), _elements(members.get("gpuTypes")), profile.members(_PROFILE), profile
    )


def _configuration(
    name: str, resources: Field | None, types: Sequence[Field], profile: Mapping[str, Field], owner: Field
) -> Configuration:
    amounts = resources.members(("emuGPU", "cpu", "memory")) if resources is not None else {}
    gpus = amounts["emuGPU"].whole(most=128) if "emuGPU" in amounts else 1
    by_model, by_time = ("model" in profile or "batchSize" in profile), ("stepTime" in profile or "memory" in profile)
    if by_model == by_time:
        raise owner.error("give either model and batchSize, or stepTime and memory")
    if by_model and not gpus:
        raise owner.error("a model's profile is of GPUs; give stepTime where emuGPU is 0")
    if by_model and "sensitivity" in profile:
        raise profile["sensitivity"].error("belongs to stepTime; give that instead of model and batchSize")
    host = HostShare(
        int(amount_of(amounts["cpu"]) * 1000) if "cpu" in amounts else 0,
        int(amount_of(amounts["memory"])) if "memory" in amounts else 0,
    )
    return Configuration(
        name=name,
        gpus=gpus,
        cpu_milli=host.cpu_milli,
        memory_bytes=host.memory_bytes,
        gpu_types=tuple(_gpu_type(each) for each in types),
        model=required(dict(profile), "model", owner).text(least=1) if by_model else "",
        batch_size=required(dict(profile), "batchSize", owner).whole(least=1, most=2**31) if by_model else 0,
        step_time_ns=_duration_ns(required(dict(profile), "stepTime", owner)) if by_time else 0,
        gpu_memory_bytes=int(amount_of(profile["memory"])) if "memory" in profile else 0,
        sensitivity=_sensitivity(profile["sensitivity"], host) if "sensitivity" in profile else None,
    )


def _sensitivity(document: Field, host: HostShare) -> Sensitivity:
    members = document.members(("cpu", "memory"))
    if not members:
        raise document.error("must have cpu, memory or both")
    for name, amount in (("cpu", host.cpu_milli), ("memory", host.memory_bytes)):
        if name in members and not amount:
            until = "which the job has until its scheduler gives it another share"
            raise members[name].error(f"needs resources.{name}, {until}")
    return Sensitivity(
        cpu=_curve(members["cpu"], 1000) if "cpu" in members else (),
        memory=_curve(members["memory"], 1) if "memory" in members else (),
    )


def _curve(document: Field, scale: int) -> Knots:
    """Amounts in thousandths of a CPU (`scale` 1000) or bytes, each with its speed."""
    knots: list[tuple[int, float]] = []
    for element in document.elements():
        members = element.members(("amount", "speed"))
        amount = int(amount_of(required(members, "amount", element)) * scale)
        if amount <= (knots[-1][0] if knots else 0):
            raise members["amount"].error("must be above 0, and above the amount before it")
        knots.append((amount, _above_0(required(members, "speed", element))))
    if not knots:
        raise document.error("must have at least one amount with its speed")
    return tuple(knots)


def _duration_ns(document: Field) -> int:
    text = document.text()
    match = _DURATION.fullmatch(text)
    duration_ns = round(Fraction(match[1]) * _NS[match[2]]) if match else 0
    if duration_ns < 1:
        raise document.error(f"must be a time above 0 such as 80ms or 1.5s, not {text!r}")
    return duration_ns


def _above_0(document: Field) -> float:
    value = document.value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1e6:
        raise document.error(f"must be a number above 0, not {value!r}")
    return float(value)


def _gpu_type(document: Field) -> str:
    return named_spec(document).gpu_type


def _elements(document: Field | None) -> list[Field]:
    return document.elements() if document is not None else []
