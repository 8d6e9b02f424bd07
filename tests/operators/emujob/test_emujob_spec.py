"""From an EmuJob's specification to types: the short form, what is filled in, what is refused and where the message points."""

from __future__ import annotations

from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from operators.objects.allocation import Allocation, read_allocation
from operators.objects.emujob import Configuration, parse_spec

WORK = {"steps": 100, "model": "resnet50", "batchSize": 64}
FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}


def by(name: str, **more: str) -> dict[str, Any]:
    return {**WORK, "scheduler": {"actuator": "jobs", "name": name, **more}}


def pods(**template: Any) -> dict[str, Any]:
    return {**WORK, "template": template}


def test_the_short_form_is_one_configuration() -> None:
    spec = parse_spec(
        "lab", "j", {**WORK, "resources": {"emuGPU": 2, "cpu": "1500m", "memory": "2Gi"}, "gpuType": "v100"}
    )
    types = ("Tesla_V100-PCIE-32GB",)
    assert spec.configurations == (Configuration("default", 2, 1500, 2 * 2**30, types, "resnet50", 64),)
    assert (spec.tenant, spec.weight, spec.nodes, spec.steps, spec.actuator) == ("lab", 1.0, 1, 100, "none")
    assert spec.native.requests == {"cpu": "10m", "memory": "32Mi"} and spec.native.limits == {}


def test_everything_can_be_said() -> None:
    work = {"name": "cpu", "resources": {"emuGPU": 0, "cpu": 4}, "profile": {"stepTime": "80ms", "memory": "4Gi"}}
    spec = parse_spec(
        "lab",
        "j",
        {
            "steps": 1,
            "tenant": "t",
            "weight": 2,
            "nodes": 3,
            "image": "i:1",
            "imagePullPolicy": "Never",
            "configurations": [
                {"name": "gpu", "gpuTypes": ["T4"], "profile": {"model": "vgg16", "batchSize": 8}},
                work,
            ],
            "template": {"labels": {"a": "b"}, "env": [{"name": "X", "value": "1"}], "priorityClassName": "p"},
            "scheduler": {"actuator": "jobs", "name": "s", "schedulerName": "default-scheduler"},
            "native": {"requests": {"cpu": 1}, "limits": {"memory": "64Mi"}},
            "suspend": True,
        },
    )
    gpu, cpu = spec.configurations
    assert (gpu.gpus, gpu.gpu_types, gpu.model) == (1, ("Tesla-T4",), "vgg16")
    assert (cpu.gpus, cpu.step_time_ns, cpu.gpu_memory_bytes) == (0, 80_000_000, 4 * 2**30)
    assert spec.configuration("cpu") is cpu and spec.configuration("none such") is gpu
    assert (spec.native.requests, spec.native.limits) == ({"cpu": "1"}, {"memory": "64Mi"})
    assert spec.template.pod == {"priorityClassName": "p"} and spec.suspend


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("80ms", 80_000_000),
        ("1.5s", 1_500_000_000),
        ("3us", 3000),
        ("7ns", 7),
        ("2m", 120 * 10**9),
        ("1h", 3600 * 10**9),
    ],
)
def test_durations(text: str, nanoseconds: int) -> None:
    spec = parse_spec("n", "j", {"steps": 1, "stepTime": text})
    assert spec.configurations[0].step_time_ns == nanoseconds


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "spec: steps is missing"),
        ({"steps": 1}, "spec: give either model and batchSize, or stepTime and memory"),
        ({**WORK, "stepTime": "1s"}, "spec: give either model and batchSize"),
        ({"steps": 1, "model": "resnet50"}, "spec: batchSize is missing"),
        ({"steps": 1, "stepTime": "0ms"}, "spec.stepTime: must be a time above 0 such as 80ms or 1.5s, not '0ms'"),
        ({"steps": 1, "stepTime": "1 day"}, "spec.stepTime: must be a time above 0"),
        ({**WORK, "gpuType": "A10O"}, "spec.gpuType: unknown GPU type 'A10O'; did you mean"),
        ({**WORK, "resources": {"emuGPU": 0}}, "spec: a model's profile is of GPUs; give stepTime"),
        ({**WORK, "resources": {"cpu": "two"}}, "spec.resources.cpu: 'two' is no quantity"),
        ({**WORK, "resources": {"cpu": -1}}, "spec.resources.cpu: must not be negative"),
        ({**WORK, "configurations": []}, "spec: write either configurations, or model directly"),
        ({"steps": 1, "configurations": []}, "spec.configurations: must have at least one"),
        ({**WORK, "weight": 0}, "spec.weight: must be a number above 0"),
        ({**WORK, "nodes": 0}, "spec.nodes: must be from 1 to 1024"),
        ({**WORK, "node": 2}, "spec: unknown field 'node'; did you mean nodes"),
        ({**WORK, "scheduler": {"actuator": "job", "name": "s"}}, "spec.scheduler.actuator: unknown actuator 'job'"),
        ({**WORK, "scheduler": {"actuator": "jobs"}}, "spec.scheduler: a name belongs to an actuator"),
        ({**WORK, "scheduler": {"name": "s"}}, "spec.scheduler: a name belongs to an actuator"),
        ({**WORK, "template": {"labels": []}}, "spec.template.labels: must be an object"),
        ({**WORK, "suspend": 1}, "spec.suspend: must be true or false"),
        ({**WORK, "native": {"requests": {"cpu": "-1"}}}, "spec.native.requests.cpu: must not be negative"),
        ({**WORK, "native": {"follow": {"gpu": 1}}}, "spec.native.follow: unknown field 'gpu'"),
        (
            {**WORK, "native": {"follow": {"memory": "32Mi"}}},
            "spec.native.follow.memory: must be the real amount for each",
        ),
        ({**WORK, "native": {"follow": {"cpu": 0}}}, "spec.native.follow.cpu: must be the real amount for each"),
        (
            {**WORK, "native": {"requests": {"cpu": 0}, "follow": {"cpu": "50m"}}},
            "spec.native.follow.cpu: needs a request of cpu above 0",
        ),
        (None, "spec: must be an object"),
        ({**WORK, "image": "a b"}, "spec.image: 'a b' has blanks in it"),
        ({**WORK, "image": "a\n"}, "spec.image: 'a\\n' has blanks in it"),
        ({**WORK, "tenant": "a\nb"}, "spec.tenant: 'a\\nb' has control characters"),
        (by("A B/../"), "spec.scheduler.name: 'A B/../' must be at most 40 small letters, digits and -"),
        (by("a\nb"), "spec.scheduler.name: 'a\\nb' must be at most 40"),
        (by("s" * 41), f"spec.scheduler.name: '{'s' * 41}' must be at most 40"),
        (by("s", schedulerName="Not Valid!"), "spec.scheduler.schedulerName: 'Not Valid!' has blanks"),
        (by("s", schedulerName="a\x7f"), "spec.scheduler.schedulerName: 'a\\x7f' has blanks or control"),
        (by("s", schedulerName="a" * 254), "spec.scheduler.schedulerName: must be a text of 1 to 253 characters"),
        (pods(labels={"a b": "c"}), "spec.template.labels: 'a b' is no key: write NAME or DOMAIN/NAME"),
        (pods(labels={"A.b/c": "c"}), "spec.template.labels: 'A.b/c' is no key"),
        (pods(labels={"a": "c d!"}), "spec.template.labels.a: 'c d!' is no label's value"),
        (pods(labels={"job-name": "x"}), "spec.template.labels: job-name is set by emugpu or Kubernetes"),
        (
            pods(labels={"batch.kubernetes.io/job-name": "x"}),
            "spec.template.labels: batch.kubernetes.io/job-name is set",
        ),
        (pods(labels={"emugpu.dev/job": "x"}), "spec.template.labels: emugpu.dev/job is set by emugpu"),
        (pods(annotations={"a b": "c"}), "spec.template.annotations: 'a b' is no key"),
        (pods(annotations={"emugpu.dev/allocation": ""}), "spec.template.annotations: emugpu.dev/allocation is set"),
        (pods(annotations={f"a{n}": "x" * 2**14 for n in range(16)}), "spec.template.annotations: must have at most"),
        (
            pods(serviceAccountName="Not Valid"),
            "spec.template.serviceAccountName: 'Not Valid' is no name of Kubernetes",
        ),
        (pods(priorityClassName="a..b"), "spec.template.priorityClassName: 'a..b' is no name of Kubernetes"),
        (pods(env=["A"]), "spec.template.env[0]: must be an object"),
        (pods(env=[{"name": "A=B"}]), "spec.template.env[0].name: 'A=B' is no variable's name"),
        (pods(env=[{"name": "A", "value": "1", "valueFrom": FIELD}]), "spec.template.env[0]: give either value or"),
        (pods(env=[{"name": "A", "valueFrom": {}}]), "spec.template.env[0].valueFrom: give one of fieldRef"),
        (
            pods(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "S", "key": "k"}}}]),
            "spec.template.env[0].valueFrom.secretKeyRef.name: 'S' is no name of Kubernetes",
        ),
        (
            pods(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "a b"}}}]),
            "spec.template.env[0].valueFrom.configMapKeyRef.key: 'a b' is no key of a ConfigMap",
        ),
        (pods(tolerations=[{"key": "a b"}]), "spec.template.tolerations[0].key: 'a b' is no key"),
        (pods(tolerations=[{"value": "b"}]), "spec.template.tolerations[0]: without a key the operator must be Exists"),
        (
            pods(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
            "spec.template.tolerations[0].value: must be empty",
        ),
        (pods(tolerations=[{"key": "a", "value": "b c"}]), "spec.template.tolerations[0].value: 'b c' is no label's"),
        (
            pods(tolerations=[{"key": "a", "tolerationSeconds": 3}]),
            "spec.template.tolerations[0].tolerationSeconds: belongs to the effect NoExecute",
        ),
    ],
)
def test_mistakes_are_named_with_their_place(spec: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec("lab", "j", spec)
    assert str(caught.value).startswith(f"EmuJob lab/j: {message}")


@pytest.mark.parametrize("name", ["MyScheduler", "my_scheduler", "a/b", "é", "x" * 253])
def test_a_scheduler_of_pods_may_have_any_name(name: str) -> None:
    """The API server doesn't check its form."""
    assert parse_spec("lab", "j", by("s", schedulerName=name)).pod_scheduler == name


def test_what_pods_may_have_is_kept_as_it_is() -> None:
    template = {
        "labels": {"example.com/team.a": "", "a_b": "C-d.e"},
        "annotations": {"example.com/Note": "any text\n", "batch.kubernetes.io/mine": "x"},
        "tolerations": [{"operator": "Exists"}, {"key": "a", "effect": "NoExecute", "tolerationSeconds": 3}],
        "serviceAccountName": "a.b-c",
        "env": [
            {"name": "A B-c", "value": ""},
            {"name": "F", "value": "", "valueFrom": FIELD},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "K_1.x", "optional": True}}},
        ],
    }
    found = parse_spec("lab", "j", {**WORK, "template": template, "tenant": "Émile du Bois"}).template
    assert (dict(found.labels), dict(found.annotations)) == (template["labels"], template["annotations"])
    assert [dict(variable) for variable in found.env] == template["env"]
    assert found.pod == {name: template[name] for name in ("tolerations", "serviceAccountName")}


def test_an_allocation_comes_back_as_it_was_written() -> None:
    allocation = Allocation("gpu", ("w1", "w2"), 4000, 2**34, ("EMU-1",))
    assert Allocation.from_json(allocation.to_json(), "Job j") == allocation
    assert read_allocation("", "Job j") is None
    assert read_allocation('{"configuration":"gpu"}', "Job j") is None
    with pytest.raises(InputError, match="Job j: nodes: must name 1 to 1024 nodes"):
        Allocation.from_json('{"configuration":"gpu","nodes":[]}', "Job j")
