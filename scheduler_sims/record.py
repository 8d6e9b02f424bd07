"""The result of a run: a record per job, and spans of device and node use; the input of all reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator_runtime.domain.units import to_s
from emulator_runtime.timing.lag import LagHistogram


@dataclass(frozen=True, slots=True)
class Span:
    """A job held a device of `node` from `start_s` to `end_s`. `device`: its index on the node; None: CPUs only."""

    job_id: str
    node: str
    device: int | None
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class HostSpan:
    """A job had these CPUs (thousandths) and this host memory of `node` from `start_s` to `end_s`."""

    job_id: str
    node: str
    cpu_milli: int
    memory_bytes: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job of one run; emulated seconds since the run's start. `start_s`: its first allocation took effect.

    `status` is finished, failed, or, of a replica of a service that isn't needed any more, removed; a failed job has a `reason`,
    and `finish_s` is when it failed. In a snapshot of a run in progress jobs may be `running`, with the present time as
    `finish_s`.
    `devices`: NODE/INDEX (or NODE/cpu) of each device that the job used, in order of first use.
    """

    job_id: str
    user: str
    row: int
    submit_s: float
    start_s: float | None
    finish_s: float
    preemptions: int
    devices: tuple[str, ...]
    status: str = "finished"
    reason: str = ""

    @property
    def jct_s(self) -> float:
        """Job completion time: finish - submit."""
        return self.finish_s - self.submit_s

    @property
    def queueing_delay_s(self) -> float:
        """From submission until the first allocation."""
        return (self.finish_s if self.start_s is None else self.start_s) - self.submit_s


@dataclass(frozen=True, slots=True)
class Interruption:
    """A run of a job ended because `node` went away. It goes on after `kept_steps`, those up to its last checkpoint.

    `lost_gpu_s`: the GPU-seconds since then, or since the run began.
    """

    job_id: str
    node: str
    at_s: float
    kept_steps: int
    lost_gpu_s: float


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """How well an inference service was served: of so many `requests` the share `in_time` was answered within its SLO, where
    `promised` was wanted. `replica_s`: for how long replicas served, all together; `wanted_s`: for how long they were wanted.
    """

    service: str
    requests: float
    in_time: float
    promised: float
    replica_s: float
    wanted_s: float

    def __str__(self) -> str:
        return f"service {self.service} answered {self.in_time:.2%} of its requests in time, {self.promised:.2%} were promised"


@dataclass(frozen=True, slots=True)
class LagAccount:
    """How late a real cluster was against its own deadlines; emulated seconds, by kind of deadline (start, step, ...)."""

    count: int = 0
    p50_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0

    @classmethod
    def of(cls, lags: LagHistogram) -> LagAccount:
        """The figures of a histogram."""
        p50_s, p99_s = (to_s(round(lags.quantile_ns(share))) for share in (0.5, 0.99))
        return cls(lags.count, p50_s, p99_s, to_s(lags.max_ns))


@dataclass(frozen=True)
class RunRecord:
    """One policy on one cluster, once. `cluster` is `simulated` or `local`; `gpus` counts the cluster's devices.

    `jobs` are in workload order. `host_spans`: CPUs and memory of jobs over time; `cpu_milli`: CPUs of the cluster.
    `wall_s`: duration of the run on the host's clock; `policy_s`: the policy's part of it. `lag` and `notes` state what may
    distort an observed run; both are empty for a simulated one.
    """

    policy: str
    cluster: str
    repeat: int
    gpus: int
    nodes: tuple[str, ...]
    jobs: tuple[JobRecord, ...]
    spans: tuple[Span, ...]
    wall_s: float = 0.0
    decisions: int = 0
    lag: dict[str, LagAccount] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    cpu_milli: int = 0
    host_spans: tuple[HostSpan, ...] = ()
    policy_s: float = 0.0
    interruptions: tuple[Interruption, ...] = ()
    services: tuple[ServiceLevel, ...] = ()
