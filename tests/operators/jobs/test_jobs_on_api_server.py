"""EmuJobs on a real API server: the schema's refusals, who owns which field, preconditions, and the program with its lease.

There is no Job controller here, so Jobs are objects only; what becomes of them is written by the tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import wall_ns
from operators.controllers.actions import SuspendJob
from operators.controllers.writer import write_common
from operators.jobs.controller import AUTHOR, Controller, Dependencies, JobMetrics, write
from operators.jobs.manifests import Images
from operators.jobs.plan import ResizePod
from operators.kube.api import JOB, LEASE, ConflictError, NotThereError
from operators.kube.client import KubeApi
from operators.kube.documents import Key
from operators.kube.informer import Pauses
from operators.kube.kubeconfig import from_document
from tests.support.api_server import ApiServer
from tests.support.controllers import running, until

EMUJOBS = "/apis/emugpu.dev/v1alpha1/namespaces/default/emujobs"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
OWN_LEASE = "/apis/coordination.k8s.io/v1/namespaces/emugpu/leases/emugpu-jobs"
NO_REDIS = (
    b"jobs: EMUGPU_JOBS_REDIS_URL is empty: times come from Kubernetes, in whole seconds, and progress is known at the end "
    b"only\n"
)
MERGE = "application/merge-patch+json"


def emujob(name: str = "j", **spec: Any) -> dict[str, Any]:
    work = {} if "configurations" in spec or "stepTime" in spec else {"model": "resnet50", "batchSize": 64}
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {"name": name},
        "spec": {"steps": 100, **work, **spec},
    }


def as_account(server: ApiServer, name: str = "emugpu-jobs") -> KubeApi:
    return KubeApi(from_document(server.kubeconfig(name)))


# -- the schema --------------------------------------------------------------------------------------------------------


def test_what_an_emujob_leaves_out_is_filled_in(cluster: ApiServer) -> None:
    status, reply = cluster.request("POST", f"{EMUJOBS}?dryRun=All", emujob())
    assert status == 201, reply
    assert reply["spec"] == {
        "steps": 100,
        "model": "resnet50",
        "batchSize": 64,
        "nodes": 1,
        "weight": 1,
        "suspend": False,
        "native": {},
        "scheduler": {"actuator": "none", "name": "", "schedulerName": "default-scheduler"},
    }


SPEEDS = [{"amount": 1, "speed": 1}, {"amount": "2", "speed": 1.5}]
CPU = {"name": "cpu", "resources": {"emuGPU": 0, "cpu": 4}, "profile": {"stepTime": "3s"}}


@pytest.mark.parametrize("name", ["MyScheduler", "my_scheduler", "a/b"])
def test_a_scheduler_of_pods_may_have_any_name(cluster: ApiServer, name: str) -> None:
    status, reply = cluster.request("POST", f"{EMUJOBS}?dryRun=All", emujob(scheduler={"schedulerName": name}))
    assert status == 201, reply
    spec = job_spec()
    spec["template"]["spec"]["schedulerName"] = name
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    status, reply = cluster.request("POST", f"{JOBS}?dryRun=All", job)
    assert status == 201, reply  # Kubernetes takes it, too


@pytest.mark.parametrize("name", ["1j", "j" * 51, "a.b"])
def test_a_name_that_pods_and_services_cannot_have_is_refused(cluster: ApiServer, name: str) -> None:
    status, reply = cluster.request("POST", f"{EMUJOBS}?dryRun=All", emujob(name))
    assert status == 422 and "50 characters at most, small letters" in reply["message"]


def test_how_fast_a_job_is_with_what_it_gets_can_be_said(cluster: ApiServer) -> None:
    sensitivity = {"cpu": SPEEDS, "memory": [{"amount": "62.5Gi", "speed": 1.0}]}
    resources = {"cpu": "500m", "memory": "1Gi"}
    short = emujob(stepTime="1s", resources=resources, sensitivity=sensitivity)
    named = {**CPU, "resources": resources, "profile": {"stepTime": "3s", "sensitivity": sensitivity}}
    for document in (short, emujob(configurations=[named])):
        status, reply = cluster.request("POST", f"{EMUJOBS}?dryRun=All", document)
        assert status == 201, reply


def test_only_hold_and_weight_can_be_changed(cluster: ApiServer, jobs: None) -> None:
    document = emujob(configurations=[CPU], template={"labels": {"a": "b"}}, native={"limits": {"memory": "64Mi"}})
    assert cluster.request("POST", EMUJOBS, document)[0] == 201
    allowed: list[dict[str, Any]] = [{"suspend": True}, {"weight": 2.5}]
    refused: list[dict[str, Any]] = [{"steps": 9}, {"nodes": 2}, {"tenant": "t"}, {"image": "i"}, {"native": None}]
    refused += [
        {"template": None},
        {"template": {"labels": {"a": "c"}}},
        {"configurations": [{**CPU, "gpuTypes": ["T4"]}]},
    ]
    refused += [{"scheduler": {"actuator": "jobs", "name": "s"}}]
    for change, expected in [*((c, 200) for c in allowed), *((c, 422) for c in refused)]:
        status, reply = cluster.request("PATCH", f"{EMUJOBS}/j", {"spec": change}, content_type=MERGE)
        assert status == expected, (change, reply)
        assert status == 200 or "only spec.suspend and spec.weight can be changed" in reply["message"]


def test_columns_and_short_name(cluster: ApiServer) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/emujobs.emugpu.dev"
    _, definition = cluster.request("GET", path)
    names = definition["spec"]["names"]
    assert (names["shortNames"], names["categories"]) == (["ej"], ["emugpu"])
    columns = definition["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Phase", "GPUs", "Progress", "Predicted", "Observed", "Node", "Age"]
    assert "NonStructuralSchema" not in json.dumps(definition["status"])


# -- the controller ----------------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(cluster: ApiServer) -> Iterator[None]:
    """A node that a pool gives four devices; afterwards nothing is left."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu1"}}
    assert cluster.request("POST", "/api/v1/nodes", node)[0] == 201
    spec = {"gpus": [{"type": "V100", "count": 4}], "emulated": {"cpu": 24, "memory": "100Gi"}}
    pool = {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuGPUPool", "metadata": {"name": "jobs"}, "spec": spec}
    pools = "/apis/emugpu.dev/v1alpha1/emugpupools"
    status, reply = cluster.request("POST", pools, pool)
    assert status == 201, reply
    yield
    cluster.request("DELETE", "/api/v1/nodes/gpu1")
    cluster.request("DELETE", f"{pools}/jobs")
    for path in (EMUJOBS, JOBS):
        for document in cluster.request("GET", path)[1]["items"]:
            cluster.request("DELETE", f"{path}/{document['metadata']['name']}?propagationPolicy=Background")
            cluster.request(
                "PATCH",
                f"{path}/{document['metadata']['name']}",
                {"metadata": {"finalizers": None}},
                content_type=MERGE,
            )


def with_controller(server: ApiServer, story: Callable[[], Awaitable[None]]) -> JobMetrics:
    """Run the real controller under its own service account while `story` goes on."""
    metrics = JobMetrics()

    async def play() -> None:
        api = as_account(server)
        context = Dependencies(Images("emugpu:1"), ProfileTable.bundled(), wall_ns)
        controller = Controller(api, metrics, context, Pauses(settle=0.02, first=0.1, longest=1.0))
        async with running(controller.run(), api):
            await story()
            assert controller.problem == ""

    asyncio.run(play())
    return metrics


def get(server: ApiServer, path: str) -> Any:
    return server.request("GET", path)[1]


def phase(server: ApiServer, name: str = "j") -> Callable[[], Any]:
    return lambda: get(server, f"{EMUJOBS}/{name}").get("status", {}).get("phase")


def test_a_job_that_is_refused_says_why_until_it_comes_through(cluster: ApiServer, jobs: None) -> None:
    """A quota's refusal heals, that of a template doesn't; neither leaves the EmuJob waiting without a word."""
    quotas = "/api/v1/namespaces/default/resourcequotas"
    limits = {"count/jobs.batch": "0"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": limits}}
    assert cluster.request("POST", quotas, quota)[0] == 201
    counted = {"status": {"hard": limits, "used": limits}}  # what the controller manager does
    assert cluster.request("PATCH", f"{quotas}/none/status", counted, content_type=MERGE)[0] == 200
    odd = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nothing"}}}]

    def why_not(name: str) -> Any:
        conditions = get(cluster, f"{EMUJOBS}/{name}").get("status", {}).get("conditions", ())
        return next((c["message"] for c in conditions if c["reason"] == "NotCarriedOut"), "")

    async def story() -> None:
        for document in (emujob(), emujob("k", template={"env": odd})):
            assert cluster.request("POST", EMUJOBS, document)[0] == 201
        await until(lambda: "exceeded quota: none" in why_not("j") and why_not("k"))
        assert cluster.request("DELETE", f"{quotas}/none")[0] == 200
        await until(lambda: get(cluster, f"{JOBS}/j").get("kind") == "Job" and not why_not("j"))
        await until(lambda: "spec.nothing" in why_not("k"))

    with_controller(cluster, story)


def test_a_scheduler_and_the_controller_share_a_job(cluster: ApiServer, jobs: None) -> None:
    """What a job-level scheduler writes in one patch stays as it is, however often the controller looks."""
    scheduler = {"actuator": "jobs", "name": "s"}
    cpu = {**CPU, "resources": {"emuGPU": 0, "cpu": 4}}
    gpu = {"name": "gpu", "resources": {"emuGPU": 2}, "profile": {"model": "resnet50", "batchSize": 64}}

    async def story() -> None:
        assert cluster.request("POST", EMUJOBS, emujob(scheduler=scheduler, configurations=[gpu, cpu]))[0] == 201
        await until(lambda: phase(cluster)() == "Queued")
        job = get(cluster, f"{JOBS}/j")
        assert job["spec"]["suspend"] is True and job["spec"]["podReplacementPolicy"] == "Failed"
        assert job["metadata"]["ownerReferences"][0]["kind"] == "EmuJob"
        assert {entry["manager"] for entry in job["metadata"]["managedFields"]} == {"emugpu-operator"}
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["gpu1"]}]}]
        notes = {
            "emugpu.dev/configuration": "cpu",
            "emugpu.dev/allocation": json.dumps({"configuration": "cpu", "nodes": ["gpu1"], "cpu_milli": 4000}),
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        resources = {"limits": {"emugpu.dev/host": "1"}, "requests": {"cpu": "10m", "memory": "32Mi"}}
        (container,) = job["spec"]["template"]["spec"]["containers"]
        spec = {"affinity": {"nodeAffinity": required}, "containers": [{**container, "resources": resources}]}
        patch = {"spec": {"suspend": False, "template": {"metadata": {"annotations": notes}, "spec": spec}}}
        status, reply = cluster.request("PATCH", f"{JOBS}/j?fieldManager=s", patch, content_type=MERGE)
        assert status == 200, reply
        await until(lambda: phase(cluster)() == "Starting")
        found = get(cluster, f"{EMUJOBS}/j")["status"]
        assert (found["allocation"]["configuration"], found["gpus"], found["node"]) == ("cpu", 0, "gpu1")
        edit = {"spec": {"weight": 3}}  # a reason to look again
        assert cluster.request("PATCH", f"{EMUJOBS}/j", edit, content_type=MERGE)[0] == 200
        await asyncio.sleep(0.3)
        after = get(cluster, f"{JOBS}/j")["spec"]
        assert after["suspend"] is False
        assert after["template"]["metadata"]["annotations"]["emugpu.dev/configuration"] == "cpu"
        assert after["template"]["spec"]["affinity"] == {"nodeAffinity": required}

    metrics = with_controller(cluster, story)
    assert metrics.registry.get_sample_value("emugpu_jobs_failures_total", {"doing": "WriteStatus"}) is None


PODS = "/api/v1/namespaces/default/pods"


class RunningPod:
    """The pod j-0 of the Job j: made as the Job controller would, with the share that a scheduler gives it."""

    def __init__(self, server: ApiServer, cpu_milli: int) -> None:
        self._server = server
        job = get(server, f"{JOBS}/j")
        metadata, spec = (job["spec"]["template"][name] for name in ("metadata", "spec"))
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        metadata["annotations"]["emugpu.dev/allocation"] = self._share(cpu_milli)
        metadata |= {"name": "j-0", "ownerReferences": [owner]}
        spec |= {"nodeName": "gpu1", "schedulingGates": None}
        status, reply = server.request("POST", PODS, {"metadata": metadata, "spec": spec})
        assert status == 201, reply
        self.uid = reply["metadata"]["uid"]

    def divide(self, cpu_milli: int) -> None:
        note = {"metadata": {"annotations": {"emugpu.dev/allocation": self._share(cpu_milli)}}}
        assert self._server.request("PATCH", f"{PODS}/j-0", note, content_type=MERGE)[0] == 200

    def is_seen(self) -> None:
        """By its kubelet, as it is now."""
        seen = {"status": {"observedGeneration": self.metadata()["generation"]}}
        assert self._server.request("PATCH", f"{PODS}/j-0/status", seen, content_type=MERGE)[0] == 200

    def metadata(self) -> Any:
        return get(self._server, f"{PODS}/j-0")["metadata"]

    def resources(self) -> Any:
        return get(self._server, f"{PODS}/j-0")["spec"]["containers"][0]["resources"]

    def cpu(self) -> Any:
        return self.resources()["requests"]["cpu"]

    def resized(self) -> Any:
        """Reason and message of the EmuJob's condition."""
        conditions = get(self._server, f"{EMUJOBS}/j")["status"]["conditions"]
        return next(((c["reason"], c["message"]) for c in conditions if c["type"] == "Resized"), ("", ""))

    def _share(self, cpu_milli: int) -> str:
        where = {"configuration": "default", "nodes": ["gpu1"]}
        return json.dumps({**where, "cpu_milli": cpu_milli, "memory_bytes": 2**34})


def test_a_running_pod_asks_for_what_follows_its_share(cluster: ApiServer, jobs: None) -> None:
    """In place, by the account that the chart makes; what the node can't give is refused and told."""
    capacity = {"cpu": "2", "memory": "4Gi", "pods": "110", "emugpu.dev/emuGPU": "4"}
    node = {"status": {"capacity": capacity, "allocatable": capacity}}
    assert cluster.request("PATCH", "/api/v1/nodes/gpu1/status", node, content_type=MERGE)[0] == 200
    native = {"limits": {"memory": "1Gi"}, "follow": {"cpu": "50m", "memory": "0.01"}}
    document = emujob(scheduler={"actuator": "gated", "name": "s"}, resources={"cpu": 2}, native=native)

    async def story() -> None:
        assert cluster.request("POST", EMUJOBS, document)[0] == 201
        await until(lambda: cluster.request("GET", f"{JOBS}/j")[0] == 200)
        pod = RunningPod(cluster, 4000)
        await until(lambda: pod.cpu() == "200m")
        assert pod.resources()["requests"]["memory"] == "1Gi"  # more than its share of 16 GiB
        assert pod.resources()["limits"] == {"memory": "1Gi", "emugpu.dev/emuGPU": "1"}
        pod.is_seen()
        pod.divide(6000)
        await until(lambda: pod.cpu() == "300m" and pod.resized()[0] == "InProgress")
        pod.is_seen()
        await until(lambda: pod.resized() == ("AsAllocated", "cpu 300m, memory 1Gi"))
        assert get(cluster, f"{EMUJOBS}/j")["status"]["allocation"]["cpu"] == "6000m"
        pod.divide(60_000)
        await until(lambda: pod.resized()[0] == "Refused")
        assert pod.resized()[1].startswith(
            'patch pods j-0: pods "j-0" is forbidden: node didn\'t have enough allocatable'
        )
        assert "RBAC" not in pod.resized()[1] and pod.cpu() == "300m"
        pod.divide(2000)
        await until(lambda: pod.cpu() == "100m")
        assert (pod.metadata()["uid"], pod.metadata()["generation"]) == (pod.uid, 4)  # resized three times
        api = as_account(cluster)
        with pytest.raises(NotThereError):  # a pod of this name that was made since isn't meant
            await write(api, ResizePod(Key("default", "j-0", "another"), {"requests": {"cpu": "150m"}}))
        await api.close()

    try:
        with_controller(cluster, story)
        assert "ResizeRefused" in {event["reason"] for event in cluster_events(cluster)}
    finally:
        cluster.request("DELETE", f"{PODS}/j-0?gracePeriodSeconds=0")


def cluster_events(server: ApiServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get(server, "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return found


def test_a_user_holds_and_lets_go(cluster: ApiServer, jobs: None) -> None:
    async def story() -> None:
        assert cluster.request("POST", EMUJOBS, emujob())[0] == 201
        await until(lambda: phase(cluster)() == "Queued")
        for hold in (True, False):
            edit = {"spec": {"suspend": hold}}
            assert cluster.request("PATCH", f"{EMUJOBS}/j", edit, content_type=MERGE)[0] == 200
            await until(lambda hold=hold: get(cluster, f"{JOBS}/j")["spec"]["suspend"] is hold)

    with_controller(cluster, story)


def test_what_fits_nowhere_is_rejected_until_a_pool_comes(cluster: ApiServer, jobs: None) -> None:
    async def story() -> None:
        assert cluster.request("POST", EMUJOBS, emujob(stepTime="1s", gpuType="T4"))[0] == 201
        await until(lambda: phase(cluster)() == "Rejected")
        assert cluster.request("GET", f"{JOBS}/j")[0] == 404
        edit = {"spec": {"gpus": [{"type": "T4", "count": 1}]}}
        assert (
            cluster.request("PATCH", "/apis/emugpu.dev/v1alpha1/emugpupools/jobs", edit, content_type=MERGE)[0] == 200
        )
        await until(lambda: phase(cluster)() == "Queued")

    with_controller(cluster, story)
    events = cluster_events(cluster)
    assert {"NoNodeFits", "Accepted"} <= {event["reason"] for event in events if event["regarding"]["name"] == "j"}


def test_two_pods_have_a_service(cluster: ApiServer, jobs: None) -> None:
    second = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu2"}}
    assert cluster.request("POST", "/api/v1/nodes", second)[0] == 201

    async def story() -> None:
        assert cluster.request("POST", EMUJOBS, emujob(nodes=2))[0] == 201
        await until(lambda: cluster.request("GET", "/api/v1/namespaces/default/services/j")[0] == 200)
        await until(lambda: cluster.request("GET", f"{JOBS}/j")[0] == 200)

    try:
        with_controller(cluster, story)
    finally:
        cluster.request("DELETE", "/api/v1/nodes/gpu2")
        cluster.request("DELETE", "/api/v1/namespaces/default/services/j")


def test_preconditions_of_writes(cluster: ApiServer, jobs: None) -> None:
    """A version that is old and a uid that is another one: nothing is written, and the error says that looking again helps."""

    async def story() -> None:
        assert cluster.request("POST", EMUJOBS, emujob())[0] == 201
        await until(lambda: cluster.request("GET", f"{JOBS}/j")[0] == 200)

    with_controller(cluster, story)
    metadata = get(cluster, f"{JOBS}/j")["metadata"]

    async def play() -> None:
        api = as_account(cluster)
        old = Key("default", "j", metadata["uid"], "1")
        with pytest.raises(ConflictError):
            await write_common(api, SuspendJob(old, True), AUTHOR, wall_ns())
        admin = as_account(cluster, "emugpu-test-admin")  # the controller may create a Job of an EmuJob only
        with pytest.raises(ConflictError):
            await admin.create(JOB, {"metadata": {"name": "j", "namespace": "default"}, "spec": job_spec()})
        await admin.close()
        with pytest.raises(ClusterError):
            await api.delete(JOB, "j", "default", uid="another")
        assert cluster.request("GET", f"{JOBS}/j")[0] == 200
        await api.delete(JOB, "j", "default", uid=metadata["uid"])
        assert get(cluster, f"{JOBS}/j")["metadata"]["finalizers"] == ["foregroundDeletion"]
        await api.delete(JOB, "never-was", "default", uid="x")
        cluster.request("DELETE", OWN_LEASE)
        with pytest.raises(NotThereError):
            await api.get(LEASE, "emugpu-jobs", "emugpu")
        await api.close()

    asyncio.run(play())


def job_spec() -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    return {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}}


# -- the program -------------------------------------------------------------------------------------------------------


def start(config: Path, identity: str, **more: str) -> subprocess.Popen[bytes]:
    settings = {"IMAGE": "emugpu:1", "IDENTITY": identity, "METRICS_PORT": "0", "LEASE_S": "6", **more}
    environment = {**os.environ, "KUBECONFIG": str(config), **{f"EMUGPU_JOBS_{k}": v for k, v in settings.items()}}
    command = [sys.executable, "-W", "error", "-m", "operators.jobs"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


def test_of_two_replicas_one_acts_and_the_other_takes_over(cluster: ApiServer, jobs: None, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(cluster.kubeconfig("emugpu-jobs")), encoding="utf-8")

    def holder() -> Any:
        return get(cluster, OWN_LEASE).get("spec", {}).get("holderIdentity")

    with start(config, "one") as one:
        asyncio.run(until(lambda: holder() == "one"))
        with start(config, "two") as two:
            try:
                assert cluster.request("POST", EMUJOBS, emujob())[0] == 201
                asyncio.run(until(lambda: phase(cluster)() == "Queued"))
                one.send_signal(signal.SIGSTOP)  # frozen, as a machine may be
                asyncio.run(until(lambda: holder() == "two"))
                one.send_signal(signal.SIGCONT)
                assert one.wait(30) == 1
                assert one.stderr is not None and b"ending" in one.stderr.read()
                assert cluster.request("POST", EMUJOBS, emujob("k"))[0] == 201
                asyncio.run(until(lambda: phase(cluster, "k")() == "Queued"))
                two.send_signal(signal.SIGTERM)
                assert two.wait(30) == 0
                waited, problem = two.stderr.readlines() if two.stderr is not None else ()
                assert b"is held by one; waiting" in waited and problem == NO_REDIS
                assert holder() in ("", None)
            finally:
                one.kill()
                two.kill()
    cluster.request("DELETE", OWN_LEASE)


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:  # it doesn't listen yet
        return 0, ""


@pytest.mark.parametrize("what", ["store", "Redis"])
def test_without_store_or_redis_it_works_and_is_ready_and_says_so(
    cluster: ApiServer, jobs: None, tmp_path: Path, what: str
) -> None:
    """The API is in the same pod, which an unready controller would take out of its Service."""
    config, store = tmp_path / "kubeconfig", tmp_path / "results.db"
    config.write_text(json.dumps(cluster.kubeconfig("emugpu-jobs")), encoding="utf-8")
    if what == "store":
        store.write_bytes(b"no database" * 1000)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, nobodys = one.getsockname()[1], other.getsockname()[1]
    settings = {"METRICS_PORT": str(port), "STORE": str(store), "REDIS_URL": f"redis://127.0.0.1:{nobodys}/0"}
    with start(config, "one", **settings) as process:
        try:
            assert cluster.request("POST", EMUJOBS, emujob())[0] == 201
            asyncio.run(until(lambda: phase(cluster)() == "Queued"))
            asyncio.run(until(lambda: "emugpu_collector_failures_total{" in page(port, "/metrics")[1]))
            assert "emugpu_collector_up 0.0" in page(port, "/metrics")[1]
            store_up = f"emugpu_results_store_up {float(what != 'store')}"
            asyncio.run(until(lambda: store_up in page(port, "/metrics")[1]))
            assert (page(port, "/readyz"), page(port, "/healthz")) == ((200, "ok\n"), (200, "ok\n"))
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    lines = said.decode().splitlines()
    told = [line for line in lines if line.startswith(f"results: {store}: can't use this file")]
    assert len(told) == (what == "store"), lines
    assert any(line.startswith("collector: ") for line in lines), lines
    cluster.request("DELETE", OWN_LEASE)
