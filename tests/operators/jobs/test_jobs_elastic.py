"""The controller of EmuJobs and elastic jobs: a status in samples, and what others write into annotations and events."""

from __future__ import annotations

from typing import Any

import pytest

from operators.results.computing import job_result
from operators.results.facts_and_result import JobFacts
from operators.results.status import Outcome
from tests.support.event_streams import EventStream

Worlds = Any
START_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
ELASTIC: dict[str, Any] = {
    "steps": 100,
    "model": "resnet50",
    "batchSize": 256,
    "resources": {"emuGPU": 4, "minEmuGPU": 1, "maxEmuGPU": 8},
    "scheduler": {"actuator": "jobs", "name": "s"},
}


def test_the_status_of_an_elastic_job_counts_samples(world: Worlds) -> None:
    at = world(ELASTIC)
    at.settle()
    assert (at.status["progress"], at.status["progressUnit"], at.status["gpus"]) == ("0/25600", "samples", 4)
    at.allocate('{"configuration":"default","nodes":["w1"],"cpu_milli":4000,"gpus":8,"batch_size":512}')
    at.kubernetes()
    at.settle()
    assert at.status["phase"] == "Running"
    assert (at.status["gpus"], at.status["allocation"]["gpus"], at.status["allocation"]["batchSize"]) == (8, 8, 512)
    at.later(5)
    at.change(suspended=True)
    at.settle()
    at.kubernetes()
    at.settle()
    at.allocate('{"configuration":"default","nodes":["w1"],"cpu_milli":4000,"gpus":2}')
    at.kubernetes()
    at.settle()
    assert (at.status["gpus"], at.status["allocation"]["batchSize"], at.status["preemptions"]) == (2, 256, 1)
    at.complete()
    at.settle()
    assert (at.status["progress"], at.status["steps"], at.status["stepsDone"]) == ("25600/25600", 25600, 25600)


@pytest.mark.parametrize("gpus", [9, 1000])
def test_more_gpus_than_the_job_can_have_are_a_claim(world: Worlds, gpus: int) -> None:
    at = world(ELASTIC)
    at.settle()
    at.allocate(f'{{"configuration":"default","nodes":["w1"],"cpu_milli":4000,"gpus":{gpus}}}')
    at.kubernetes()
    at.settle()
    assert at.status["gpus"] == 4


def test_samples_that_a_pod_claims_beyond_the_end_are_those_of_the_job(world: Worlds) -> None:
    at, node = world(ELASTIC), EventStream("w1", begin_ns=START_NS, namespace="lab")
    at.settle()
    at.allocate()
    at.kubernetes()
    at.settle()
    node.tell("granted", 3, 0, key="job-1/0")
    node.tell("progress", 4, 10**12, key="job-1/0")
    facts = JobFacts("job-1", "lab", "j", START_NS, steps=10**13, gpus=4)
    at.outcome = Outcome(job_result(facts, node.events))
    at.settle()
    assert (at.status["stepsDone"], at.status["progress"]) == (25600, "25600/25600")


def test_runs_with_different_batch_sizes_are_counted_in_samples_once_each() -> None:
    """10 steps of 256, then steps of 512 with another number of GPUs on another node; the last one has the rest."""
    first, second = EventStream("w1"), EventStream("w2")
    first.tell("granted", 0, 0)
    first.tell("progress", 5, 1280)
    first.tell("released", 10, 2560)
    second.tell("granted", 12, 2560, from_step=2560)
    second.tell("progress", 15, 3072)
    second.tell("finished", 20, 4000)
    facts = JobFacts("job", "team", "train", first.events[0].wall_ns, steps=4000, gpus=4)
    result = job_result(facts, [*second.events, *first.events])
    assert (result.finished, result.steps_done, result.steps_missing, result.steps_repeated) == (True, 4000, 0, 0)
    assert [(run.node, run.from_step, run.to_step) for run in result.runs] == [("w1", 0, 2560), ("w2", 2560, 4000)]
