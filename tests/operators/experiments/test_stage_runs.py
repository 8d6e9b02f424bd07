"""Stages of steps from a workload and a cluster file to EmuJobs, pools and pods, and back to what is predicted."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.stages import HostResource, StageTimes
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.command.arguments import add_arguments, chosen, request_of
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, plan_step
from operators.experiments.cluster_state import match
from operators.experiments.emujobs import RunTarget, emujob_document
from operators.fitting.offers import NodeOffer
from operators.fitting.workload import cluster_spec, job_spec
from operators.jobs.isolated_time import isolated_s
from operators.jobs.manifests import arguments
from operators.objects.emujob import EmuJob, parse_spec
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.assign import assign
from scheduler_sims.experiment import Experiment
from scheduler_sims.inputs.cluster_file import ClusterSpec, parse_cluster
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

V100 = "Tesla_V100-PCIE-32GB"
PROFILES = ProfileTable.bundled()
OFFERS = (NodeOffer("w1", 64_000, 2**40, ((V100, 2**34),) * 8),) * 2
TO = RunTarget("lab", "exp", "s")
HEADER = (
    "job_id,num_gpus,nodes,gpu_duration_s,model,batch_size,steps,fetch_s,transfer_s,exchange_s,host_s,input_cpu_s\n"
)
ROWS = {
    "timed": "a,1,,10,,,100,0.08,0.012345678,0.25",
    "fetching": "a,2,,10,,,100,0.08,,",
    "of two nodes": "a,4,2,10,,,100,0.08,0.01,0.25",
    "of a model": "a,2,,,resnet50,32,100,0.08,0.01,0.25",
    "of a model on two nodes": "a,2,2,,resnet50,32,100,,0.01,0.25",
    "with host time": "a,2,,10,,,100,,,,0.0135,",
    "of all kinds": "a,2,,,resnet50,32,100,0.08,0.01,0.25,0.0135,1.5",
    "of all kinds on two nodes": "a,4,2,,resnet50,32,100,0.08,0.01,0.25,0.0135,4.5",
}
NODE = {"name": "w1", "gpus": 4, "gpu_type": "V100", "cpus": 64}
SHARED = {"storage": 2, "network": 0.5, "links": [{"gpus": [0, 1]}, {"gpus": [2, 3], "speed": 2}]}


def workload(folder: Path, *rows: str) -> Any:
    path = folder / "jobs.csv"
    padded = (row + "," * (HEADER.count(",") - row.count(",")) for row in rows)
    path.write_text(HEADER + "\n".join(padded) + "\n", encoding="utf-8")
    return load_workload(path).exchanging()


def cluster(**shared: Any) -> ClusterSpec:
    return parse_cluster({"nodes": [NODE | shared]}, "c.yaml", bundled_catalogue())


def pools(shared: dict[str, Any]) -> list[Pool]:
    spec = {"gpus": [{"type": "V100", "count": 4}], "emulated": {"cpu": 64}}
    return [Pool("p", "uid", "2026-01-01T00:00:00Z", spec_json=spec | ({"hostResources": shared} if shared else {}))]


NODES = [Node("w1", "uid-w1", cpu_milli=64_000)]


def trained(spec: Any, configuration: str = "gpu") -> TrainRequest:
    """What `emugpu train` is asked for in the pods of such a job."""
    facts = EmuJob.read({"metadata": {"name": "a", "namespace": "lab", "uid": "u"}})
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    verb, *given = arguments(facts, spec)
    assert verb == "train"
    return request_of(chosen(parser.parse_args(given), {"EMUGPU_CONFIGURATION": configuration}))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_emujob_of_a_row_has_its_stages_in_pods_and_predictions(tmp_path: Path, row: str) -> None:
    loaded = workload(tmp_path, row)
    (job,) = loaded.jobs
    spec = parse_spec("lab", "a", emujob_document(job, "a", TO)["spec"])
    assert job_spec("a", spec, 0.0, 0, OFFERS, PROFILES).work == job.work
    (way,) = job.configurations
    request = trained(spec)
    assert request.stages == job.work["gpu"].stages
    share = (DeviceShare(None, V100),) * way.gpus
    placements = (TaskPlacement(f"w{n}", share, way.cpu_milli) for n in range(way.min_tasks))
    predicted = WorkloadTruth(loaded, cluster()).step_times(job, Allocation("gpu", tuple(placements)))
    plan = plan_step(request, Layout((V100,) * way.gpus, way.total_gpus, way.min_tasks), PROFILES)
    assert plan.times(job.steps) == predicted
    assert isolated_s(spec, OFFERS, PROFILES) == pytest.approx(predicted.end_ns(0, job.steps) / 1e9)


def test_each_configuration_has_its_own_stages() -> None:
    quick = {"name": "quick", "profile": {"stepTime": "1s", "fetchTime": "80ms", "hostTime": "13ms"}}
    slow = {"name": "slow", "profile": {"stepTime": "2s", "exchangeTime": "1.5s"}}
    spec = parse_spec("lab", "a", {"steps": 10, "configurations": [quick, slow]})
    assert trained(spec, "quick").stages == StageTimes(fetch_ns=80_000_000)
    assert (trained(spec, "quick").host_s, trained(spec, "slow").host_s) == (0.013, 0.0)
    assert trained(spec, "slow").stages == StageTimes(exchange_ns=1_500_000_000)


def test_an_input_on_no_stated_cpus_has_one() -> None:
    """20 ms of CPU time a step, as predicted: without resources.cpu a pod's input has one CPU."""
    given = {"steps": 10, "model": "resnet50", "batchSize": 64, "inputCPUTime": "20ms", "hostTime": "13ms"}
    spec = parse_spec("lab", "a", given | {"resources": {"emuGPU": 1}})
    plan = plan_step(trained(spec), Layout((V100,), 1, 1), PROFILES)
    assert (plan.input_s, plan.host_s) == (0.02, 0.013)
    alone_s = PROFILES.step_profile("resnet50", V100, 64).device_s + 0.013
    assert plan.alone_s == pytest.approx(alone_s)
    assert isolated_s(spec, OFFERS, PROFILES) == pytest.approx(
        10 * alone_s + 0.02
    )  # the first input isn't prepared ahead


WRONG = {
    "a:1,,100000,,,100,,,,601,": "host_s: is 601 s,",
    "a:1,,,resnet50,32,100,,,,,601": "input_cpu_s: is 601 s,",
    "a:1,,10,,,100,601,,": "fetch_s: is 601 s, and on a cluster a step may have 600 s of each stage",
    "a:4,,10,,,100,,200,": "transfer_s: is 800 s for its 4 GPUs, and on a cluster",
    "a:1,,10,,,100,,,1e7": r"exchange_s: is 1e\+07 s",
    "a:1,,2000,,,2,,,1": r"steps: steps of 1000 s; before an exchange \(exchange_s\) one takes at most 600 s",
}


@pytest.mark.parametrize(("row", "says"), WRONG.items())
def test_longer_stages_than_managers_serve_are_refused(tmp_path: Path, row: str, says: str) -> None:
    (job,) = workload(tmp_path, row.replace(":", ",")).jobs
    with pytest.raises(InputError, match=f"job 'a': {says}"):
        emujob_document(job, "a", TO)


@pytest.mark.parametrize("shared", [{}, {"storage": 1}, {"links": [{"gpus": [3, 0]}]}, SHARED], ids=str)
def test_a_pool_in_the_words_of_a_cluster_file_is_that_cluster(shared: dict[str, Any]) -> None:
    """For the simulator, for the comparison with the cluster file, and on the way to the node's manager."""
    (wanted,) = cluster(**shared).nodes
    seen = cluster_spec(pools(shared), NODES)
    assert seen.nodes[0].resources == wanted.resources
    assert match(cluster(**shared), seen, "c.yaml") == {"w1": "w1"}
    inventory = assign(pools(shared), NODES).claims["w1"].inventory
    assert inventory is not None
    assert Inventory.from_json(inventory.to_json(), "w1").host_resources == wanted.resources
    assert ("hostResources" in inventory.to_json()) == bool(shared)


def test_the_link_of_a_cut_gpu_serves_its_instances() -> None:
    spec = {
        "gpus": [{"type": "A100-SXM4-40GB", "count": 2}],
        "mig": {"configs": [{"migDevices": {"3g.20gb": 2}}]},
        "hostResources": {"links": [{"gpus": [1]}]},
    }
    inventory = assign([Pool("p", "uid", "2026-01-01T00:00:00Z", spec_json=spec)], NODES).claims["w1"].inventory
    assert inventory is not None
    behind = tuple(entry.device.uuid for entry in inventory.entries() if entry.device.gpu_index == 1)
    assert len(behind) == 2
    assert inventory.host_resources == (HostResource("link-0", 1.0, behind),)


@pytest.mark.parametrize("other", [{}, {"storage": 1}, SHARED | {"network": 1}, SHARED | {"links": []}], ids=str)
def test_a_cluster_that_shares_something_else_is_refused(other: dict[str, Any]) -> None:
    there = {name: value for name, value in other.items() if value != []}
    with pytest.raises(InputError, match=r"storage 2.* network 0\.5, link of GPUs 0\+1 1, .*spec\.hostResources"):
        match(cluster(**SHARED), cluster_spec(pools(there), NODES), "c.yaml")


def test_a_prediction_for_pods_knows_what_they_share(tmp_path: Path) -> None:
    """Two jobs, each a fetch of 0.8 s and a step of 0.2 s: alone 0.8 s a step, at once 1.6 s."""
    loaded, makespans = workload(tmp_path, *(f"{name},1,,2,,,10,0.8,," for name in "ab")), []
    for shared in ({}, {"storage": 1}):
        experiment = Experiment.of(loaded, cluster_spec(pools(shared), NODES), ("oracle", 0)).in_pods()
        record = experiment.simulate("fifo")
        makespans.append(max(job.finish_s for job in record.jobs))
    assert makespans == pytest.approx([8.2, 16.2])


def test_the_columns_of_the_workload_are_those_of_the_example() -> None:
    example = Path(__file__).parents[3] / "examples" / "pipelines-8"
    lines = [line for line in (example / "workload.csv").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    documents = [emujob_document(job, job.job_id, TO) for job in load_workload(example / "workload.csv").jobs]
    profiles = [document["spec"]["configurations"][0]["profile"] for document in documents]
    assert [float(row["fetch_s"]) * 1e9 for row in rows] == [int(each["fetchTime"][:-2]) for each in profiles]
