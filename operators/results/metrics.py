"""Prometheus metrics of results. Histograms are filled from the store at the start, so that a restart of the operator neither
loses a job nor counts it twice."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from operators.results.facts_and_result import JobResult
from operators.results.predicted import Prediction, error_ratio

_SECONDS = (1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
_RATIOS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
NO_POLICY = "none"
"""The label of jobs without a job-level scheduler."""


class ResultMetrics:
    """Metrics of jobs that have ended. Each job is counted once, however often it is reported."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._jobs: set[str] = set()
        self._jct = Histogram(
            "emugpu_job_completion_seconds",
            "Job completion time as observed, from submission to the end of the last step",
            ["policy", "outcome"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._queueing = Histogram(
            "emugpu_job_queueing_seconds",
            "From submission until the job held devices for the first time",
            ["policy"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._preemptions = Counter(
            "emugpu_job_preemptions", "Preemptions of jobs that ended", ["policy"], registry=registry
        )
        self._error = Histogram(
            "emugpu_job_prediction_error_ratio",
            "|predicted - observed| / observed JCT, predicted at submission without knowing what comes later",
            ["policy"],
            buckets=_RATIOS,
            registry=registry,
        )
        self.store_up = Gauge(
            "emugpu_results_store_up",
            "0 while the operator's store can't be read or written; 1 also where this replica has not tried",
            registry=registry,
        )
        self.store_up.set(1)

    def ended(self, result: JobResult, prediction: Prediction | None = None) -> bool:
        """Count a job that has ended; False if it hasn't, or was counted before."""
        uid, jct_s = result.facts.uid, result.jct_s
        if jct_s is None or uid in self._jobs:
            return False
        self._jobs.add(uid)
        policy = result.facts.policy or NO_POLICY
        self._jct.labels(policy, result.outcome).observe(jct_s)
        if result.queueing_delay_s is not None:
            self._queueing.labels(policy).observe(result.queueing_delay_s)
        self._preemptions.labels(policy).inc(result.preemptions)
        if prediction is not None and result.finished and jct_s > 0:
            self._error.labels(prediction.by).observe(error_ratio(prediction.seconds, jct_s))
        return True

    def forget(self, uids: Iterable[str]) -> None:
        """These jobs will not be reported again; the histograms keep them."""
        self._jobs.difference_update(uids)


class CollectorMetrics:
    """Metrics of the reading of event streams."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events = Counter("emugpu_collector_events", "Events written to the operator's store", registry=registry)
        self.failures = Counter(
            "emugpu_collector_failures", "Attempts to read or to store that failed", ["reason"], registry=registry
        )
        self.unread = Counter(
            "emugpu_collector_unread", "Events that were deleted or damaged before they were read", registry=registry
        )
        self.lag = Gauge(
            "emugpu_collector_lag_seconds",
            "Age of the oldest event of the last batch when it was stored; 0: nothing waits",
            registry=registry,
        )
        self.up = Gauge("emugpu_collector_up", "1 while event streams can be read and stored", registry=registry)
