"""Jobs of several nodes from a workload to pods: the EmuJob is the same job, and its pods take the time that was predicted."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.command.arguments import add_arguments, request_of
from emulator_runtime.workloads.step_costs.request import Layout, plan_step
from operators.experiments.emujobs import RunTarget, emujob_document
from operators.experiments.records import RunInfo, observed_job, run_record
from operators.fitting.offers import NodeOffer, first_fit
from operators.fitting.workload import job_spec
from operators.jobs.manifests import RENDEZVOUS_PORT, Images, arguments, job_document
from operators.objects.emujob import EmuJob, parse_spec
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.truth import OpenTruth, WorkloadTruth
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

EXAMPLE = Path(__file__).parents[3] / "examples" / "gangs-24"
TO = RunTarget("lab", "exp", "s")
V100 = "Tesla_V100-PCIE-32GB"
PROFILES = ProfileTable.bundled()
WORKLOAD, CLUSTER = load_workload(EXAMPLE / "workload.csv"), load_cluster(EXAMPLE / "cluster.yaml")
OFFERS = tuple(
    NodeOffer(node.name, node.cpu_milli, node.memory_bytes, tuple((d.gpu_type, d.memory_bytes) for d in node.devices))
    for node in CLUSTER.nodes
)
SHAPES = {(job.configurations[0].gpus, job.configurations[0].min_tasks): job for job in WORKLOAD.jobs}


def allocation(job: JobSpec) -> Allocation:
    way = job.configurations[0]
    shares = (DeviceShare(None, V100),) * way.gpus
    nodes = (node.name for node in CLUSTER.nodes[: way.min_tasks])
    return Allocation(way.name, tuple(TaskPlacement(node, shares, way.cpu_milli) for node in nodes))


def test_the_example_has_all_shapes() -> None:
    assert sorted(SHAPES) == [(1, 1), (2, 1), (4, 1), (4, 2), (8, 1), (8, 2)]


@pytest.mark.parametrize("job", SHAPES.values(), ids=lambda job: job.job_id)
def test_the_emujob_of_a_job_is_that_job(job: JobSpec) -> None:
    document = emujob_document(job, job.job_id, TO)
    spec = parse_spec("lab", job.job_id, document["spec"])
    assert spec.nodes == job.configurations[0].min_tasks
    seen = job_spec(job.job_id, spec, job.submit_s, job.row, OFFERS, PROFILES)
    (way,), (wanted,) = seen.configurations, job.configurations
    assert replace(way, device_memory_bytes=0) == replace(wanted, device_memory_bytes=0, gpu_types=(V100,))
    assert (seen.work, seen.steps) == (job.work, job.steps)
    assert first_fit(spec, OFFERS, PROFILES).problem == ""


@pytest.mark.parametrize("job", SHAPES.values(), ids=lambda job: job.job_id)
def test_its_pods_take_the_time_that_is_predicted_to_the_nanosecond(job: JobSpec) -> None:
    document = {"metadata": {"name": job.job_id, "namespace": "lab", "uid": "u"}, **emujob_document(job, "x", TO)}
    document["metadata"] = {"name": job.job_id, "namespace": "lab", "uid": "u"}
    facts, spec = EmuJob.read(document), parse_spec("lab", job.job_id, document["spec"])
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(arguments(facts, spec)[1:])
    way = job.configurations[0]
    assert (args.nodes or 1) == way.min_tasks
    in_pod = plan_step(request_of(args), Layout((V100,) * way.gpus, way.total_gpus, way.min_tasks), PROFILES)
    predicted = WorkloadTruth(WORKLOAD, CLUSTER).step_times(job, allocation(job))
    assert in_pod.times(job.steps) == predicted
    truth = OpenTruth(PROFILES)  # that of `emugpu scheduler`, which knows the EmuJob alone
    truth.add(job_spec(job.job_id, spec, 0.0, 0, OFFERS, PROFILES))
    assert truth.step_times(job, allocation(job)) == predicted


def test_the_pods_of_a_gang_are_apart_and_start_together() -> None:
    document = {"spec": emujob_document(SHAPES[8, 2], "wide", TO)["spec"]}
    document["metadata"] = {"name": "wide", "namespace": "lab", "uid": "u"}
    facts, spec = EmuJob.read(document), parse_spec("lab", "wide", document["spec"])
    made = job_document(facts, spec, Images("image"), spec.configurations[0], (V100,))["spec"]
    assert (made["completions"], made["parallelism"], made["completionMode"]) == (2, 2, "Indexed")
    pod = made["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"] == {"emugpu.dev/emuGPU": "8"}
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert pod["containers"][0]["args"][-4:] == ["--nodes", "2", "--rendezvous", f"wide-0.wide:{RENDEZVOUS_PORT}"]


def test_a_job_of_one_node_says_nothing_of_nodes() -> None:
    assert "nodes" not in emujob_document(SHAPES[4, 1], "a", TO)["spec"]


def test_ways_of_different_numbers_of_pods_have_no_form() -> None:
    ways = (Configuration("gpu", 2, 1000, min_tasks=2, max_tasks=2), Configuration("cpu", 0, 1000))
    job = JobSpec("a", "ann", 0, 10, ways, {"gpu": TimedWork(9), "cpu": TimedWork(90)}, 0)
    with pytest.raises(InputError, match="job 'a': has configurations with different numbers of pods"):
        emujob_document(job, "a", TO)
    by_kubernetes = emujob_document(job, "a", RunTarget("n", "e"))  # which takes GPUs only
    assert by_kubernetes["spec"]["nodes"] == 2


def test_what_a_gang_uses_of_hosts_is_of_each_pod(tmp_path: Path) -> None:
    text = "job_id,num_gpus,nodes,cpus,gpu_duration_s,steps,speedup,best_cpus\na,4,2,8,60,60,2,24\n"
    (tmp_path / "w.csv").write_text(text, encoding="utf-8")
    (job,) = load_workload(tmp_path / "w.csv").jobs
    spec = parse_spec("lab", "a", emujob_document(job, "a", TO)["spec"])
    (way,) = spec.configurations
    assert (way.gpus, way.cpu_milli) == (2, 4000)
    assert way.sensitivity is not None
    assert way.sensitivity.speed(HostShare(12_000)) == 2.0
    assert job_spec("a", spec, 0, 0, OFFERS, PROFILES).work["gpu"] == job.work["gpu"]


@pytest.mark.parametrize(
    ("preemptions", "notes"), [(9, ()), (10, ("the Gantt chart shows only the newest 20 runs of a",))]
)
def test_a_status_keeps_the_newest_runs_of_all_pods(
    time_at: Callable[[float], str], preemptions: int, notes: tuple[str, ...]
) -> None:
    """It keeps 20: after nine preemptions two pods have had as many."""
    runs = [
        {"node": f"server-{1 + pod}", "devices": [], "from": time_at(at), "to": time_at(at + 1)}
        for at in range(10)
        for pod in (0, 1)
    ]
    status = {"phase": "Succeeded", "submittedAt": time_at(0), "finishedAt": time_at(10), "runs": runs}
    told = observed_job(
        {
            "metadata": {"name": "a"},
            "spec": {"nodes": 2},
            "status": {**status, "preemptions": preemptions, "startedAt": time_at(0)},
        }
    )
    record = run_record(RunInfo("fifo", 1, 0), [replace(SHAPES[1, 1], job_id="a", submit_s=0.0)], [told], CLUSTER)
    assert (record.jobs[0].finish_s, record.notes) == (10, notes)
    assert {span.node for span in record.spans} == {"server-1", "server-2"}
