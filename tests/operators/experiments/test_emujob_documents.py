from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork, Program, TimedWork
from emulator_runtime.domain.json_document import Field
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from operators.experiments.emujobs import RunTarget, emujob_document, names_of
from operators.objects.emujob import parse_spec

TO = RunTarget("exp-1", "exp", "allox-1")
V100 = "Tesla_V100-PCIE-32GB"
ON_GPU = Configuration("gpu", 1, 20_000, 0, (V100,), 2 * GIB)
ON_CPU = Configuration("cpu", 0, 90_000, 8 * GIB)


def job(job_id: str = "a", row: int = 3, **members: object) -> JobSpec:
    work = {"gpu": TimedWork(40.0), "cpu": TimedWork(228.0)}
    found = JobSpec(job_id, "ann", 7.5, 100, (ON_GPU, ON_CPU), work, row, 2.0)
    return replace(found, **members)


def test_a_job_of_two_ways() -> None:
    document = emujob_document(job("Job A"), "job-a-3", TO)
    assert document["metadata"] == {
        "name": "job-a-3",
        "namespace": "exp-1",
        "labels": {"emugpu.dev/experiment": "exp"},
        "annotations": {"emugpu.dev/job-id": "Job A", "emugpu.dev/row": "3"},
    }
    spec = parse_spec("exp-1", "job-a-3", document["spec"])
    assert (spec.tenant, spec.weight, spec.steps, spec.actuator, spec.scheduler) == ("ann", 2.0, 100, "jobs", "allox-1")
    gpu, cpu = spec.configurations
    assert (gpu.gpus, gpu.cpu_milli, gpu.gpu_types, gpu.gpu_memory_bytes) == (1, 20_000, (V100,), 2 * GIB)
    assert (gpu.step_time_ns, cpu.step_time_ns) == (400_000_000, 2_280_000_000)
    assert (cpu.gpus, cpu.cpu_milli, cpu.memory_bytes) == (0, 90_000, 8 * GIB)


def test_a_job_of_a_batch_says_so() -> None:
    document = emujob_document(job(), "a", TO, "a/40")
    assert document["metadata"]["annotations"]["emugpu.dev/batch"] == "a/40"


def test_a_model_s_batch_is_that_of_the_whole_job() -> None:
    way = replace(ON_GPU, gpus=4)
    document = emujob_document(job(configurations=(way,), work={"gpu": ModelWork("resnet50", 16)}), "a", TO)
    (found,) = parse_spec("exp-1", "a", document["spec"]).configurations
    assert (found.model, found.batch_size, found.gpus) == ("resnet50", 64, 4)


def test_a_sensitivity_goes_with_the_step_time() -> None:
    curves = Sensitivity.between(HostShare(2000, GIB), HostShare(8000, 4 * GIB), 3.0)
    document = emujob_document(job(configurations=(ON_GPU,), work={"gpu": TimedWork(40.0, curves)}), "a", TO)
    assert document["spec"]["configurations"][0]["profile"]["sensitivity"] == {
        "cpu": [{"amount": "2000m", "speed": 1.0}, {"amount": "8000m", "speed": 3.0}],
        "memory": [{"amount": str(GIB), "speed": 1.0}, {"amount": str(4 * GIB), "speed": 3.0}],
    }


def test_kubernetes_scheduler_gets_the_gpu_way_only() -> None:
    document = emujob_document(job(), "a", RunTarget("exp-1", "exp", pod_scheduler="volcano"))
    assert document["spec"]["scheduler"] == {"schedulerName": "volcano"}
    assert [way["name"] for way in document["spec"]["configurations"]] == ["gpu"]
    assert parse_spec("exp-1", "a", document["spec"]).pod_scheduler == "volcano"


@pytest.mark.parametrize(
    ("change", "to", "says"),
    [
        ({"configurations": (ON_CPU,)}, RunTarget("n", "e"), "runs on CPUs only.*leave --default-scheduler out"),
        ({"user": "u" * 64}, TO, "job 'a': user: may have 63 characters"),
        ({"steps": 10**12, "configurations": (ON_GPU,)}, TO, "1000000000000 steps in 40 s are less than 1 ns each"),
    ],
)
def test_what_has_no_form_on_a_cluster_is_reported(change: dict[str, object], to: RunTarget, says: str) -> None:
    with pytest.raises(InputError, match=says):
        emujob_document(job(**change), "a", to)


def test_names_stay_where_they_can() -> None:
    jobs = [
        job(name, row) for row, name in enumerate(["user1-alexnet", "Job A", "job a", "7up", "job-a", "---", "x" * 70])
    ]
    assert list(names_of(jobs).values()) == [
        *("user1-alexnet", "job-a-1", "job-a-2", "j-7up-3", "job-a", "j-5"),
        "x" * 42 + "-6",
    ]


@given(st.lists(st.text(st.sampled_from("aB1-_. é"), max_size=60), unique=True, max_size=12))
def test_any_names_become_labels_of_their_own(names: list[str]) -> None:
    found = list(names_of([job(name, row) for row, name in enumerate(names)]).values())
    assert len(set(found)) == len(names)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,48}[a-z0-9])?", name) for name in found)


# --- profiles and programs ----------------------------------------------------------------------------------------------

KNOTS = {"knots": [{"batch": 16, "forward_s": 0.1, "backward_s": 0.2, "start_s": 3.5}]}
MINE = {
    "sample_bytes": 0,
    "memory": {"knots": [{"batch": 16, "peak_bytes": 3 * GIB, "persistent_bytes": GIB}]},
    "gpus": {V100: KNOTS},
}
PROFILES = ProfileTable.bundled().with_models(Field("", "", {"mine": MINE, "unused": MINE}))
TRAINED = {"configurations": (ON_GPU,), "work": {"gpu": ModelWork("mine", 16)}}


def test_a_job_brings_the_profiles_that_are_not_bundled() -> None:
    to = replace(TO, profiles=PROFILES)
    spec = emujob_document(job(**TRAINED), "a", to)["spec"]
    assert spec["profiles"] == {"mine": MINE} and "program" not in spec and "image" not in spec
    assert parse_spec("exp-1", "a", spec).own_profiles == {"mine": MINE}
    bundled = emujob_document(job(configurations=(ON_GPU,), work={"gpu": ModelWork("resnet50", 16)}), "a", to)
    assert "profiles" not in bundled["spec"]
    assert "profiles" not in emujob_document(job(**TRAINED), "a", TO)["spec"]


def test_a_bundled_model_with_other_times_is_brought_too() -> None:
    changed = PROFILES.with_models(Field("", "", {"resnet50": {"gpus": {V100: KNOTS}}}))
    work = {"gpu": ModelWork("resnet50", 16)}
    spec = emujob_document(job(configurations=(ON_GPU,), work=work), "a", replace(TO, profiles=changed))["spec"]
    assert parse_spec("exp-1", "a", spec).own_profiles["resnet50"]["gpus"][V100] == KNOTS


def test_gpu_types_that_clusters_do_not_know_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    lab = {"Lab-GPU": {"memory_bytes": 8 * GIB, "host_link_bytes_per_s": 1e9}}
    path.write_text(json.dumps({"gpus": lab, "models": {"mine": {**MINE, "gpus": {"Lab-GPU": KNOTS}}}}))
    to = replace(TO, profiles=ProfileTable.bundled().with_file(path))
    with pytest.raises(InputError, match=r"job 'a': model: mine has times on Lab-GPU, which clusters don't know"):
        emujob_document(job(**TRAINED), "a", to)


def test_a_program_goes_with_its_image_and_files() -> None:
    program = Program(("python3", "train.py", "--steps={steps}"), resumes=True, image="torch:1")
    document = emujob_document(
        job(**TRAINED, program=program), "a", replace(TO, profiles=PROFILES, program_files="files")
    )
    spec = parse_spec("exp-1", "a", document["spec"])
    assert spec.program is not None and spec.image == "torch:1"
    assert (spec.program.command, spec.program.files, spec.program.resumes) == (program.command, "files", True)
    assert document["spec"]["native"]["requests"]["cpu"] == "100m"
    without = emujob_document(job(**TRAINED, program=program), "a", replace(TO, profiles=PROFILES))
    assert "files" not in without["spec"]["program"]


def test_a_program_needs_an_image() -> None:
    with pytest.raises(InputError, match=r"job 'a': image: is missing: a program on Kubernetes needs an image"):
        emujob_document(job(**TRAINED, program=Program(("true",))), "a", TO)
