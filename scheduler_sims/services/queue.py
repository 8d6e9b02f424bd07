"""The M/M/c queue: requests that come at random wait for the first free one of c equal replicas (Erlang, 1917).

Arrivals are a Poisson process, times of service are exponentially distributed, and no request leaves before it is answered.
Formulas as in Gross et al., "Fundamentals of Queueing Theory", 4th edition, section 2.3.
"""

from __future__ import annotations

from math import exp, isclose


def waiting_probability(load: float, replicas: int) -> float:
    """The probability that a request waits (Erlang C). `load`: requests per second times the seconds of each; 1 if they are more
    than the replicas can serve."""
    if load >= replicas:
        return 1.0
    blocked = 1.0  # Erlang B, by its recursion over the number of replicas
    for count in range(1, replicas + 1):
        blocked = load * blocked / (count + load * blocked)
    return replicas * blocked / (replicas - load * (1 - blocked))


def answered_within(slo_s: float, per_s: float, service_s: float, replicas: int) -> float:
    """The share of requests that are answered within `slo_s`, from their arrival to the end of their service, in the long run.

    `per_s`: requests a second. `service_s`: mean time of service. 0 where the replicas can't keep up with the requests.
    """
    load = per_s * service_s
    if load >= replicas:
        return 0.0
    waits, serves, drains = waiting_probability(load, replicas), 1 / service_s, (replicas - load) / service_s
    served_late = exp(-serves * slo_s)
    if isclose(serves, drains, rel_tol=1e-9):
        late_after_wait = (1 + serves * slo_s) * served_late
    else:
        late_after_wait = (drains * served_late - serves * exp(-drains * slo_s)) / (drains - serves)
    return 1 - (1 - waits) * served_late - waits * late_after_wait
