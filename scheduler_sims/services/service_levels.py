"""How well a run served the requests of services: which replicas ran when, and what that means for response times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.record import RunRecord, ServiceLevel, Span
from scheduler_sims.services.service import Service


def service_levels(run: RunRecord, services: Sequence[Service], costs: ClusterCosts) -> tuple[ServiceLevel, ...]:
    """The level of each service. `costs`: of starts and stops, in which a replica has devices and doesn't serve.

    While the number of replicas and the requests stay the same, the share that is answered in time is that of the long run
    (queue.py); requests that the replicas can't keep up with count as late, all of them.
    """
    return tuple(_level(service, run.spans, costs) for service in services)


def _level(service: Service, spans: Iterable[Span], costs: ClusterCosts) -> ServiceLevel:
    replicas = service.replicas(0)
    until_s = {job.job_id: job.until_s for job in replicas if job.until_s is not None}
    stays: dict[str, set[tuple[float, float]]] = {}
    for span in spans:
        if span.job_id in until_s:
            stays.setdefault(span.job_id, set()).add((span.start_s, span.end_s))
    serving = [both for job_id, held in stays.items() for both in _serving(sorted(held), until_s[job_id], costs)]
    phases = list(service.phases())
    changes = sorted(
        {time_s for both in serving for time_s in both} | {time_s for phase in phases for time_s in phase[:2]}
    )
    requests = in_time = 0.0
    for since_s, next_s in pairwise(changes):
        per_s = next((rate for begin_s, end_s, rate in phases if begin_s <= since_s < end_s), 0.0)
        number = sum(begin_s <= since_s < end_s for begin_s, end_s in serving)
        requests += per_s * (next_s - since_s)
        in_time += per_s * (next_s - since_s) * service.answered(per_s, number)
    replica_s = sum(end_s - begin_s for begin_s, end_s in serving)
    wanted_s = sum(until_s[job.job_id] - job.submit_s for job in replicas)
    share = in_time / requests if requests else 1.0
    return ServiceLevel(service.name, requests, share, service.within, replica_s, wanted_s)


def _serving(
    stays: Sequence[tuple[float, float]], until_s: float, costs: ClusterCosts
) -> Iterator[tuple[float, float]]:
    """When a replica serves that has devices in these intervals: after its start, until it is asked to stop."""
    for number, (begin_s, end_s) in enumerate(stays):
        served_s = begin_s + costs.begin_s(resumed=number > 0)
        last_s = until_s if end_s > until_s else end_s - costs.release_s()
        if served_s < last_s:
            yield served_s, last_s
