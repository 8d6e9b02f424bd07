"""The small parts of a scheduler program: who holds its lease, its lines, what it counts, what the border reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from operators.kube.documents import Key
from operators.objects.emujob import EmuJob
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.scheduling.metrics import SchedulerMetrics
from operators.scheduling.output import as_json, in_words
from operators.scheduling.remember.handover import AttainedService
from operators.scheduling.see.capacity import node_states
from operators.scheduling.see.job_objects import NO_USAGE, Usage, usage_of
from operators.scheduling.track.tracked_jobs import Until
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.loop.strategies import Decision

ON_GPU = Allocation("gpu", (TaskPlacement("w1", (DeviceShare("u", "T4"), DeviceShare("v", "T4")), 2000, 5),))
ON_CPU = Allocation("cpu", (TaskPlacement("w2", (), 4000, 7),))


# -- lines ---------------------------------------------------------------------------------------------------------------


def test_a_decision_is_one_line() -> None:
    decision = Decision(12.5, ("submitted",), {"a": ON_GPU, "b": ON_CPU}, ["c"], {"d": ON_CPU}, ["e"], 3, 4, 0.25)
    assert in_words(decision) == (
        "    12.500 s  stop c; start a on w1 (2 GPUs); start b on w2 (CPUs); d gets 4 CPUs; e can't start just now  "
        "[3 wait, 4 run]"
    )
    assert in_words(Decision(0.0, ("wake", "retry"))) == "     0.000 s  nothing to do (wake, retry)  [0 wait, 0 run]"
    found = json.loads(as_json(decision, 1_767_225_600_000_000_000))
    assert (found["at"], found["at_s"], found["took_s"]) == ("2026-01-01T00:00:12.500000Z", 12.5, 0.25)
    assert found["started"]["a"] == {
        "configuration": "gpu",
        "nodes": ["w1"],
        "gpus": 2,
        "cpu_milli": 2000,
        "memory_bytes": 5,
    }
    assert (found["stopped"], list(found["resized"]), found["refused"]) == (["c"], ["d"], ["e"])


def test_what_is_counted() -> None:
    metrics = SchedulerMetrics("fifo")
    metrics.count(Decision(0.0, (), {"a": ON_GPU, "b": ON_CPU}, ["c"], {}, ["d"], 5, 6, 0.02))
    metrics.set_jobs(5, 6)

    def value(name: str, **labels: str) -> Any:
        return metrics.registry.get_sample_value(f"emugpu_scheduler_{name}", {"policy": "fifo", **labels})

    assert (value("queued_jobs"), value("holding_jobs"), value("decision_seconds_sum")) == (5, 6, 0.02)
    counts = {name: value("actions_total", action=name) for name in ("start", "stop", "resize", "refused")}
    assert counts == {"start": 2, "stop": 1, "resize": 0, "refused": 1}


# -- the scope -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "counts"), [("Succeeded", True), ("Failed", True), ("Rejected", True), ("Running", False), ("", False)]
)
def test_what_has_come_to_nothing_is_not_waited_for(phase: str, counts: bool) -> None:
    emujob = EmuJob(Key("lab", "j", "u"), status_json={"phase": phase}, labels={"team": "a"})
    assert Until("team", "a", 1).counts(emujob) is counts
    assert not Until("team", "b", 1).counts(emujob)


# -- the border ------------------------------------------------------------------------------------------------------------


def pod(**more: Any) -> dict[str, Any]:
    limits = more.pop("limits", {"emugpu.dev/emuGPU": "2"})
    spec = {"nodeName": "w1", "containers": [{"resources": {"limits": limits}}], **more.pop("spec", {})}
    return {"metadata": {"labels": {"emugpu.dev/job-uid": "u"}}, "spec": spec, "status": {"phase": "Running"}, **more}


def test_gpus_that_pods_have() -> None:
    assert usage_of(pod()) == Usage("w1", 2, "u")
    assert usage_of(pod(spec={"initContainers": [{"resources": {"limits": {"emugpu.dev/emuGPU": 3}}}]})) == Usage(
        "w1", 3, "u"
    )
    assert usage_of(pod(status={"phase": "Succeeded"})) == NO_USAGE
    assert usage_of(pod(spec={"nodeName": ""})) == NO_USAGE
    for limits in ({}, {"emugpu.dev/emuGPU": "0"}, {"emugpu.dev/emuGPU": "many"}, {"cpu": "2"}):
        assert usage_of(pod(limits=limits)) == NO_USAGE
    assert usage_of({}) == NO_USAGE


def test_what_a_node_offers() -> None:
    metadata = {"name": "p", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"gpus": [{"type": "V100", "count": 4}], "unhealthy": [{"node": "w1", "index": 3}]}
    pools = [Pool.read({"metadata": metadata, "spec": spec})]

    def state(allocatable: str, others: int = 0, **spec: Any) -> tuple[int, int, bool]:
        status = {
            "allocatable": {"emugpu.dev/emuGPU": allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        node = Node.read({"metadata": {"name": "w1"}, "spec": spec, "status": status})
        (found,) = node_states(pools, [node], {"w1": others})
        return len(found.unhealthy), found.absent, found.closed

    assert state("3") == (1, 0, False)
    assert state("0") == (1, 3, False)
    assert state("2", others=1) == (1, 2, False)
    assert state("3", unschedulable=True) == (1, 0, True)
    assert node_states(pools, []) == ()


def test_service_goes_on_until_the_end() -> None:
    assert AttainedService(10.0, 5.0, 2).until(8.0) == 16.0
    assert AttainedService(10.0, 5.0, 2).until(4.0) == 10.0
    assert AttainedService(10.0).until(8.0) == 10.0
