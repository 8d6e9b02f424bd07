"""The controller's settings, from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from emulator_runtime.node.settings import EnvSettings, setting

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
