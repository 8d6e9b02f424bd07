"""Jobs of several pods under `emugpu scheduler`: all pods run, each on a node of its own, or none holds anything."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from operators.kube.api import NODE, POD
from operators.scheduling.track.tracked_jobs import Scope
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.resolve import resolve_policy

ACTUATORS = ("jobs", "gated", "binding")


def whole(here: Any, name: str, pods: int) -> Any:
    """Looks at each turn: nobody trains with half of the pods; what runs is on nodes of its own."""

    def check() -> bool:
        running = [p["spec"].get("nodeName") for p in here.pods(name) if p["status"]["phase"] == "Running"]
        assert len(running) == len(set(running)) <= pods
        return here.phase(name) == "Succeeded"

    return check


def until(program: Any, here: Any, condition: Any, within_s: float = 90) -> None:
    end_ns = here.now_ns + round(within_s * 1e9)
    program.run(lambda: condition() or here.now_ns >= end_ns)
    assert condition(), f"not within {within_s} s: {program.said}"


@pytest.mark.parametrize("actuator", ACTUATORS)
def test_a_gang_runs_on_as_many_nodes_as_it_asks_for(world: Any, lab: Any, actuator: str) -> None:
    here = world.of(nodes=3, gpus=2)
    here.submit("wide", 10, actuator=actuator, nodes=2, resources={"emuGPU": 2, "cpu": 3})
    program = lab(here)
    until(program, here, whole(here, "wide", 2))
    assert [(name, node) for name, node, _ in here.runs] == [("wide", "w1"), ("wide", "w2")]
    assert '"nodes":["w1","w2"],"cpu_milli":3000' in here.runs[0][2]
    (started,) = [d.started["wide"] for d in program.decisions if d.started]
    assert (started.gpus, started.nodes) == (4, ("w1", "w2"))


@pytest.mark.parametrize("actuator", ACTUATORS)
def test_a_gang_waits_until_all_its_nodes_have_room(world: Any, lab: Any, actuator: str) -> None:
    here = world.of(nodes=2, gpus=2)
    here.submit("first", 10, actuator=actuator, resources={"emuGPU": 1})
    here.submit("wide", 5, actuator=actuator, nodes=2, resources={"emuGPU": 2})
    program = lab(here)
    check = whole(here, "wide", 2)
    until(program, here, check)
    names = [name for name, _, _ in here.runs]
    assert names == ["first", "wide", "wide"]
    assert not any("wide" in d.started for d in program.decisions if d.at_s < 11)


@pytest.mark.parametrize("actuator", ACTUATORS)
def test_a_gang_is_stopped_as_a_whole_and_goes_on_later(world: Any, lab: Any, actuator: str) -> None:
    here = world.of(nodes=2, gpus=1)
    here.submit("wide", 40, actuator=actuator, nodes=2)
    until(lab(here, "srtf"), here, lambda: len(here.runs) == 2 and here.now_ns > 1_767_225_600_000_000_000 + 10**10)
    here.submit("short", 3, actuator=actuator)
    program = lab(here, "srtf")  # the next program takes the gang over as it runs
    done = whole(here, "wide", 2)
    until(program, here, lambda: done() and here.phase("short") == "Succeeded")
    assert [name for name, _, _ in here.runs] == ["wide", "wide", "short", "wide", "wide"]
    assert not any("can't" in line or "stopped" in line for line in program.said)


@pytest.mark.parametrize("actuator", ACTUATORS)
def test_a_gang_that_is_stopped_as_it_ends_is_finished_by_the_pods_that_were_not(
    world: Any, lab: Any, actuator: str
) -> None:
    here = world.of(nodes=2, gpus=1)
    here.submit("wide", 10, actuator=actuator, nodes=2)
    until(lab(here), here, lambda: len(here.runs) == 2)
    first, second = here.pods("wide")
    here.api.put(POD, {**first, "status": {"phase": "Succeeded"}})
    here.api.remove(POD, f"lab/{second['metadata']['name']}")
    until(lab(here), here, lambda: here.phase("wide") == "Succeeded")
    assert len(here.runs) == 3
    assert here.held() == {}


def test_a_gang_stops_several_jobs(world: Any, lab: Any) -> None:
    here = world.of(nodes=2, gpus=1)
    here.submit("a", 60)
    here.submit("b", 50)
    until(lab(here, "srtf"), here, lambda: len(here.runs) == 2)
    here.submit("wide", 5, nodes=2)
    until(lab(here, "srtf"), here, lambda: all(here.phase(name) == "Succeeded" for name in ("a", "b", "wide")), 200)
    assert [name for name, _, _ in here.runs][2:4] == ["wide", "wide"]


@pytest.mark.parametrize("actuator", ACTUATORS)
def test_a_gang_on_a_node_that_is_gone_starts_on_others(world: Any, lab: Any, actuator: str) -> None:
    here = world.of(nodes=3, gpus=1)
    here.submit("wide", 20, actuator=actuator, nodes=2)
    until(lab(here), here, lambda: len(here.runs) == 2)
    here.api.remove(NODE, here.runs[0][1])
    until(lab(here), here, whole(here, "wide", 2))
    gone, stayed = here.runs[0][1], here.runs[1][1]
    assert {node for _, node, _ in here.runs[2:]} == {"w1", "w2", "w3"} - {gone}
    assert stayed != gone


def test_cpus_are_divided_anew_on_all_pods(world: Any, lab: Any, tmp_path: Any) -> None:
    (tmp_path / "divides.py").write_text(
        "from dataclasses import replace\n"
        "from scheduler_sims.policies.fifo import Fifo\n"
        "class Divides(Fifo):\n"
        "    def plan(self, view):\n"
        "        held = view.plan.allocations.get('wide')\n"
        "        if held is None or view.now_s < 5:\n"
        "            return replace(super().plan(view), wake_at_s=max(5.0, view.now_s + 1))\n"
        "        tasks = tuple(replace(task, cpu_milli=6000) for task in held.tasks)\n"
        "        return view.plan.evolve(start={'wide': replace(held, tasks=tasks)})\n"
    )
    here = world.of(nodes=2, gpus=1)
    here.submit("wide", 30, nodes=2, resources={"emuGPU": 1, "cpu": 2})
    program = lab(here, f"{tmp_path}/divides.py:Divides")

    def divided() -> bool:
        notes = [pod["metadata"]["annotations"].get("emugpu.dev/allocation", "") for pod in here.pods("wide")]
        return len(notes) == 2 and all('"cpu_milli":6000' in note for note in notes)

    until(program, here, divided)
    assert program.loop.books.views["wide"].phase is Phase.RUNNING
    assert [name for name, _, _ in here.runs] == ["wide", "wide"]


def test_one_that_no_policy_can_place_is_reported(world: Any, lab: Any) -> None:
    here = world.of(nodes=2, gpus=1)
    here.submit("wide", 5, nodes=3)
    here.submit("other", 5)
    program = lab(here)
    until(program, here, lambda: here.phase("other") == "Succeeded")
    (told,) = program.said
    assert "job 'wide' is larger than the cluster: needs 3 nodes with the same GPU type; 2 are large enough" in told


@pytest.mark.parametrize("policy", ["allox", "synergy:round_s=5"])
def test_policies_for_one_node_leave_gangs_alone_and_go_on(world: Any, lab: Any, policy: str) -> None:
    here = world.of(nodes=2, gpus=1)
    here.submit("wide", 5, nodes=2)
    here.submit("other", 5)
    assert resolve_policy(policy)[1].one_node  # which the program tells the scope
    program = lab(here, policy, scope=Scope("s", "lab", gangs=False))
    until(program, here, lambda: here.phase("other") == "Succeeded")
    assert program.said == ["job 'wide' has 2 pods; this policy places jobs of one pod only"]
    assert not program.failures


@pytest.mark.parametrize("actuator", ACTUATORS)
@pytest.mark.parametrize("policy", ["fifo", "srtf", "las:threshold_s=6,quantum_s=2"])
def test_killed_among_gangs(world: Any, lab: Any, killed: type[BaseException], policy: str, actuator: str) -> None:
    here, random = world.of(nodes=2, gpus=2), Random(f"{policy}/{actuator}/gangs")
    for number in range(6):
        gang: dict[str, Any] = {"nodes": 2, "resources": {"emuGPU": 1 + number % 2}} if number % 2 else {}
        here.submit(f"j{number}", 4 + number, actuator=actuator, **gang)
    checks = [whole(here, f"j{n}", 1 + n % 2) for n in range(6)]
    for _ in range(100):
        here.api.kill_at, here.api.kill_after = here.api.writes + random.randint(1, 6), random.random() < 0.5
        try:
            program = lab(here, policy)
            until(program, here, lambda: all(check() for check in checks), 120)
            break
        except killed:
            here.now_ns += random.randint(0, 3) * 10**9
    assert all(check() for check in checks)
    assert here.held() == {}
