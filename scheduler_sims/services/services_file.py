"""Reads services (YAML), and enters their replicas into a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.units import GIB
from emulator_runtime.domain.wording import quoted, shown
from emulator_runtime.profiles.catalogue import Catalogue
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.fit import check_fits
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.inputs.yaml_file import list_of, mapping_of, number_of, read_yaml, whole_of
from scheduler_sims.services.service import REPLICA, Service

MOST_REPLICAS = 10_000
"""Of one service: a larger number is a mistake in the units of a rate more often than a service."""
_FIELDS = (
    "name",
    "gpus",
    "gpu_type",
    "gpu_memory_gib",
    "cpus",
    "memory_gib",
    "service_s",
    "slo_s",
    "within",
    "requests",
    "until_s",
    "react_s",
    "weight",
)
_MOST_GPUS = 1024


def load_services(path: Path, catalogue: Catalogue) -> tuple[Service, ...]:
    """The services in a file. Raises InputError that names the file and the field."""
    entries = list_of(mapping_of(read_yaml(path, "services file"), str(path), ("services",)), "services", str(path))
    if not entries:
        raise InputError(f"{path}: services", "must be a list of at least one service")
    services = [_service(entry, f"{path}: services[{number}]", catalogue) for number, entry in enumerate(entries)]
    for number, service in enumerate(services):
        if service.name in [other.name for other in services[:number]]:
            raise InputError(f"{path}: services[{number}].name", f"{quoted(service.name)} is another service's name")
    return tuple(services)


def with_replicas(workload: Workload, services: Sequence[Service], cluster: ClusterSpec, place: str) -> Workload:
    """The workload with the services' replicas after its jobs. `place`: of the services, for errors.

    Raises InputError for a replica that fits no node of the cluster or has the name of a job.
    """
    jobs, names = list(workload.jobs), set(workload.by_id)
    for service in services:
        replicas = service.replicas(len(jobs))
        check_fits(Workload(service.name, tuple(replicas), workload.profiles), cluster, f"{place}: {service.name}")
        for job in replicas:
            if job.job_id in names:
                raise InputError(f"{place}: {service.name}", f"there are two jobs called {quoted(job.job_id)}")
            names.add(job.job_id)
        jobs += replicas
    return replace(workload, jobs=tuple(jobs), lines=())


def _service(entry: object, place: str, catalogue: Catalogue) -> Service:
    fields = mapping_of(entry, place, _FIELDS)
    name = fields.get("name")
    if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
        raise InputError(f"{place}.name", f"must be a text without '/', not {shown(name)}")
    service_s, slo_s, until_s = (
        number_of(fields, field, place, default=None, above=0) for field in ("service_s", "slo_s", "until_s")
    )
    within = number_of(fields, "within", place, default=0.99, above=0)
    service = Service(
        name,
        _configuration(fields, place, catalogue),
        service_s,
        slo_s,
        within,
        _requests(fields, until_s, place),
        until_s,
        number_of(fields, "react_s", place, default=0.0),
        number_of(fields, "weight", place, default=1.0, above=0),
    )
    if within > service.best:
        problem = (
            f"{within:g} is out of reach: requests take {service_s:g} s on average, so if none waits {service.best:.4f}"
        )
        raise InputError(f"{place}.within", f"{problem} of them are answered within {slo_s:g} s")
    most = max(per_s for _, per_s in service.requests)
    if most * service_s > MOST_REPLICAS:
        problem = f"{most:g} requests a second of {service_s:g} s each need more than {MOST_REPLICAS} replicas"
        raise InputError(f"{place}.requests", problem)
    return service


def _configuration(fields: Mapping[str, Any], place: str, catalogue: Catalogue) -> Configuration:
    types = fields.get("gpu_type", [])
    named = types if isinstance(types, list) else [types]
    for each in named:
        if not isinstance(each, str):
            raise InputError(f"{place}.gpu_type", f"must be a GPU type or a list of them, not {shown(each)}")
    cpus = number_of(fields, "cpus", place, default=1.0, above=0)
    memory_gib, on_device_gib = (
        number_of(fields, field, place, default=0.0) for field in ("memory_gib", "gpu_memory_gib")
    )
    return Configuration(
        REPLICA,
        whole_of(fields, "gpus", place, default=1, least=0, most=_MOST_GPUS),
        max(1, round(cpus * 1000)),
        round(memory_gib * GIB),
        tuple(catalogue.spec(each, f"{place}.gpu_type").gpu_type for each in named) or None,
        round(on_device_gib * GIB),
    )


def _requests(fields: Mapping[str, Any], until_s: float, place: str) -> tuple[tuple[float, float], ...]:
    entries, where = list_of(fields, "requests", place), f"{place}.requests"
    if not entries:
        raise InputError(where, "must be a list of times and rates, such as [{at_s: 0, per_s: 5}]")
    requests = []
    for number, entry in enumerate(entries):
        one = mapping_of(entry, f"{where}[{number}]", ("at_s", "per_s"))
        requests.append(
            (
                number_of(one, "at_s", f"{where}[{number}]", default=None),
                number_of(one, "per_s", f"{where}[{number}]", default=None),
            )
        )
    for number, ((before_s, _), (at_s, _)) in enumerate(pairwise(requests), 1):
        if at_s <= before_s:
            raise InputError(
                f"{where}[{number}].at_s", f"must be later than the time before it ({before_s:g}), not {at_s:g}"
            )
    if until_s <= requests[-1][0]:
        raise InputError(f"{place}.until_s", f"must be later than the last change of requests ({requests[-1][0]:g} s)")
    return tuple(requests)
