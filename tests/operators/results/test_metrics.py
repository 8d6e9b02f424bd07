from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from operators.results.computing import job_result
from operators.results.metrics import ResultMetrics
from operators.results.predicted import Prediction

S = 1_000_000_000
T0 = 1_700_000_000 * S


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def value(registry):
    return lambda name, **labels: registry.get_sample_value(name, labels)


@pytest.fixture
def finished(teller, facts):
    node = teller("n1")
    node.tell("attached", 4)
    node.tell("finished", 20, 10)
    return job_result(facts(steps=10, policy="las"), node.events)


def test_a_job_is_counted_once(registry, value, finished):
    metrics = ResultMetrics(registry)
    assert metrics.ended(finished, Prediction(15.0, "las", T0))
    assert not metrics.ended(finished, Prediction(15.0, "las", T0))
    assert value("emugpu_job_completion_seconds_count", policy="las", outcome="finished") == 1
    assert value("emugpu_job_completion_seconds_sum", policy="las", outcome="finished") == 20
    assert value("emugpu_job_queueing_seconds_sum", policy="las") == 4
    assert value("emugpu_job_prediction_error_ratio_sum", policy="las") == 0.25
    assert value("emugpu_job_preemptions_total", policy="las") == 0


def test_who_is_forgotten_takes_no_place_and_stays_in_the_histograms(value, registry, finished):
    metrics = ResultMetrics(registry)
    metrics.ended(finished)
    metrics.forget(["job", "never there"])
    assert value("emugpu_job_completion_seconds_count", policy="las", outcome="finished") == 1
    assert metrics.ended(finished)  # nothing is remembered of it


def test_a_job_that_runs_is_not_counted(registry, value, facts):
    assert not ResultMetrics(registry).ended(job_result(facts(), []))
    assert value("emugpu_job_completion_seconds_count", policy="none", outcome="finished") is None


def test_a_failed_job_has_a_time_of_its_own_and_no_error(registry, value, facts):
    failed = job_result(facts(failed_ns=T0 + 7 * S), [])
    assert ResultMetrics(registry).ended(failed, Prediction(1.0, "fifo", T0))
    assert value("emugpu_job_completion_seconds_sum", policy="none", outcome="failed") == 7
    assert value("emugpu_job_queueing_seconds_count", policy="none") is None
    assert value("emugpu_job_prediction_error_ratio_count", policy="fifo") is None
