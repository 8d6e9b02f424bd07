"""What probe jobs showed: each run and each stop with its times, from EmuJob statuses and the scheduler's decisions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from emulator_runtime.domain.job import JobSpec, TimedWork
from emulator_runtime.domain.units import to_ns, to_s
from operators.experiments.records import ObservedJob
from operators.experiments.scheduler_output import Decision


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One run of a probe job, nanoseconds since 1970.

    `asked_ns`: the scheduler decided to start it; `begin_ns`: its first step began; `end_ns`: its last step ended.
    """

    submitted_ns: int
    asked_ns: int
    begin_ns: int
    end_ns: int

    @property
    def start_s(self) -> float:
        return to_s(self.begin_ns - self.asked_ns)


@dataclass(frozen=True, slots=True)
class ProbeStop:
    """A preempted run of a probe job, nanoseconds since 1970.

    `asked_ns`: the scheduler decided to stop it; `end_ns`: its last step ended; `next_asked_ns`: the scheduler decided to start
    the next job in this place. `again`: the run in which the stopped job resumed. `others`: how many other jobs the same
    decision stopped, whether or not they could be observed.
    """

    asked_ns: int
    end_ns: int
    next_asked_ns: int
    again: ProbeRun
    others: int = 0

    @property
    def freed_s(self) -> float:
        """From the end of the last step until the place was free for the next job."""
        return to_s(self.next_asked_ns - self.end_ns)


@dataclass(frozen=True, slots=True)
class ProbeJobs:
    """The jobs of one probe, submitted in one go. `visits`: for each job that yields its place, the jobs that visit it."""

    jobs: tuple[JobSpec, ...] = ()
    visits: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def planned(self) -> int:
        """How many observations this probe should give: stops where jobs yield their places, else runs."""
        return sum(len(visitors) for _, visitors in self.visits) if self.visits else len(self.jobs)


@dataclass(frozen=True, slots=True)
class Observations:
    """By the probe's name: its runs, in order of their begin; its stops; and how many observations were planned.

    `coalesce_s`: for how long the scheduler gathered events before it decided.
    """

    runs: Mapping[str, Sequence[ProbeRun]] = field(default_factory=dict)
    stops: Mapping[str, Sequence[ProbeStop]] = field(default_factory=dict)
    planned: Mapping[str, int] = field(default_factory=dict)
    coalesce_s: float = 0.0

    def runs_of(self, probe: str) -> Sequence[ProbeRun]:
        return self.runs.get(probe, ())

    def stops_of(self, probe: str) -> Sequence[ProbeStop]:
        return self.stops.get(probe, ())


def observations(
    probes: Mapping[str, ProbeJobs],
    observed: Iterable[ObservedJob],
    decisions: Sequence[Decision],
    coalesce_s: float,
) -> Observations:
    """Jobs that did not finish, or whose end is not in the event log, are left out."""
    usable = {job.job_id: job for job in observed if job.settled and job.runs and job.submitted_ns is not None}
    runs: dict[str, list[ProbeRun]] = {}
    stops: dict[str, list[ProbeStop]] = {}
    for name, probe in probes.items():
        by_job = {
            spec.job_id: _runs(spec, usable[spec.job_id], decisions) for spec in probe.jobs if spec.job_id in usable
        }
        runs[name] = sorted((run for each in by_job.values() for run in each), key=lambda run: run.begin_ns)
        stops[name] = [stop for host, visitors in probe.visits for stop in _stops(host, by_job, visitors, decisions)]
    planned = {name: probe.planned for name, probe in probes.items()}
    return Observations(runs, stops, planned, coalesce_s)


def _runs(spec: JobSpec, job: ObservedJob, decisions: Iterable[Decision]) -> list[ProbeRun]:
    """Each run with the decision that started it. A run's first step began its number of steps before its last step's end, but
    a program's run took as long as it took."""
    (work,) = spec.work.values()
    assert isinstance(work, TimedWork)
    step_ns = to_ns(work.duration_s) // spec.steps
    asked = [decision.at_ns for decision in decisions if spec.job_id in decision.started]
    if len(asked) != len(job.runs):
        return []  # which decision started which run is unknown
    begins_ns = [run.from_ns if spec.program else run.until_ns - run.steps * step_ns for run in job.runs]
    return [
        ProbeRun(job.submitted_ns or 0, at_ns, begin_ns, run.until_ns)
        for at_ns, begin_ns, run in zip(asked, begins_ns, job.runs, strict=True)
    ]


def _stops(
    host: str, runs: Mapping[str, Sequence[ProbeRun]], visitors: Sequence[str], decisions: Sequence[Decision]
) -> list[ProbeStop]:
    stopping = [decision for decision in decisions if host in decision.stopped]
    own = runs.get(host, ())
    if len(own) != len(stopping) + 1:
        return []  # which stop ended which run is unknown
    visits = sorted(run.asked_ns for visitor in visitors for run in runs.get(visitor, ()))
    found = []
    for decision, (before, after) in zip(stopping, pairwise(own), strict=True):
        following = [visit for visit in visits if decision.at_ns <= visit <= after.asked_ns]
        if following:
            others = len(decision.stopped) - 1
            found.append(ProbeStop(decision.at_ns, before.end_ns, following[0], after, others))
    return found
