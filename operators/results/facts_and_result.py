"""The types of a job (JobFacts) and of its result (JobResult); computing.py computes the result from the facts and events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import NS_PER_S, to_s
from operators.results.events import FINISHED
from operators.results.runs_from_events import Run, union_length

FLAG_NS = 50_000_000
"""Contradictions between two clocks above this are noted with the result: a quarter of a typical step."""
EMUJOB = "EmuJob"
DELETED = "deleted"
EVENT_LOG = "event log"
KUBERNETES = "Kubernetes"
SETTLE_S = 60.0
"""How long the event log's report of a job's end may arrive after Kubernetes' (a node waits as long for a Redis that is away)."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the operator knows of a job besides its events. Times are its wall clock since 1970, None: it hasn't happened.

    `uid`: the prefix of its job keys: the uid of an EmuJob (which may need several batch Jobs one after the other), of a batch
    Job without one, or of a pod of neither; `kind` says which. `submitted_ns`: when the operator saw it first. `tasks`: pods that
    each do all `steps` (0: unknown; of an elastic job its samples, as wherever its results count steps). `gpus` of each task.
    `isolated_s`: run time alone on its devices (None: unknown).
    `policy`: the policy's title in a run of an experiment, else the scheduler's name. `failed_ns`, `completed_ns`: when its Job
    failed for good or completed, as Kubernetes reports it. `deleted_ns`: when its object was found missing before the job had
    ended. `experiment`: the label of the experiment's run.
    """

    uid: str
    namespace: str
    name: str
    submitted_ns: int
    tasks: int = 1
    steps: int = 0
    gpus: int = 0
    isolated_s: float | None = None
    policy: str = ""
    failed_ns: int | None = None
    kind: str = EMUJOB
    experiment: str = ""
    deleted_ns: int | None = None
    completed_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """Kubernetes' times of the pods' containers, in whole seconds rounded down; None if it reports none."""

    started_ns: int | None = None
    finished_ns: int | None = None

    def contradictions(self, started_ns: int | None, finished_ns: int | None) -> list[str]:
        """A container can't compute before it is started or after it has ended."""
        found = []
        if started_ns is not None and self.started_ns is not None and started_ns < self.started_ns - FLAG_NS:
            early = to_s(self.started_ns - started_ns)
            found.append(
                f"its first run begins {early:.3f} s before Kubernetes started a container; compare the clocks"
            )
        if finished_ns is not None and self.finished_ns is not None:
            late_ns = finished_ns - self.finished_ns - NS_PER_S
            if late_ns > FLAG_NS:
                late = to_s(late_ns)
                found.append(
                    f"its last step ends {late:.3f} s after Kubernetes' last container did; compare the clocks"
                )
        return found


@dataclass(frozen=True, slots=True)
class JobResult:
    """Times are the operator's wall clock since 1970, None: it hasn't happened. `outcome`: "", finished, failed or deleted.

    `told_by`: the source of the end, EVENT_LOG or KUBERNETES (in whole seconds; the event log's report may still arrive).
    `preemptions` and `interruptions` (failures, ends that nobody reported) count for the job as a whole, however many pods it
    has. `steps_missing` and `steps_repeated`: of all pods, steps that no event covers, and steps that were done again.
    `heard_ns`: when `steps_done` steps were known to be done; of a job that has ended, its newest event. `notes`: sentences about
    what may distort the figures.
    """

    facts: JobFacts
    first_started_ns: int | None
    finished_ns: int | None
    outcome: str
    told_by: str
    runs: tuple[Run, ...]
    preemptions: int
    interruptions: int
    steps_done: int
    steps_missing: int
    steps_repeated: int
    check: CrossCheck
    notes: tuple[str, ...] = ()
    heard_ns: int | None = None

    @property
    def finished(self) -> bool:
        """It has done all its steps."""
        return self.outcome == FINISHED

    def settled(self, now_ns: int) -> bool:
        """Its end is known and no better report of it will arrive: it came from the event log, or from Kubernetes SETTLE_S
        ago."""
        if self.finished_ns is None:
            return False
        return self.told_by == EVENT_LOG or now_ns - self.finished_ns >= SETTLE_S * NS_PER_S

    @property
    def jct_s(self) -> float | None:
        """From submission to the end of the last step, or to the failure; a deleted job has none."""
        if self.finished_ns is None or self.outcome == DELETED:
            return None
        return to_s(self.finished_ns - self.facts.submitted_ns)

    @property
    def queueing_delay_s(self) -> float | None:
        """From submission until it held devices for the first time."""
        return None if self.first_started_ns is None else to_s(self.first_started_ns - self.facts.submitted_ns)

    @property
    def service_s(self) -> float:
        """How long it held devices, up to its newest event if it still does; pods at the same time count once."""
        ends = ((r.begin_ns, r.end_ns if r.end_ns is not None else r.heard_ns) for r in self.runs)
        return to_s(union_length(ends))

    @property
    def slowdown(self) -> float | None:
        """JCT over the job's run time alone on its devices (Feitelson's slowdown): 1 is the best possible.

        None while it runs, where it failed, and where its isolated time isn't known.
        """
        if self.jct_s is None or not self.finished or not self.facts.isolated_s:
            return None
        return self.jct_s / self.facts.isolated_s if isfinite(self.facts.isolated_s) else None


def merged(known: JobFacts, news: JobFacts) -> JobFacts:
    """Facts of the same job, reported twice: the first submission, isolated time and end stay.

    Its isolated time is that on the cluster to which it was submitted, and a controller that restarts sees the job later.
    """
    failed, deleted = _first(known.failed_ns, news.failed_ns), _first(known.deleted_ns, news.deleted_ns)
    isolated_s = news.isolated_s if known.isolated_s is None else known.isolated_s
    kept = replace(news, submitted_ns=known.submitted_ns, isolated_s=isolated_s)
    completed = _first(known.completed_ns, news.completed_ns)
    return replace(kept, failed_ns=failed, deleted_ns=deleted, completed_ns=completed)


def _first(known: int | None, news: int | None) -> int | None:
    return news if known is None else known


# --- archived results, whose events have been deleted -----------------------------------------------------------------------


def to_json(result: JobResult) -> str:
    return json.dumps(asdict(result), separators=(",", ":"))


def from_json(text: str) -> JobResult:
    """The inverse of `to_json`. Raises ClusterError if the text is damaged."""
    try:
        members = json.loads(text)
        runs = tuple(_run(run) for run in members.pop("runs"))
        facts, check = JobFacts(**members.pop("facts")), CrossCheck(**members.pop("check"))
        return JobResult(facts=facts, check=check, runs=runs, notes=tuple(members.pop("notes")), **members)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"the archived result of a job is damaged: {error!r}") from error


def _run(members: Mapping[str, Any]) -> Run:
    return Run(**{**members, "devices": tuple(members["devices"])})
