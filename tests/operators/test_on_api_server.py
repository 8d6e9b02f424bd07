"""Everything that only a real API server knows: policies, the pools' schema, server-side apply and who may do what.

The workloads run with the tokens of the chart's own service accounts, so a right that is missing shows here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import wall_ns
from operators.chart_hooks.cleanup import NodePods, cleanup
from operators.chart_hooks.prepare import Settings as PrepareSettings
from operators.chart_hooks.prepare import prepare
from operators.controllers.actions import RecordEvent
from operators.controllers.events import Event
from operators.controllers.writer import write_common
from operators.kube.api import CRD, NODE, POD, POOL, ApiAwayError, NotThereError, applied
from operators.kube.client import KubeApi
from operators.kube.documents import Key
from operators.kube.informer import Pauses
from operators.kube.kubeconfig import from_document
from operators.pools.controller import AUTHOR, Controller, PoolMetrics
from tests.support.api_server import ApiServer
from tests.support.controllers import running, until

ObjectOf = Callable[..., dict[str, Any]]
PATHS = {
    "Pod": "/api/v1/namespaces/default/pods",
    "PodTemplate": "/api/v1/namespaces/default/podtemplates",
    "ReplicationController": "/api/v1/namespaces/default/replicationcontrollers",
    "Job": "/apis/batch/v1/namespaces/default/jobs",
    "CronJob": "/apis/batch/v1/namespaces/default/cronjobs",
    "Deployment": "/apis/apps/v1/namespaces/default/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/default/replicasets",
    "DaemonSet": "/apis/apps/v1/namespaces/default/daemonsets",
    "StatefulSet": "/apis/apps/v1/namespaces/default/statefulsets",
}
POOLS = "/apis/emugpu.dev/v1alpha1/emugpupools"


def as_account(server: ApiServer, name: str) -> KubeApi:
    return KubeApi(from_document(server.kubeconfig(name)))


def pod_spec(document: dict[str, Any]) -> Any:
    kind = document["kind"]
    if kind == "Pod":
        return document["spec"]
    if kind == "PodTemplate":
        return document["template"]["spec"]
    spec = document["spec"]
    return (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]


# -- the short name ----------------------------------------------------------------------------------------------------


def changed(
    server: ApiServer, document: dict[str, Any], object_of: ObjectOf, case: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """What the server would make of the document, as a new object or over the old one; nothing stays."""
    path = PATHS[document["kind"]]
    if "old" not in case:
        return server.request("POST", f"{path}?dryRun=All", document)
    status, reply = server.request("POST", path, object_of(case, old=True))
    assert status == 201, reply
    try:
        return server.request("PUT", f"{path}/{document['metadata']['name']}?dryRun=All", document)
    finally:
        server.request("DELETE", f"{path}/{document['metadata']['name']}?propagationPolicy=Background")


def test_the_policy_rewrites_or_refuses_as_the_table_says(
    cluster: ApiServer, alias_case: dict[str, Any], object_of: ObjectOf
) -> None:
    document = object_of(alias_case)
    status, reply = changed(cluster, document, object_of, alias_case)
    if "refused" in alias_case:
        assert status == 422, reply
        assert reply["message"].endswith(f"denied request: {alias_case['refused']}")
        return
    assert status in (200, 201), reply
    spec = pod_spec(reply)
    expected = alias_case["expected"]
    if document["kind"] == "Pod" and "requests" not in expected and "limits" in expected:
        expected = {**expected, "requests": expected["limits"]}
    assert spec["containers"][0]["resources"] == expected
    if "init" in alias_case:
        assert spec["initContainers"][0]["resources"] == alias_case["expected_init"]


def test_applying_a_job_twice_is_fine(cluster: ApiServer, object_of: ObjectOf) -> None:
    job = object_of({"kind": "Job", "resources": {"limits": {"emuGPU": 4}}})
    job["metadata"]["name"] = "twice"
    for expected in (201, 200):
        status, reply = cluster.apply(f"{PATHS['Job']}/twice", job)
        assert status == expected, reply
    status, reply = cluster.request(
        "PUT", f"{PATHS['Job']}/twice", {**job, "metadata": reply["metadata"], "spec": reply["spec"]}
    )
    assert status == 200, reply


def test_a_limit_range_gives_way_to_the_short_name(cluster: ApiServer, object_of: ObjectOf) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "limited"}}
    assert cluster.request("POST", "/api/v1/namespaces", namespace)[0] == 201
    limits = [{"type": "Container", "default": {"emugpu.dev/emuGPU": 1}, "defaultRequest": {"emugpu.dev/emuGPU": 1}}]
    limit_range = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}}
    assert cluster.request("POST", "/api/v1/namespaces/limited/limitranges", limit_range)[0] == 201
    for part in ("limits", "requests"):
        pod = object_of({"kind": "Pod", "resources": {part: {"emuGPU": 4}}})
        pod["metadata"]["namespace"] = "limited"
        status, reply = cluster.request("POST", "/api/v1/namespaces/limited/pods?dryRun=All", pod)
        assert status == 201, reply
        assert reply["spec"]["containers"][0]["resources"] == {
            "limits": {"emugpu.dev/emuGPU": "4"},
            "requests": {"emugpu.dev/emuGPU": "4"},
        }


def test_words_are_refused_by_the_server_itself(cluster: ApiServer, object_of: ObjectOf) -> None:
    pod = object_of({"kind": "Pod", "resources": {"limits": {"emuGPU": "two"}}})
    status, reply = cluster.request("POST", PATHS["Pod"], pod)
    assert status == 400
    assert "quantities must match the regular expression" in reply["message"]


# -- the pools' schema -------------------------------------------------------------------------------------------------


def pool(name: str, **spec: Any) -> dict[str, Any]:
    gpus = [{"type": "T4", "count": 2}]
    metadata = {"name": name}
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuGPUPool",
        "metadata": metadata,
        "spec": {"gpus": gpus, **spec},
    }


def test_what_a_pool_leaves_out_is_filled_in(cluster: ApiServer) -> None:
    status, reply = cluster.request("POST", f"{POOLS}?dryRun=All", pool("p", unhealthy=[{"node": "w1", "index": 0}]))
    assert status == 201, reply
    assert reply["spec"] == {
        "gpus": [{"type": "T4", "count": 2, "numaNodes": 1}],
        "nodeSelector": {},
        "resourceName": "emugpu.dev/emuGPU",
        "unhealthy": [{"node": "w1", "index": 0, "reason": "marked unhealthy in the pool"}],
    }


def test_every_label_can_be_selected(cluster: ApiServer) -> None:
    labels = {"kubernetes.io/hostname": "w1", "A_b.c": "", f"{'a' * 253}/{'b' * 63}": "c" * 63}
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    selector = {"matchLabels": labels, "matchExpressions": expressions}
    status, reply = cluster.request("POST", f"{POOLS}?dryRun=All", pool("p", nodeSelector=selector))
    assert status == 201, reply


def test_a_pool_name_that_is_no_label_is_refused(cluster: ApiServer) -> None:
    status, reply = cluster.request("POST", f"{POOLS}?dryRun=All", pool("p" * 64))
    assert status == 422
    assert "63 characters at most, because nodes are labelled with it" in reply["message"]


def test_columns_and_short_name(cluster: ApiServer) -> None:
    _, definition = cluster.request(
        "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/emugpupools.emugpu.dev"
    )
    assert definition["spec"]["names"]["shortNames"] == ["egp"]
    (version,) = definition["spec"]["versions"]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    assert shown == ["Nodes", "Devices", "Allocatable", "Ready", "Age"]
    assert "NonStructuralSchema" not in json.dumps(definition["status"])


# -- the controller ----------------------------------------------------------------------------------------------------


@pytest.fixture
def nodes(cluster: ApiServer) -> Iterator[tuple[str, ...]]:
    """Two nodes; one has a label and an annotation of somebody else."""
    names = ("w1", "w2")
    for name in names:
        make_node(cluster, name, zone=name)
    yield names
    for name in names:
        cluster.request("DELETE", f"/api/v1/nodes/{name}")
    _, found = cluster.request("GET", POOLS)
    for document in found["items"]:
        cluster.request("DELETE", f"{POOLS}/{document['metadata']['name']}")


def make_node(server: ApiServer, name: str, **labels: str) -> None:
    metadata = {"name": name, "labels": labels, "annotations": {"other": "theirs"}}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    assert server.request("POST", "/api/v1/nodes", document)[0] == 201
    ready = {"type": "Ready", "status": "True", "reason": "r", "message": "m"}
    status = {"conditions": [ready], "allocatable": {"emugpu.dev/emuGPU": "2"}, "capacity": {"emugpu.dev/emuGPU": "2"}}
    path = f"/api/v1/nodes/{name}/status"
    reply = server.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")
    assert reply[0] == 200, reply


def metadata_of(server: ApiServer, name: str) -> Any:
    return server.request("GET", f"/api/v1/nodes/{name}")[1]["metadata"]


def with_controller(server: ApiServer, story: Callable[[Controller], Awaitable[None]]) -> PoolMetrics:
    """Run the real controller under its own service account while `story` goes on."""
    metrics = PoolMetrics()

    async def play() -> None:
        api = as_account(server, "emugpu-pools")
        controller = Controller(api, metrics, wall_ns, Pauses(settle=0.02, first=0.1, longest=1.0))
        async with running(controller.run(), api):
            await story(controller)

    asyncio.run(play())
    return metrics


def test_pools_become_labels_and_inventories_and_are_taken_back(cluster: ApiServer, nodes: tuple[str, ...]) -> None:
    def status() -> Any:
        return cluster.request("GET", f"{POOLS}/p")[1].get("status", {})

    def ready(value: str, reason: str) -> Callable[[], bool]:
        return lambda: any(
            (c["type"], c["status"], c["reason"]) == ("Ready", value, reason) for c in status().get("conditions", ())
        )

    async def story(controller: Controller) -> None:
        assert cluster.request("POST", POOLS, pool("p"))[0] == 201
        await until(ready("True", "NodesReady"))
        assert (status()["nodes"], status()["devices"], status()["allocatable"]) == (2, 4, 4)
        metadata = metadata_of(cluster, "w1")
        assert (
            metadata["labels"] | {"zone": "w1", "emugpu.dev/pool": "p", "emugpu.dev/gpu.count": "2"}
            == metadata["labels"]
        )
        assert json.loads(metadata["annotations"]["emugpu.dev/inventory"])["node"] == "w1"

        edit = {"spec": {"gpus": [{"type": "A10O", "count": 2}]}}
        cluster.request("PATCH", f"{POOLS}/p", edit, content_type="application/merge-patch+json")
        await until(ready("False", "UnknownGpuType"))
        assert metadata_of(cluster, "w1")["labels"]["emugpu.dev/gpu.count"] == "2"

        edit = {"spec": {"gpus": [{"type": "T4", "count": 1}], "nodeSelector": {"matchLabels": {"zone": "w2"}}}}
        cluster.request("PATCH", f"{POOLS}/p", edit, content_type="application/merge-patch+json")
        await until(lambda: set(metadata_of(cluster, "w1")["labels"]) == {"zone"})
        assert metadata_of(cluster, "w1")["annotations"] == {"other": "theirs"}
        await until(lambda: metadata_of(cluster, "w2")["labels"]["emugpu.dev/gpu.count"] == "1")

        cluster.request("DELETE", "/api/v1/nodes/w2")
        make_node(cluster, "w2", zone="w2")
        await until(lambda: metadata_of(cluster, "w2")["labels"].get("emugpu.dev/pool") == "p")
        cluster.request("DELETE", f"{POOLS}/p")
        await until(lambda: set(metadata_of(cluster, "w2")["labels"]) == {"zone"})
        assert controller.problem == ""

    metrics = with_controller(cluster, story)
    assert metrics.registry.get_sample_value("emugpu_pools_failures_total", {"doing": "PatchNode"}) is None
    _, events = cluster.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    reasons = {event["reason"] for event in events["items"] if event["regarding"]["name"] == "p"}
    assert {"NodesReady", "UnknownGpuType"} <= reasons


def test_two_controllers_at_once_do_no_harm(cluster: ApiServer, nodes: tuple[str, ...]) -> None:
    async def outer(_one: Controller) -> None:
        api = as_account(cluster, "emugpu-pools")
        other = asyncio.create_task(Controller(api, PoolMetrics(), wall_ns, Pauses(settle=0.01)).run())
        assert cluster.request("POST", POOLS, pool("p"))[0] == 201
        await until(lambda: all("emugpu.dev/pool" in metadata_of(cluster, name)["labels"] for name in nodes))
        await asyncio.sleep(0.3)
        before = metadata_of(cluster, "w1")["resourceVersion"]
        await asyncio.sleep(0.5)
        assert metadata_of(cluster, "w1")["resourceVersion"] == before
        other.cancel()
        await asyncio.wait([other])
        await api.close()

    with_controller(cluster, outer)


def test_cleanup_leaves_nothing(cluster: ApiServer, nodes: tuple[str, ...]) -> None:
    async def story(_controller: Controller) -> None:
        assert cluster.request("POST", POOLS, pool("p"))[0] == 201
        await until(lambda: all("emugpu.dev/pool" in metadata_of(cluster, name)["labels"] for name in nodes))
        api = as_account(cluster, "emugpu-cleanup")
        pods = NodePods("emugpu", {"app.kubernetes.io/component": "node"}, 5.0)
        assert await cleanup(api, pods, lambda _text: None) == []  # while the controller is still running
        await asyncio.sleep(0.3)
        await api.close()

    with_controller(cluster, story)
    for name in nodes:
        metadata = metadata_of(cluster, name)
        assert (set(metadata["labels"]), metadata["annotations"]) == ({"zone"}, {"other": "theirs"})
    assert cluster.request("GET", POOLS)[1]["items"] == []


# -- who may do what ---------------------------------------------------------------------------------------------------


def refused(act: Callable[[KubeApi], Awaitable[Any]], server: ApiServer, account: str) -> str:
    async def play() -> str:
        api = as_account(server, account)
        try:
            with pytest.raises(ClusterError) as caught:
                await act(api)
            return str(caught.value)
        finally:
            await api.close()

    return asyncio.run(play())


def test_a_node_is_never_made_nor_another_one_touched(cluster: ApiServer, nodes: tuple[str, ...]) -> None:
    async def play() -> None:
        api = as_account(cluster, "emugpu-pools")
        for name, uid in (("w9", "1234"), ("w1", "1234")):
            with pytest.raises(NotThereError, match="uid"):
                await api.apply(
                    NODE, name, applied(NODE, name, uid, metadata={"labels": {"emugpu.dev/pool": "p"}}), "m"
                )
        await api.close()

    asyncio.run(play())
    assert set(metadata_of(cluster, "w1")["labels"]) == {"zone"}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"spec": {"unschedulable": True}}, "may not change a Node's specification"),
        ({"metadata": {"labels": {"zone": "b"}}}, "may change labels under emugpu.dev/ and nvidia.com/ only"),
        ({"metadata": {"annotations": {"other": "mine"}}}, "may change the annotation emugpu.dev/inventory only"),
    ],
)
def test_the_controller_may_change_its_own_things_only(
    cluster: ApiServer, nodes: tuple[str, ...], members: dict[str, Any], message: str
) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        **members,
        "metadata": {"name": "w1", **members.get("metadata", {})},
    }
    assert message in refused(lambda api: api.apply(NODE, "w1", document, "m"), cluster, "emugpu-pools")


def test_the_chart_gives_no_account_more_than_it_needs(cluster: ApiServer) -> None:
    node_pod = applied(POD, "x", "", spec={})
    for account in ("emugpu-pools", "emugpu-jobs", "emugpu-node", "emugpu-prepare", "emugpu-cleanup"):
        assert "cannot patch resource" in refused(lambda api: api.apply(POD, "x", node_pod, "m"), cluster, account)
    pool_p = pool("p")
    for account in ("emugpu-pools", "emugpu-jobs", "emugpu-node", "emugpu-prepare"):
        assert "cannot patch resource" in refused(lambda api: api.apply(POOL, "p", pool_p, "m"), cluster, account)
    assert "cannot list resource" in refused(lambda api: api.list(NODE), cluster, "emugpu-nobody")


def event(instance: str) -> dict[str, Any]:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "e", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "emugpu.dev/manager",
        "reportingInstance": instance,
        "action": "Run",
        "reason": "Test",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "default"},
    }


@pytest.mark.parametrize(("bound_to", "instance", "status"), [("w1", "w1", 201), ("w1", "w2", 403), ("", "w1", 403)])
def test_a_node_daemon_reports_for_its_own_node_only(
    cluster: ApiServer, bound_to: str, instance: str, status: int
) -> None:
    headers = {"Impersonate-User": "system:serviceaccount:emugpu:emugpu-node"}
    if bound_to:
        headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = bound_to
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    found, reply = cluster.request("POST", path, event(instance), headers=headers)
    assert found == status, reply


def test_prepare_applies_definitions_and_labels_the_namespace(cluster: ApiServer, tmp_path: Path) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/emugpupools.emugpu.dev"
    definition = cluster.request("GET", path)[1]
    newer = {key: definition[key] for key in ("apiVersion", "kind", "spec")}
    newer["metadata"] = {"name": "emugpupools.emugpu.dev", "labels": {"upgraded": "yes"}}
    (tmp_path / "pools.json").write_text(json.dumps(newer), encoding="utf-8")
    said: list[str] = []

    async def play() -> None:
        api = as_account(cluster, "emugpu-prepare")
        await prepare(api, PrepareSettings(definitions=str(tmp_path), namespace="emugpu"), said.append)
        await api.close()

    asyncio.run(play())
    assert said == ["emugpupools.emugpu.dev applied", "namespace emugpu labelled"]
    assert cluster.request("GET", path)[1]["metadata"]["labels"]["upgraded"] == "yes"
    _, namespace = cluster.request("GET", "/api/v1/namespaces/emugpu")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    other = applied(CRD, "others.example.com", "", spec={})
    assert "cannot patch resource" in refused(
        lambda api: api.apply(CRD, "others.example.com", other, "m"), cluster, "emugpu-prepare"
    )


def test_secrets_survive_an_upgrade(cluster: ApiServer, helm: str, tmp_path: Path) -> None:
    """Installed by Helm itself; the hooks are left out because nobody runs Jobs here."""
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(cluster.kubeconfig()), encoding="utf-8")
    chart = str(Path(__file__).parents[2] / "charts" / "emugpu")

    def run(*arguments: str) -> None:
        options = ("--namespace", "second", "--kubeconfig", str(config), "--no-hooks")
        done = subprocess.run([helm, *arguments, *options], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def secrets() -> dict[str, Any]:
        path = "/api/v1/namespaces/second/secrets?labelSelector=app.kubernetes.io%2Fname%3Demugpu"
        return {secret["metadata"]["name"]: secret["data"] for secret in cluster.request("GET", path)[1]["items"]}

    run("install", "second", chart, "--create-namespace", "--set", "alias.mode=webhook", "--set-json", "pools=[]")
    before = secrets()
    assert set(before) == {"second-emugpu-ranks", "second-emugpu-redis", "second-emugpu-webhook-tls"}
    run("upgrade", "second", chart, "--reuse-values")
    assert secrets() == before
    run("upgrade", "second", chart, "--set", "alias.mode=webhook,redis.maxMemory=64mb", "--set-json", "pools=[]")
    assert secrets() == before
    run("uninstall", "second")
    assert secrets() == {}


# -- the border --------------------------------------------------------------------------------------------------------


def test_errors_of_the_server_become_ours(cluster: ApiServer) -> None:
    async def play() -> None:
        api = as_account(cluster, "emugpu-test-admin")
        with pytest.raises(NotThereError, match="too old resource version"):
            async for _ in api.watch(POOL, "1"):
                raise AssertionError("no change can be told from so long ago")
        with pytest.raises(ClusterError, match="create events: "):
            event = Event("neither", "R", "n")
            await write_common(api, RecordEvent(Key("", "p", "u"), event), AUTHOR, wall_ns())
        await api.delete(POOL, "never-was")
        await api.close()

    asyncio.run(play())
    assert "the chart's RBAC gives this right" in refused(lambda api: api.delete(POOL, "p"), cluster, "emugpu-nobody")


def test_an_unknown_token_is_no_reason_to_end(cluster: ApiServer) -> None:
    message = refused(lambda api: api.list(NODE), cluster, "no-such-token")
    assert message.startswith("list nodes: Unauthorized")


def test_a_server_that_is_away_is_worth_a_retry(cluster: ApiServer) -> None:
    config = cluster.kubeconfig()
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"

    async def play() -> None:
        api = KubeApi(from_document(config))
        with pytest.raises(ApiAwayError, match="list nodes: the API server can't be reached") as caught:
            await api.list(NODE)
        assert caught.value.retry_helps
        await api.close()

    asyncio.run(play())
