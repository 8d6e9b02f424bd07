"""What a policy may know about the speed of jobs: the true speed, the true speed with an error, or nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from emulator_runtime.domain.errors import InputError, PolicyError

if TYPE_CHECKING:
    from scheduler_sims.interface.plan import Allocation
    from scheduler_sims.interface.view import JobView


class StepStages(NamedTuple):
    """One step of a job alone: how long it takes, and the seconds for which it needs each resource of its nodes.

    `cpu_s`: the work of its CPUs and of the host, and copies to devices. Stages overlap, so their sum may exceed `step_s`.
    """

    step_s: float
    storage_s: float
    cpu_s: float
    gpu_s: float
    network_s: float


class Truth(Protocol):
    """The true speed of jobs, as the cluster realises it."""

    def duration_s(self, job_id: str, configuration: str, gpu_type: str | None) -> float:
        """Run time of all steps of the job alone on its devices, in seconds.

        `gpu_type` None: on the fastest type of this cluster that the job allows.
        """
        ...

    def rate(self, job_id: str, allocation: Allocation) -> float:
        """Steps per second with `allocation`, alone on its devices."""
        ...

    def stages(self, job_id: str, configuration: str) -> StepStages:
        """One step with the least CPUs and memory, on the fastest type of this cluster that the job allows."""
        ...


class Estimates(Protocol):
    """Estimated speeds: the only source from which a policy knows how long jobs run."""

    @property
    def available(self) -> bool:
        """Whether there are estimates at all."""
        ...

    def duration_s(self, job: JobView, configuration: str, gpu_type: str | None = None) -> float:
        """Estimated run time of the whole job in seconds; `gpu_type` None: on the fastest type that it allows."""
        ...

    def rate(self, job: JobView, allocation: Allocation) -> float:
        """Estimated steps per second with this allocation, each of as many samples as it says."""
        ...

    def stages(self, job: JobView, configuration: str) -> StepStages:
        """The estimated stages of one step, alone on devices of the fastest type that it allows."""
        ...


@dataclass(frozen=True)
class ErrorEstimates:
    """The true run time times (1 + e); e is drawn once per job and configuration from N(0, sigma), limited to +-0.99.

    sigma 0 is the oracle. The draw depends only on seed, job and configuration, so it is the same under every policy
    (AlloX's error model: Le et al., EuroSys 2020, section 5).
    """

    truth: Truth
    sigma: float
    seed: int
    available: bool = True
    _factors: dict[tuple[str, str], float] = field(default_factory=dict, repr=False, compare=False)

    def duration_s(self, job: JobView, configuration: str, gpu_type: str | None = None) -> float:
        return self.truth.duration_s(job.job_id, configuration, gpu_type) * self._factor(job.job_id, configuration)

    def rate(self, job: JobView, allocation: Allocation) -> float:
        return self.truth.rate(job.job_id, allocation) / self._factor(job.job_id, allocation.configuration)

    def stages(self, job: JobView, configuration: str) -> StepStages:
        factor = self._factor(job.job_id, configuration)
        return StepStages(*(seconds * factor for seconds in self.truth.stages(job.job_id, configuration)))

    def _factor(self, job_id: str, configuration: str) -> float:
        if self.sigma == 0:
            return 1.0
        key = (job_id, configuration)
        if key not in self._factors:
            draw = Random(f"{self.seed}/estimates/{job_id}/{configuration}").gauss(0.0, self.sigma)
            self._factors[key] = 1.0 + min(0.99, max(-0.99, draw))
        return self._factors[key]


@dataclass(frozen=True)
class NoEstimates:
    """No estimates: a policy that asks for one fails, with an error that names the option to set."""

    available: bool = False

    def duration_s(self, job: JobView, configuration: str, gpu_type: str | None = None) -> float:
        raise PolicyError(
            "this policy asks for job durations, but the run gives none: use --estimates oracle or error:0.2"
        )

    def rate(self, job: JobView, allocation: Allocation) -> float:
        raise PolicyError(
            "this policy asks for job speeds, but the run gives none: use --estimates oracle or error:0.2"
        )

    def stages(self, job: JobView, configuration: str) -> StepStages:
        raise PolicyError(
            "this policy asks for the stages of steps, but the run gives none: use --estimates oracle or error:0.2"
        )


_KINDS = "oracle, none, error:SIGMA with SIGMA from 0 to 10 (such as error:0.2)"


def parse_estimates(text: str, truth: Truth, seed: int) -> Estimates:
    """`oracle`, `error:SIGMA` or `none`, as given to --estimates."""
    kind, _, sigma = text.partition(":")
    if kind == "oracle" and not sigma:
        return ErrorEstimates(truth, 0.0, seed)
    if kind == "none" and not sigma:
        return NoEstimates()
    try:
        value = float(sigma) if kind == "error" else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise InputError("--estimates", f"{text!r} is none of {_KINDS}")
    return ErrorEstimates(truth, value, seed)
