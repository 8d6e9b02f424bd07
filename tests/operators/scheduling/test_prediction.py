"""Foretold completion times: from the middle of a run as from its beginning."""

from __future__ import annotations

import itertools

import pytest

from emulator_runtime.domain.errors import InputError, PolicyError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from operators.scheduling.predict.prediction import predict_job
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.experiment import Experiment
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

PROFILES = ProfileTable.bundled()


def cluster(gpus=1, nodes=1, **costs):
    names = [f"n{number}" for number in range(1, nodes + 1)]
    specs = [NodeSpec(n, 64_000, 0, tuple(Device(n, i, "Tesla-T4", 16 * GIB) for i in range(gpus))) for n in names]
    return ClusterSpec(tuple(specs), ClusterCosts(**costs))


def job(name, seconds, submit_s=0.0, gpus=1, steps=100, row=0, tasks=1):
    configuration = Configuration("gpu", gpus, 1000, min_tasks=tasks, max_tasks=tasks)
    return JobSpec(name, "user", submit_s, steps, (configuration,), {"gpu": TimedWork(seconds)}, row)


def placed(node="n1", index=0):
    share = DeviceShare(Device(node, index, "Tesla-T4", 16 * GIB).uuid, "Tesla-T4")
    return Allocation("gpu", (TaskPlacement(node, (share,), 1000),))


def running(name, seconds, done=0, *, since_s=-10.0, node="n1", index=0, **more):
    spec = job(name, seconds, submit_s=since_s - 1)
    return PresentJob(spec, done, placed(node, index), since_s, more.pop("step_since_s", 0.0), **more)


def waiting(name, seconds, submit_s=-1.0):
    return PresentJob(job(name, seconds, submit_s))


def predict(new, present, spec=None, policy="fifo"):
    return predict_job(new, present, spec or cluster(), policy, PROFILES, at_ns=5)


def test_alone_it_takes_its_own_time():
    prediction = predict(job("new", 30), [])
    assert (prediction.seconds, prediction.by, prediction.at_ns) == (30, "fifo", 5)


def test_it_waits_for_what_is_left_of_the_one_that_runs_and_for_those_before_it():
    assert predict(job("new", 30), [running("a", 100, done=60)]).seconds == 40 + 30
    both = [running("a", 100, done=60), waiting("b", 7)]
    assert predict(job("new", 30), both).seconds == 40 + 7 + 30
    assert predict(job("new", 30), [*reversed(both)]).seconds == 77
    assert predict(job("new", 30), both, policy="sjf").seconds == 77


def test_it_goes_before_longer_ones_where_the_policy_says_so_and_not_before_what_runs():
    present = [running("a", 100, done=60), waiting("b", 50)]
    assert predict(job("new", 30), present, policy="sjf").seconds == 40 + 30
    assert predict(job("new", 30), present, policy="srtf").seconds == 30  # a is between two steps
    present = [running("a", 100, done=60, step_since_s=-0.25), waiting("b", 50)]
    assert predict(job("new", 30), present, policy="srtf").seconds == pytest.approx(30 + 0.75)


def test_the_time_since_its_submission_counts():
    assert predict(job("new", 30, submit_s=-2), []).seconds == 32


def test_the_step_under_way_is_not_begun_anew_nor_longer_than_a_step():
    assert predict(job("new", 30), [running("a", 100, done=60, step_since_s=-0.25)]).seconds == pytest.approx(69.75)
    assert predict(job("new", 30), [running("a", 100, done=60, step_since_s=-500)]).seconds == pytest.approx(69)
    assert predict(job("new", 30), [running("a", 100, done=100, step_since_s=-500)]).seconds == pytest.approx(30)


def test_starts_cost_and_runs_that_are_under_way_cost_nothing_more():
    costly = cluster(start_s=2, restore_s=3)
    assert predict(job("new", 30), [running("a", 100, done=60)], costly).seconds == 40 + 2 + 30


def test_a_free_device_beside_it_is_taken_at_once():
    assert predict(job("new", 30), [running("a", 100)], cluster(gpus=2)).seconds == 30
    assert predict(job("new", 30), [running("a", 100, node="n2")], cluster(nodes=2)).seconds == 30


def test_one_that_is_stopping_frees_its_device_after_its_step():
    stopping = running("a", 100, done=60, step_since_s=-0.25, stopping=True)
    costly = cluster(checkpoint_s=1, stop_s=0.5)
    # a is first in the queue again under FIFO, under SRTF the shorter one is.
    assert predict(job("new", 30), [stopping], costly, "srtf").seconds == pytest.approx(0.75 + 1.5 + 30)


def test_attained_service_counts_for_policies_that_ask_for_it():
    greedy = running("a", 10_000, done=50, since_s=-9000.0)
    assert predict(job("new", 30), [greedy], policy="las").seconds < 200


def test_a_preempted_job_goes_on_where_it_was_and_its_service_counts():
    preempted = PresentJob(job("b", 50, -1), steps_done=30, attained_gpu_s=9000, preemptions=1)
    assert predict(job("new", 30), [preempted]).seconds == 35 + 30
    assert predict(job("new", 30), [preempted], policy="las").seconds == 30


def test_the_order_in_which_the_cluster_lists_jobs_makes_no_difference():
    present = [waiting("x", 50), waiting("y", 7), waiting("z", 20)]
    found = {predict(job("new", 1), order, cluster(gpus=2)).seconds for order in itertools.permutations(present)}
    assert found == {28}


def test_what_comes_after_it_is_of_no_interest(tmp_path):
    (tmp_path / "only.py").write_text(
        "from scheduler_sims.policies.fifo import Fifo\n"
        "from dataclasses import replace\n"
        "class Only(Fifo):\n"
        "    def plan(self, view):\n"
        "        return super().plan(replace(view, jobs={k: j for k, j in view.jobs.items() if k == 'new'}))\n"
    )
    assert predict(job("new", 30), [waiting("b", 50)], policy=f"{tmp_path}/only.py:Only").seconds == 30


def test_a_gang_waits_for_all_its_nodes_and_others_for_the_gang():
    """b has 10 of its 50 s behind it: the gang of both nodes runs from 40 to 50, the new job after it."""
    present = [running("b", 50, done=20, node="n2"), PresentJob(job("gang", 10, -1, tasks=2))]
    assert predict(job("new", 30, tasks=2), present, cluster(nodes=2)).seconds == 80
    assert predict(job("new", 30), present, cluster(nodes=2)).seconds == 80


def test_a_gang_that_runs_goes_on_where_it_is():
    shares = [placed(f"n{number}").tasks[0] for number in (1, 2)]
    gang = PresentJob(job("gang", 100, -21, tasks=2), 20, Allocation("gpu", tuple(shares)), -20.0)
    assert predict(job("new", 30), [gang], cluster(nodes=2)).seconds == 110
    assert predict(job("new", 30), [gang], cluster(gpus=2, nodes=2)).seconds == 30


def test_jobs_that_can_never_run_hold_nobody_up():
    giant = PresentJob(job("giant", 10, -5, gpus=8))
    assert predict(job("new", 30), [giant]).seconds == 30


def test_an_impossible_prediction_is_an_error():
    with pytest.raises(InputError, match="job 'new' is larger than the cluster"):
        predict(job("new", 30, gpus=2), [])
    with pytest.raises(InputError, match=r"job 'new' is larger than the cluster: needs 2 nodes .* 1 is"):
        predict(job("new", 30, tasks=2), [])
    with pytest.raises(InputError, match="job 'b': can't be running on n1"):
        predict(job("new", 30), [running("a", 10), running("b", 10)])
    with pytest.raises(InputError, match="job 'a': can't be running on gone"):
        predict(job("new", 30), [running("a", 10, node="gone")])
    with pytest.raises(InputError, match="two jobs have the same id"):
        predict(job("a", 30), [running("a", 10)])
    with pytest.raises(InputError, match="unknown policy 'no-such'"):
        predict(job("new", 30), [], policy="no-such")


def test_a_prediction_that_takes_too_long_is_given_up():
    asked = itertools.count()
    with pytest.raises(PolicyError, match=r"takes too long: 2 jobs had ended, 57 s were simulated"):
        predict_job(
            job("new", 30),
            [waiting("a", 50), waiting("b", 7), waiting("c", 9)],
            cluster(),
            "fifo",
            PROFILES,
            at_ns=0,
            give_up=lambda: next(asked) >= 4,
        )


def test_a_policy_that_fails_is_reported(tmp_path):
    (tmp_path / "lazy.py").write_text(
        "from scheduler_sims.interface.plan import Plan\n"
        "class Lazy:\n    needs_estimates = False\n    preemptive = False\n"
        "    def plan(self, view):\n        return Plan.full({})\n"
    )
    with pytest.raises(PolicyError, match="leaves new queued although nothing runs"):
        predict(job("new", 30), [], policy=f"{tmp_path}/lazy.py:Lazy")


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "las", "allox"])
@pytest.mark.parametrize("asked_s", [0, 7, 13])
def test_from_the_middle_it_foretells_what_the_whole_simulation_does(policy, asked_s):
    """Jobs that all were there before: nothing comes later, so both must agree. Non-preemptive as far as it goes."""
    seconds = {"a": 40, "b": 25, "c": 10}
    jobs = [job(name, length, row=row) for row, (name, length) in enumerate(seconds.items())]
    last = job("new", 15, submit_s=asked_s, row=9)
    workload, spec = Workload("all", (*jobs, last), PROFILES), cluster(gpus=3)
    truth = WorkloadTruth(workload, spec)
    whole = Experiment(workload, spec, truth, parse_estimates("oracle", truth, 0)).simulate(policy)
    expected = next(record.jct_s for record in whole.jobs if record.job_id == "new")
    present = []
    for index, (name, length) in enumerate(seconds.items()):
        step_s = length / 100
        done = int(asked_s / step_s + 1e-9)
        if done < 100:
            step_since_s = done * step_s - asked_s
            spec_of = job(name, length, submit_s=-asked_s, row=index)
            present.append(
                PresentJob(spec_of, done, placed(index=index), -asked_s, step_since_s)
                if asked_s
                else PresentJob(spec_of)
            )
    found = predict_job(job("new", 15), present, spec, policy, PROFILES, at_ns=0)
    assert found.seconds == pytest.approx(expected, abs=1e-6)
