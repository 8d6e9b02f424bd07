from __future__ import annotations

import pytest

from emulator_runtime.domain.stages import NO_STAGES, HostResource, Stage, StageRun, StageTimes

STORAGE, NETWORK = HostResource("storage"), HostResource("network")
LEFT, RIGHT = HostResource("link-0", devices=("g0", "g1")), HostResource("link-1", devices=("g2", "g3"))
TIMES = StageTimes(fetch_ns=10, transfer_ns=5, exchange_ns=7)


def test_what_a_node_does_not_state_is_the_jobs_own():
    assert TIMES.input(3, (), ["g0"]) == [Stage({}, 10), Stage({}, 3), Stage({}, 5)]
    assert TIMES.exchange((STORAGE,)) == [Stage({}, 7)]


def test_what_a_node_states_is_demanded():
    assert TIMES.input(3, (STORAGE, LEFT, RIGHT), ["g0"]) == [
        Stage({"storage": 10}),
        Stage({}, 3),
        Stage({"link-0": 5}),
    ]
    assert TIMES.exchange((STORAGE, NETWORK)) == [Stage({"network": 7})]


@pytest.mark.parametrize(
    ("devices", "stage"),
    [
        (["g0", "g1"], Stage({"link-0": 10})),
        (["g1", "g2"], Stage({"link-0": 5, "link-1": 5})),
        (["g0", "g9"], Stage({"link-0": 5}, 5)),
        (["g9"], Stage({}, 5)),
    ],
)
def test_each_device_gets_its_copy_over_its_own_link(devices, stage):
    assert TIMES.input(0, (LEFT, RIGHT), devices)[-1] == stage


def test_a_job_without_stages_demands_nothing():
    assert not NO_STAGES and TIMES
    stages = NO_STAGES.input(3, (STORAGE, LEFT, NETWORK), ["g0"])
    assert StageRun(0, stages, 100).end_ns == 103
    assert StageRun(0, NO_STAGES.exchange((NETWORK,)), 100).end_ns == 100


def test_a_stage_is_demanded_when_the_one_before_has_ended():
    run = StageRun(4, TIMES.input(3, (STORAGE, LEFT, RIGHT), ["g1", "g2"]), 100)
    assert (run.step, run.ready_ns, run.outstanding, run.end_ns) == (4, 100, {"storage": 10}, None)
    assert run.served("storage", 130)
    assert (run.ready_ns, run.outstanding, run.end_ns) == (133, {"link-0": 5, "link-1": 5}, None)
    assert not run.served("link-1", 150)
    assert not run.served("link-0", 140)
    assert (run.outstanding, run.end_ns) == ({}, 150)


def test_an_answer_that_nobody_asked_for_has_no_effect():
    run = StageRun(0, TIMES.input(0, (STORAGE,), ["g0"]), 0)
    assert not run.served("network", 50)
    assert run.served("storage", 20) is False
    assert not run.served("storage", 99)
    assert run.end_ns == 25


def test_a_stage_lasts_at_least_as_long_as_its_own_part():
    run = StageRun(0, TIMES.input(0, (STORAGE, LEFT), ["g0", "g9"]), 0)
    assert run.served("storage", 10)
    assert not run.served("link-0", 12)
    assert run.end_ns == 15
