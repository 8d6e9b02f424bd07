"""The controller's settings, from the environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.node.settings import EnvSettings, setting
from operators.experiments.controller.runner_job import RunnerSettings

_RUNNER_POD = {"resources": dict, "nodeSelector": dict, "tolerations": list, "priorityClassName": str}
_FOREVER_S = 100 * 365 * 24 * 3600


@dataclass(frozen=True)
class Settings(EnvSettings):
    """Each field is read from the variable EMUGPU_JOBS_<FIELD>."""

    PREFIX: ClassVar[str] = "EMUGPU_JOBS_"

    image: str = setting("image of the pods of EmuJobs that name none")
    identity: str = setting("this replica's name in the lease, such as its pod's")
    pull_policy: str = setting("when the kubelet pulls it: Always, IfNotPresent or Never", "IfNotPresent")
    pull_secrets: str = setting("names of Secrets with registry credentials in EmuJobs' namespaces, by commas", "")
    namespace: str = setting("namespace of the lease by which one of several replicas acts", "emugpu")
    lease: str = setting("name of that lease", "emugpu-jobs")
    lease_s: int = setting(
        "time after the last renewal at which another replica takes over (seconds, 3 to 300)", 15, least=3, most=300
    )
    metrics_port: int = setting("port of /metrics, /healthz and /readyz; 0: off", 9403, most=65535)
    redis_url: str = setting("Redis with the nodes' event logs; empty: none, times are Kubernetes' own", "")
    store: str = setting("file of the results store (SQLite); empty: a temporary one, deleted at the end", "")
    keep_events_s: int = setting("retention of a job's events after its end (seconds)", 3600, most=_FOREVER_S)
    keep_results_s: int = setting("retention of a job's result (seconds)", 2_592_000, most=_FOREVER_S)
    keep_results: int = setting("maximum number of results, the newest ones", 100_000, most=10**7)
    experiment_image: str = setting("image of the runners of SchedulingExperiments; empty: experiments aren't run", "")
    experiment_account: str = setting("service account of the runners, in the lease's namespace", "emugpu-experiments")
    experiment_pull_secrets: str = setting("names of Secrets with registry credentials there, by commas", "")
    experiment_pod: str = setting(
        "resources, nodeSelector, tolerations and priorityClassName of the runners' pods, as JSON", "{}"
    )
    results_port: int = setting("port of the results feed, which the API reads; 0: off", 0, most=65535)
    results_readers: str = setting("users who may read the feed, by commas, such as the API's service account", "")


def runner_settings(settings: Settings) -> RunnerSettings:
    """What the pods of experiments' runners are made with. Raises InputError for a wrong `experiment_pod`."""
    members = _pod_members(settings.variable("experiment_pod"), settings.experiment_pod)
    return RunnerSettings(
        namespace=settings.namespace,
        account=settings.experiment_account,
        image=settings.experiment_image,
        pull_policy=settings.pull_policy,
        pull_secrets=tuple(name.strip() for name in settings.experiment_pull_secrets.split(",") if name.strip()),
        resources=members.pop("resources", {}),
        placement={name: value for name, value in members.items() if value},
    )


def _pod_members(variable: str, text: str) -> dict[str, Any]:
    try:
        members = json.loads(text)
    except ValueError as error:
        raise InputError(variable, f"is no JSON: {error}") from error
    if not isinstance(members, dict):
        raise InputError(variable, f"must be a JSON object with {', '.join(_RUNNER_POD)}")
    for name, value in members.items():
        if name not in _RUNNER_POD:
            raise UnknownNameError(variable, "member", name, _RUNNER_POD)
        if not isinstance(value, _RUNNER_POD[name]):
            raise InputError(f"{variable}: {name}", f"must be a JSON {_RUNNER_POD[name].__name__}, not {value!r}")
    return members
