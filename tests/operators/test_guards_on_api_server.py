"""What a real API server lets the accounts of the jobs controller and of the API write, whatever their roles say."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from emulator_runtime.timing.host import monotonic_ns, sleep_ns
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import from_document
from operators.results_feed.server import AUDIENCE, TokenCheck
from tests.support.api_server import ApiServer

Json = dict[str, Any]
OWNER = {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuJob", "name": "train", "uid": "u-1", "controller": True}
CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def job(**metadata: Any) -> Json:
    """A Job as the controller makes them."""
    container = {"name": "train", "image": "emugpu", "securityContext": CONFINED}
    user = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    pod = {"restartPolicy": "Never", "securityContext": user, "containers": [container]}
    known = {"name": "train", "ownerReferences": [OWNER]} | metadata
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": known, "spec": {"template": {"spec": pod}}}


def changed(path: str, value: Any) -> Json:
    """The Job with another value at a path in its pod: names and indices, divided by dots; None takes it away."""
    document = copy.deepcopy(job())
    place: Any = document["spec"]["template"]["spec"]
    *names, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for name in names:
        place = place[name] if not isinstance(place, dict) else place.setdefault(name, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.fixture(scope="module")
def namespaces(cluster: ApiServer) -> None:
    """One for each level of the Pod Security Standards, and one that says nothing."""
    for level in ("privileged", "baseline", "restricted", ""):
        labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
        metadata = {"name": f"pods-{level or 'unlabelled'}", "labels": labels}
        assert cluster.apply(
            f"/api/v1/namespaces/{metadata['name']}", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )[0] in (200, 201)
    for _ in range(200):  # until the policies are at work
        if created(cluster, job(ownerReferences=[]))[0] == 403:
            return
        sleep_ns(50_000_000)
    raise AssertionError("the policy of the jobs controller is not at work")


def created(
    server: ApiServer, document: Json, namespace: str = "pods-unlabelled", account: str = "emugpu-jobs"
) -> tuple[int, Any]:
    """What the API server answers to this account; nothing stays."""
    plural = f"{document['kind'].lower()}s"
    group = "/apis/batch/v1" if plural == "jobs" else "/api/v1"
    return server.request(
        "POST", f"{group}/namespaces/{namespace}/{plural}?dryRun=All", document, headers=as_user(account)
    )


def as_user(account: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {account}"}


# --- the jobs controller ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("level", ["privileged", "baseline", "restricted", "unlabelled"])
def test_a_job_of_an_emujob_is_made_everywhere(cluster: ApiServer, level: str) -> None:
    status, reply = created(cluster, job(), f"pods-{level}")
    assert status == 201, reply


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{**OWNER, "kind": "Job", "apiVersion": "batch/v1"}],
        [{**OWNER, "name": "other"}],
        [{**OWNER, "controller": False}],
        [{**OWNER, "apiVersion": "example.com/v1"}],
    ],
)
def test_a_job_of_no_emujob_is_refused(cluster: ApiServer, owners: list[Json]) -> None:
    for namespace in ("pods-unlabelled", "pods-privileged", "emugpu", "kube-system"):
        status, reply = created(cluster, job(ownerReferences=owners), namespace)
        assert status == 403, reply
        assert "Jobs and Services of an EmuJob of the same name and namespace only" in reply["message"]


NOT_RESTRICTED: dict[str, tuple[str, Any, str]] = {
    "host network": ("hostNetwork", True, "network, processes or ports"),
    "host processes": ("hostPID", True, "network, processes or ports"),
    "host IPC": ("hostIPC", True, "network, processes or ports"),
    "host port": ("containers.0.ports", [{"containerPort": 1, "hostPort": 1}], "network, processes or ports"),
    "host path": ("volumes", [{"name": "v", "hostPath": {"path": "/"}}], "volumes of the host"),
    "NFS": ("volumes", [{"name": "v", "nfs": {"server": "s", "path": "/"}}], "volumes of the host"),
    "privileged": ("containers.0.securityContext", {"privileged": True}, "drop all capabilities"),
    "escalation": ("containers.0.securityContext.allowPrivilegeEscalation", None, "drop all capabilities"),
    "capabilities kept": ("containers.0.securityContext.capabilities", None, "drop all capabilities"),
    "capability added": (
        "containers.0.securityContext.capabilities",
        {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        "drop all capabilities",
    ),
    "root": ("securityContext.runAsUser", 0, "may not run as root"),
    "root of a container": ("containers.0.securityContext.runAsUser", 0, "may not run as root"),
    "perhaps root": ("securityContext.runAsNonRoot", None, "may not run as root"),
    "perhaps root after all": ("containers.0.securityContext.runAsNonRoot", False, "may not run as root"),
    "no seccomp": ("securityContext.seccompProfile", None, "seccomp profile"),
    "unconfined": ("securityContext.seccompProfile", {"type": "Unconfined"}, "seccomp profile"),
    "sysctl": ("securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}], "seccomp profile"),
    "init container": ("initContainers", [{"name": "i", "image": "i"}], "drop all capabilities"),
}


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("case", NOT_RESTRICTED)
def test_pods_are_restricted_unless_their_namespace_allows_more(cluster: ApiServer, case: str) -> None:
    path, value, message = NOT_RESTRICTED[case]
    document = changed(path, value)
    for level in ("restricted", "unlabelled"):
        status, reply = created(cluster, document, f"pods-{level}")
        assert status == 403, (case, reply)
        assert message in reply["message"]
        assert "(Pod Security Standard restricted)" in reply["message"]
    for level in ("privileged", "baseline"):  # there Pod Security admission checks the pods themselves
        status, reply = created(cluster, document, f"pods-{level}")
        assert status == 201, (case, reply)


@pytest.mark.usefixtures("namespaces")
def test_others_may_make_what_they_may_make(cluster: ApiServer) -> None:
    assert created(cluster, job(ownerReferences=[]), account="emugpu-test-admin")[0] == 201


@pytest.mark.usefixtures("namespaces")
def test_other_peoples_jobs_are_neither_changed_nor_deleted(cluster: ApiServer) -> None:
    jobs = "/apis/batch/v1/namespaces/pods-unlabelled/jobs"
    theirs, ours = job(name="theirs", ownerReferences=[]), job()
    patch = {"headers": as_user("emugpu-jobs"), "content_type": "application/merge-patch+json"}
    for document in (theirs, ours):
        assert cluster.request("POST", jobs, document)[0] == 201
    try:
        suspend = {"spec": {"suspend": True}}
        assert cluster.request("PATCH", f"{jobs}/theirs", suspend, **patch)[0] == 403
        assert cluster.request("DELETE", f"{jobs}/theirs", headers=as_user("emugpu-jobs"))[0] == 403
        taken = {"metadata": {"ownerReferences": [{**OWNER, "name": "theirs"}]}}
        assert cluster.request("PATCH", f"{jobs}/theirs", taken, **patch)[0] == 403
        assert cluster.request("PATCH", f"{jobs}/train", suspend, **patch)[0] == 200
        assert cluster.request("DELETE", f"{jobs}/train", headers=as_user("emugpu-jobs"))[0] == 200
    finally:
        for name in ("theirs", "train"):
            cluster.request("DELETE", f"{jobs}/{name}?propagationPolicy=Background")


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("spec", "owners", "status"),
    [
        ({"clusterIP": "None"}, [OWNER], 201),
        ({"clusterIP": "None"}, [], 403),
        ({"ports": [{"port": 80}]}, [OWNER], 403),
        ({"type": "NodePort", "ports": [{"port": 80}]}, [OWNER], 403),
        ({"clusterIP": "None", "externalIPs": ["192.0.2.1"]}, [OWNER], 403),
    ],
)
def test_services_are_headless_and_of_an_emujob(
    cluster: ApiServer, spec: Json, owners: list[Json], status: int
) -> None:
    metadata = {"name": "train", "ownerReferences": owners}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": {"a": "b"}} | spec}
    found, reply = created(cluster, service)
    assert found == status, reply


@pytest.mark.usefixtures("namespaces")
def test_runners_of_experiments_are_made_in_the_release_namespace_only(cluster: ApiServer) -> None:
    labels = {"emugpu.dev/scheduling-experiment-uid": "u-1"}
    runner = job(name="experiment-x", ownerReferences=[], labels=labels)
    runner["spec"]["template"]["spec"]["serviceAccountName"] = "emugpu-experiments"
    assert created(cluster, runner, "emugpu")[0] == 201
    assert created(cluster, runner, "pods-unlabelled")[0] == 403
    runner["spec"]["template"]["spec"]["serviceAccountName"] = "emugpu-pools"
    assert created(cluster, runner, "emugpu")[0] == 403


# --- the API ------------------------------------------------------------------------------------------------------------------


EMUJOBS = "/apis/emugpu.dev/v1alpha1/namespaces/pods-unlabelled/emujobs"


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ({"spec": {"suspend": True}}, 200),
        ({"spec": {"suspend": False}}, 200),
        ({"spec": {"suspend": True, "weight": 9}}, 403),
        ({"spec": {"weight": 9}}, 403),
        ({"spec": {"image": "evil"}}, 422),  # the EmuJob's own schema says so before
        ({"metadata": {"labels": {"emugpu.dev/experiment": "x"}}}, 403),
        ({"metadata": {"annotations": {"a": "b"}}}, 403),
        ({"metadata": {"finalizers": ["example.com/f"]}}, 403),
        ({"metadata": {"ownerReferences": [{**OWNER, "kind": "Pod", "apiVersion": "v1"}]}}, 403),
    ],
)
def test_the_api_changes_suspend_and_nothing_else(cluster: ApiServer, patch: Json, status: int) -> None:
    metadata = {"name": "held"}
    spec = {"steps": 10, "model": "resnet50", "batchSize": 64, "image": "good"}
    emujob = {"apiVersion": "emugpu.dev/v1alpha1", "kind": "EmuJob", "metadata": metadata, "spec": spec}
    assert cluster.request("POST", EMUJOBS, emujob)[0] == 201
    try:
        found, reply = cluster.request(
            "PATCH",
            f"{EMUJOBS}/held",
            patch,
            headers=as_user("emugpu-api"),
            content_type="application/merge-patch+json",
        )
        assert found == status, reply
    finally:
        cluster.request("DELETE", f"{EMUJOBS}/held")


@pytest.mark.usefixtures("namespaces")
def test_the_api_creates_and_deletes_nothing(cluster: ApiServer) -> None:
    assert created(cluster, job(), account="emugpu-api")[0] == 403
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    assert created(cluster, pod, account="emugpu-api")[0] == 403
    for method, path in (("DELETE", f"{EMUJOBS}/x"), ("GET", "/api/v1/secrets"), ("GET", "/api/v1/pods")):
        assert cluster.request(method, path, headers=as_user("emugpu-api"))[0] == 403, path


# --- the results feed ---------------------------------------------------------------------------------------------------------


def bound_token(server: ApiServer, account: str, audience: str) -> str:
    """As a kubelet gets it for a projected volume."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": [audience]}}
    path = f"/api/v1/namespaces/emugpu/serviceaccounts/{account}/token"
    status, reply = server.request("POST", path, request)
    assert status == 201, reply
    token: str = reply["status"]["token"]
    return token


def test_the_feed_takes_the_apis_token_for_it_and_no_other(cluster: ApiServer) -> None:
    """Reviewed by a real API server in the name of the jobs controller's account."""
    issuer = "https://kubernetes.default.svc.cluster.local"
    tokens = {
        "the API's, for the feed": bound_token(cluster, "emugpu-api", AUDIENCE),
        "the API's, for the API server": bound_token(cluster, "emugpu-api", issuer),
        "another account's, for the feed": bound_token(cluster, "emugpu-node", AUDIENCE),
        "an administrator's": "emugpu-test-admin",
        "nobody's": "nonsense",
    }
    verdicts = in_thread(cluster, lambda check: {name: check(token) for name, token in tokens.items()})
    assert verdicts == {name: name == "the API's, for the feed" for name in tokens}


def in_thread(server: ApiServer, ask: Callable[[TokenCheck], Any]) -> Any:
    """What `ask` gets from a check whose event loop runs in another thread, as in the controller."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def client() -> KubeApi:
        return KubeApi(from_document(server.kubeconfig("emugpu-jobs")))

    api = asyncio.run_coroutine_threadsafe(client(), loop).result(20)
    try:
        reader = frozenset({"system:serviceaccount:emugpu:emugpu-api"})
        return ask(TokenCheck(api, loop, reader, monotonic_ns))
    finally:
        asyncio.run_coroutine_threadsafe(api.close(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# --- who may choose devices ---------------------------------------------------------------------------------------------------

ALLOCATION = {
    "emugpu.dev/allocation": '{"configuration":"gpu","nodes":["n"],"devices":["EMU-1"],"milli":[1000],"priority":[9]}'
}
PODS, JOBS = "/api/v1/namespaces/tenant/pods", "/apis/batch/v1/namespaces/tenant/jobs"
REFUSED = "only schedulers may write the annotation emugpu.dev/allocation"


def note(annotations: Json | None = None, **metadata: Any) -> Json:
    return {"name": "p", "annotations": {"other": "1", **(annotations or {})}, **metadata}


def a_pod(annotations: Json | None = None, **metadata: Any) -> Json:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": note(annotations, **metadata), "spec": spec}


def a_job(annotations: Json | None = None) -> Json:
    template = {"metadata": note(annotations), "spec": a_pod()["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"suspend": True, "template": template},
    }


@pytest.fixture(scope="module")
def tenant(cluster: ApiServer) -> Callable[..., tuple[int, Any]]:
    """`tenant(method, path, document)`: the answer to somebody who may do anything with pods and Jobs of one namespace."""
    group = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant"
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    subject = {"kind": "ServiceAccount", "name": "emugpu-nobody", "namespace": "emugpu"}
    rbac = "rbac.authorization.k8s.io"
    for path, document in {
        "/api/v1/namespaces/tenant": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}},
        "/api/v1/namespaces/tenant/serviceaccounts/default": {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default"},
        },
        f"{group}/roles/all": {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "all"}, "rules": rules},
        f"{group}/rolebindings/all": {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "all"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "all"},
            "subjects": [subject],
        },
    }.items():
        assert cluster.apply(path, document)[0] in (200, 201)

    def ask(method: str, path: str, document: Json, account: str = "emugpu-nobody") -> tuple[int, Any]:
        patch = {"content_type": "application/merge-patch+json"} if method == "PATCH" else {}
        return cluster.request(method, f"{path}?dryRun=All", document, headers=as_user(account), **patch)

    for _ in range(200):  # until role and policy are at work
        if (
            REFUSED in str(ask("POST", PODS, a_pod(ALLOCATION))[1].get("message"))
            and ask("POST", PODS, a_pod())[0] == 201
        ):
            return ask
        sleep_ns(50_000_000)
    raise AssertionError(ask("POST", PODS, a_pod(ALLOCATION)))


def test_a_tenant_chooses_no_devices_for_pods_and_jobs(tenant: Callable[..., tuple[int, Any]]) -> None:
    for path, without, with_it in ((PODS, a_pod(), a_pod(ALLOCATION)), (JOBS, a_job(), a_job(ALLOCATION))):
        assert tenant("POST", path, without)[0] == 201
        status, reply = tenant("POST", path, with_it)
        assert (status, REFUSED in reply["message"]) == (403, True), reply
    owned = a_pod(ALLOCATION, ownerReferences=[{**OWNER, "apiVersion": "batch/v1", "kind": "Job"}])
    assert tenant("POST", PODS, owned)[0] == 403


def test_an_allocation_is_not_changed_but_anything_else_is(
    cluster: ApiServer, tenant: Callable[..., tuple[int, Any]]
) -> None:
    for path, name, document in ((PODS, "p", a_pod(ALLOCATION)), (JOBS, "j", a_job(ALLOCATION))):
        assert cluster.request("POST", path, document)[0] == 201
        try:
            label = {"metadata": {"labels": {"a": "b"}}}
            assert tenant("PATCH", f"{path}/{name}", label)[0] == 200
            metadata = {"metadata": {"annotations": {"emugpu.dev/allocation": "{}"}}}
            change = {"spec": {"template": metadata}} if path == JOBS else metadata
            assert tenant("PATCH", f"{path}/{name}", change)[0] == 403
            if path == PODS:
                assert tenant("PATCH", f"{path}/{name}/status", change)[0] == 403
                binding = {"metadata": {"name": "p", **metadata["metadata"]}, "target": {"kind": "Node", "name": "n"}}
                binding |= {"apiVersion": "v1", "kind": "Binding"}
                for place in (f"{path}/{name}/binding", "/api/v1/namespaces/tenant/bindings"):
                    status, reply = tenant("POST", place, binding)
                    assert (status, REFUSED in reply["message"]) == (403, True), (place, reply)
            assert tenant("PATCH", f"{path}/{name}", change, "emugpu-scheduler")[0] == 200
        finally:
            cluster.request("DELETE", f"{path}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")


def test_pods_of_a_job_have_what_its_template_has(tenant: Callable[..., tuple[int, Any]]) -> None:
    job_of = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-1", "controller": True}
    of_job, of_set = (a_pod(ALLOCATION, ownerReferences=[o]) for o in (job_of, {**job_of, "kind": "ReplicaSet"}))
    assert tenant("POST", PODS, of_job, "job-controller")[0] == 201
    assert tenant("POST", PODS, of_set, "job-controller")[0] == 403
    assert tenant("POST", PODS, a_pod(ALLOCATION), "job-controller")[0] == 403
