"""The small parts of a scheduler program: who holds its lease, its lines, what it counts, what the border reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from operators.emujob.objects import EmuJobFacts
from operators.kube.documents import Key
from operators.pools.objects import node_facts, pool_facts
from operators.scheduling.attained import AttainedService
from operators.scheduling.capacity import node_states
from operators.scheduling.identity import Host
from operators.scheduling.lines import as_json, in_words
from operators.scheduling.metrics import SchedulerMetrics
from operators.scheduling.objects import NO_USAGE, Order, Usage, usage_of
from operators.scheduling.scope import Until
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.loop.open_loop import Decision

ON_GPU = Allocation("gpu", (TaskPlacement("w1", (DeviceShare("u", "T4"), DeviceShare("v", "T4")), 2000, 5),))
ON_CPU = Allocation("cpu", (TaskPlacement("w2", (), 4000, 7),))


# -- identity ------------------------------------------------------------------------------------------------------------


def stat(proc: Path, pid: int, began: int, name: str = "emugpu") -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    fields = ["S", *["0"] * 18, str(began), "0"]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_a_process_that_has_ended_is_known_as_gone(tmp_path: Path) -> None:
    host = Host("node-1", "abcd", "40", tmp_path)
    stat(tmp_path, 7, 1234, name="a (b) c")
    holder = host.identity(7)
    assert holder == "node-1_abcd_40_7_1234"
    assert not host.is_gone(holder)
    stat(tmp_path, 7, 9999)  # another process has its number now
    assert host.is_gone(holder)
    (tmp_path / "7" / "stat").unlink()
    assert host.is_gone(holder)


@pytest.mark.parametrize("holder", ["", "pod-xyz", "node-2_abcd_40_7_1", "node-1_efgh_40_7_1", "node-1_abcd_40_x_1"])
def test_of_others_nothing_is_known(tmp_path: Path, holder: str) -> None:
    assert not Host("node-1", "abcd", "40", tmp_path).is_gone(holder)


def test_without_a_boot_or_proc_nothing_is_known(tmp_path: Path) -> None:
    assert not Host("node-1", "", "40", tmp_path).is_gone("node-1__40_7_1")
    assert not Host("node-1", "abcd", "40", tmp_path / "none").is_gone("node-1_abcd_40_7_1")


def test_a_container_that_shares_the_hosts_name_numbers_its_processes_on_its_own(tmp_path: Path) -> None:
    stat(tmp_path, 7, 1234)
    other = Host("node-1", "abcd", "41", tmp_path).identity(7)
    (tmp_path / "7" / "stat").unlink()
    assert not Host("node-1", "abcd", "40", tmp_path).is_gone(other)
    assert Host("node-1", "abcd", "41", tmp_path).is_gone(other)
    assert not Host("node-1", "abcd", "", tmp_path).is_gone("node-1_abcd__7_1234")


def test_this_process_is_there() -> None:
    host = Host.here()
    assert not host.is_gone(host.identity(os.getpid()))


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
    metrics.jobs(5, 6)

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
    facts = EmuJobFacts(Key("lab", "j", "u"), status={"phase": phase})
    assert Until("team", "a", 1).counts(Order(facts, {"team": "a"})) is counts
    assert not Until("team", "a", 1).counts(Order(facts, {"team": "b"}))


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
    pools = [pool_facts({"metadata": metadata, "spec": spec})]

    def state(allocatable: str, others: int = 0, **spec: Any) -> tuple[int, int, bool]:
        status = {
            "allocatable": {"emugpu.dev/emuGPU": allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        node = node_facts({"metadata": {"name": "w1"}, "spec": spec, "status": status})
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
