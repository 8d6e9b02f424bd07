"""Whose turn it is, what is planned and what a status says: pure functions, with the same answer for the same things seen."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator_runtime.domain.errors import InputError
from operators.controllers.actions import Plan, Tell, WriteStatus
from operators.experiments.controller.inside import runner_settings
from operators.experiments.controller.names import FINALIZER, experiment_id, runner_name
from operators.experiments.controller.objects import ExperimentFacts, RunNamespace, RunnerFacts
from operators.experiments.controller.plan import (
    CreateRunner,
    DeleteExperiment,
    DeleteRunNamespace,
    DeleteRunner,
    SetFinalizer,
    SuspendRunner,
    orphans,
    plan,
)
from operators.experiments.controller.progress import RunnerProgress, progress_of, progress_text
from operators.experiments.controller.runner_job import RunnerSettings, runner_document
from operators.experiments.controller.status import Seen
from operators.experiments.controller.turns import turn
from operators.kube.documents import Key, condition_of
from operators.objects.experiment import COSTS, parse_spec
from scheduler_sims.interface.costs import COST_NAMES
from scheduler_sims.policies.resolve import resolve_policy

SETTINGS = RunnerSettings("emugpu", "emugpu-experiments", "emugpu-scheduler:1")
NOW_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
SPEC: dict[str, Any] = {"workload": {"inline": "job_id\n"}, "policies": ["fifo", "allox"]}


def facts(uid: str = "u", created: str = "2026-01-01T00:00:00Z", **members: Any) -> ExperimentFacts:
    return ExperimentFacts(Key("lab", uid, uid, "1"), created, **{"spec": SPEC, **members})


def runner(owner: str = "u", **members: Any) -> RunnerFacts:
    return RunnerFacts(Key("emugpu", "r", f"job-{owner}", "1"), owner, **members)


def namespace(owner: str = "u", **members: Any) -> RunNamespace:
    return RunNamespace(Key("", "emugpu-exp-0-1", "a", "1"), owner, **members)


def steps(found: Plan) -> list[type]:
    return [type(action) for action in found.actions if not isinstance(action, WriteStatus | Tell)]


def status(found: Plan) -> Any:
    return next(action.status for action in found.actions if isinstance(action, WriteStatus))


# -- turns -------------------------------------------------------------------------------------------------------------


def test_the_oldest_is_next_whatever_the_order() -> None:
    times = {"u1": "2026-01-01T00:00:02Z", "u2": "2026-01-01T00:00:01Z", "u3": "2026-01-01T00:00:01Z"}
    experiments = [facts(uid, created) for uid, created in times.items()]
    for seed in range(5):
        random.Random(seed).shuffle(experiments)
        assert turn(experiments, {}, {}, times) == "u2"


def test_who_has_the_cluster_keeps_it() -> None:
    old, new = facts("u1", "2026-01-01T00:00:00Z"), facts("u2", "2026-01-01T00:00:09Z")
    ready = {"u1", "u2"}
    assert turn([old, new], {"u2": runner("u2", pods=1)}, {}, ready) == "u2"
    assert turn([old, new], {"u2": runner("u2")}, {}, ready) == "u2"  # its pod is about to be made
    assert turn([old, new], {"u2": runner("u2", suspended=True)}, {}, ready) == "u1"
    assert turn([old, new], {"u2": runner("u2", suspended=True, pods=1)}, {}, {"u1"}) == ""  # held, but still ending
    assert (
        turn([old, new], {"u2": runner("u2", failed=True)}, {"u2": [namespace("u2")]}, {"u1"}) == ""
    )  # not cleared up
    assert turn([old, new], {}, {"gone": [namespace("gone")]}, ready) == ""
    assert turn([replace(old, deleting=True), new], {}, {}, ready) == "u2"
    assert turn([replace(old, status={"phase": "Failed"}), new], {"u1": runner("u1", failed=True)}, {}, ready) == "u2"


# -- plans -------------------------------------------------------------------------------------------------------------


def test_the_finalizer_comes_before_the_runner() -> None:
    assert steps(plan(facts(), Seen(turn=True), SETTINGS, NOW_NS)) == [SetFinalizer]
    begun = facts(finalizers=("other", FINALIZER))
    (create,) = (a for a in plan(begun, Seen(turn=True), SETTINGS, NOW_NS).actions if isinstance(a, CreateRunner))
    assert create.document["metadata"]["name"] == runner_name("u", "u")
    assert steps(plan(begun, Seen(), SETTINGS, NOW_NS)) == []


def test_a_runner_is_stopped_and_resumed() -> None:
    held, begun = facts(spec=SPEC | {"suspend": True}, finalizers=(FINALIZER,)), facts(finalizers=(FINALIZER,))
    assert steps(plan(held, Seen(runner(pods=1)), SETTINGS, NOW_NS)) == [SuspendRunner]
    assert steps(plan(held, Seen(runner(pods=1, suspended=True), [namespace()]), SETTINGS, NOW_NS)) == []
    assert steps(plan(held, Seen(runner(suspended=True), [namespace()]), SETTINGS, NOW_NS)) == [DeleteRunNamespace]
    assert steps(plan(begun, Seen(runner(suspended=True, pods=1), turn=True), SETTINGS, NOW_NS)) == []
    assert steps(plan(begun, Seen(runner(suspended=True), turn=True), SETTINGS, NOW_NS)) == [SuspendRunner]
    assert status(plan(held, Seen(runner(pods=1)), SETTINGS, NOW_NS))["doing"] == "is being stopped"


def test_a_spec_that_can_not_be_read_has_failed() -> None:
    found = plan(facts(spec={"workload": {"inline": "x"}, "policies": []}), Seen(), SETTINGS, NOW_NS)
    assert steps(found) == [] and status(found)["phase"] == "Failed"
    assert condition_of(status(found), "Accepted")["reason"] == "InvalidSpec"
    assert condition_of(status(found), "Failed")["message"].startswith("spec.policies: name at least one policy")


def test_a_silent_runner_is_listened_to_for_a_while() -> None:
    begun = facts(finalizers=(FINALIZER,))
    silent = Seen(runner(complete=True, ended="2026-01-01T00:00:00Z"), turn=True)
    early = plan(begun, silent, SETTINGS, NOW_NS + 10**9)
    assert status(early)["phase"] == "Starting" and early.again_s == 29.0
    late = status(plan(begun, silent, SETTINGS, NOW_NS + 31 * 10**9))
    assert (late["phase"], condition_of(late, "Failed")["reason"]) == ("Failed", "RunnerSilent")


def test_a_pod_that_does_not_start_is_told_with_where_to_look() -> None:
    begun = facts(finalizers=(FINALIZER,))
    waiting = Seen(runner(pods=1, started="2026-01-01T00:00:00Z"), turn=True)
    assert status(plan(begun, waiting, SETTINGS, NOW_NS + 59 * 10**9))["doing"] == "its runner is being started"
    late = status(plan(begun, waiting, SETTINGS, NOW_NS + 60 * 10**9))
    assert late["doing"].endswith("kubectl -n emugpu describe pods -l job-name=r")
    ready = Seen(runner(pods=1, ready=1, started="2026-01-01T00:00:00Z"), turn=True)
    assert status(plan(begun, ready, SETTINGS, NOW_NS + 99 * 10**9))["doing"] == "its runner is being started"


def test_jobs_that_failed_are_in_the_condition() -> None:
    told = RunnerProgress(stage="Done", done=2, results=({"name": "fifo", "kind": "Policy", "failedJobs": 3},))
    found = status(plan(facts(progress=told), Seen(runner(complete=True), turn=True), SETTINGS, NOW_NS))
    assert found["phase"] == "Succeeded"
    assert condition_of(found, "Complete")["reason"] == "JobsFailed"
    assert condition_of(found, "Complete")["message"] == "3 jobs did not finish; the report names them"


def test_what_ended_stays_ended() -> None:
    ended = {
        "phase": "Failed",
        "finishedAt": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Failed", "status": "True"}],
    }
    begun = facts(status=ended, finalizers=(FINALIZER,))
    found = plan(begun, Seen(), SETTINGS, NOW_NS + 10**9)  # its Job is gone
    assert steps(found) == [SetFinalizer]
    assert (status(found)["phase"], status(found)["finishedAt"]) == ("Failed", "2026-01-01T00:00:00Z")
    assert condition_of(status(found), "Failed")["status"] == "True"
    assert steps(plan(begun, Seen(namespaces=[namespace()]), SETTINGS, NOW_NS)) == [DeleteRunNamespace]


def test_an_experiment_goes_when_its_time_is_over() -> None:
    ended = {"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z"}
    lasting = facts(status=ended, spec=SPEC | {"ttlSecondsAfterFinished": 60})
    early = plan(lasting, Seen(), SETTINGS, NOW_NS + 20 * 10**9)
    assert steps(early) == [] and early.again_s == 40.0
    assert steps(plan(lasting, Seen(), SETTINGS, NOW_NS + 60 * 10**9)) == [DeleteExperiment]
    assert steps(plan(facts(status=ended), Seen(), SETTINGS, NOW_NS + 10**18)) == []


def test_deleting_goes_step_by_step() -> None:
    gone = facts(deleting=True, finalizers=(FINALIZER, "other"))
    assert steps(plan(gone, Seen(runner(pods=1), [namespace()]), SETTINGS, NOW_NS)) == [DeleteRunner]
    assert steps(plan(gone, Seen(runner(deleting=True), [namespace()]), SETTINGS, NOW_NS)) == []
    assert steps(plan(gone, Seen(None, [namespace()]), SETTINGS, NOW_NS)) == [DeleteRunNamespace]
    assert steps(plan(gone, Seen(None, [namespace(deleting=True)]), SETTINGS, NOW_NS)) == []
    (last,) = plan(gone, Seen(), SETTINGS, NOW_NS).actions
    assert isinstance(last, SetFinalizer) and last.finalizers == ("other",)
    assert plan(replace(gone, finalizers=("other",)), Seen(), SETTINGS, NOW_NS).actions == ()


def test_the_same_things_seen_are_no_news() -> None:
    """Also in the phases that have an end."""
    story = [
        (facts(), Seen(turn=True)),
        (facts(finalizers=(FINALIZER,)), Seen(runner(pods=1), turn=True)),
        (
            facts(progress=RunnerProgress(1, stage="Observing", column="fifo", repeat=1, jobs=4)),
            Seen(runner(pods=1), turn=True),
        ),
        (facts(progress=RunnerProgress(1, stage="Done", done=2, best="fifo")), Seen(runner(complete=True), turn=True)),
        (facts(), Seen(runner(failed=True, failure="too often", died=4), turn=True)),
    ]
    for seen_facts, seen in story:
        written = status(plan(seen_facts, seen, SETTINGS, NOW_NS))
        again = plan(replace(seen_facts, status=written), seen, SETTINGS, NOW_NS + 10**9)
        assert not [a for a in again.actions if isinstance(a, WriteStatus | Tell)], again


def test_only_what_has_no_experiment_is_an_orphan() -> None:
    left = orphans(["u"], [runner("u"), runner("x"), runner("y", deleting=True)], [namespace("u"), namespace("x")])
    assert [type(action) for action in left] == [DeleteRunner, DeleteRunNamespace]


# -- words -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stage": 4, "results": {}, "done": "x"}', '{"unknown": 1}'])
def test_an_annotation_that_is_odd_tells_nothing(text: str) -> None:
    assert progress_of(text) == RunnerProgress()


def test_what_is_told_comes_back() -> None:
    counts = {"attempt": 2, "repeat": 1, "ended": 3, "jobs": 40, "done": 1, "columns": 3, "nodes": 12, "gpus": 4}
    texts = {"at": "t", "stage": "Observing", "column": "allox", "problem": "p", "best": "allox", "error": "1%"}
    told = RunnerProgress(
        **counts, **texts, calibration={"a": "1"}, results=({"name": "fifo"},), report={"configMap": "c"}
    )
    assert progress_of(progress_text(told)) == told


def test_names_fit_and_differ() -> None:
    long = "e" * 30 + "-" + "x" * 19
    assert len(runner_name(long, "u1")) <= 63 - 6  # a pod's name has a random end
    assert runner_name(long, "u1") != runner_name(long, "u2")
    assert len(f"exp-{experiment_id('u1')}-320320") <= 40  # the scheduler's


@pytest.mark.parametrize("policy", ["fifo", "drf-sjf", "las:threshold_s=300", "las: threshold_s = 3e2 , quantum_s=0.5"])
@pytest.mark.parametrize(("stretch", "estimates"), [(10**8, "error:9.99"), ("0.0001", "none")])
def test_what_a_spec_may_say(policy: str, stretch: object, estimates: str) -> None:
    found = parse_spec(SPEC | {"policies": [policy], "stretch": stretch, "estimates": estimates})
    assert (found.policies, found.stretch, found.estimates) == ((policy,), float(str(stretch)), estimates)
    resolve_policy(policy)  # the runner's image can make all of them


def test_all_costs_can_be_given_and_the_schema_knows_them() -> None:
    assert sorted(COSTS.values()) == sorted(COST_NAMES)
    chart = Path(__file__).parents[3] / "charts" / "emugpu" / "crds" / "schedulingexperiments.yaml"
    (version,) = yaml.safe_load(chart.read_text(encoding="utf-8"))["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec["costs"]["properties"]) == set(COSTS)
    found = parse_spec(SPEC | {"costs": {"startSeconds": 2, "warmUpSeconds": "0.25"}})
    assert found.costs == {"start_s": 2.0, "warm_up_s": 0.25}


def test_where_and_as_what_runners_are() -> None:
    text = '{"resources": {"limits": {"memory": "1Gi"}}, "nodeSelector": {"a": "b"}, "tolerations": []}'
    image = {"image": "emugpu-scheduler:2", "pull_policy": "Never"}
    found = runner_settings(namespace="ns", account="sa", **image, pull_secrets="s1, s2", pod=("POD", text))
    pod = runner_document(facts(), parse_spec(SPEC), found)["spec"]["template"]["spec"]
    assert (pod["nodeSelector"], "tolerations" in pod) == ({"a": "b"}, False)
    assert pod["imagePullSecrets"] == [{"name": "s1"}, {"name": "s2"}]
    (container,) = pod["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("emugpu-scheduler:2", "Never")
    assert container["resources"] == {"limits": {"memory": "1Gi"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "POD: is no JSON"),
        ("[]", "POD: must be a JSON object with resources"),
        ('{"affinity": {}}', "POD: unknown member 'affinity'"),
        ('{"tolerations": {}}', "POD: tolerations: must be a JSON list"),
    ],
)
def test_mistakes_in_the_pods_setting_are_told(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        runner_settings(namespace="n", account="a", image="i", pull_policy="Always", pull_secrets="", pod=("POD", text))
