"""From an EmuJob's specification to types: the short form, what is filled in, what is refused and where the message points."""

from __future__ import annotations

from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from operators.emujob.allocation import Allocation, read_allocation
from operators.emujob.spec import Configuration, parse_spec

WORK = {"steps": 100, "model": "resnet50", "batchSize": 64}


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
    ],
)
def test_mistakes_are_named_with_their_place(spec: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec("lab", "j", spec)
    assert str(caught.value).startswith(f"EmuJob lab/j: {message}")


def test_an_allocation_comes_back_as_it_was_written() -> None:
    allocation = Allocation("gpu", ("w1", "w2"), 4000, 2**34, ("EMU-1",))
    assert Allocation.from_json(allocation.to_json(), "Job j") == allocation
    assert read_allocation("", "Job j") is None
    assert read_allocation('{"configuration":"gpu"}', "Job j") is None
    with pytest.raises(InputError, match="Job j: nodes: must name 1 to 1024 nodes"):
        Allocation.from_json('{"configuration":"gpu","nodes":[]}', "Job j")
