"""A service: requests over time, the response time that they are promised, and the replicas that this takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import exp

from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from scheduler_sims.services.queue import answered_within

REPLICA = "replica"
"""The configuration of a replica."""
_STEP_S = 1.0
"""Policies and reports see the time for which a replica has run in steps of about this length."""


@dataclass(frozen=True, slots=True)
class Service:
    """`requests`: pairs of a time and the requests per second from then on, in order; they end at `until_s`. Times are emulated
    seconds.

    The share `within` of the requests is to be answered in `slo_s`; a replica, with the resources of `configuration`, answers one
    in `service_s` on average (`answered_within` has the model). `react_s` after the requests have changed the number of replicas
    follows. `weight`: of each replica.
    """

    name: str
    configuration: Configuration
    service_s: float
    slo_s: float
    within: float
    requests: tuple[tuple[float, float], ...]
    until_s: float
    react_s: float = 0.0
    weight: float = 1.0

    @property
    def best(self) -> float:
        """The share that is answered in time if no request ever waits."""
        return 1 - exp(-self.slo_s / self.service_s)

    def answered(self, per_s: float, replicas: int) -> float:
        """The share of `per_s` requests a second that so many replicas answer in time; 1 if there are no requests."""
        return answered_within(self.slo_s, per_s, self.service_s, replicas) if per_s else 1.0

    def needs(self, per_s: float) -> int:
        """The least replicas with which `per_s` requests a second are answered as promised."""
        replicas = int(per_s * self.service_s)
        while self.answered(per_s, replicas) < self.within:
            replicas += 1
        return replicas

    def phases(self) -> Iterator[tuple[float, float, float]]:
        """Begin, end and requests per second of each phase."""
        ends = [*(begin_s for begin_s, _ in self.requests[1:]), self.until_s]
        for (begin_s, per_s), end_s in zip(self.requests, ends, strict=True):
            yield begin_s, end_s, per_s

    def stretched(self, factor: float) -> Service:
        """The same phases on a longer (above 1) or shorter time line, with as many requests a second, each as long as before."""
        requests = tuple((begin_s * factor, per_s) for begin_s, per_s in self.requests)
        return replace(self, requests=requests, until_s=self.until_s * factor, react_s=self.react_s * factor)

    def replicas(self, first_row: int) -> list[JobSpec]:
        """A job for each time that a replica is there. The one that came last leaves first.

        Each has a name of its own, NAME/NUMBER@TIME, and rows count from `first_row`.
        """
        jobs: list[JobSpec] = []
        since: list[float] = []
        for begin_s, end_s, per_s in self._replica_phases():
            wanted = self.needs(per_s)
            while len(since) > wanted:
                jobs.append(self._replica(len(since), since.pop(), begin_s))
            since += [begin_s] * (wanted - len(since))
            if end_s == self.until_s:
                jobs += [self._replica(number, start_s, end_s) for number, start_s in enumerate(since, 1)]
        jobs.sort(key=lambda job: job.submit_s)
        return [replace(job, row=first_row + number) for number, job in enumerate(jobs)]

    def _replica_phases(self) -> Iterator[tuple[float, float, float]]:
        """The phases as the number of replicas follows them: the first at once, others after `react_s`."""
        first = True
        for begin_s, end_s, per_s in self.phases():
            late = begin_s if first else begin_s + self.react_s
            until = self.until_s if end_s == self.until_s else min(end_s + self.react_s, self.until_s)
            first = False
            if late < until:
                yield late, until, per_s

    def _replica(self, number: int, start_s: float, until_s: float) -> JobSpec:
        """Its work is a step longer than its time, so that it never ends by itself."""
        steps = max(1, round((until_s - start_s) / _STEP_S))
        return JobSpec(
            job_id=f"{self.name}/{number}@{start_s:.9f}".rstrip("0").rstrip("."),
            user=self.name,
            submit_s=start_s,
            steps=steps + 1,
            configurations=(self.configuration,),
            work={REPLICA: TimedWork((until_s - start_s) * (steps + 1) / steps)},
            row=0,
            weight=self.weight,
            until_s=until_s,
        )
