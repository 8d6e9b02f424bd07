from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from operators.results.computing import job_result
from operators.results.status import Outcome, Stays, fairness, members_of

S = 1_000_000_000
T0 = 1_700_000_000 * S


@pytest.fixture
def finished(teller, facts):
    node = teller("n1")
    node.tell("attached", 4.25, detail="GPU-1,GPU-2")
    node.tell("finished", 20, 10)
    return job_result(facts(steps=10, gpus=4, isolated_s=10.0), node.events)


def test_all_that_is_known_of_a_finished_job(finished):
    run = {"node": "n1", "devices": ["GPU-1", "GPU-2"], "fromStep": 0, "toStep": 10, "ended": "finished"}
    assert members_of(Outcome(finished, settled=True, fairness=1.25)) == {
        "startedAt": "2023-11-14T22:13:24.250000Z",
        "finishedAt": "2023-11-14T22:13:40.000000Z",
        "stepsDone": 10,
        "stepsDoneAt": "2023-11-14T22:13:40.000000Z",
        "observedJCTSeconds": 20.0,
        "queueingDelaySeconds": 4.25,
        "serviceSeconds": 15.75,
        "slowdown": 2.0,
        "fairness": 1.25,
        "runs": [run | {"from": "2023-11-14T22:13:24.250000Z", "to": "2023-11-14T22:13:40.000000Z"}],
    }


def test_what_is_not_known_yet_is_left_out(facts):
    waiting = {"stepsDone": 0, "serviceSeconds": 0.0, "runs": []}
    assert members_of(Outcome(job_result(facts(), []))) == waiting


def test_a_job_that_failed_has_an_end_and_no_completion_time(facts):
    failed = job_result(facts(failed_ns=T0 + 7 * S), [])
    told = members_of(Outcome(failed))  # nobody will tell it better
    assert (told["finishedAt"], "observedJCTSeconds" in told) == ("2023-11-14T22:13:27.000000Z", False)


def test_what_kubernetes_told_is_shown_once_nothing_better_comes(facts):
    complete = job_result(facts(completed_ns=T0 + 7 * S), [])
    assert "finishedAt" not in members_of(Outcome(complete))
    assert members_of(Outcome(complete, settled=True))["observedJCTSeconds"] == 7.0


def test_fairness_counts_the_others_while_the_job_was_there(finished, facts):
    own = {"job": (T0, T0 + 20 * S)}
    assert fairness(finished, Stays(own), 4) == 2.0
    # 1.5 jobs on average: it is owed 4 / 1.5 of its 4 GPUs, so 15 s.
    assert fairness(finished, Stays(own | {"other": (T0 + 10 * S, 2**62)}), 4) == pytest.approx(20 / 15)
    assert fairness(job_result(facts("other"), []), Stays(own), 4) is None


@pytest.mark.parametrize("isolated_s", [None, inf])
def test_without_an_isolated_time_there_is_no_fairness(finished, isolated_s):
    unknown = replace(finished, facts=replace(finished.facts, isolated_s=isolated_s))
    assert (fairness(unknown, Stays(), 4), unknown.slowdown) == (None, None)
