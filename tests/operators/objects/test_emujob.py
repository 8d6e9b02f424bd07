"""From an EmuJob's specification to types: the short form, what is filled in, what is refused and where the message points."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.allocation import Allocation
from operators.objects.emujob import parse_spec
from operators.objects.scheduler_notes import read_allocation

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
    (found,) = spec.configurations
    assert (found.name, found.gpus, found.cpu_milli, found.memory_bytes) == ("default", 2, 1500, 2 * 2**30)
    assert (found.gpu_types, found.model, found.batch_size) == (("Tesla_V100-PCIE-32GB",), "resnet50", 64)
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
    shared = replace(allocation, milli=(250,), priority=(-1,), row=3)
    assert Allocation.from_json(shared.to_json(), "Job j") == shared
    assert read_allocation("", "Job j") is None
    assert read_allocation('{"configuration":"gpu"}', "Job j") is None
    assert read_allocation('{"configuration":"gpu","nodes":[]}', "Job j") is None
    with pytest.raises(InputError, match="Job j: nodes: must name 1024 nodes at most"):
        Allocation.from_json(json.dumps({"configuration": "gpu", "nodes": ["n"] * 1025}), "Job j")
