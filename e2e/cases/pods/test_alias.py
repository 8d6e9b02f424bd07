"""`emuGPU: n` becomes the full resource name in every kind of object that creates pods; a wrong count is refused."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.cases.kube import RESOURCE, Kubectl, Object

IDLE = {"name": "main", "image": "busybox:1.36", "command": ["sleep", "3600"]}


def container(**resources: object) -> Object:
    return IDLE | {"resources": resources}


def template(*containers: Object, init: tuple[Object, ...] = (), restart: str = "Always") -> Object:
    spec: Object = {"restartPolicy": restart, "terminationGracePeriodSeconds": 0, "containers": list(containers)}
    if init:
        spec["initContainers"] = [c | {"name": f"init{n}", "command": ["true"]} for n, c in enumerate(init)]
    return {"metadata": {"labels": {"app": "alias"}}, "spec": spec}


def object_of(kind: str, pod: Object) -> Object:
    selector = {"matchLabels": {"app": "alias"}}
    specs: dict[str, tuple[str, Any]] = {
        "Pod": ("v1", pod["spec"]),
        "Deployment": ("apps/v1", {"replicas": 0, "selector": selector, "template": pod}),
        "ReplicaSet": ("apps/v1", {"replicas": 0, "selector": selector, "template": pod}),
        "StatefulSet": ("apps/v1", {"replicas": 0, "selector": selector, "serviceName": "none", "template": pod}),
        "DaemonSet": ("apps/v1", {"selector": selector, "template": pod}),
        "Job": ("batch/v1", {"suspend": True, "template": pod}),
        "CronJob": ("batch/v1", {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": pod}}}),
    }
    version, spec = specs[kind]
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "alias"}, "spec": spec}


def pod_spec_of(found: Object) -> Object:
    spec: Object = found["spec"]
    if found["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    return spec["template"]["spec"] if "template" in spec else spec


KINDS = ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {"emuGPU": 2}},
        {"requests": {"emuGPU": 2}, "limits": {"emuGPU": 2}},
        {"requests": {"emuGPU": "2"}},
    ],
    ids=["limits", "both", "requests"],
)
def test_every_kind_takes_the_short_name(kubectl: Kubectl, kind: str, resources: Object) -> None:
    restart = "Never" if kind in ("Job", "CronJob") else "Always"
    pod = template(container(**resources), init=(container(limits={"emuGPU": 1}),), restart=restart)
    if kind == "DaemonSet":
        pod["spec"]["nodeSelector"] = {"none": "none"}
    kubectl.apply(object_of(kind, pod))
    kubectl.apply(object_of(kind, pod))  # applying the same manifest again succeeds and changes nothing
    spec = pod_spec_of(kubectl.get(kind, "alias"))
    for containers, count in ((spec["containers"], "2"), (spec["initContainers"], "1")):
        found = containers[0]["resources"]
        assert found["limits"] == {RESOURCE: count}
        assert found.get("requests", found["limits"]) == {RESOURCE: count}


@pytest.mark.parametrize("kind", ("Pod", "Job", "Deployment"))
@pytest.mark.parametrize("count", ["0.5", "-1"])
def test_a_wrong_count_is_explained(kubectl: Kubectl, kind: str, count: str) -> None:
    restart = "Never" if kind == "Job" else "Always"
    said = kubectl.refusal(object_of(kind, template(container(limits={"emuGPU": count}), restart=restart)))
    assert "emuGPU counts whole devices" in said, said
    assert count in said, said


@pytest.mark.parametrize("kind", ("Pod", "Job"))
def test_a_contradiction_is_explained(kubectl: Kubectl, kind: str) -> None:
    restart = "Never" if kind == "Job" else "Always"
    both = container(limits={"emuGPU": 1, RESOURCE: 2})
    said = kubectl.refusal(object_of(kind, template(both, restart=restart)))
    assert f"emuGPU is short for {RESOURCE}" in said, said
    assert "1 of the one and 2 of the other" in said, said


def test_an_edited_count_wins_over_what_stands_there(kubectl: Kubectl) -> None:
    """After such a change the API server receives the new count under `emuGPU` and the old one under the full name."""
    for count in ("1", "3"):
        kubectl.apply(object_of("Deployment", template(container(limits={"emuGPU": count}))))
        resources = pod_spec_of(kubectl.get("Deployment", "alias"))["containers"][0]["resources"]
        assert resources["limits"] == {RESOURCE: count}


def test_pods_without_devices_are_left_alone(kubectl: Kubectl) -> None:
    kubectl.apply(object_of("Pod", template(container(limits={"cpu": "100m"}))))
    assert kubectl.get("Pod", "alias")["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "100m"}
