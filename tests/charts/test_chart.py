"""What the chart makes of its values: rights, security, wiring to the programs' settings, switches; no golden files."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.settings import KUBELET_DIR
from deviceplugin.settings import Settings as PluginSettings
from emulator_runtime.node.settings import EnvSettings
from emulator_runtime.profiles.catalogue import bundled_catalogue
from operators.admission.settings import Settings as AdmissionSettings
from operators.api.settings import Settings as ApiSettings
from operators.chart_hooks.cleanup import Settings as CleanupSettings
from operators.chart_hooks.prepare import Settings as PrepareSettings
from operators.jobs.settings import Settings as JobsSettings
from operators.objects.pool import parse_spec
from operators.pools.settings import Settings as PoolsSettings
from operators.results_feed.server import AUDIENCE
from sharing_manager.settings import Settings as ManagerSettings
from tests.support.yaml_documents import documents

Objects = dict[tuple[str, str], dict[str, Any]]
Render = Callable[..., Objects]
Helm = Callable[..., subprocess.CompletedProcess[str]]

PROGRAMS: dict[str, type[EnvSettings]] = {
    "sharing_manager": ManagerSettings,
    "deviceplugin": PluginSettings,
    "operators.pools": PoolsSettings,
    "operators.jobs": JobsSettings,
    "operators.api": ApiSettings,
    "operators.admission": AdmissionSettings,
    "operators.chart_hooks.prepare": PrepareSettings,
    "operators.chart_hooks.cleanup": CleanupSettings,
}
API_OBJECTS = {
    f"{kind}/emugpu-api"
    for kind in ("Deployment", "Service", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "NetworkPolicy")
} | {"NetworkPolicy/emugpu-results"}
JOBS_OBJECTS = ("Deployment", "Service", "ServiceAccount", "ClusterRole", "PodDisruptionBudget", "NetworkPolicy")
WEBHOOK = 'alias={"mode":"webhook"}'
NO_ROLES = ('rbac={"create":false}', 'prepare={"enabled":false}', 'cleanup={"enabled":false}')
CHART = Path(__file__).parents[2] / "charts" / "emugpu"


def pod_specs(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for (kind, name), document in objects.items():
        if kind == "Pod":
            yield name, document["spec"]
        elif "template" in document.get("spec", {}):
            yield name, document["spec"]["template"]["spec"]


def containers(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, spec in pod_specs(objects):
        yield from ((f"{name}/{container['name']}", container) for container in spec["containers"])


def environment(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container.get("env", ())}


def only(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = [document for (found_kind, _), document in objects.items() if found_kind == kind]
    return found


def test_lint(helm_run: Helm) -> None:
    done = helm_run("lint", "CHART", "--strict")
    assert done.returncode == 0, done.stdout


def test_without_values_it_is_whole(render: Render) -> None:
    objects = render()
    for key in (
        ("DaemonSet", "emugpu-node"),
        ("Deployment", "emugpu-pools"),
        ("StatefulSet", "emugpu-redis"),
        ("EmuGPUPool", "default"),
        ("MutatingAdmissionPolicy", "emugpu-alias"),
        ("Job", "emugpu-prepare"),
        ("Job", "emugpu-cleanup"),
        ("Pod", "emugpu-test"),
    ):
        assert key in objects
    spec = parse_spec("default", objects["EmuGPUPool", "default"]["spec"])
    assert [(group.gpu.gpu_type, group.count) for group in spec.groups] == [("NVIDIA-A100-SXM4-80GB", 8)]


def test_objects_name_no_foreign_namespace(render: Render) -> None:
    for (kind, name), document in (render() | render(WEBHOOK)).items():
        namespace = document["metadata"].get("namespace")
        assert namespace is None or (kind, name) in {
            ("Role", "emugpu-pools-events"),
            ("RoleBinding", "emugpu-pools-events"),
        }


@pytest.mark.parametrize("sets", [(), (WEBHOOK,)])
def test_every_container_is_confined(render: Render, sets: tuple[str, ...]) -> None:
    for name, container in containers(render(*sets)):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert "privileged" not in container["securityContext"]


@pytest.mark.parametrize("sets", [(), (WEBHOOK,)])
def test_only_the_node_daemons_are_root_and_see_the_host(render: Render, sets: tuple[str, ...]) -> None:
    for name, spec in pod_specs(render(*sets)):
        context = spec["securityContext"]
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["enableServiceLinks"] is False, name
        if name == "emugpu-node":
            assert (context["runAsUser"], spec["hostPID"]) == (0, True)
            continue
        assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
        assert "hostPID" not in spec and "hostNetwork" not in spec
        assert not any("hostPath" in volume for volume in spec.get("volumes", ())), name


def test_programs_without_business_at_the_api_server_have_no_token(render: Render) -> None:
    without = {name for name, spec in pod_specs(render(WEBHOOK)) if spec.get("automountServiceAccountToken") is False}
    assert without == {"emugpu-redis", "emugpu-webhook", "emugpu-test"}


SCHEDULER = 'scheduler={"enabled":true,"policy":"las:threshold_s=300","jobNamespace":"lab","extraArgs":["--explain"]}'

RIGHTS = {
    "emugpu-node": [
        ("", "nodes", "get list watch", ""),
        ("", "pods", "list watch", ""),
        ("events.k8s.io", "events", "create", ""),
    ],
    "emugpu-pools": [
        ("", "nodes", "list watch patch", ""),
        ("emugpu.dev", "emugpupools", "list watch", ""),
        ("emugpu.dev", "emugpupools/status", "patch", ""),
    ],
    "emugpu-pools-events": [("events.k8s.io", "events", "create", "")],
    "emugpu-api": [
        ("emugpu.dev", "emujobs", "list watch patch", ""),
        ("emugpu.dev", "emugpupools", "list watch", ""),
        ("", "nodes", "list watch", ""),
        ("authentication.k8s.io", "tokenreviews", "create", ""),
        ("authorization.k8s.io", "subjectaccessreviews", "create", ""),
    ],
    "emugpu-jobs": [
        ("emugpu.dev", "emujobs", "list watch", ""),
        ("emugpu.dev", "emujobs/status", "patch", ""),
        ("emugpu.dev", "emugpupools", "list watch", ""),
        ("batch", "jobs", "list watch create patch delete", ""),
        ("", "services", "list watch create", ""),
        ("", "pods", "list watch", ""),
        ("", "pods/resize", "patch", ""),
        ("", "nodes", "list watch", ""),
        ("events.k8s.io", "events", "create", ""),
        ("authentication.k8s.io", "tokenreviews", "create", ""),
    ],
    "emugpu-jobs-lease": [
        ("coordination.k8s.io", "leases", "create", ""),
        ("coordination.k8s.io", "leases", "get update", "emugpu-jobs"),
    ],
    "emugpu-scheduler": [
        ("emugpu.dev", "emujobs", "list watch get patch", ""),
        ("emugpu.dev", "emujobs/allocation", "update", ""),
        ("emugpu.dev", "emugpupools", "list watch", ""),
        ("batch", "jobs", "list watch get patch", ""),
        ("", "pods", "list watch get patch delete", ""),
        ("", "pods/binding", "create", ""),
        ("", "nodes", "list watch", ""),
    ],
    "emugpu-scheduler-memory": [
        ("coordination.k8s.io", "leases", "create", ""),
        ("", "configmaps", "create", ""),
        ("coordination.k8s.io", "leases", "get update", "emugpu-scheduler-las"),
        ("", "configmaps", "get patch", "emugpu-scheduler-las"),
    ],
    "emugpu-experiments": [
        ("emugpu.dev", "schedulingexperiments", "get", ""),
        ("emugpu.dev", "schedulingexperiments/status", "patch", ""),
        ("emugpu.dev", "emujobs", "list watch get create patch delete", ""),
        ("emugpu.dev", "emujobs/allocation", "update", ""),
        ("emugpu.dev", "emugpupools", "list watch", ""),
        ("batch", "jobs", "list watch get patch", ""),
        ("", "pods", "list watch get patch delete", ""),
        ("", "pods/binding", "create", ""),
        ("", "nodes", "list watch", ""),
        ("", "namespaces", "list get create delete", ""),
        ("", "configmaps", "get create patch", ""),
        ("coordination.k8s.io", "leases", "get create update", ""),
    ],
    "emugpu-experiments-control": [
        ("emugpu.dev", "schedulingexperiments", "list watch patch delete", ""),
        ("emugpu.dev", "schedulingexperiments/status", "patch", ""),
        ("emugpu.dev", "emujobs", "delete", ""),
        ("", "namespaces", "list watch delete", ""),
    ],
    "emugpu-prepare": [
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "get patch",
            "emugpupools.emugpu.dev emujobs.emugpu.dev schedulingexperiments.emugpu.dev",
        ),
        ("", "namespaces", "get patch", "emugpu"),
    ],
    "emugpu-cleanup": [
        ("", "nodes", "list patch", ""),
        ("emugpu.dev", "emugpupools", "list delete", ""),
        ("emugpu.dev", "schedulingexperiments", "list patch", ""),
        ("", "namespaces", "list delete", ""),
        ("", "pods", "list", ""),
        ("batch", "jobs", "list delete", ""),
    ],
}


def test_rights_are_exactly_these(render: Render) -> None:
    found: dict[str, list[tuple[str, ...]]] = {}
    for (kind, name), document in sorted(render(WEBHOOK, SCHEDULER).items()):
        if kind in ("ClusterRole", "Role"):
            for rule in document["rules"]:
                row = (rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", ()))
                found.setdefault(name, []).append(tuple(" ".join(part) for part in row))
    assert found == RIGHTS


def test_the_daemons_find_what_they_need_where_they_look(render: Render) -> None:
    sets = ('node={"directory":"/srv/emugpu","kubeletDirectory":"/data/kubelet/"}',)
    spec = render(*sets)["DaemonSet", "emugpu-node"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume.get("hostPath") for volume in spec["volumes"]}
    assert volumes["node"] == {"path": "/srv/emugpu", "type": "DirectoryOrCreate"}
    manager, plugin = spec["containers"]
    for container in (manager, plugin):
        for mount in container["volumeMounts"]:
            if (
                volumes[mount["name"]] and mount["name"] != "device-plugins"
            ):  # of its sockets the kubelet hears the name only
                assert (
                    mount["mountPath"] == volumes[mount["name"]]["path"]
                )  # paths are told to the kubelet: same inside
    mounts = {mount["name"]: mount for mount in manager["volumeMounts"]}
    assert mounts["pod-resources"]["readOnly"] is True
    assert "device-plugins" not in mounts
    assert environment(manager)["EMUGPU_MANAGER_POD_RESOURCES"] == "/data/kubelet/pod-resources/kubelet.sock"
    assert environment(manager)["EMUGPU_MANAGER_NODE"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert environment(manager)["EMUGPU_MANAGER_POD"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert volumes["pod-resources"]["path"] == "/data/kubelet/pod-resources"
    assert volumes["device-plugins"]["path"] == KUBELET_DIR  # wherever the kubelet's own directory is
    (inside,) = (mount["mountPath"] for mount in plugin["volumeMounts"] if mount["name"] == "device-plugins")
    assert environment(plugin)["EMUGPU_PLUGIN_KUBELET_DIR"] == inside
    assert {
        environment(c)[n] for c, n in ((manager, "EMUGPU_MANAGER_NODE_DIR"), (plugin, "EMUGPU_PLUGIN_NODE_DIR"))
    } == {"/srv/emugpu"}


def test_two_plugins_never_meet_on_a_node(render: Render) -> None:
    strategy = render()["DaemonSet", "emugpu-node"]["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0}}


@pytest.mark.parametrize("sets", [(), (WEBHOOK,), ('node={"plugin":{"cdiDirectory":"/var/run/cdi"}}',)])
def test_every_setting_is_known_to_its_program(render: Render, sets: tuple[str, ...]) -> None:
    """A misspelt variable ends a program at its start; so does one that is required and missing."""
    seen = set()
    for name, container in containers(render(*sets)):
        command = container.get("command", [])
        if command[:2] == ["python3", "-m"]:
            program = PROGRAMS[command[2]]
            given = {key: value if isinstance(value, str) else "given" for key, value in environment(container).items()}
            program.from_env(given)
            assert all(key.startswith(program.PREFIX) for key in given), name
            seen.add(command[2])
    assert {
        "sharing_manager",
        "deviceplugin",
        "operators.pools",
        "operators.jobs",
        "operators.chart_hooks.prepare",
    } <= seen


def test_settings_and_extra_variables_reach_the_programs(render: Render) -> None:
    sets = (
        'node={"manager":{"settings":{"OUTBOX_BYTES":134217728,"STREAM_LENGTH":"01000"},"extraEnv":[{"name":"A","value":"b"}]},'
        '"plugin":{"settings":{"NVIDIA_SMI":0}}}',
    )
    manager, plugin = render(*sets)["DaemonSet", "emugpu-node"]["spec"]["template"]["spec"]["containers"]
    given = {"EMUGPU_MANAGER_OUTBOX_BYTES": "134217728", "EMUGPU_MANAGER_STREAM_LENGTH": "01000", "A": "b"}
    assert environment(manager) | given == environment(manager)
    assert environment(plugin)["EMUGPU_PLUGIN_NVIDIA_SMI"] == "0"


@pytest.mark.parametrize(
    ("sets", "arguments", "kinds"),
    [
        ((), ("--kube-version", "1.36.0"), {"MutatingAdmissionPolicy"}),
        ((), ("--kube-version", "1.35.9"), {"MutatingWebhookConfiguration"}),
        ((WEBHOOK,), ("--kube-version", "1.36.0"), {"MutatingWebhookConfiguration"}),
        (('alias={"mode":"policy"}',), ("--kube-version", "1.35.0"), {"MutatingAdmissionPolicy"}),
        (('alias={"mode":"off"}',), (), set()),
    ],
)
def test_how_the_short_name_is_offered(
    render: Render, sets: tuple[str, ...], arguments: tuple[str, ...], kinds: set[str]
) -> None:
    found = {kind for kind, _ in render(*sets, arguments=arguments)}
    assert found & {"MutatingAdmissionPolicy", "MutatingWebhookConfiguration"} == kinds


def test_the_webhook_cannot_lock_the_cluster(render: Render) -> None:
    objects = render(WEBHOOK)
    (hook,) = only(objects, "MutatingWebhookConfiguration")["webhooks"]
    assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Fail", 5)
    (selector,) = hook["namespaceSelector"]["matchExpressions"]
    assert (selector["operator"], selector["values"]) == ("NotIn", ["kube-system", "emugpu"])
    assert hook["matchConditions"]
    policy = only(render(), "MutatingAdmissionPolicy")["spec"]
    assert policy["matchConditions"] == hook["matchConditions"]
    assert policy["matchConstraints"]["resourceRules"] == hook["rules"]
    secret = objects["Secret", "emugpu-webhook-tls"]["data"]
    assert hook["clientConfig"]["caBundle"] == secret["ca.crt"]
    deployment = objects["Deployment", "emugpu-webhook"]["spec"]
    assert deployment["replicas"] == 2
    assert objects["PodDisruptionBudget", "emugpu-webhook"]["spec"]["maxUnavailable"] == 1


def test_the_kinds_that_can_say_the_short_name(render: Render) -> None:
    rules = only(render(), "MutatingAdmissionPolicy")["spec"]["matchConstraints"]["resourceRules"]
    assert {resource for rule in rules for resource in rule["resources"]} == {
        *("pods", "replicationcontrollers", "podtemplates", "deployments", "replicasets"),
        *("daemonsets", "statefulsets", "jobs", "cronjobs"),
    }
    assert all(rule["operations"] == ["CREATE", "UPDATE"] for rule in rules)


def test_names_of_the_alias_can_be_chosen(render: Render) -> None:
    objects = render('alias={"name":"gpu","resourceName":"example.com/gpu"}')
    text = yaml.safe_dump(objects["MutatingAdmissionPolicy", "emugpu-alias"])
    assert "emuGPU" not in text and "example.com~1gpu" in text
    (container,) = objects["Pod", "emugpu-test"]["spec"]["containers"]
    assert container["resources"]["limits"]["example.com/gpu"] == 1


def redis_url(objects: Objects) -> Any:
    manager = objects["DaemonSet", "emugpu-node"]["spec"]["template"]["spec"]["containers"][0]
    return environment(manager).get("EMUGPU_MANAGER_REDIS_URL")


def job_controller(objects: Objects) -> Any:
    return objects["Deployment", "emugpu-jobs"]["spec"]["template"]["spec"]


def test_the_job_controller_has_redis_and_a_store_of_its_own(render: Render) -> None:
    objects = render('node={"manager":{"metricsPort":9500}}', 'jobController={"store":{"keepResults":0}}')
    spec = job_controller(objects)
    given = environment(spec["containers"][0])
    assert given["EMUGPU_JOBS_REDIS_URL"] == redis_url(objects)
    names = ("STORE", "KEEP_EVENTS_S", "KEEP_RESULTS_S", "KEEP_RESULTS")
    assert [given[f"EMUGPU_JOBS_{name}"] for name in names] == ["/store/results.db", "3600", "2592000", "0"]
    assert spec["volumes"] == [{"name": "store", "emptyDir": {}}]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "store", "mountPath": "/store"}]
    assert spec["securityContext"]["fsGroup"] == 65532  # or it couldn't write to a volume that was claimed
    off = job_controller(render('redis={"enabled":false}'))
    assert "EMUGPU_JOBS_REDIS_URL" not in environment(off["containers"][0])


def test_the_job_controllers_store_may_be_a_volume(render: Render) -> None:
    kept = render('jobController={"store":{"persistence":{"enabled":true,"size":"2Gi","storageClassName":"fast"}}}')
    claim = kept["PersistentVolumeClaim", "emugpu-jobs"]["spec"]
    assert (claim["storageClassName"], claim["resources"]["requests"]["storage"]) == ("fast", "2Gi")
    assert job_controller(kept)["volumes"] == [{"name": "store", "persistentVolumeClaim": {"claimName": "emugpu-jobs"}}]
    assert kept["Deployment", "emugpu-jobs"]["spec"]["strategy"] == {"type": "Recreate"}
    mine = render('jobController={"replicas":2,"store":{"persistence":{"enabled":true,"existingClaim":"mine"}}}')
    assert job_controller(mine)["volumes"] == [{"name": "store", "persistentVolumeClaim": {"claimName": "mine"}}]
    assert not any(kind == "PersistentVolumeClaim" for kind, _ in mine)


def test_the_api_has_a_pod_and_an_account_of_its_own(render: Render) -> None:
    objects = render('api={"hosts":["a.example","b.example:8443"],"sessionSeconds":600,"priorityClassName":"high"}')
    spec = objects["Deployment", "emugpu-api"]["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("emugpu-api", "high")
    (api,) = spec["containers"]
    assert environment(api) == {
        "EMUGPU_API_PORT": "9404",
        "EMUGPU_API_RESULTS_URL": "http://emugpu-jobs.emugpu.svc:9405",
        "EMUGPU_API_RESULTS_TOKEN": "/var/run/secrets/emugpu.dev/results/token",
        "EMUGPU_API_TITLE": "emugpu",
        "EMUGPU_API_HOSTS": "a.example,b.example:8443",
        "EMUGPU_API_SESSION_S": "600",
    }
    (jobs,) = job_controller(objects)["containers"]
    assert jobs["name"] == "jobs"
    bound = objects["ClusterRoleBinding", "emugpu-jobs"]["subjects"]
    assert [subject["name"] for subject in bound] == ["emugpu-jobs"]


def test_results_go_from_the_job_controller_to_the_api_and_nobody_else(render: Render) -> None:
    objects = render()
    jobs = environment(job_controller(objects)["containers"][0])
    assert jobs["EMUGPU_JOBS_RESULTS_PORT"] == "9405"
    assert jobs["EMUGPU_JOBS_RESULTS_READERS"] == "system:serviceaccount:emugpu:emugpu-api"
    spec = objects["Deployment", "emugpu-api"]["spec"]["template"]["spec"]
    (volume,) = spec["volumes"]
    (source,) = volume["projected"]["sources"]
    assert source["serviceAccountToken"] == {"path": "token", "audience": AUDIENCE, "expirationSeconds": 3600}
    service = objects["Service", "emugpu-jobs"]["spec"]
    assert (service["clusterIP"], service["ports"][1]) == (
        "None",
        {"name": "results", "port": 9405, "targetPort": "results"},
    )
    policy = objects["NetworkPolicy", "emugpu-results"]["spec"]
    assert policy["podSelector"]["matchLabels"] == service["selector"]
    api = objects["Deployment", "emugpu-api"]["spec"]["selector"]
    assert policy["ingress"] == [{"ports": [{"port": "results"}], "from": [{"podSelector": api}]}]


def test_the_api_runs_without_the_job_controller_and_the_other_way_round(render: Render) -> None:
    alone = render('jobController={"enabled":false}')
    spec = alone["Deployment", "emugpu-api"]["spec"]["template"]["spec"]
    assert "volumes" not in spec
    assert not any(name.startswith("EMUGPU_API_RESULTS") for name in environment(spec["containers"][0]))
    off = render('api={"enabled":false}')
    (jobs,) = job_controller(off)["containers"]
    assert not any(name.startswith("EMUGPU_JOBS_RESULTS") for name in environment(jobs))
    assert [port["name"] for port in off["Service", "emugpu-jobs"]["spec"]["ports"]] == ["metrics"]


def test_who_may_call_the_api_can_be_said(render: Render) -> None:
    peers = [{"podSelector": {"matchLabels": {"app": "ingress"}}}]
    policy = render(f'api={{"from":{json.dumps(peers)}}}')["NetworkPolicy", "emugpu-api"]["spec"]
    assert policy["ingress"] == [{"ports": [{"port": "http"}], "from": peers}]
    service = render()["Service", "emugpu-api"]["spec"]
    assert policy["podSelector"]["matchLabels"] == service["selector"]


def test_redis_of_the_chart(render: Render) -> None:
    objects = render()
    secret = objects["Secret", "emugpu-redis"]["stringData"]
    assert secret["url"] == f"redis://:{secret['password']}@emugpu-redis.emugpu.svc:6379/0"
    assert len(secret["password"]) >= 32
    assert redis_url(objects) == {"secretKeyRef": {"name": "emugpu-redis", "key": "url"}}
    spec = objects["StatefulSet", "emugpu-redis"]["spec"]
    arguments = spec["template"]["spec"]["containers"][0]["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert (options["--appendonly"], options["--maxmemory-policy"]) == ("yes", "noeviction")
    assert spec["template"]["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    kept = render('redis={"persistence":{"enabled":true,"size":"2Gi","storageClassName":"fast"}}')[
        "StatefulSet", "emugpu-redis"
    ]
    (claim,) = kept["spec"]["volumeClaimTemplates"]
    assert (claim["spec"]["storageClassName"], claim["spec"]["resources"]["requests"]["storage"]) == ("fast", "2Gi")
    assert "volumes" not in kept["spec"]["template"]["spec"]


def test_another_redis_or_none(render: Render) -> None:
    off = render('redis={"enabled":false}')
    assert redis_url(off) is None
    url = render('redis={"external":{"url":"rediss://:p@host:6380/1"}}')
    assert url["Secret", "emugpu-redis"]["stringData"] == {"url": "rediss://:p@host:6380/1"}
    assert redis_url(url) == {"secretKeyRef": {"name": "emugpu-redis", "key": "url"}}
    secret = render('redis={"external":{"existingSecret":"mine","existingSecretKey":"k"}}')
    assert redis_url(secret) == {"secretKeyRef": {"name": "mine", "key": "k"}}
    assert ("Secret", "emugpu-redis") not in secret
    for objects in (off, url, secret):
        assert not any(kind == "StatefulSet" for kind, _ in objects)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_managers_believe_allocations_only_where_admission_guards_them(render: Render, enabled: str) -> None:
    objects = render(f'guards={{"enabled":{enabled}}}')
    manager, _ = objects["DaemonSet", "emugpu-node"]["spec"]["template"]["spec"]["containers"]
    guarded = ("ValidatingAdmissionPolicy", "emugpu-allocations") in objects
    assert (environment(manager).get("EMUGPU_MANAGER_PLACEMENT") == "1") is guarded is (enabled == "true")


@pytest.mark.parametrize(
    ("sets", "gone"),
    [
        (NO_ROLES, {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}),
        (
            'guards={"enabled":false}',
            {
                f"ValidatingAdmissionPolicy/emugpu-{name}"
                for name in ("node", "pools", "allocations", "jobs", "api", "experiments")
            },
        ),
        ('networkPolicy={"enabled":false}', {"NetworkPolicy"}),
        ('prepare={"enabled":false}', {"Job/emugpu-prepare"}),
        ('cleanup={"enabled":false}', {"Job/emugpu-cleanup"}),
        ("pools=[]", {"EmuGPUPool"}),
        ('jobController={"enabled":false}', {f"{kind}/emugpu-jobs" for kind in JOBS_OBJECTS}),
        ('api={"enabled":false}', API_OBJECTS),
    ],
)
def test_switches(render: Render, sets: str | tuple[str, ...], gone: set[str]) -> None:
    def names(objects: Objects) -> set[str]:
        return {text for kind, name in objects for text in (kind, f"{kind}/{name}")}

    sets = (sets,) if isinstance(sets, str) else sets
    assert gone <= names(render())
    assert not gone & names(render(*sets))


@pytest.mark.parametrize("hook", ["prepare", "cleanup"])
def test_hooks_need_roles(helm_run: Helm, hook: str) -> None:
    others = [text for text in NO_ROLES if not text.startswith(hook)]
    done = helm_run("template", "emugpu", "CHART", *(part for text in others for part in ("--set-json", text)))
    assert done.returncode != 0
    assert (
        f"{hook}.enabled: this hook needs roles, which rbac.create=false doesn't make; set prepare.enabled"
        in done.stderr
    )


def test_the_readme_lists_all_rights(render: Render) -> None:
    """For those who bind roles of their own: row by row what the chart's own roles say."""
    text = (
        (CHART / "README.md").read_text(encoding="utf-8").partition("## Roles of your own")[2].partition("## Values")[0]
    )
    listed: dict[str, set[tuple[str, str, str]]] = {}
    account = ""
    for row in re.findall(r"^\| (.*)\| (.*) \| (.*) \|$", text, re.MULTILINE)[1:]:
        account = (re.findall(r"`(.*)`", row[0]) or [account])[0]
        group, _, rest = row[1].partition(": ")
        resource = re.findall(r"`([^`]*)`", rest)[0]
        listed.setdefault(account, set()).add((group.strip("`").replace("core", ""), resource, row[2].replace(",", "")))
    wanted: dict[str, set[tuple[str, str, str]]] = {}
    for name, rules in RIGHTS.items():
        account = re.sub("-(events|lease|memory)$", "", name).replace("-experiments-control", "-jobs")
        wanted.setdefault(account, set()).update(rule[:3] for rule in rules)
    assert listed == wanted


def test_a_scheduler_runs_where_it_is_asked_for(render: Render) -> None:
    assert not any(name == "emugpu-scheduler" for _, name in render())
    objects = render(SCHEDULER)
    (container,) = objects["Deployment", "emugpu-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["emugpu", "scheduler"]
    assert objects["Deployment", "emugpu-scheduler"]["spec"]["strategy"] == {"type": "Recreate"}
    assert container["args"] == [
        "--policy=las:threshold_s=300",
        "--metrics-port=9406",
        "--namespace=lab",
        "--lease-namespace=lab",
        "--explain",
    ]
    assert container["image"].startswith("emugpu-scheduler:")
    (own,) = [image for name, image in ((n, c["image"]) for n, c in containers(objects)) if name.endswith("/jobs")]
    assert container["image"].partition(":")[2] == own.partition(":")[2]
    for kind in ("Role", "RoleBinding"):
        assert objects[kind, "emugpu-scheduler-memory"]["metadata"]["namespace"] == "lab"
    everywhere = render('scheduler={"enabled":true,"name":"mine","image":{"repository":"r/s","tag":"2"}}')
    assert everywhere["Role", "emugpu-scheduler-memory"]["metadata"]["namespace"] == "emugpu"
    assert everywhere["Role", "emugpu-scheduler-memory"]["rules"][2]["resourceNames"] == ["emugpu-scheduler-mine"]
    (container,) = everywhere["Deployment", "emugpu-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["args"][-2:]) == ("r/s:2", ["--name=mine", "--lease-namespace=emugpu"])


def test_experiments_have_runners_unless_they_are_off(render: Render) -> None:
    (jobs,) = render()["Deployment", "emugpu-jobs"]["spec"]["template"]["spec"]["containers"]
    image = environment(jobs)["EMUGPU_JOBS_EXPERIMENT_IMAGE"]
    assert image.partition(":") == ("emugpu-scheduler", ":", jobs["image"].partition(":")[2])
    assert environment(jobs)["EMUGPU_JOBS_EXPERIMENT_ACCOUNT"] == "emugpu-experiments"
    sets = (
        'imagePullSecrets=[{"name":"s1"},{"name":"s2"}]',
        'experiments={"priorityClassName":"high","resources":{"limits":{"memory":"1Gi"}}}',
    )
    (jobs,) = render(*sets)["Deployment", "emugpu-jobs"]["spec"]["template"]["spec"]["containers"]
    assert environment(jobs)["EMUGPU_JOBS_EXPERIMENT_PULL_SECRETS"] == "s1,s2"
    pod = json.loads(environment(jobs)["EMUGPU_JOBS_EXPERIMENT_POD"])
    assert (pod["priorityClassName"], pod["resources"]["limits"]) == ("high", {"memory": "1Gi"})
    for off in ('experiments={"enabled":false}', 'jobController={"enabled":false}'):
        objects = render(off)
        assert not [name for _, name in objects if "experiments" in name]
        for _, container in containers(objects):
            assert not [variable for variable in environment(container) if "EXPERIMENT" in variable]


def test_a_policy_in_a_file_needs_a_name(render: Render) -> None:
    """The rights are given for the name, which the file's class would say."""
    with pytest.raises(AssertionError, match=r"scheduler\.name: .*is a class in a file; give the scheduler a name"):
        render('scheduler={"enabled":true,"policy":"/policies/my.py:MyPolicy"}')
    named = render('scheduler={"enabled":true,"policy":"/policies/my.py:MyPolicy","name":"mine"}')
    assert named["Role", "emugpu-scheduler-memory"]["rules"][2]["resourceNames"] == ["emugpu-scheduler-mine"]
    long = render('scheduler={"enabled":true,"policy":"Long_Name:a=1"}')
    assert long["Role", "emugpu-scheduler-memory"]["rules"][2]["resourceNames"] == ["emugpu-scheduler-long-name"]


def test_redis_has_room_to_rewrite_its_file(render: Render) -> None:
    (container,) = render()["StatefulSet", "emugpu-redis"]["spec"]["template"]["spec"]["containers"]
    most = container["args"][container["args"].index("--maxmemory") + 1]
    assert int(container["resources"]["limits"]["memory"].removesuffix("Mi")) > 2 * int(most.removesuffix("mb"))


def test_a_section_that_an_older_release_did_not_have_has_its_defaults(render: Render) -> None:
    """`helm upgrade --reuse-values` brings the old values only, without what the new chart has added."""
    bare = render(*(f"{section}=null" for section in SECTIONS))
    whole = render()
    assert set(bare) == set(whole) - {("EmuGPUPool", "default")}
    assert bare["ClusterRole", "emugpu-node"] == whole["ClusterRole", "emugpu-node"]
    spec = bare["DaemonSet", "emugpu-node"]["spec"]
    assert spec["updateStrategy"] == whole["DaemonSet", "emugpu-node"]["spec"]["updateStrategy"]
    wanted = {name: environment(container) for name, container in containers(whole)}
    assert {name: environment(container) for name, container in containers(bare)} == wanted


SECTIONS = (
    *(
        "image",
        "imagePullSecrets",
        "pools",
        "alias",
        "node",
        "controller",
        "jobController",
        "api",
        "scheduler",
        "experiments",
        "webhook",
        "redis",
        "rbac",
        "guards",
    ),
    *("networkPolicy", "prepare", "cleanup", "metrics", "tests"),
)


def test_metrics_are_found(render: Render) -> None:
    notes = render()["DaemonSet", "emugpu-node"]["spec"]["template"]["metadata"]["annotations"]
    assert notes == {"prometheus.io/scrape": "true", "prometheus.io/port": "9400", "prometheus.io/path": "/metrics"}
    off = render(
        'metrics={"annotations":false,"serviceMonitor":{"enabled":true,"labels":{"team":"a"},"interval":"5s"}}'
    )
    assert not off["DaemonSet", "emugpu-node"]["spec"]["template"]["metadata"].get("annotations")
    monitor = off["ServiceMonitor", "emugpu"]
    assert monitor["metadata"]["labels"]["team"] == "a"
    named = {port["name"] for (kind, _), d in off.items() if kind == "Service" for port in d["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= named


def test_who_may_ask_for_metrics_can_be_said(render: Render) -> None:
    def callers(*sets: str) -> dict[str, Any]:
        rules = {name: d["spec"]["ingress"] for (kind, name), d in render(*sets).items() if kind == "NetworkPolicy"}
        others = ("emugpu-redis", "emugpu-results")
        return {name: rule.get("from") for name, (rule,) in rules.items() if name not in others}

    assert callers(WEBHOOK) == {
        "emugpu-api": None,
        "emugpu-jobs": None,
        "emugpu-node": None,
        "emugpu-pools": None,
        "emugpu-webhook": None,
    }
    peers = [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}, "podSelector": {}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    ]
    named = callers(WEBHOOK, f'networkPolicy={{"metricsFrom":{json.dumps(peers)}}}')
    assert named == {
        "emugpu-api": None,
        "emugpu-jobs": peers,
        "emugpu-node": peers,
        "emugpu-pools": peers,
        "emugpu-webhook": None,
    }  # whom the API server asks


def test_ports_of_probes_policies_and_services_exist(render: Render) -> None:
    objects = render(WEBHOOK)
    ports = {p["name"] for _, container in containers(objects) for p in container.get("ports", ())}
    for _, container in containers(objects):
        own = {p["name"] for p in container.get("ports", ())}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            for check in container.get(probe, {}).values():
                if isinstance(check, dict):
                    assert check["port"] in own
    for (kind, _), document in objects.items():
        if kind == "NetworkPolicy":
            assert {p["port"] for rule in document["spec"]["ingress"] for p in rule["ports"]} <= ports
        if kind == "Service":
            assert {p["targetPort"] for p in document["spec"]["ports"]} <= ports


def test_selectors_find_their_pods(render: Render) -> None:
    objects = render(WEBHOOK)
    for (kind, name), document in objects.items():
        if kind in ("DaemonSet", "Deployment", "StatefulSet"):
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
            if ("PodDisruptionBudget", name) in objects:
                budget = objects["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"]
                assert budget.items() <= labels.items()
    cleanup = objects["Job", "emugpu-cleanup"]["spec"]["template"]["spec"]["containers"][0]
    key, _, value = environment(cleanup)["EMUGPU_CLEANUP_NODE_PODS"].partition("=")
    assert objects["DaemonSet", "emugpu-node"]["spec"]["template"]["metadata"]["labels"][key] == value


def test_the_definitions_that_the_hook_applies_are_those_of_the_chart(render: Render, helm_run: Helm) -> None:
    texts = render()["ConfigMap", "emugpu-prepare"]["data"].values()
    shown = documents(helm_run("show", "crds", "CHART").stdout)
    assert [documents(text)[0] for text in texts] == shown
    allowed = next(r for r in render()["ClusterRole", "emugpu-prepare"]["rules"] if "resourceNames" in r)
    assert allowed["resourceNames"] == [document["metadata"]["name"] for document in shown]


def pool_value(name: str = "p", *, type: str = "V100", labels: dict[str, str] | None = None) -> str:
    selector = {"matchLabels": labels or {}}
    return json.dumps({"name": name, "nodeSelector": selector, "gpus": [{"type": type, "count": 1}]})


def settings(program: str, **given: str | int) -> str:
    return f"node={json.dumps({program: {'settings': given}})}"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ('redis={"enable":true}', "at '/redis': additional properties 'enable' not allowed"),
        ("reddis={}", "additional properties 'reddis' not allowed"),
        ('alias={"mode":"maybe"}', "at '/alias/mode': value must be one of 'auto', 'policy', 'webhook', 'off'"),
        ('alias={"resourceName":"emuGPU"}', "at '/alias/resourceName': 'emuGPU' does not match pattern"),
        (
            'pools=[{"name":"p","gpus":[{"typ":"V100","count":1}]}]',
            "at '/pools/0/gpus/0': additional properties 'typ' not allowed",
        ),
        ('pools=[{"gpus":[{"type":"V100","count":1}]}]', "at '/pools/0': missing property 'name'"),
        (
            'pools=[{"name":"p","gpus":[{"type":"V100","count":0}]}]',
            "at '/pools/0/gpus/0/count': minimum: got 0, want 1",
        ),
        (
            'node={"manager":{"settings":{"OUTBOX_BYTE":1}}}',
            "at '/node/manager/settings': additional properties 'OUTBOX_BYTE'",
        ),
        (
            'controller={"resources":{"limit":{}}}',
            "at '/controller/resources': additional properties 'limit' not allowed",
        ),
        ('node={"manager":{"extraEnv":[{"value":"x"}]}}', "at '/node/manager/extraEnv/0': missing property 'name'"),
        ('webhook={"replicas":"two"}', "at '/webhook/replicas': got string, want integer"),
        ('redis={"external":{"url":"host:6379"}}', "at '/redis/external/url': 'host:6379' does not match pattern"),
        ('cleanup={"timeoutSeconds":-1}', "at '/cleanup/timeoutSeconds': minimum: got -1, want 0"),
        (
            f"pools=[{pool_value()},{pool_value('q', type='A10O')}]",
            'pools[1].gpus[0].type: unknown GPU type "A10O"; write',
        ),
        (
            f"pools=[{pool_value()},{pool_value('q')},{pool_value()}]",
            'pools[2].name: "p" is the name of pools[0] too; give',
        ),
        (f"pools=[{pool_value('P')}]", "at '/pools/0/name': 'P' does not match pattern"),
        (
            f"pools=[{pool_value(labels={'a b': 'x'})}]",
            'pools[0].nodeSelector.matchLabels: "a b" is no key of a label; write a name such as zone',
        ),
        (
            f"pools=[{pool_value(labels={'zone': 'a b'})}]",
            "at '/pools/0/nodeSelector/matchLabels/zone': 'a b' does not match",
        ),
        ('node={"manager":{"metricsPort":9401}}', "node.plugin.metricsPort: 9401 is node.manager.metricsPort too, and"),
        ('node={"plugin":{"metricsPort":9400}}', "both are in one pod; give two different ports"),
        ('redis={"maxMemory":"12 bananas"}', "at '/redis/maxMemory': '12 bananas' does not match pattern"),
        (
            'redis={"maxMemory":"320mb"}',
            "redis.resources.limits.memory: 640Mi is not more than twice redis.maxMemory (320mb), which Redis takes while it "
            "rewrites its append-only file; give more than 640Mi, or a smaller redis.maxMemory",
        ),
        (
            'redis={"resources":{"limits":{"memory":1000}}}',
            "redis.resources.limits.memory: 1000 is not more than twice",
        ),
        ('redis={"resources":{"limits":{"memory":"512000k"}}}', "(256mb), which Redis takes"),
        ('redis={"maxMemory":"1GB","resources":{"limits":{"memory":"2e9"}}}', "give more than 2048Mi"),
        (settings("manager", STREAM_LENGTH="abc"), "STREAM_LENGTH': 'abc' does not match pattern"),
        (settings("manager", STREAM_LENGTH="999"), "STREAM_LENGTH': '999' does not match pattern"),
        (settings("manager", STREAM_LENGTH=999), "STREAM_LENGTH': minimum: got 999, want 1,000"),
        (settings("manager", OUTBOX_BYTES=4095), "OUTBOX_BYTES': minimum: got 4,095, want 4,096"),
        (settings("manager", OUTBOX_BYTES="0.5"), "OUTBOX_BYTES': '0.5' does not match pattern"),
        (settings("plugin", NVIDIA_SMI="yes"), "NVIDIA_SMI': 'yes' does not match pattern"),
        (settings("plugin", NVIDIA_SMI=2), "NVIDIA_SMI': maximum: got 2, want 1"),
        (
            'jobController={"replicas":2,"store":{"persistence":{"enabled":true}}}',
            "jobController.store.persistence: the chart's own volume is for one replica; set jobController.replicas to 1",
        ),
        (
            'jobController={"store":{"keepResults":-1}}',
            "at '/jobController/store/keepResults': minimum: got -1, want 0",
        ),
        ('redis={"persistence":{"size":"big"}}', "at '/redis/persistence/size': 'big' does not match pattern"),
        ('networkPolicy={"metricsFrom":[{}]}', "at '/networkPolicy/metricsFrom/0': minProperties"),
        (
            'networkPolicy={"metricsFrom":[{"namespace":"a"}]}',
            "at '/networkPolicy/metricsFrom/0': additional properties 'namespace' not allowed",
        ),
        ('tests={"model":"resnet5000"}', "at '/tests/model': value must be one of 'alexnet', "),
    ],
)
def test_a_wrong_value_is_reported_with_its_place(helm_run: Helm, sets: str, words: str) -> None:
    done = helm_run("template", "emugpu", "CHART", "--set-json", sets)
    assert done.returncode != 0
    assert words in done.stderr


def test_what_the_programs_take_the_chart_takes(render: Render) -> None:
    """GPU types in any spelling, sizes as Redis writes them."""
    types = ("v100", " nvidia_a100 sxm4-80gb", *bundled_catalogue().specs)
    pools = ",".join(pool_value(f"p{i}", type=gpu_type) for i, gpu_type in enumerate(types))
    objects = render(f"pools=[{pools}]")
    for i in range(len(types)):
        assert parse_spec(f"p{i}", objects["EmuGPUPool", f"p{i}"]["spec"]).groups[0].count == 1
    for size in ("0", "1gb", "64MB", "10m", "1048576", "5B"):
        redis = render(f'redis={{"maxMemory":"{size}","resources":{{"limits":{{"memory":"3Gi"}}}}}}')[
            "StatefulSet", "emugpu-redis"
        ]
        (container,) = redis["spec"]["template"]["spec"]["containers"]
        assert size in container["args"]


def test_all_of_a_pool_can_be_said_in_values(render: Render) -> None:
    pool = (
        '{"name":"big","nodeSelector":{"matchExpressions":[{"key":"k","operator":"Exists"}]},"resourceName":"nvidia.com/gpu",'
        '"gpus":[{"type":"V100","count":2,"memory":"16Gi","linkGroupSize":2,"numaNodes":2,"resourceName":"a.b/c"}],'
        '"sharing":{"timeSlicing":{"resources":[{"name":"a.b/c","replicas":4,"devices":[0,1]}]}},'
        '"emulated":{"cpu":24,"memory":"100Gi"},"cuda":{"enabled":true,"time":"20us"},"compat":{"nvidiaLabels":true,"nvidiaEnv":true},"unhealthy":[{"node":"w1","index":0,"reason":"x"}]}'
    )
    document = render(f"pools=[{pool}]")["EmuGPUPool", "big"]
    assert "name" not in document["spec"]
    assert parse_spec("big", document["spec"]).groups[0].resource == "a.b/c"


@pytest.mark.parametrize(
    "redis",
    [
        '{"maxMemory":"319mb"}',
        '{"maxMemory":"300mb","resources":{"limits":{"memory":"0.6Gi"}}}',
        '{"maxMemory":"1k","resources":{"limits":{"memory":2001}}}',
        '{"maxMemory":"1gb","resources":{"limits":{"memory":"3e9"}}}',
        '{"maxMemory":"1gb","resources":{"limits":{"memory":null}}}',
        '{"maxMemory":"1gb","external":{"url":"redis://r:6379"}}',
        '{"maxMemory":"1gb","enabled":false}',
    ],
)
def test_a_redis_that_has_room_or_is_not_ours(render: Render, redis: str) -> None:
    assert ("DaemonSet", "emugpu-node") in render(f"redis={redis}")


def test_notes_tell_the_next_command(helm_run: Helm) -> None:
    done = helm_run("install", "emugpu", "CHART", "--dry-run=client", "--namespace", "emugpu")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "kubectl wait emugpupools --all --for=condition=Ready" in notes
    assert "helm test emugpu --namespace emugpu" in notes
    assert "resources: {limits: {emuGPU: 1}}" in notes
    assert all(f"{kind}.emugpu.dev" in notes for kind in ("emugpupools", "emujobs", "schedulingexperiments"))
    assert "the namespace emugpu," in notes
    assert "the empty directory /var/lib/emugpu on nodes" in notes
    assert "kubectl port-forward --namespace emugpu service/emugpu-api 8080:80" in notes


def test_notes_tell_of_no_dashboard_that_is_off(helm_run: Helm) -> None:
    off = ("--set-json", 'api={"enabled":false}')
    done = helm_run("install", "emugpu", "CHART", "--dry-run=client", "--namespace", "emugpu", *off)
    assert done.returncode == 0, done.stderr
    assert "dashboard" not in done.stdout.partition("NOTES:")[2]


def test_notes_tell_what_is_to_be_done_by_hand(helm_run: Helm) -> None:
    sets = [part for text in NO_ROLES for part in ("--set-json", text)]
    done = helm_run("install", "lab", "CHART", "--dry-run=client", "--namespace", "gpus", *sets)
    notes = done.stdout.partition("NOTES:")[2]
    accounts = "lab-emugpu-node, lab-emugpu-pools, lab-emugpu-jobs and lab-emugpu-api"
    assert f"bind the service accounts {accounts} of namespace gpus" in notes
    assert "kubectl label namespace gpus pod-security.kubernetes.io/enforce=privileged" in notes
    assert "/var/lib/emugpu on nodes with what is in it" in notes


def test_another_release_name(helm_run: Helm) -> None:
    done = helm_run("template", "lab", "CHART", "--namespace", "gpus")
    rendered = documents(done.stdout)
    names = {document["metadata"]["name"] for document in rendered if document["kind"] != "EmuGPUPool"}
    assert all(name.startswith("lab-emugpu") for name in names)
    subjects = [s for d in rendered for s in d.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {"gpus"}
