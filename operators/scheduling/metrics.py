"""Prometheus metrics of a scheduler. Names follow the Prometheus conventions: base units, _total for counters."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from scheduler_sims.loop.strategies import Decision


class SchedulerMetrics:
    """The metrics of one scheduler, in a registry of their own."""

    def __init__(self, policy: str) -> None:
        self.registry = registry = CollectorRegistry()
        self._decisions = Histogram(
            "emugpu_scheduler_decision_seconds",
            "From the first event of a decision until all of it is written",
            ["policy"],
            registry=registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
        ).labels(policy)
        queued = Gauge("emugpu_scheduler_queued_jobs", "Jobs that wait", ["policy"], registry=registry)
        holding = Gauge(
            "emugpu_scheduler_holding_jobs", "Jobs that hold devices or CPUs", ["policy"], registry=registry
        )
        self._queued, self._holding = queued.labels(policy), holding.labels(policy)
        actions = Counter("emugpu_scheduler_actions", "What was done to jobs", ["policy", "action"], registry=registry)
        self._actions = [actions.labels(policy, name) for name in ("start", "stop", "resize", "refused")]
        failures = Counter(
            "emugpu_scheduler_policy_failures", "Plans that could not be made", ["policy"], registry=registry
        )
        self.failures = failures.labels(policy)

    def count(self, decision: Decision) -> None:
        self._decisions.observe(decision.took_s)
        counts = (decision.started, decision.stopped, decision.resized, decision.refused)
        for counter, jobs in zip(self._actions, counts, strict=True):
            counter.inc(len(jobs))

    def set_jobs(self, queued: int, holding: int) -> None:
        """Sets the current numbers of jobs."""
        self._queued.set(queued)
        self._holding.set(holding)
