"""What differs between a loop over one workload and a loop that serves a cluster for months: arguments of SchedulerLoop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.loop.books import JobBooks

Progress = Callable[[int, float], None]
Explain = Callable[[float, str, str], None]

PATIENCE_S = 10.0
"""Emulated time after which a policy that failed is called again if no event comes first."""


@dataclass(slots=True)
class Decision:
    """The result of one plan. `at_s` and `took_s` in emulated seconds; jobs by id."""

    at_s: float
    triggers: tuple[str, ...]
    started: dict[str, Allocation] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    resized: dict[str, Allocation] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    queued: int = 0
    holding: int = 0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Ending:
    """When the loop returns. `endless`: jobs and nodes come and go, so

    - a policy may leave all jobs queued (otherwise the loop raises PolicyError, since nothing could happen any more);
    - the loop may end during a decision's delay;
    - a plan may name jobs that left while it was made, and a plan for other nodes is dropped;
    - the records of jobs that ended are not kept.
    """

    over: Callable[[JobBooks], bool]
    endless: bool = False


ALL_JOBS_ENDED = Ending(lambda books: books.done)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks, called by the loop's thread.

    `progress`: number of ended jobs and the time, after each batch of events. `explain`: time, job and a policy's reason.
    `submitted`: each job that the cluster reports, before any decision about it. `noted`: the books have changed.
    `decided`: each decision. `failed`: an error of the policy or its plan; it returns
    True to continue and call the policy again after PATIENCE_S.
    """

    progress: Progress = lambda _ended, _now_s: None
    explain: Explain | None = None
    submitted: Callable[[PresentJob], None] = lambda _job: None
    noted: Callable[[], None] = lambda: None
    decided: Callable[[Decision], None] | None = None
    failed: Callable[[PolicyError], bool] = lambda _error: False
