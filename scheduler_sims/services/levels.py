"""How well a run served the requests of services: which replicas ran when, and what that means for response times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from scheduler_sims.record import RunRecord, ServiceLevel, Span
from scheduler_sims.services.service import Service


def service_levels(run: RunRecord, services: Sequence[Service], start_s: float) -> tuple[ServiceLevel, ...]:
    """The level of each service. `start_s`: a replica serves so long after it got its devices.

    While the number of replicas and the requests stay the same, the share that is answered in time is that of the long run
    (queue.py); requests that the replicas can't keep up with count as late, all of them.
    """
    return tuple(_level(service, run.spans, start_s) for service in services)


def _level(service: Service, spans: Iterable[Span], start_s: float) -> ServiceLevel:
    prefix = f"{service.name}/"
    runs = {(span.job_id, span.start_s, span.end_s) for span in spans if span.job_id.startswith(prefix)}
    serving = sorted((begin_s + start_s, end_s) for _, begin_s, end_s in runs if begin_s + start_s < end_s)
    changes = sorted(
        {time_s for both in serving for time_s in both} | {time_s for p in service.phases() for time_s in p[:2]}
    )
    requests = in_time = 0.0
    for since_s, until_s in pairwise(changes):
        per_s = next((rate for begin_s, end_s, rate in service.phases() if begin_s <= since_s < end_s), 0.0)
        replicas = sum(begin_s <= since_s < end_s for begin_s, end_s in serving)
        requests += per_s * (until_s - since_s)
        in_time += per_s * (until_s - since_s) * service.answered(per_s, replicas)
    replica_s = sum(end_s - begin_s for begin_s, end_s in serving)
    wanted_s = sum(job.until_s - job.submit_s for job in service.replicas(0) if job.until_s is not None)
    return ServiceLevel(
        service.name, requests, in_time / requests if requests else 1.0, service.within, replica_s, wanted_s
    )
