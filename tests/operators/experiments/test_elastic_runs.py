"""Elastic jobs from a workload to pods: the EmuJob is the same job, and its pods take the predicted time on any GPUs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import JobSpec, ModelWork
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.command.arguments import add_arguments, chosen, request_of
from emulator_runtime.workloads.step_costs.request import Layout, plan_step
from operators.experiments.cluster_state import ClusterState
from operators.experiments.emujobs import RunTarget, emujob_document
from operators.experiments.runner.inputs import Inputs, load
from operators.fitting.offers import NodeOffer, first_fit
from operators.fitting.workload import job_spec
from operators.jobs.manifests import Images, job_document
from operators.objects.emujob import EmuJob, parse_spec
from operators.objects.experiment import parse_spec as experiment_spec
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.truth import OpenTruth, WorkloadTruth
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

EXAMPLE = Path(__file__).parents[3] / "examples" / "elastic-8"
TO = RunTarget("lab", "exp", "s")
V100 = "Tesla_V100-PCIE-32GB"
PROFILES = ProfileTable.bundled()
WORKLOAD, CLUSTER = load_workload(EXAMPLE / "workload.csv"), load_cluster(EXAMPLE / "cluster.yaml")
OFFERS = tuple(
    NodeOffer(node.name, node.cpu_milli, node.memory_bytes, tuple((d.gpu_type, d.memory_bytes) for d in node.devices))
    for node in CLUSTER.nodes
)
JOBS = pytest.mark.parametrize("job", WORKLOAD.jobs, ids=lambda job: job.job_id)


def allocation(job: JobSpec, gpus: int, batch_size: int = 0) -> Allocation:
    way = job.configurations[0].with_gpus(gpus)
    return Allocation(
        way.name, (TaskPlacement("server", (DeviceShare(None, V100),) * gpus, way.cpu_milli),), batch_size
    )


def emujob(job: JobSpec) -> EmuJob:
    document = emujob_document(job, job.job_id, TO)
    return EmuJob.read({**document, "metadata": {"name": job.job_id, "namespace": "lab", "uid": "u"}})


def made(job: JobSpec) -> Mapping[str, Any]:
    """The container of the Job's pods."""
    found = emujob(job)
    document = job_document(found, found.spec, Images("image"), found.spec.configurations[0], (V100,))
    container: Mapping[str, Any] = document["spec"]["template"]["spec"]["containers"][0]
    return container


@JOBS
def test_the_emujob_of_a_job_is_that_job(job: JobSpec) -> None:
    spec = emujob(job).spec
    (way,) = spec.configurations
    assert (way.gpus, way.gpu_range, spec.elastic) == (4, range(1, 9), True)
    assert (spec.unit, spec.length) == ("samples", job.samples)
    seen = job_spec(job.job_id, spec, job.submit_s, job.row, OFFERS, PROFILES)
    (found,), (wanted,) = seen.configurations, job.configurations
    assert replace(found, device_memory_bytes=0) == replace(wanted, device_memory_bytes=0, gpu_types=(V100,))
    assert (seen.work, seen.steps, seen.samples) == (job.work, job.steps, job.samples)
    assert found.device_memory_bytes == pytest.approx(
        wanted.device_memory_bytes, rel=0.03
    )  # of one GPU type, not of all
    assert first_fit(spec, OFFERS, PROFILES).problem == ""


@JOBS
def test_its_pods_take_the_predicted_time_with_any_gpus_and_batch(job: JobSpec) -> None:
    """To the nanosecond, also where the batch isn't divisible by the GPUs."""
    container = made(job)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(container["args"][1:])
    by_scheduler = OpenTruth(PROFILES)
    by_scheduler.add(job_spec(job.job_id, emujob(job).spec, 0.0, 0, OFFERS, PROFILES))
    for gpus, batch_size in [(1, 0), (3, 0), (8, 0), (8, 512), (2, 100), (5, 99)]:
        request = request_of(chosen(args, {"EMUGPU_BATCH_SIZE": str(batch_size or 256)}))
        in_pod = plan_step(request, Layout((V100,) * gpus, gpus), PROFILES)
        run = request.run_from(0)
        placed = allocation(job, gpus, batch_size)
        predicted = WorkloadTruth(WORKLOAD, CLUSTER).step_times(job, placed, run.steps)
        assert in_pod.times(run.steps) == predicted == by_scheduler.step_times(job, placed, run.steps)


def test_the_variable_of_the_batch_size_is_that_of_the_annotation() -> None:
    container = made(WORKLOAD.jobs[0])
    assert container["args"][:3] == ["train", "--samples", str(1200 * 256)]
    paths = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]}
    assert paths == {
        "EMUGPU_CONFIGURATION": "metadata.annotations['emugpu.dev/configuration']",
        "EMUGPU_BATCH_SIZE": "metadata.annotations['emugpu.dev/batch-size']",
    }
    assert container["resources"]["limits"] == {"emugpu.dev/emuGPU": "4"}


def test_a_gang_has_the_range_of_each_node() -> None:
    (way,) = WORKLOAD.jobs[0].configurations
    wide = replace(way, gpus=2, min_tasks=2, max_tasks=2, min_gpus=2, max_gpus=7)
    spec = emujob(replace(WORKLOAD.jobs[0], configurations=(wide,))).spec
    assert (spec.nodes, spec.configurations[0].gpu_range) == (2, range(1, 4))


def test_under_kubernetes_own_scheduler_it_has_the_submitted_number() -> None:
    document = emujob_document(WORKLOAD.jobs[0], "a", RunTarget("lab", "exp"))
    spec = parse_spec("lab", "a", document["spec"])
    assert (spec.elastic, spec.unit, spec.length) == (False, "steps", 1200)


@pytest.mark.parametrize(
    ("change", "to", "problem"),
    [
        ({}, RunTarget("lab", "exp", "s", actuator="gated"), r"job 'resnet50-a': max_gpus: .* use actuator jobs"),
        ({"fewest_tasks": 1, "min_tasks": 2, "max_tasks": 2}, TO, r"job 'resnet50-a': max_nodes: an EmuJob keeps its"),
        ({"max_tasks": 2}, TO, r"job 'resnet50-a': max_nodes: an EmuJob keeps its number of pods"),
        ({"max_tasks": 2}, RunTarget("lab", "exp"), r"job 'resnet50-a': max_nodes: an EmuJob keeps"),
    ],
)
def test_what_an_emujob_can_not_be(change: Mapping[str, int], to: RunTarget, problem: str) -> None:
    job = WORKLOAD.jobs[0]
    (way,) = job.configurations
    with pytest.raises(InputError, match=problem):
        emujob_document(replace(job, configurations=(replace(way, **change),)), "a", to)


def test_a_model_that_is_divided_keeps_its_gpus(tmp_path: Path) -> None:
    rows = "job_id,num_gpus,max_gpus,tensor_parallel,microbatches,gpu_duration_s\na,2,4,2,8,60\nb,2,,2,8,60\n"
    (tmp_path / "w.csv").write_text(rows, encoding="utf-8")
    elastic, fixed = load_workload(tmp_path / "w.csv").jobs
    with pytest.raises(InputError, match=r"job 'a': microbatches: an EmuJob whose number of GPUs may change trains a"):
        emujob_document(elastic, "a", TO)
    assert emujob_document(fixed, "b", TO)["spec"]["configurations"][0]["resources"]["emuGPU"] == 2


def test_an_elastic_job_with_a_stated_duration_has_no_samples(tmp_path: Path) -> None:
    text = "job_id,num_gpus,max_gpus,model,batch_size,steps,cpu_duration_s\na,2,4,resnet50,64,100,900\n"
    (tmp_path / "w.csv").write_text(text, encoding="utf-8")
    (job,) = load_workload(tmp_path / "w.csv").jobs
    with pytest.raises(
        InputError, match=r"job 'a': cpu_duration_s: a job whose number of GPUs may change counts samples"
    ):
        emujob_document(job, "a", TO)


@pytest.mark.parametrize(
    ("resources", "batch_size", "problem"),
    [
        (
            {"emuGPU": 2, "maxEmuGPU": 8},
            4,
            "maxEmuGPU: a step has 4 samples (batchSize), so at most 4 GPUs can have one, not 8",
        ),
        ({"emuGPU": 2, "minEmuGPU": 1}, 100_000, "batchSize: resnet50 was measured at batch sizes"),
    ],
)
def test_ranges_on_which_the_model_can_not_run(resources: Mapping[str, int], batch_size: int, problem: str) -> None:
    scheduler = {"actuator": "jobs", "name": "s"}
    spec = parse_spec(
        "lab",
        "a",
        {"steps": 9, "model": "resnet50", "batchSize": batch_size, "resources": resources, "scheduler": scheduler},
    )
    fit = first_fit(spec, OFFERS, PROFILES)
    assert fit.configuration is None and fit.misstated
    assert fit.problem.startswith(problem)


def test_a_scheduling_experiment_predicts_jobs_as_pods_run_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPUs of a job exchange gradients, whether its row says so or not; the jobs of the example become EmuJobs."""
    monkeypatch.chdir(tmp_path)
    text = (EXAMPLE / "workload.csv").read_text(encoding="utf-8") + "fixed,9,2,,,8,resnet50,64,100\n"
    spec = experiment_spec(
        {
            "workload": {"inline": text},
            "cluster": {"inline": (EXAMPLE / "cluster.yaml").read_text(encoding="utf-8")},
            "policies": ["fifo", "srtf"],
        }
    )
    experiment, _ = load(Inputs(spec, text, spec.cluster.text if spec.cluster else None), ClusterState(CLUSTER))
    assert experiment.as_pods
    works = [job.work["gpu"] for job in experiment.workload.jobs]
    assert all(isinstance(work, ModelWork) and work.exchanges for work in works)
    assert all(emujob(job).spec.elastic == (job.job_id != "fixed") for job in experiment.workload.jobs)
    assert all(job.status == "finished" for job in experiment.simulate("srtf").jobs)
