"""Whose turn it is, what is planned and what a status says: pure functions, with the same answer for the same things seen."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator_runtime.domain.errors import InputError
from emulator_runtime.exit_codes import EXIT_WRONG_IN_POD
from operators.controllers.actions import Plan, RecordEvent, WriteStatus, label_of
from operators.experiments.controller.objects import RunNamespace, RunnerJob
from operators.experiments.controller.plan import (
    CreateRunner,
    SetFinalizer,
    orphans,
    plan,
    turn,
)
from operators.experiments.controller.runner_job import RunnerSettings, runner_document
from operators.experiments.controller.status import OWN_MEMBERS, Observed
from operators.experiments.runner.progress import RunnerProgress, status_members
from operators.jobs.settings import Settings, runner_settings
from operators.kube.documents import Key, condition_of
from operators.objects.experiment import COSTS, Experiment, parse_spec
from operators.objects.names import EXPERIMENT_FINALIZER, experiment_id, runner_name
from scheduler_sims.interface.costs import COST_NAMES
from scheduler_sims.policies.resolve import resolve_policy

SETTINGS = RunnerSettings("emugpu", "emugpu-experiments", "emugpu-scheduler:1")
NOW_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
SPEC: dict[str, Any] = {"workload": {"inline": "job_id\n"}, "policies": ["fifo", "allox"]}


def experiment(uid: str = "u", created: str = "2026-01-01T00:00:00Z", **members: Any) -> Experiment:
    """`progress`: what its runner has written."""
    spec, status = members.pop("spec", SPEC), members.pop("status", {})
    if "progress" in members:
        status = status | status_members(members.pop("progress"), "2026-01-01T00:00:00Z")
    return Experiment(Key("lab", uid, uid, "1"), created, spec_json=spec, status_json=status, **members)


def runner(owner: str = "u", **members: Any) -> RunnerJob:
    return RunnerJob(Key("emugpu", "r", f"job-{owner}", "1"), owner, **members)


def namespace(owner: str = "u", **members: Any) -> RunNamespace:
    return RunNamespace(Key("", "emugpu-exp-0-1", "a", "1"), owner, **members)


def steps(found: Plan) -> list[str]:
    return [label_of(action) for action in found.actions if not isinstance(action, WriteStatus | RecordEvent)]


def status(found: Plan) -> Any:
    return next(action.status for action in found.actions if isinstance(action, WriteStatus))


# -- turns -------------------------------------------------------------------------------------------------------------


def test_the_oldest_is_next_whatever_the_order() -> None:
    times = {"u1": "2026-01-01T00:00:02Z", "u2": "2026-01-01T00:00:01Z", "u3": "2026-01-01T00:00:01Z"}
    experiments = [experiment(uid, created) for uid, created in times.items()]
    for seed in range(5):
        random.Random(seed).shuffle(experiments)
        assert turn(experiments, {}, {}, times) == "u2"


def test_who_has_the_cluster_keeps_it() -> None:
    old, new = experiment("u1", "2026-01-01T00:00:00Z"), experiment("u2", "2026-01-01T00:00:09Z")
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
    assert (
        turn([replace(old, status_json={"phase": "Failed"}), new], {"u1": runner("u1", failed=True)}, {}, ready) == "u2"
    )


# -- plans -------------------------------------------------------------------------------------------------------------


def test_the_finalizer_comes_before_the_runner() -> None:
    assert steps(plan(experiment(), Observed(turn=True), SETTINGS, NOW_NS)) == ["SetFinalizer"]
    begun = experiment(finalizers=("other", EXPERIMENT_FINALIZER))
    (create,) = (a for a in plan(begun, Observed(turn=True), SETTINGS, NOW_NS).actions if isinstance(a, CreateRunner))
    assert create.document["metadata"]["name"] == runner_name("u", "u")
    assert steps(plan(begun, Observed(), SETTINGS, NOW_NS)) == []


def test_a_runner_is_stopped_and_resumed() -> None:
    held, begun = (
        experiment(spec=SPEC | {"suspend": True}, finalizers=(EXPERIMENT_FINALIZER,)),
        experiment(finalizers=(EXPERIMENT_FINALIZER,)),
    )
    assert steps(plan(held, Observed(runner(pods=1)), SETTINGS, NOW_NS)) == ["SuspendRunner"]
    assert steps(plan(held, Observed(runner(pods=1, suspended=True), [namespace()]), SETTINGS, NOW_NS)) == []
    assert steps(plan(held, Observed(runner(suspended=True), [namespace()]), SETTINGS, NOW_NS)) == [
        "DeleteRunNamespace"
    ]
    assert steps(plan(begun, Observed(runner(suspended=True, pods=1), turn=True), SETTINGS, NOW_NS)) == []
    assert steps(plan(begun, Observed(runner(suspended=True), turn=True), SETTINGS, NOW_NS)) == ["SuspendRunner"]
    assert status(plan(held, Observed(runner(pods=1)), SETTINGS, NOW_NS))["doing"] == "is being stopped"


def test_a_spec_that_can_not_be_read_has_failed() -> None:
    found = plan(experiment(spec={"workload": {"inline": "x"}, "policies": []}), Observed(), SETTINGS, NOW_NS)
    assert steps(found) == [] and status(found)["phase"] == "Failed"
    assert condition_of(status(found), "Accepted")["reason"] == "InvalidSpec"
    assert condition_of(status(found), "Failed")["message"].startswith("spec.policies: name at least one policy")


def test_a_silent_runner_is_listened_to_for_a_while() -> None:
    begun = experiment(finalizers=(EXPERIMENT_FINALIZER,))
    silent = Observed(runner(complete=True, ended="2026-01-01T00:00:00Z"), turn=True)
    early = plan(begun, silent, SETTINGS, NOW_NS + 10**9)
    assert status(early)["phase"] == "Starting" and early.again_s == 29.0
    late = status(plan(begun, silent, SETTINGS, NOW_NS + 31 * 10**9))
    assert (late["phase"], condition_of(late, "Failed")["reason"]) == ("Failed", "RunnerSilent")


def test_a_pod_that_does_not_start_is_reported_with_where_to_look() -> None:
    begun = experiment(finalizers=(EXPERIMENT_FINALIZER,))
    waiting = Observed(runner(pods=1, started="2026-01-01T00:00:00Z"), turn=True)
    assert status(plan(begun, waiting, SETTINGS, NOW_NS + 59 * 10**9))["doing"] == "its runner is being started"
    late = status(plan(begun, waiting, SETTINGS, NOW_NS + 60 * 10**9))
    assert late["doing"].endswith("kubectl -n emugpu describe pods -l job-name=r")
    ready = Observed(runner(pods=1, ready=1, started="2026-01-01T00:00:00Z"), turn=True)
    assert status(plan(begun, ready, SETTINGS, NOW_NS + 99 * 10**9))["doing"] == "its runner is being started"


def test_jobs_that_failed_are_in_the_condition() -> None:
    progress = RunnerProgress(stage="Done", done=2, results=({"name": "fifo", "kind": "Policy", "failedJobs": 3},))
    found = status(plan(experiment(progress=progress), Observed(runner(complete=True), turn=True), SETTINGS, NOW_NS))
    assert found["phase"] == "Succeeded"
    assert condition_of(found, "Complete")["reason"] == "JobsFailed"
    assert condition_of(found, "Complete")["message"] == "3 jobs did not finish; the report names them"


def test_what_ended_stays_ended() -> None:
    ended = {
        "phase": "Failed",
        "finishedAt": "2026-01-01T00:00:00Z",
        "conditions": [{"type": "Failed", "status": "True"}],
    }
    begun = experiment(status=ended, finalizers=(EXPERIMENT_FINALIZER,))
    found = plan(begun, Observed(), SETTINGS, NOW_NS + 10**9)  # its Job is gone
    assert steps(found) == ["SetFinalizer"]
    assert (status(found)["phase"], status(found)["finishedAt"]) == ("Failed", "2026-01-01T00:00:00Z")
    assert condition_of(status(found), "Failed")["status"] == "True"
    assert steps(plan(begun, Observed(namespaces=[namespace()]), SETTINGS, NOW_NS)) == ["DeleteRunNamespace"]


def test_an_experiment_goes_when_its_time_is_over() -> None:
    ended = {"phase": "Succeeded", "finishedAt": "2026-01-01T00:00:00Z"}
    lasting = experiment(status=ended, spec=SPEC | {"ttlSecondsAfterFinished": 60})
    early = plan(lasting, Observed(), SETTINGS, NOW_NS + 20 * 10**9)
    assert steps(early) == [] and early.again_s == 40.0
    assert steps(plan(lasting, Observed(), SETTINGS, NOW_NS + 60 * 10**9)) == ["DeleteExperiment"]
    assert steps(plan(experiment(status=ended), Observed(), SETTINGS, NOW_NS + 10**18)) == []


def test_deleting_goes_step_by_step() -> None:
    gone = experiment(deleting=True, finalizers=(EXPERIMENT_FINALIZER, "other"))
    assert steps(plan(gone, Observed(runner(pods=1), [namespace()]), SETTINGS, NOW_NS)) == ["DeleteRunner"]
    assert steps(plan(gone, Observed(runner(deleting=True), [namespace()]), SETTINGS, NOW_NS)) == []
    assert steps(plan(gone, Observed(None, [namespace()]), SETTINGS, NOW_NS)) == ["DeleteRunNamespace"]
    assert steps(plan(gone, Observed(None, [namespace(deleting=True)]), SETTINGS, NOW_NS)) == []
    (last,) = plan(gone, Observed(), SETTINGS, NOW_NS).actions
    assert isinstance(last, SetFinalizer) and last.finalizers == ("other",)
    assert plan(replace(gone, finalizers=("other",)), Observed(), SETTINGS, NOW_NS).actions == ()


def test_the_same_things_seen_are_no_news() -> None:
    """Also in the phases that have an end."""
    story = [
        (experiment(), Observed(turn=True)),
        (experiment(finalizers=(EXPERIMENT_FINALIZER,)), Observed(runner(pods=1), turn=True)),
        (
            experiment(progress=RunnerProgress(attempt=1, stage="Observing", column="fifo", repeat=1, jobs=4)),
            Observed(runner(pods=1), turn=True),
        ),
        (
            experiment(progress=RunnerProgress(attempt=1, stage="Done", done=2, best="fifo")),
            Observed(runner(complete=True), turn=True),
        ),
        (experiment(), Observed(runner(failed=True, failure="too often", died=4), turn=True)),
    ]
    for before, seen in story:
        written = status(plan(before, seen, SETTINGS, NOW_NS))
        assert set(written) <= set(OWN_MEMBERS)
        after = replace(before, status_json={**before.status_json, **written})
        again = plan(after, seen, SETTINGS, NOW_NS + 10**9)
        assert not [a for a in again.actions if isinstance(a, WriteStatus | RecordEvent)], again


def test_only_what_has_no_experiment_is_an_orphan() -> None:
    left = orphans(["u"], [runner("u"), runner("x"), runner("y", deleting=True)], [namespace("u"), namespace("x")])
    assert [label_of(action) for action in left] == ["DeleteRunner", "DeleteRunNamespace"]


# -- words -------------------------------------------------------------------------------------------------------------


def test_a_runner_writes_no_member_of_the_controller() -> None:
    counts = {"attempt": 2, "repeat": 1, "ended": 3, "jobs": 40, "done": 1, "nodes": 12, "gpus": 4}
    texts = {"stage": "Observing", "column": "allox", "problem": "p", "best": "allox", "error": "1%"}
    results = ({"name": "fifo", "kind": "Policy"},)
    written = status_members(
        RunnerProgress(**counts, **texts, calibration={"a": "1"}, results=results, report={"configMap": "c"}), "t"
    )
    assert not set(written) & set(OWN_MEMBERS)
    assert written["progress"] == {
        "stage": "Observing",
        "policy": "allox",
        "repeat": 1,
        "problem": "p",
        "at": "t",
        "jobsEnded": 3,
        "jobs": 40,
    }
    figures = {"done": 1, "attempts": 2, "nodes": 12, "gpus": 4, "best": "allox", "error": "1%"}
    assert figures.items() <= written.items()
    assert (written["calibration"], written["report"]) == ({"a": "1"}, {"configMap": "c"})


def test_events_about_a_runner_come_from_what_it_has_written_since() -> None:
    observed = {"name": "fifo", "kind": "Policy", "observed": {"meanJCTSeconds": "12.100"}}
    first = RunnerProgress(attempt=1, stage="Observing", column="fifo", repeat=1, jobs=4)
    before, after = (experiment(progress=p) for p in (first, replace(first, attempt=2, results=(observed,))))

    def reasons(previous: Any) -> list[str]:
        found = plan(after, Observed(runner(pods=1), turn=True, previous=previous), SETTINGS, NOW_NS)
        return [action.event.reason for action in found.actions if isinstance(action, RecordEvent)]

    assert reasons(before.status_json) == ["Running", "RunnerRestarted", "Observed"]
    assert reasons(after.status_json) == reasons(None) == ["Running"]


@pytest.mark.parametrize("status", [{"progress": "x"}, {"progress": {"stage": 4}}, {"results": {}, "done": "x"}])
def test_a_status_with_odd_members_is_read_as_far_as_it_goes(status: dict[str, Any]) -> None:
    found = plan(experiment(status=status), Observed(runner(pods=1), turn=True), SETTINGS, NOW_NS)
    assert next(a.status for a in found.actions if isinstance(a, WriteStatus))["phase"] == "Starting"


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
    of_programs = {"program_start_s", "program_slots"}
    assert {*COSTS.values()} == {*COST_NAMES} - of_programs, "experiments run no programs"
    chart = Path(__file__).parents[3] / "charts" / "emugpu" / "crds" / "schedulingexperiments.yaml"
    (version,) = yaml.safe_load(chart.read_text(encoding="utf-8"))["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(spec["costs"]["properties"]) == set(COSTS)
    found = parse_spec(SPEC | {"costs": {"startSeconds": 2, "warmUpSeconds": "0.25"}})
    assert found.costs == {"start_s": 2.0, "warm_up_s": 0.25}


def test_where_and_as_what_runners_are() -> None:
    text = '{"resources": {"limits": {"memory": "1Gi"}}, "nodeSelector": {"a": "b"}, "tolerations": []}'
    settings = Settings(
        "emugpu:2",
        "me",
        pull_policy="Never",
        experiment_image="emugpu-scheduler:2",
        experiment_pull_secrets="s1, s2",
        experiment_pod=text,
    )
    found = runner_settings(settings)
    job = runner_document(experiment(), parse_spec(SPEC), found)["spec"]
    assert [rule["onExitCodes"]["values"] for rule in job["podFailurePolicy"]["rules"][1:]] == [[EXIT_WRONG_IN_POD]]
    pod = job["template"]["spec"]
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
def test_mistakes_in_the_pods_setting_are_reported(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"EMUGPU_JOBS_EXPERIMENT_{message}"):
        runner_settings(Settings("emugpu:2", "me", experiment_pod=text))
