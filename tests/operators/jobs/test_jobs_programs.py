"""EmuJobs that bring profiles, and EmuJobs that run programs: what is accepted, their Jobs, and how long they take."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import ModelWork, Program
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.work import Spread, step_times
from operators.fitting.offers import NodeOffer
from operators.fitting.workload import job_spec
from operators.jobs.isolated_time import isolated_s
from operators.objects.emujob import parse_spec
from operators.objects.own_profile import MOST_BYTES

Worlds = Any
V100 = "Tesla_V100-PCIE-32GB"
KNOT = {"batch": 16, "forward_s": 0.25, "backward_s": 0.75, "start_s": 5.0}
MEMORY = {"knots": [{"batch": 16, "peak_bytes": 3 * GIB, "persistent_bytes": GIB}]}
MINE: dict[str, Any] = {"sample_bytes": 0, "memory": MEMORY, "gpus": {"V100": {"knots": [KNOT]}}}
BROUGHT: dict[str, Any] = {"steps": 100, "model": "mine", "batchSize": 16, "profiles": {"mine": MINE}}
COMMAND = ["python3", "train.py", "--steps={steps}", "--batch={batch}"]
PROGRAM: dict[str, Any] = {**BROUGHT, "image": "torch:1", "program": {"command": COMMAND, "files": "scripts"}}
OFFERS = (NodeOffer("w1", 8000, 64 * GIB, ((V100, 32 * GIB),) * 4),)
HOST = HostShare(1000, 0)
TABLE = ProfileTable.bundled()


def container_of(world: Worlds, spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod and its container."""
    at = world(spec)
    at.settle()
    assert at.condition("Accepted") == ("True", "Accepted"), at.status
    pod = at.documents[0]["spec"]["template"]["spec"]
    return pod, pod["containers"][0]


# --- profiles -----------------------------------------------------------------------------------------------------------


def test_a_job_s_own_profile_reaches_its_pods(world: Worlds) -> None:
    _, container = container_of(world, BROUGHT)
    assert container["args"][:4] == ["train", "--steps", "100", "--model"] and "command" not in container
    (own,) = [each["value"] for each in container["env"] if each["name"] == "EMUGPU_PROFILES"]
    assert json.loads(own) == {"mine": MINE}


def test_a_profile_of_a_bundled_model_goes_before_that(world: Worlds) -> None:
    faster = {"gpus": {"V100": {"knots": [{"batch": 64, "forward_s": 0.001, "backward_s": 0.002}]}}}
    spec = {"steps": 100, "model": "resnet50", "batchSize": 64, "profiles": {"resnet50": faster}}
    container_of(world, spec)
    isolated = isolated_s(parse_spec("lab", "a", spec), OFFERS, TABLE)
    assert isolated is not None and 0.3 < isolated < 1.0, "with copies of samples; 20 s by the bundled profile"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpus": {"V100": {"knots": [KNOT, KNOT]}}}, r"spec.profiles.mine.gpus.V100.knots\[1\].batch: must be > 16"),
        ({"gpus": {"Z9": {"knots": [KNOT]}}}, r"spec.profiles.mine.gpus.Z9: GPU type 'Z9' doesn't exist|Z9"),
        ({"memory": None}, r"spec.profiles.mine: memory is missing"),
        (
            {"memory": {"knots": [{"batch": 16, "peak_bytes": 1, "persistent_bytes": 2}]}},
            r"spec.profiles.mine.memory.knots\[0\].persistent_bytes: must be <= peak_bytes",
        ),
    ],
)
def test_a_profile_with_a_mistake_is_invalid(world: Worlds, change: dict[str, Any], message: str) -> None:
    mine = {name: value for name, value in {**MINE, **change}.items() if value is not None}
    at = world({**BROUGHT, "profiles": {"mine": mine}})
    at.settle()
    assert at.condition("Accepted") == ("False", "InvalidProfile") and at.status["phase"] == "Rejected"
    (said,) = [each["message"] for each in at.status["conditions"] if each["type"] == "Accepted"]
    assert re.search(message, said), said
    assert at.documents == []


def test_a_model_that_the_job_does_not_bring_is_unknown(world: Worlds) -> None:
    at = world({**BROUGHT, "model": "other"})
    at.settle()
    assert at.condition("Accepted") == ("False", "InvalidProfile")


@pytest.mark.parametrize(
    ("profiles", "error"),
    [
        ({}, r"spec.profiles: must have at least 1"),
        ({f"m{n}": MINE for n in range(9)}, r"spec.profiles: must have at most 8"),
        ({"mine": {**MINE, "gpus": {}}}, r"spec.profiles.mine.gpus: must have at least 1"),
        ({"mine": {**MINE, "speed": 1}}, r"spec.profiles.mine.speed|speed"),
        ({"mine": {**MINE, "gpus": {"V100": {"knots": [{**KNOT, "forward_s": 0}]}}}}, r"must be a number above 0"),
        ({"mine": {**MINE, "gpus": {"V100": {"knots": [{**KNOT, "batch": 0}]}}}}, r"batch: must be at least 1"),
    ],
)
def test_what_the_schema_refuses(profiles: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        parse_spec("lab", "a", {**BROUGHT, "profiles": profiles})


def test_profiles_are_bounded() -> None:
    knots = [
        {**KNOT, "batch": n, "forward_s": 0.123456789012345, "backward_s": 0.123456789012345} for n in range(1, 65)
    ]
    many = {f"m{n}": {**MINE, "gpus": {gpu: {"knots": knots} for gpu in ("V100", "T4", "A100")}} for n in range(8)}
    with pytest.raises(InputError, match=rf"spec.profiles: must have at most {MOST_BYTES} bytes together"):
        parse_spec("lab", "a", {**BROUGHT, "profiles": many})


def test_the_scheduler_has_the_profile_with_the_job() -> None:
    job = job_spec("lab/a", parse_spec("lab", "a", BROUGHT), 0.0, 0, OFFERS, TABLE)
    work = job.work["default"]
    assert isinstance(work, ModelWork) and not work.starts and job.program is None
    (configuration,) = job.configurations
    assert (configuration.gpu_types, configuration.device_memory_bytes) == ((V100,), 3 * GIB)
    times = step_times(work, job.steps, V100, HOST, TABLE)  # a table that doesn't know the model
    assert times.end_ns(0, 100) == 100_000_000_000


def test_elastic_jobs_have_the_curve_of_their_own_profile() -> None:
    knots = [{"batch": n, "forward_s": 0.1 * n, "backward_s": 0.2 * n} for n in (4, 16)]
    spec = {
        **BROUGHT,
        "resources": {"emuGPU": 1, "maxEmuGPU": 4},
        "scheduler": {"actuator": "jobs", "name": "s"},
        "profiles": {"mine": {**MINE, "gpus": {"V100": {"knots": knots}}}},
    }
    job = job_spec("lab/a", parse_spec("lab", "a", spec), 0.0, 0, OFFERS, TABLE)
    alone, four = (
        step_times(job.work_on("default", gpus), 10, V100, HOST, TABLE, spread=Spread(gpus)).end_ns(0, 10)
        for gpus in (1, 4)
    )
    compute_s = 10 * 0.3 * 4
    assert alone == pytest.approx(10 * 0.3 * 16 * 1e9)
    assert compute_s * 1e9 < four < alone / 2, (
        "four GPUs also exchange the gradients of a third of the persistent memory"
    )


# --- programs -----------------------------------------------------------------------------------------------------------


def test_the_pod_of_a_program(world: Worlds) -> None:
    pod, container = container_of(world, PROGRAM)
    assert container["image"] == "torch:1" and container["workingDir"] == "/program"
    assert container["command"][:2] == ["python3", "-c"] and "/usr/local/emugpu" in container["command"][2]
    assert container["args"] == [
        *("program", "--steps", "100", "--model", "mine", "--batch-size", "16", "--"),
        *("python3", "train.py", "--steps=100", "--batch=16"),
    ]
    assert pod["volumes"] == [
        {"name": "program", "configMap": {"name": "scripts"}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
    ]
    assert [each["mountPath"] for each in container["volumeMounts"]] == ["/program", "/dev/shm"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False


def test_a_program_of_the_image_needs_no_files(world: Worlds) -> None:
    pod, container = container_of(world, {**PROGRAM, "program": {"command": COMMAND, "resumes": True}})
    assert "workingDir" not in container and [each["name"] for each in pod["volumes"]] == ["shared-memory"]
    assert container["args"][7:9] == ["--resumes", "--"]


def test_emulated_training_has_no_volumes(world: Worlds) -> None:
    pod, container = container_of(world, BROUGHT)
    assert "volumes" not in pod and "volumeMounts" not in container


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"image": None}, r"spec.program: needs image, in which it runs"),
        (
            {"nodes": 2, "batchSize": 32, "profiles": None, "model": "resnet50"},
            r"spec.program: runs on one node; leave nodes out",
        ),
        ({"program": {"command": []}}, r"spec.program.command: must have at least 1"),
        (
            {"program": {"command": ["a"], "files": "Not A Name"}},
            r"spec.program.files: 'Not A Name' is no name of Kubernetes",
        ),
        (
            {"resources": {"emuGPU": 0}, "model": None, "batchSize": None, "stepTime": "1s"},
            r"spec.program: belongs to a job with",
        ),
        (
            {"resources": {"emuGPU": 1, "maxEmuGPU": 2}, "scheduler": {"actuator": "jobs", "name": "s"}},
            r"spec.program: belongs to a job with one configuration, which has GPUs and no range of them",
        ),
    ],
)
def test_what_a_program_excludes(change: dict[str, Any], error: str) -> None:
    spec = {name: value for name, value in {**PROGRAM, **change}.items() if value is not None}
    with pytest.raises(InputError, match=error):
        parse_spec("lab", "a", spec)


def test_the_scheduler_s_job_runs_the_program_and_starts() -> None:
    job = job_spec("lab/a", parse_spec("lab", "a", PROGRAM), 0.0, 0, OFFERS, TABLE)
    assert job.program == Program(tuple(COMMAND), image="torch:1") and job.begins_anew
    times = step_times(job.work["default"], job.steps, V100, HOST, TABLE)
    assert times.end_ns(0, 100) == 105_000_000_000, "with the start of 5 s"


def test_alone_a_program_takes_its_start_and_its_steps() -> None:
    assert isolated_s(parse_spec("lab", "a", PROGRAM), OFFERS, TABLE) == pytest.approx(105.0)
    assert isolated_s(parse_spec("lab", "a", BROUGHT), OFFERS, TABLE) == pytest.approx(100.0)
    wrong = {**BROUGHT, "profiles": {"mine": {**MINE, "gpus": {"V100": {"knots": [KNOT, KNOT]}}}}}
    assert isolated_s(parse_spec("lab", "a", wrong), OFFERS, TABLE) is None
