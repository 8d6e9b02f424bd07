from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from operators.results.predicted import Prediction
from operators.results.status import fairness, status_of
from operators.results.timeline import job_result

S = 1_000_000_000
T0 = 1_700_000_000 * S


@pytest.fixture
def finished(teller, facts):
    node = teller("n1")
    node.tell("attached", 4.25)
    node.tell("finished", 20, 10)
    return job_result(facts(steps=10, gpus=4, isolated_s=10.0), node.events)


def test_all_that_is_known_of_a_finished_job(finished):
    assert status_of(finished, Prediction(15.5, "las", T0), 1.25) == {
        "submittedAt": "2023-11-14T22:13:20.000000Z",
        "startedAt": "2023-11-14T22:13:24.250000Z",
        "finishedAt": "2023-11-14T22:13:40.000000Z",
        "stepsDone": 10,
        "preemptions": 0,
        "observedJCTSeconds": 20.0,
        "queueingDelaySeconds": 4.25,
        "serviceSeconds": 15.75,
        "slowdown": 2.0,
        "fairness": 1.25,
        "predictedJCTSeconds": {"value": 15.5, "by": "las", "at": "2023-11-14T22:13:20.000000Z"},
    }


def test_what_is_not_known_yet_is_left_out(facts):
    assert status_of(job_result(facts(), []), None, None) == {
        "submittedAt": "2023-11-14T22:13:20.000000Z",
        "stepsDone": 0,
        "preemptions": 0,
        "serviceSeconds": 0.0,
    }


def test_fairness_counts_the_others_while_the_job_was_there(finished, facts):
    waiting = job_result(replace(facts("other"), submitted_ns=T0 + 10 * S), [])
    assert fairness(finished, [finished], 4, T0 + 100 * S) == 2.0
    # 1.5 jobs on average: it is owed 4 / 1.5 of its 4 GPUs, so 15 s.
    assert fairness(finished, [finished, waiting], 4, T0 + 100 * S) == pytest.approx(20 / 15)
    assert fairness(waiting, [finished], 4, T0 + 100 * S) is None


@pytest.mark.parametrize("isolated_s", [None, inf])
def test_without_an_isolated_time_there_is_no_fairness(finished, isolated_s):
    unknown = replace(finished, facts=replace(finished.facts, isolated_s=isolated_s))
    assert (fairness(unknown, [], 4, T0), unknown.slowdown) == (None, None)
