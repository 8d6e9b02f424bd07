"""Policies that put several jobs on a device: annotations of pods, adoption by a successor, what doesn't fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.samples import RunSamples
from emulator_runtime.domain.step import StepTimes
from operators.kube.api import NODE
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.scheduling.see.capacity import node_states
from operators.scheduling.track.job_reading import annotation_of
from operators.scheduling.track.tracked_job import Pace
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

SHARING = {"mps": {"resources": [{"name": "emugpu.dev/emuGPU", "replicas": 2}]}}
PACKING = """
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

class Packing:
    \"\"\"Jobs of MILLI thousandths, as many as a device has room for.\"\"\"

    def plan(self, view):
        start, free = {}, {d.uuid: d.free_milli for n in view.nodes.values() for d in n.devices}
        for job in view.queued():
            for node in view.nodes.values():
                device = next((d for d in node.devices if d.healthy and free[d.uuid] >= MILLI), None)
                if device is not None:
                    free[device.uuid] -= MILLI
                    share = DeviceShare(device.uuid, device.gpu_type, MILLI, 2**30, priority=job.row % 7)
                    task = TaskPlacement(node.name, (share,), job.configurations[0].cpu_milli)
                    start[job.job_id] = Allocation("default", (task,))
                    break
        return view.plan.evolve(start=start)
"""


@pytest.fixture
def here(world: Any) -> Any:
    """One node with one device that two pods share."""
    made = world.of(gpus=1, sharing=SHARING)
    (node,) = made.api.objects["nodes"].values()
    made.api.put(NODE, offering(node, 2))
    return made


def offering(node: dict[str, Any], gpus: int) -> dict[str, Any]:
    status = node["status"]
    allocatable = {**status["allocatable"], "emugpu.dev/emuGPU": str(gpus)}
    return {**node, "status": {**status, "allocatable": allocatable}}


def packing(folder: Path, milli: int) -> str:
    (folder / "packing.py").write_text(PACKING.replace("MILLI", str(milli)), encoding="utf-8")
    return f"{folder}/packing.py:Packing"


@pytest.fixture
def start(lab: Any) -> Iterator[Any]:
    """`start(world, policy)`: a scheduler program that is closed at the end."""
    programs = []

    def begin(world: Any, policy: str) -> Any:
        programs.append(lab(world, policy))
        return programs[-1]

    yield begin
    for program in programs:
        program.close()


def run(lab: Any, finished: Any) -> None:
    lab.finished = finished
    lab.loop.run()
    assert finished(), lab.said


def note(here: Any, name: str) -> dict[str, Any]:
    (pod,) = here.pods(name)
    found: dict[str, Any] = json.loads(pod["metadata"]["annotations"]["emugpu.dev/allocation"])
    return found


@pytest.mark.parametrize("actuator", ["jobs", "gated", "binding"])
def test_two_jobs_share_a_device(here: Any, start: Any, tmp_path: Path, actuator: str) -> None:
    for row, name in enumerate("abc"):
        here.submit(name, 10, actuator=actuator, metadata={"annotations": {"emugpu.dev/row": str(row)}})
    program = start(here, packing(tmp_path, 500))
    run(program, lambda: len([p for p in here.pods() if p["status"]["phase"] == "Running"]) == 2)
    ((device, *_),) = [view.devices for view in program.loop._ledger.views().values()]
    assert (device.holders, device.free_milli, device.sharing, device.replicas) == (("a", "b"), 0, "mps", 2)
    assert [note(here, name)["devices"] for name in "ab"] == [[device.uuid]] * 2
    assert [(note(here, n)["milli"], note(here, n)["priority"], note(here, n)["row"]) for n in "ab"] == [
        ([500], [0], 0),
        ([500], [1], 1),
    ]
    run(program, lambda: all(here.phase(name) == "Succeeded" for name in "abc"))


def test_a_successor_reads_the_shares_of_running_jobs(here: Any, start: Any, tmp_path: Path) -> None:
    for name in "ab":
        here.submit(name, 60)
    policy = packing(tmp_path, 250)
    program = start(here, policy)
    run(program, lambda: len([p for p in here.pods() if p["status"]["phase"] == "Running"]) == 2)
    before = {name: view.allocation for name, view in program.loop.books.views.items()}
    again = start(here, policy)
    run(again, lambda: len(again.loop.books.views) == 2)
    assert {name: view.allocation for name, view in again.loop.books.views.items()} == before
    assert [allocation.tasks[0].shares[0].milli for allocation in before.values()] == [250, 250]


def test_more_jobs_than_replicas_are_refused(here: Any, start: Any, tmp_path: Path) -> None:
    for name in "abc":
        here.submit(name, 60)
    program = start(here, packing(tmp_path, 250))
    run(program, lambda: bool(program.failures))
    assert "it needs 1 GPU of type" in program.failures[0] and "0 of the node's 1 are free" in program.failures[0]


def test_parts_of_exclusive_devices_are_refused_before_anything_is_written(
    world: Any, start: Any, tmp_path: Path
) -> None:
    exclusive = world.of(gpus=1)
    exclusive.submit("a", 10)
    program = start(exclusive, packing(tmp_path, 500))
    run(program, lambda: bool(program.failures))
    assert "the plan gives job 'a' a part of a device that is exclusive" in program.failures[0]
    assert program.loop.books.views["a"].queued and not exclusive.pods()


def test_what_a_node_with_shared_devices_has(world: Any) -> None:
    made = world.of(gpus=2, sharing=SHARING)
    (pool,), (node,) = (made.api.objects[kind].values() for kind in ("emugpupools", "nodes"))
    shared = Pool.read(pool)
    (state,) = node_states([shared], [Node.read(offering(node, 4))])
    assert (state.spec.sharing, state.spec.replicas, state.absent) == ("mps", 2, 0)
    for offered, others, absent in ((3, 0, 1), (2, 0, 1), (4, 1, 1), (3, 1, 1), (2, 1, 2), (0, 0, 2)):
        (state,) = node_states([shared], [Node.read(offering(node, offered))], {state.spec.name: others})
        assert state.absent == absent, (offered, others)


def test_the_annotation_of_a_gang_on_shared_devices() -> None:
    tasks = tuple(
        TaskPlacement(f"w{n}", (DeviceShare(f"EMU-{n}", "T4", 100 * n, priority=n),), 1000, 7) for n in (1, 2)
    )
    found = annotation_of(Allocation("gpu", tasks), 5)
    assert (found.devices, found.milli, found.priority, found.row) == (("EMU-1", "EMU-2"), (100, 200), (1, 2), 5)
    cpus = tuple(replace(task, shares=()) for task in tasks)
    assert annotation_of(Allocation("cpu", cpus), 5).to_json().endswith('"devices":[]}')


def test_a_job_on_a_part_of_a_device_is_expected_to_be_slower() -> None:
    pace = Pace(10, 0, StepTimes(100, 100 * 10**9), RunSamples(10, 10, 1, 100), milli=250)
    assert (pace.done_at(8 * 10**9), replace(pace, milli=1000).done_at(8 * 10**9)) == (12, 18)
