"""Jobs whose GPUs and batch size a plan changes: what their pods get, that no sample is lost or repeated, who else may write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from emulator_runtime.domain.errors import BeyondProfileError
from emulator_runtime.domain.job import Configuration, JobSpec, ModelWork
from emulator_runtime.domain.samples import RunSamples
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_s
from emulator_runtime.profiles.table import ProfileTable
from operators.experiments.emujobs import RunTarget, emujob_document, names_of
from operators.kube.api import POD
from operators.kube.timestamps import ns_of
from operators.scheduling.predict.prediction import predict_job
from operators.scheduling.predict.prediction_thread import present_job
from operators.scheduling.track.tracked_job import Pace
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.experiment import Experiment
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.inputs.workload import load_workload
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import JobView, Phase

V100 = "Tesla_V100-PCIE-32GB"
SAMPLES = 100 * 128
EXAMPLE = Path(__file__).parents[3] / "examples" / "elastic-8"
ELASTIC: dict[str, Any] = {
    "model": "resnet50",
    "batchSize": 128,
    "steps": 100,
    "resources": {"emuGPU": 2, "minEmuGPU": 1, "maxEmuGPU": 4, "cpu": 2},
}
SIZES = """
from dataclasses import replace
from scheduler_sims.policies.placing import FreeSpace

class Sizes:
    \"\"\"From each time on, every job has so many GPUs and steps of so many samples.\"\"\"

    needs_estimates = False

    def plan(self, view):
        gpus, batch_size = next(size for at_s, *size in reversed(TABLE) if at_s <= view.now_s)
        later = [at_s for at_s, *_ in TABLE if at_s > view.now_s]
        space, start, stop = FreeSpace.now(view), {}, []
        for job in view.jobs.values():
            held = view.plan.allocations.get(job.job_id)
            if job.queued and (allocation := space.place(job.configurations[0].with_gpus(gpus))) is not None:
                start[job.job_id] = replace(allocation, batch_size=batch_size)
            elif held is not None and (held.gpus, held.batch_size) != (gpus, batch_size):
                stop.append(job.job_id)
        return replace(view.plan.evolve(start=start, stop=stop), wake_at_s=later[0] if later else None)
"""


def sizes(folder: Path, *table: tuple[float, int, int]) -> str:
    """A policy with a row (from this time, GPUs, batch size) for each change."""
    (folder / "sizes.py").write_text(SIZES.replace("TABLE", str(table)), encoding="utf-8")
    return f"{folder}/sizes.py:Sizes"


@pytest.fixture
def here(world: Any) -> Any:
    made = world.of(nodes=1, gpus=4)
    made.submit("a", **ELASTIC)
    return made


@pytest.fixture
def start(lab: Any) -> Iterator[Any]:
    programs = []

    def begin(world: Any, policy: str) -> Any:
        programs.append(lab(world, policy))
        return programs[-1]

    yield begin
    for program in programs:
        program.close()


def until(program: Any, condition: Any) -> None:
    program.finished = condition
    program.loop.run()
    assert condition(), (program.said, program.failures)


def runs_of(here: Any) -> list[tuple[int, int]]:
    """GPUs and batch size of each run, by the annotations of its pod."""
    notes = [json.loads(note) for _, _, note in here.runs]
    return [(note["gpus"], note.get("batch_size", 0)) for note in notes]


def test_a_job_changes_its_gpus_and_its_batch_and_does_each_sample_once(here: Any, start: Any, tmp_path: Path) -> None:
    program = start(here, sizes(tmp_path, (0, 2, 0), (6, 4, 0), (12, 1, 64)))
    seen: list[tuple[str, str]] = []

    def done() -> bool:
        for pod in here.pods("a"):
            limits = pod["spec"]["containers"][0]["resources"]["limits"]
            one = (limits["emugpu.dev/emuGPU"], pod["metadata"]["annotations"]["emugpu.dev/batch-size"])
            if one not in seen[-1:]:
                seen.append(one)
        return bool(here.phase("a") == "Succeeded")

    until(program, done)
    assert seen == [("2", "128"), ("4", "128"), ("1", "64")]
    assert runs_of(here) == [(2, 0), (4, 0), (1, 64)]
    assert [json.loads(note)["cpu_milli"] for _, _, note in here.runs] == [2000, 4000, 1000]
    assert here.samples["job-1"][1] == SAMPLES
    assert program.failures == []


def test_the_loop_knows_the_samples_exactly(here: Any, start: Any, tmp_path: Path) -> None:
    """While the job runs by its pace and the status, after a stop by the status; also in steps of another size."""
    program = start(here, sizes(tmp_path, (0, 2, 100), (6, 4, 0)))
    between: list[tuple[int, int]] = []

    def done() -> bool:
        view = program.loop.books.views.get("a")
        if view is not None and view.phase is Phase.RUNNING:
            between.append((view.samples_after(program.steps_done("a")), here.samples.get("job-1", (0, 0))[1]))
        return bool(here.phase("a") == "Succeeded")

    until(program, done)
    assert len(between) > 10
    assert all(abs(known - real) <= 128 for known, real in between), between
    (stopped,) = [d for d in program.decisions if d.stopped]
    assert stopped.stopped == ["a"]


def test_a_successor_adopts_a_job_in_another_size(here: Any, start: Any, tmp_path: Path) -> None:
    policy = sizes(tmp_path, (0, 3, 96))
    program = start(here, policy)
    until(program, lambda: here.samples.get("job-1", (0, 0))[1] > 2000)
    before = program.loop.books.views["a"].allocation
    again = start(here, policy)
    until(again, lambda: bool(again.loop.books.views))
    view = again.loop.books.views["a"]
    assert (view.allocation, view.phase) == (before, Phase.RUNNING)
    assert (before.gpus, before.batch_size) == (3, 96)
    assert abs(view.samples_after(again.steps_done("a")) - here.samples["job-1"][1]) <= 96
    until(again, lambda: here.phase("a") == "Succeeded")
    assert runs_of(here) == [(3, 96)]
    assert here.samples["job-1"][1] == SAMPLES


@pytest.mark.parametrize(
    "claim",
    [{"gpus": 1000}, {"gpus": 3, "batch_size": 2**31}, {"gpus": 3, "batch_size": 1}, {"gpus": 3, "batch_size": 5}],
)
def test_an_allocation_that_no_plan_could_give_is_not_adopted(
    here: Any, start: Any, tmp_path: Path, claim: dict[str, int]
) -> None:
    """Who may edit pods can write anything into their annotations. The job is stopped, and started as the policy says."""
    policy = sizes(tmp_path, (0, 2, 0))
    until(start(here, policy), lambda: here.samples.get("job-1", (0, 0))[1] > 2000)
    (pod,) = here.pods("a")
    note = json.loads(pod["metadata"]["annotations"]["emugpu.dev/allocation"])
    annotations = {**pod["metadata"]["annotations"], "emugpu.dev/allocation": json.dumps(note | claim)}
    here.api.put(POD, {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})
    again = start(here, policy)
    until(again, lambda: here.phase("a") == "Succeeded")
    impossible = claim.get("batch_size") != 5
    assert ("a runs without an allocation of this scheduler; it is stopped" in again.said) == impossible
    assert len(here.runs) == 2  # the one of 5 samples on 3 GPUs is stopped by the policy
    assert here.samples["job-1"][1] == SAMPLES


def test_a_job_that_is_not_elastic_keeps_its_batch(world: Any, start: Any, tmp_path: Path) -> None:
    here = world.of(nodes=1, gpus=4)
    here.submit("a", model="resnet50", batchSize=128, steps=100, resources={"emuGPU": 2})
    program = start(here, sizes(tmp_path, (0, 2, 64)))
    until(program, lambda: bool(program.failures))
    assert program.failures[0].startswith("the plan gives job 'a' steps of 64 samples (submitted: 128); on Kubernetes")
    assert "emugpu.dev/batch-size" not in str(here.api.objects["jobs"])
    assert not here.runs


def test_a_size_without_a_profile_is_refused_before_anything_is_written(
    here: Any, start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a profile of the user's own that knows few batch sizes. The job waits; the policy is called again."""
    program = start(here, sizes(tmp_path, (0, 4, 0)))

    def unknown(*_: Any) -> StepTimes:
        raise BeyondProfileError("resnet50 on V100", 64, 128, 32)

    with monkeypatch.context() as patched:
        patched.setattr(program.truth, "step_times", unknown)
        until(program, lambda: bool(program.failures))
        problem = (
            "the plan gives job 'a' 4 GPUs and steps of 128 samples: resnet50 on V100 was measured at batch sizes 64"
        )
        assert program.failures[0].startswith(problem)
        assert program.loop.books.views["a"].queued
        assert not here.runs
    until(program, lambda: here.phase("a") == "Succeeded")
    assert runs_of(here) == [(4, 0)]


def test_the_example_takes_the_predicted_time(world: Any, start: Any) -> None:
    """Twenty times as fast, with the costs of this small cluster. The scheduler learns of each change up to 0.25 s late."""
    policy = f"{EXAMPLE}/grow.py:Grow:patience=0"
    workload = load_workload(EXAMPLE / "workload.csv").stretched(0.05).exchanging()
    here = world.of(nodes=1, gpus=8)
    names, waiting = names_of(workload.jobs), sorted(workload.jobs, key=lambda job: -job.submit_s)
    program = start(here, policy)
    program.until_ns = here.now_ns + 400 * 10**9

    def done() -> bool:
        while waiting and program.now_ns() >= waiting[-1].submit_s * 1e9:
            job = waiting.pop()
            document = emujob_document(job, names[job.job_id], RunTarget("lab", "exp", "s"))
            (way,) = document["spec"].pop("configurations")
            here.submit(
                names[job.job_id], **document["spec"], **way["profile"], resources={**way["resources"], "cpu": 1}
            )
        return not waiting and all(here.phase(name) == "Succeeded" for name in names.values())

    until(program, done)
    assert program.failures == []
    status = {name: here.emujob(name)["status"] for name in names.values()}
    observed_s = [
        to_s((ns_of(status[name]["finishedAt"]) or 0) - (ns_of(status[name]["submittedAt"]) or 0))
        for name in names.values()
    ]
    cluster = replace(load_cluster(EXAMPLE / "cluster.yaml"), costs=ClusterCosts(start_s=1.0, stop_s=0.5))
    predicted = Experiment.of(workload, cluster, ("oracle", 0)).in_pods().simulate(policy)
    assert mean(observed_s) == pytest.approx(mean(job.jct_s for job in predicted.jobs), rel=0.05)
    assert len(here.runs) - 8 == sum(job.preemptions for job in predicted.jobs)
    assert len({gpus for gpus, _ in runs_of(here)}) > 3


def test_a_pace_counts_samples() -> None:
    """Steps of 128 from sample 512 on, a second each; the last one, with the rest of 1000, counts when the job has finished."""
    run = RunSamples(4, 512, 128, 1000)
    pace = Pace(512, 0, StepTimes(run.steps, run.steps * 10**9), run)
    assert [pace.done_at(s * 10**9) for s in (0, 1, 3, 4, 9)] == [512, 640, 896, 896, 896]


# --- predictions -----------------------------------------------------------------------------------------------------------


def job(name: str, submit_s: float = 0.0) -> JobSpec:
    way = Configuration("default", 2, 1000, gpu_types=(V100,), min_gpus=1, max_gpus=4)
    return JobSpec(name, "ann", submit_s, 100, (way,), {"default": ModelWork("resnet50", 64, exchanges=True)}, 0)


def test_the_prediction_for_a_new_job_counts_samples_of_a_running_one(tmp_path: Path) -> None:
    """With FIFO, the new job waits for a job that runs in steps of half the size, of which it has more."""
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 2, gpu_type: V100, cpus: 8}]", encoding="utf-8")
    cluster = load_cluster(tmp_path / "c.yaml")
    running, new = job("running", -9.0), job("new")
    shares = tuple(DeviceShare(device.uuid, V100) for device in cluster.nodes[0].devices)
    held = Allocation("default", (TaskPlacement("n", shares, 1000),), batch_size=64)
    view = JobView("running", "ann", -9.0, 0, 1.0, Phase.RUNNING, running.configurations, 100, batch_size=128)
    view = replace(view, allocation=held, running_since_s=-5.0, steps_done=40, samples_done=40 * 128)
    present = present_job(running, view, 60, 0.0)  # 20 steps of 64 since its start
    assert present == PresentJob(running, 60, held, running_since_s=-5.0, samples_done=60 * 128 - 20 * 64)
    truth = OpenTruth(ProfileTable.bundled())
    truth.add(running)
    truth.add(new)
    rest, whole = truth.step_times(running, held), truth.step_times(new, replace(held, batch_size=0))
    left = (SAMPLES - present.samples) // 64
    predicted = predict_job(new, [present], cluster, "fifo", ProfileTable.bundled(), at_ns=0)
    expected_ns = left * rest.device_ns(0) + whole.end_ns(0, 100)
    assert predicted.seconds == pytest.approx(expected_ns / 1e9, abs=2 * rest.device_ns(0) / 1e9)
