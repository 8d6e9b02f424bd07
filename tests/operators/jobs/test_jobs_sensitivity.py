"""Jobs whose speed follows their share of a node: from the specification to what the process in the pod makes of it."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.units import GIB
from emulator_runtime.node.allocation import Allocation
from emulator_runtime.workloads.command.arguments import add_arguments, chosen, request_of
from emulator_runtime.workloads.step_costs.request import TrainRequest
from operators.jobs.manifests import arguments
from operators.kube.documents import Key
from operators.objects.emujob import EmuJob, EmuJobSpec, parse_spec

CPU = [{"amount": "3", "speed": 1}, {"amount": "4500m", "speed": 1.25}, {"amount": 6, "speed": 1.5}]
MEMORY = [{"amount": "62.5Gi", "speed": 1.0}, {"amount": "125Gi", "speed": 1 / 3 + 1}]
RESOURCES = {"cpu": 3, "memory": "62.5Gi"}
CURVES = Sensitivity(
    cpu=((3000, 1.0), (4500, 1.25), (6000, 1.5)), memory=((125 * GIB // 2, 1.0), (125 * GIB, 1 / 3 + 1))
)


def parsed(**spec: Any) -> EmuJobSpec:
    return parse_spec("lab", "j", {"steps": 10, **spec})


def trained(spec: EmuJobSpec, configuration: str = "") -> TrainRequest:
    """What `emugpu train` is asked for in the pod of such a job."""
    facts = EmuJob(Key("lab", "j", "uid", "1"), "2026-01-01T00:00:00Z", 1, False, {}, {})
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    verb, *given = arguments(facts, spec)
    assert verb == "train"
    return request_of(chosen(parser.parse_args(given), {"EMUGPU_CONFIGURATION": configuration}))


def test_the_short_form() -> None:
    spec = parsed(stepTime="80ms", memory="1Gi", resources=RESOURCES, sensitivity={"cpu": CPU, "memory": MEMORY})
    (only,) = spec.configurations
    assert only.sensitivity == CURVES
    request = trained(spec)
    assert (request.sensitivity, request.host) == (CURVES, HostShare(3000, 125 * GIB // 2))
    assert (request.step_time_s, request.memory_bytes) == (0.08, GIB)


def test_each_configuration_has_its_own() -> None:
    sensitive = {"stepTime": "1s", "sensitivity": {"cpu": CPU}}
    gpu = {"name": "gpu", "resources": {"cpu": "1500m"}, "profile": sensitive}
    cpu = {"name": "cpu", "resources": {"emuGPU": 0, "memory": "1Gi"}, "profile": {"stepTime": "3s"}}
    deep = {"name": "deep", "resources": RESOURCES, "profile": {"stepTime": "2s", "sensitivity": {"memory": MEMORY}}}
    spec = parsed(configurations=[gpu, cpu, deep])
    on_gpu, on_cpu, by_memory = (trained(spec, name) for name in ("gpu", "cpu", "deep"))
    assert (on_gpu.sensitivity, on_gpu.host.cpu_milli) == (Sensitivity(CURVES.cpu, ()), 1500)
    assert (on_cpu.sensitivity, on_cpu.step_time_s) == (None, 3.0)
    assert (by_memory.sensitivity, by_memory.host.memory_bytes) == (Sensitivity((), CURVES.memory), 125 * GIB // 2)


def test_a_manager_reads_what_a_scheduler_writes() -> None:
    written = Allocation("gpu", ("w1", "w2"), 4500, 125 * GIB, ("GPU-1",)).to_json()
    assert Allocation.from_json(written, "pod lab/j").host == HostShare(4500, 125 * GIB)
    assert Allocation.from_json('{"configuration":"gpu","nodes":["w1"]}', "pod lab/j").host == HostShare(0, 0)
    assert Allocation.from_json('{"cpu_milli":1,"new":{"a":1}}', "pod lab/j").host == HostShare(1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "pod lab/j: must be an object, as job-level schedulers write it"),
        ("{", "pod lab/j:1:2: is not JSON"),
        ('{"cpu_milli": -1}', "pod lab/j: cpu_milli: must be >= 0"),
        ('{"memory_bytes": "1Gi"}', "pod lab/j: memory_bytes: must be a whole number"),
        ('{"devices": [7]}', "pod lab/j: devices[0]: must be a string"),
        ('{"devices": ["a"], "milli": [0]}', "pod lab/j: milli[0]: must be from 1 to 1000"),
        ('{"devices": ["a"], "milli": [1, 2]}', "pod lab/j: milli: must have a number for each of 1 devices, not 2"),
        ('{"priority": [1]}', "pod lab/j: priority: must have a number for each of 0 devices, not 1"),
        ('{"gpus": 1025}', "pod lab/j: gpus: must be from 0 to 1024"),
        ('{"batch_size": 2147483649}', "pod lab/j: batch_size: must be from 0 to 2147483648"),
    ],
)
def test_an_allocation_that_is_none(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        Allocation.from_json(text, "pod lab/j")
    assert str(caught.value).startswith(message)


def test_an_elastic_job_has_its_gpus_and_its_batch_in_the_annotation() -> None:
    written = Allocation("gpu", ("w1", "w2"), 4500, gpus=4, batch_size=512)
    assert written.to_json().endswith('"devices":[],"gpus":4,"batch_size":512}')
    assert Allocation.from_json(written.to_json(), "pod lab/j") == written
    assert "gpus" not in Allocation("gpu", ("w1",), 4500).to_json()
