"""SchedulingExperiments on a real API server: the schema's refusals, the controller's story, and what runners may not do.

There is no Job controller here, so a runner's Job is an object only; what becomes of it is written by the tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from emulator_runtime.timing.host import wall_ns
from operators.chart_hooks.experiments import stop_experiments
from operators.experiments.controller.controller import Controller, Dependencies, ExperimentMetrics
from operators.experiments.controller.runner_job import RunnerSettings
from operators.experiments.runner.inputs import RUNNER_MANAGER
from operators.experiments.runner.progress import RunnerProgress, status_members
from operators.kube.client import KubeApi
from operators.kube.informer import Pauses
from operators.kube.kubeconfig import from_document
from operators.objects.experiment import parse_spec
from operators.objects.names import EXPERIMENT_UID_LABEL, experiment_id
from tests.support.api_server import ApiServer
from tests.support.controllers import running, until

EXPERIMENTS = "/apis/emugpu.dev/v1alpha1/namespaces/default/schedulingexperiments"
JOBS = "/apis/batch/v1/namespaces/emugpu/jobs"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
NAMESPACES = "/api/v1/namespaces"
MERGE = "application/merge-patch+json"
WORKLOAD = "job_id,gpu_duration_s\na,10\n"
RESULT = {
    "name": "fifo",
    "kind": "Policy",
    "repeats": 1,
    "predicted": {"meanJCTSeconds": "12.000", "ratio": "1.0000"},
    "observed": {"meanJCTSeconds": "12.100", "ratio": "1.0000"},
    "errors": {"meanJCT": "-0.0083"},
    "spearman": "1.0000",
}


def experiment(name: str = "e", **spec: Any) -> dict[str, Any]:
    common = {"workload": {"inline": WORKLOAD}, "policies": ["fifo", "srtf"]}
    kept = {name: value for name, value in {**common, **spec}.items() if value is not None}
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "SchedulingExperiment",
        "metadata": {"name": name},
        "spec": kept,
    }


def as_account(server: ApiServer, name: str) -> KubeApi:
    return KubeApi(from_document(server.kubeconfig(name)))


# -- the schema --------------------------------------------------------------------------------------------------------


def test_what_an_experiment_leaves_out_is_filled_in(cluster: ApiServer) -> None:
    status, reply = cluster.request("POST", f"{EXPERIMENTS}?dryRun=All", experiment())
    assert status == 201, reply
    assert reply["spec"] == {
        "workload": {"inline": WORKLOAD},
        "policies": ["fifo", "srtf"],
        "repeats": 1,
        "stretch": 1,
        "estimates": "oracle",
        "seed": 0,
        "actuator": "jobs",
        "retries": 3,
        "suspend": False,
    }


def manifests() -> Iterator[dict[str, Any]]:
    root = Path(__file__).parents[3]
    yield yaml.safe_load((root / "examples/kubernetes/experiment/experiment.yaml").read_text(encoding="utf-8"))
    guide = (root / "docs/experiments.md").read_text(encoding="utf-8")
    yield from (yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE))


def test_the_example_and_the_guide_s_manifest_are_accepted(cluster: ApiServer) -> None:
    documents = list(manifests())
    assert len(documents) == 2
    for document in documents:
        status, reply = cluster.request("POST", f"{EXPERIMENTS}?dryRun=All&fieldValidation=Strict", document)
        assert status == 201, reply
        parse_spec(reply["spec"])


@pytest.mark.parametrize("name", ["1e", "e" * 51, "a.b"])
def test_a_name_that_a_job_can_not_have_is_refused(cluster: ApiServer, name: str) -> None:
    status, reply = cluster.request("POST", f"{EXPERIMENTS}?dryRun=All", experiment(name))
    assert status == 422 and "50 characters at most, small letters" in reply["message"]


def test_only_hold_and_time_to_live_can_be_changed(cluster: ApiServer, nothing_left: None) -> None:
    assert cluster.request("POST", EXPERIMENTS, experiment(suspend=True, podSchedulers=["volcano"]))[0] == 201
    allowed: list[dict[str, Any]] = [{"suspend": False}, {"suspend": True}, {"ttlSecondsAfterFinished": 60}]
    refused: list[dict[str, Any]] = [
        {"policies": ["fifo"]},
        {"workload": {"inline": "x"}},
        {"stretch": 2},
        {"repeats": 2},
        {"seed": 1},
        {"podSchedulers": None},
        {"costs": {"startSeconds": 1}},
        {"cluster": {"inline": "nodes: []"}},
        {"actuator": "gated"},
        {"retries": 1},
    ]
    for change, expected in [*((c, 200) for c in allowed), *((c, 422) for c in refused)]:
        status, reply = cluster.request("PATCH", f"{EXPERIMENTS}/e", {"spec": change}, content_type=MERGE)
        assert status == expected, (change, reply)
        assert status == 200 or "only spec.suspend and spec.ttlSecondsAfterFinished can be changed" in reply["message"]


def test_columns_and_short_name(cluster: ApiServer) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/schedulingexperiments.emugpu.dev"
    _, definition = cluster.request("GET", path)
    assert definition["spec"]["names"]["shortNames"] == ["sexp"]
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Phase", "Policies", "Done", "Best", "Error", "Age"]
    assert "NonStructuralSchema" not in json.dumps(definition["status"])


# -- the controller ----------------------------------------------------------------------------------------------------


@pytest.fixture
def nothing_left(cluster: ApiServer) -> Iterator[None]:
    yield
    for path in (EXPERIMENTS, JOBS):
        for document in cluster.request("GET", path)[1]["items"]:
            own = f"{path}/{document['metadata']['name']}"
            cluster.request("DELETE", f"{own}?propagationPolicy=Background")
            cluster.request("PATCH", own, {"metadata": {"finalizers": None}}, content_type=MERGE)
    for document in cluster.request("GET", f"{NAMESPACES}?labelSelector={EXPERIMENT_UID_LABEL}")[1]["items"]:
        remove_namespace(cluster, document["metadata"]["name"])


def with_controller(server: ApiServer, story: Callable[[Controller], Awaitable[None]]) -> CollectorRegistry:
    """Run the real controller under its own service account while `story` goes on."""
    registry = CollectorRegistry()

    async def play() -> None:
        api = as_account(server, "emugpu-jobs")
        settings = RunnerSettings("emugpu", "emugpu-experiments", "emugpu-scheduler:1")
        pauses = Pauses(settle=0.02, first=0.1, longest=1.0)
        controller = Controller(api, ExperimentMetrics(registry), Dependencies(settings, wall_ns), pauses)
        async with running(controller.run(), api):
            await story(controller)
            assert controller.problem == ""

    asyncio.run(play())
    return registry


def get(server: ApiServer, path: str) -> Any:
    return server.request("GET", path)[1]


def status_of(server: ApiServer, name: str = "e") -> dict[str, Any]:
    found: dict[str, Any] = get(server, f"{EXPERIMENTS}/{name}").get("status", {})
    return found


def phase_is(server: ApiServer, phase: str, name: str = "e") -> Callable[[], bool]:
    return lambda: status_of(server, name).get("phase") == phase


def job_of(server: ApiServer, name: str = "e") -> dict[str, Any]:
    """The runner's Job; empty where there is none."""
    uid = get(server, f"{EXPERIMENTS}/{name}")["metadata"]["uid"]
    found = get(server, f"{JOBS}?labelSelector={EXPERIMENT_UID_LABEL}={uid}")["items"]
    return found[0] if found else {}


async def tell(server: ApiServer, progress: RunnerProgress, name: str = "e") -> None:
    """Writes the runner's part of the status as the runner does: in the name of its pod."""
    await until(lambda: status_of(server, name).get("runner"))
    status, reply = apply_status(server, name, status_members(progress, NOW), job_of(server, name)["metadata"]["name"])
    assert status == 200, reply


def apply_status(server: ApiServer, name: str, members: dict[str, Any], job: str) -> tuple[int, Any]:
    """In the name of a pod of this Job."""
    document = {"apiVersion": "emugpu.dev/v1alpha1", "kind": "SchedulingExperiment", "metadata": {"name": name}}
    pod = {"Impersonate-Extra-authentication.kubernetes.io%2fpod-name": f"{job}-abcde"} if job else {}
    return server.request(
        "PATCH",
        f"{EXPERIMENTS}/{name}/status?fieldManager={RUNNER_MANAGER}&force=true",
        {**document, "status": members},
        content_type="application/apply-patch+yaml",
        headers={"Impersonate-User": "system:serviceaccount:emugpu:emugpu-experiments", **pod},
    )


def write_job(server: ApiServer, name: str, status: dict[str, Any]) -> None:
    path = f"{JOBS}/{job_of(server, name)['metadata']['name']}/status"
    code, reply = server.request("PATCH", path, {"status": status}, content_type=MERGE)
    assert code == 200, reply


NOW = "2026-01-01T00:00:00Z"


def complete() -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": NOW} for kind in ("SuccessCriteriaMet", "Complete")
    ]
    times = {"startTime": NOW, "completionTime": NOW}
    return {"active": 0, "ready": 0, "terminating": 0, "succeeded": 1, "conditions": conditions, **times}


def failed(pods: int) -> dict[str, Any]:
    why = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"}
    kinds = ("FailureTarget", "Failed")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": NOW, **why} for kind in kinds]
    return {"active": 0, "ready": 0, "terminating": 0, "failed": pods, "startTime": NOW, "conditions": conditions}


def make_run_namespace(server: ApiServer, uid: str, number: int = 1) -> str:
    name = f"emugpu-exp-{experiment_id(uid)}-{number}"
    document = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {EXPERIMENT_UID_LABEL: uid}},
    }
    assert server.request("POST", NAMESPACES, document)[0] == 201
    return name


def remove_namespace(server: ApiServer, name: str) -> None:
    """As the namespace controller does it, once everything in it is gone."""
    server.request("DELETE", f"{NAMESPACES}/{name}")
    document = get(server, f"{NAMESPACES}/{name}")
    if "spec" in document:
        server.request("PUT", f"{NAMESPACES}/{name}/finalize", {**document, "spec": {"finalizers": []}})


def reasons(server: ApiServer, name: str = "e") -> list[str]:
    items = get(server, EVENTS)["items"]
    own = [
        item
        for item in items
        if item["regarding"]["name"] == name and item["regarding"]["kind"] == "SchedulingExperiment"
    ]
    return [item["reason"] for item in sorted(own, key=lambda item: str(item["eventTime"]))]


def test_one_runs_and_the_other_waits_then_takes_its_turn(cluster: ApiServer, nothing_left: None) -> None:
    async def story(_: Controller) -> None:
        assert cluster.request("POST", EXPERIMENTS, experiment("e1"))[0] == 201
        await until(phase_is(cluster, "Starting", "e1"))
        assert cluster.request("POST", EXPERIMENTS, experiment("e2"))[0] == 201
        await until(phase_is(cluster, "Queued", "e2"))
        assert status_of(cluster, "e2")["doing"] == "waits for its turn, 1 before it"
        assert get(cluster, f"{EXPERIMENTS}/e1")["metadata"]["finalizers"] == ["emugpu.dev/experiment"]
        job = job_of(cluster, "e1")
        assert job["spec"]["template"]["spec"]["serviceAccountName"] == "emugpu-experiments"
        assert job["spec"]["backoffLimit"] == 3 and job["spec"]["podReplacementPolicy"] == "Failed"
        variables = {v["name"]: v["value"] for v in job["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert (variables["EMUGPU_EXPERIMENT_NAMESPACE"], variables["EMUGPU_EXPERIMENT_NAME"]) == ("default", "e1")
        write_job(cluster, "e1", {"active": 1, "startTime": NOW})
        observing = RunnerProgress(attempt=1, stage="Observing", column="fifo", repeat=1, ended=0, jobs=1)
        await tell(cluster, observing, "e1")
        await until(phase_is(cluster, "Running", "e1"))
        assert status_of(cluster, "e1")["doing"] == "fifo: observed, 0 of 1 jobs"
        assert status_of(cluster, "e1")["progress"]["policy"] == "fifo"
        done = RunnerProgress(attempt=1, stage="Done", done=2, best="fifo", error="0.8%", results=(RESULT,))
        await tell(cluster, done, "e1")
        await until(lambda: status_of(cluster, "e1").get("done") == 2)
        assert phase_is(cluster, "Running", "e1")()  # its pod may still clear up
        write_job(cluster, "e1", complete())
        await until(phase_is(cluster, "Succeeded", "e1"))
        found = status_of(cluster, "e1")
        assert (found["best"], found["error"], found["policies"], found["results"]) == ("fifo", "0.8%", 2, [RESULT])
        conditions = {c["type"]: (c["status"], c["reason"], c["observedGeneration"]) for c in found["conditions"]}
        assert conditions["Complete"] == ("True", "AllDone", 1) and conditions["Failed"][0] == "False"
        await until(lambda: not get(cluster, f"{EXPERIMENTS}/e1")["metadata"].get("finalizers"))
        await until(phase_is(cluster, "Starting", "e2"))
        assert reasons(cluster, "e1") == ["Queued", "Starting", "Running", "Observed", "Succeeded"]

    registry = with_controller(cluster, story)
    assert registry.get_sample_value("emugpu_experiments", {"phase": "Succeeded"}) == 1.0
    labels = {"namespace": "default", "experiment": "e1", "policy": "fifo", "figure": "meanJCT"}
    assert registry.get_sample_value("emugpu_experiment_prediction_error_ratio", labels) == -0.0083


def test_a_runner_that_died_too_often_is_reported_and_cleared_up(cluster: ApiServer, nothing_left: None) -> None:
    async def story(_: Controller) -> None:
        assert cluster.request("POST", EXPERIMENTS, experiment())[0] == 201
        await until(lambda: bool(job_of(cluster)))
        uid = get(cluster, f"{EXPERIMENTS}/e")["metadata"]["uid"]
        namespace = make_run_namespace(cluster, uid)
        await tell(cluster, RunnerProgress(attempt=2, stage="Observing", column="srtf", repeat=1, ended=1, jobs=4))
        await until(lambda: "RunnerRestarted" in reasons(cluster))
        write_job(cluster, "e", failed(4))
        await until(phase_is(cluster, "Failed"))
        (found,) = (c for c in status_of(cluster)["conditions"] if c["type"] == "Failed")
        assert found["reason"] == "RunnerDied"
        assert found["message"].startswith(
            "the runner died 4 times (last: srtf: observed, 1 of 4 jobs): Job has reached"
        )
        await until(lambda: "deletionTimestamp" in get(cluster, f"{NAMESPACES}/{namespace}")["metadata"])
        assert get(cluster, f"{EXPERIMENTS}/e")["metadata"]["finalizers"] == ["emugpu.dev/experiment"]
        remove_namespace(cluster, namespace)
        await until(lambda: not get(cluster, f"{EXPERIMENTS}/e")["metadata"].get("finalizers"))

    with_controller(cluster, story)


def test_what_ended_a_runner_for_good_is_the_reason(cluster: ApiServer, nothing_left: None) -> None:
    async def story(_: Controller) -> None:
        assert cluster.request("POST", EXPERIMENTS, experiment())[0] == 201
        await until(lambda: bool(job_of(cluster)))
        await tell(
            cluster,
            RunnerProgress(attempt=1, stage="Preparing", problem="workload.csv:2: gpu_duration_s: must be above 0"),
        )
        write_job(cluster, "e", failed(1))
        await until(phase_is(cluster, "Failed"))
        (found,) = (c for c in status_of(cluster)["conditions"] if c["type"] == "Failed")
        assert (found["reason"], found["message"]) == (
            "RunnerFailed",
            "workload.csv:2: gpu_duration_s: must be above 0",
        )
        await until(lambda: "RunnerFailed" in reasons(cluster))

    with_controller(cluster, story)


def test_an_experiment_that_is_deleted_leaves_nothing(cluster: ApiServer, nothing_left: None) -> None:
    async def story(_: Controller) -> None:
        assert cluster.request("POST", EXPERIMENTS, experiment())[0] == 201
        await until(lambda: bool(job_of(cluster)))
        uid = get(cluster, f"{EXPERIMENTS}/e")["metadata"]["uid"]
        namespace = make_run_namespace(cluster, uid)
        assert cluster.request("DELETE", f"{EXPERIMENTS}/e")[0] == 200
        await until(lambda: "deletionTimestamp" in job_of(cluster)["metadata"])
        assert (
            "deletionTimestamp" not in get(cluster, f"{NAMESPACES}/{namespace}")["metadata"]
        )  # its runner may do that
        own = f"{JOBS}/{job_of(cluster)['metadata']['name']}"
        cluster.request("PATCH", own, {"metadata": {"finalizers": None}}, content_type=MERGE)  # its pods are gone
        await until(lambda: "deletionTimestamp" in get(cluster, f"{NAMESPACES}/{namespace}")["metadata"])
        assert cluster.request("GET", f"{EXPERIMENTS}/e")[0] == 200
        remove_namespace(cluster, namespace)
        await until(lambda: cluster.request("GET", f"{EXPERIMENTS}/e")[0] == 404)

    with_controller(cluster, story)


def test_an_experiment_is_held_and_goes_on(cluster: ApiServer, nothing_left: None) -> None:
    def hold(held: bool) -> None:
        edit = {"spec": {"suspend": held}}
        assert cluster.request("PATCH", f"{EXPERIMENTS}/e", edit, content_type=MERGE)[0] == 200

    async def story(_: Controller) -> None:
        assert cluster.request("POST", EXPERIMENTS, experiment(suspend=True))[0] == 201
        await until(phase_is(cluster, "Suspended"))
        assert job_of(cluster) == {}
        hold(False)
        await until(lambda: bool(job_of(cluster)))
        write_job(cluster, "e", {"active": 1, "startTime": NOW})
        await tell(cluster, RunnerProgress(attempt=1, stage="Predicting", column="fifo", repeat=1))
        await until(phase_is(cluster, "Running"))
        hold(True)
        await until(lambda: job_of(cluster)["spec"]["suspend"] is True)
        assert status_of(cluster)["doing"] == "is being stopped"
        hold(False)
        await asyncio.sleep(0.2)
        assert job_of(cluster)["spec"]["suspend"] is True  # not beside the pod that is ending
        write_job(cluster, "e", {"active": 0, "startTime": None})
        await until(lambda: job_of(cluster)["spec"]["suspend"] is False)

    with_controller(cluster, story)


def test_an_experiment_goes_after_its_time(cluster: ApiServer, nothing_left: None) -> None:
    async def story(_: Controller) -> None:
        assert cluster.request("POST", EXPERIMENTS, experiment(ttlSecondsAfterFinished=1))[0] == 201
        await until(lambda: bool(job_of(cluster)))
        await tell(cluster, RunnerProgress(attempt=1, stage="Done", done=2))
        write_job(cluster, "e", complete())
        await until(phase_is(cluster, "Succeeded"))
        await until(lambda: "deletionTimestamp" in get(cluster, f"{EXPERIMENTS}/e")["metadata"])  # waits for its report
        assert get(cluster, f"{EXPERIMENTS}/e")["metadata"]["finalizers"] == ["foregroundDeletion"]

    with_controller(cluster, story)


def test_what_is_left_of_an_experiment_that_is_gone_is_deleted(cluster: ApiServer, nothing_left: None) -> None:
    async def story(_: Controller) -> None:
        namespace = make_run_namespace(cluster, "11111111-aaaa-bbbb-cccc-222222222222")
        await until(lambda: "deletionTimestamp" in get(cluster, f"{NAMESPACES}/{namespace}")["metadata"])
        assert cluster.request("POST", EXPERIMENTS, experiment())[0] == 201
        await until(phase_is(cluster, "Queued"))  # until it is really gone
        remove_namespace(cluster, namespace)
        await until(lambda: bool(job_of(cluster)))

    with_controller(cluster, story)


# -- what the accounts may not do --------------------------------------------------------------------------------------

RUNNER = {"Authorization": "Bearer emugpu-experiments"}
CONTROLLER = {"Authorization": "Bearer emugpu-jobs"}


def test_runners_write_in_their_own_namespaces_only(cluster: ApiServer, nothing_left: None) -> None:
    def namespace(name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {EXPERIMENT_UID_LABEL: "u"}},
        }

    def config_map(name: str, owner: str = "") -> dict[str, Any]:
        reference = {"apiVersion": "emugpu.dev/v1alpha1", "kind": "SchedulingExperiment", "name": owner, "uid": "u"}
        owners = {"ownerReferences": [reference]} if owner else {}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **owners}}

    assert cluster.request("POST", EXPERIMENTS, experiment(suspend=True))[0] == 201
    own = "emugpu-exp-0-1"
    emujobs = "/apis/emugpu.dev/v1alpha1/namespaces/{}/emujobs"
    job = {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {"name": "j"},
        "spec": {"steps": 1, "stepTime": "1s"},
    }
    edit = {"spec": {"suspend": False}}
    cases: list[tuple[int, str, str, Any]] = [
        (201, "POST", f"{NAMESPACES}?dryRun=All", namespace(own)),
        (403, "POST", f"{NAMESPACES}?dryRun=All", namespace("mine")),
        (403, "DELETE", f"{NAMESPACES}/emugpu?dryRun=All", None),
        (403, "POST", f"{emujobs.format('default')}?dryRun=All", job),
        (201, "POST", f"{CONFIG_MAPS}?dryRun=All", config_map("e-report", "e")),
        (403, "POST", f"{CONFIG_MAPS}?dryRun=All", config_map("e-report")),
        (403, "POST", f"{CONFIG_MAPS}?dryRun=All", config_map("other", "other")),
        (403, "PATCH", f"{EXPERIMENTS}/e?dryRun=All", edit),
    ]
    for expected, method, path, body in cases:
        kind = MERGE if method == "PATCH" else "application/json"
        status, reply = cluster.request(method, path, body, content_type=kind, headers=RUNNER)
        assert status == expected, (method, path, body, reply)
        refusal = "cannot patch resource" if method == "PATCH" else "runners of experiments"
        assert status == 201 or refusal in reply["message"], reply
    foreign = cluster.request("POST", CONFIG_MAPS, config_map("x-report"))
    assert foreign[0] == 201
    patch = config_map("x-report", "x")
    status, reply = cluster.request("PATCH", f"{CONFIG_MAPS}/x-report", patch, content_type=MERGE, headers=RUNNER)
    assert status == 403 and "no other ConfigMap" in reply["message"]
    cluster.request("DELETE", f"{CONFIG_MAPS}/x-report")


def test_a_runner_writes_its_own_part_of_its_own_experiment_s_status(cluster: ApiServer, nothing_left: None) -> None:
    assert cluster.request("POST", EXPERIMENTS, experiment(suspend=True))[0] == 201
    part = status_members(RunnerProgress(attempt=1, stage="Preparing"), NOW)
    status, reply = apply_status(cluster, "e", part, "experiment-e-0")
    assert status == 403 and 'status.runner is ""' in reply["message"]
    by_controller = {"status": {"runner": "experiment-e-0", "phase": "Starting", "conditions": []}}
    assert cluster.request("PATCH", f"{EXPERIMENTS}/e/status", by_controller, content_type=MERGE)[0] == 200
    foreign = "write the status of their own SchedulingExperiment only"
    cases: list[tuple[int, dict[str, Any], str, str]] = [
        (200, part, "experiment-e-0", ""),
        (403, part, "experiment-f-1", foreign),
        (403, part, "experiment-e-0-1", foreign),  # the Job of an experiment whose name begins like this one's Job
        (403, part, "", foreign),
        (403, part | {"phase": "Succeeded"}, "experiment-e-0", "the controller writes the rest"),
        (403, part | {"runner": "experiment-f-1"}, "experiment-e-0", "the controller writes the rest"),
    ]
    for expected, members, job, words in cases:
        status, reply = apply_status(cluster, "e", members, job)
        assert status == expected and words in reply.get("message", ""), (members, job, reply)
    found = status_of(cluster)
    assert (found["phase"], found["progress"]["stage"], found["attempts"]) == ("Starting", "Preparing", 1)


def test_the_controller_deletes_namespaces_of_experiments_only(cluster: ApiServer, nothing_left: None) -> None:
    namespace = make_run_namespace(cluster, "u")
    status, reply = cluster.request("DELETE", f"{NAMESPACES}/emugpu?dryRun=All", headers=CONTROLLER)
    assert status == 403 and "emugpu may clear up namespaces of experiments (emugpu-exp-...) only" in reply["message"]
    assert cluster.request("DELETE", f"{NAMESPACES}/{namespace}?dryRun=All", headers=CONTROLLER)[0] == 200


def test_an_uninstall_leaves_nothing_that_waits(cluster: ApiServer, nothing_left: None) -> None:
    assert cluster.request("POST", EXPERIMENTS, experiment())[0] == 201
    path = f"{EXPERIMENTS}/e"
    begun = {"metadata": {"finalizers": ["emugpu.dev/experiment"]}}
    assert cluster.request("PATCH", path, begun, content_type=MERGE)[0] == 200
    namespace = make_run_namespace(cluster, get(cluster, path)["metadata"]["uid"])

    async def uninstall() -> None:
        api = as_account(cluster, "emugpu-cleanup")
        await stop_experiments(api, "emugpu", lambda _text: None)
        await api.close()

    asyncio.run(uninstall())
    found = get(cluster, path)
    assert found["spec"]["suspend"] is True and not found["metadata"].get("finalizers")
    assert "deletionTimestamp" in get(cluster, f"{NAMESPACES}/{namespace}")["metadata"]


@pytest.mark.processes
def test_the_jobs_controller_s_program_runs_experiments(cluster: ApiServer, nothing_left: None, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(cluster.kubeconfig("emugpu-jobs")), encoding="utf-8")
    settings = {"IMAGE": "emugpu:1", "IDENTITY": "sexp", "METRICS_PORT": "0", "LEASE_S": "3"}
    settings |= {"EXPERIMENT_IMAGE": "emugpu-scheduler:1", "EXPERIMENT_POD": '{"nodeSelector": {"a": "b"}}'}
    environment = {**os.environ, "KUBECONFIG": str(config), **{f"EMUGPU_JOBS_{k}": v for k, v in settings.items()}}
    assert cluster.request("POST", EXPERIMENTS, experiment())[0] == 201
    command = [sys.executable, "-W", "error", "-m", "operators.jobs"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as program:
        try:
            asyncio.run(until(lambda: bool(job_of(cluster))))
            pod = job_of(cluster)["spec"]["template"]["spec"]
            assert (pod["nodeSelector"], pod["containers"][0]["image"]) == ({"a": "b"}, "emugpu-scheduler:1")
            program.send_signal(signal.SIGTERM)
            assert program.wait(5) == 0
        finally:
            program.kill()
