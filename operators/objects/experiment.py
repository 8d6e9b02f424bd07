"""What a SchedulingExperiment says, as types. The API server has checked it; here is what a schema can't say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import MAX_SECONDS
from operators.kube.documents import object_at, text_at, whole_at

ACTUATORS = ("jobs", "gated", "binding")
COSTS = {
    "submitSeconds": "submit_s",
    "serialSubmitSeconds": "serial_submit_s",
    "coalesceSeconds": "coalesce_s",
    "decideSeconds": "decide_s",
    "startSeconds": "start_s",
    "warmUpSeconds": "warm_up_s",
    "serialStartSeconds": "serial_start_s",
    "sharedStartSeconds": "shared_start_s",
    "checkpointSeconds": "checkpoint_s",
    "restoreSeconds": "restore_s",
    "stopSeconds": "stop_s",
    "serialStopSeconds": "serial_stop_s",
    "sharedStopSeconds": "shared_stop_s",
    "finishSeconds": "finish_s",
}
"""Members of spec.costs, and what a cluster file calls them."""

LEAST_STRETCH = 0.0001
"""Below it no job is left that a cluster could be compared with: its pods take seconds to start."""
_ESTIMATES = re.compile(r"oracle|none|error:[0-9](\.[0-9]+)?", re.ASCII)
_OPTION = r" *[A-Za-z_][A-Za-z0-9_]* *= *[^,=\x00-\x20\x7f]+ *"
_POLICY = re.compile(rf"[a-z][a-z0-9-]*(:{_OPTION}(,{_OPTION})*)?", re.ASCII)
_NO_NUMBER = re.compile(r"= *[+-]?(nan|inf|infinity) *(,|$)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """A text: as it is, or `key` of the ConfigMap `config_map` in the experiment's namespace."""

    text: str = ""
    config_map: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class ExperimentSpec:
    """`policies` as on the command line. `cluster` None: as the pools are. `costs` None: measured with probe jobs."""

    workload: Source
    policies: tuple[str, ...]
    pod_schedulers: tuple[str, ...] = ()
    cluster: Source | None = None
    repeats: int = 1
    stretch: float = 1.0
    estimates: str = "oracle"
    seed: int = 0
    costs: Mapping[str, float] | None = field(default=None)
    actuator: str = "jobs"
    retries: int = 3
    suspend: bool = False
    ttl_s: int | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """What is compared: policies, then the schedulers that are observed only."""
        return (*self.policies, *self.pod_schedulers)


def parse_spec(spec: Mapping[str, Any]) -> ExperimentSpec:
    """Raises InputError that names the field."""
    policies, pod_schedulers = (_texts(spec, name) for name in ("policies", "podSchedulers"))
    if not policies:
        raise InputError("spec.policies", "name at least one policy, such as fifo (`emugpu policies` lists them)")
    for place, names in (("spec.policies", policies), ("spec.podSchedulers", (*policies, *pod_schedulers))):
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(place, f"{twice} is named twice")
    for policy in policies:
        _check_policy(policy)
    ttl_s = spec.get("ttlSecondsAfterFinished")
    return ExperimentSpec(
        workload=_source(spec, "workload"),
        policies=policies,
        pod_schedulers=pod_schedulers,
        cluster=_source(spec, "cluster") if "cluster" in spec else None,
        repeats=whole_at(spec, "repeats") or 1,
        stretch=_number(spec.get("stretch", 1), "spec.stretch", least=LEAST_STRETCH),
        estimates=_estimates(text_at(spec, "estimates") or "oracle"),
        seed=whole_at(spec, "seed"),
        costs=_costs(object_at(spec, "costs")) if "costs" in spec else None,
        actuator=text_at(spec, "actuator") or ACTUATORS[0],
        retries=whole_at(spec, "retries") if "retries" in spec else 3,
        suspend=spec.get("suspend") is True,
        ttl_s=ttl_s if type(ttl_s) is int else None,
    )


def _texts(spec: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = spec.get(name)
    return tuple(str(each) for each in found) if isinstance(found, list) else ()


def _source(spec: Mapping[str, Any], name: str) -> Source:
    given = object_at(spec, name)
    reference = object_at(given, "configMapKeyRef")
    found = Source(text_at(given, "inline"), text_at(reference, "name"), text_at(reference, "key"))
    if bool(found.text) == bool(found.config_map and found.key):
        raise InputError(f"spec.{name}", "give either inline, or configMapKeyRef with name and key")
    return found


def _costs(given: Mapping[str, Any]) -> dict[str, float]:
    return {ours: _number(given[name], f"spec.costs.{name}") for name, ours in COSTS.items() if name in given}


def _check_policy(text: str) -> None:
    """Its form; which policies there are, with which options, is known to the runner's image."""
    if ".py" in text or "/" in text:
        raise InputError("spec.policies", f"{text}: a policy of yours runs with `emugpu compare --on kubernetes`")
    if not _POLICY.fullmatch(text):
        raise InputError(
            "spec.policies", f"{text!r} must be NAME or NAME:OPTION=VALUE,..., such as las:threshold_s=300"
        )
    if _NO_NUMBER.search(text):
        raise InputError("spec.policies", f"{text!r}: no option's value can be nan or inf")


def _estimates(text: str) -> str:
    if not _ESTIMATES.fullmatch(text):
        problem = "is none of oracle, none, error:SIGMA with SIGMA from 0 to below 10 (such as error:0.2)"
        raise InputError("spec.estimates", f"{text!r} {problem}")
    return text


def _number(value: object, place: str, *, least: float = 0.0) -> float:
    """A decimal number, written as text where it isn't whole: floats don't survive every client (Kubernetes API conventions)."""
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not least <= number <= MAX_SECONDS:
        raise InputError(
            place, f"must be a number from {least:g} to {MAX_SECONDS:.0f}, such as 4 or '0.5', not {value!r}"
        )
    return number
