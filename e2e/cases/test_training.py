"""A pod trains at the pace of the profiled GPU; what the simulator predicts is what happens."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from e2e.cases.kube import Kubectl, Node, train_pod
from emulator_runtime.profiles.table import ProfileTable

STEPS = 200


def profiled_step_s() -> float:
    """ResNet-50, batch 64, on a V100."""
    return ProfileTable.bundled().step_profile("resnet50", "Tesla_V100-PCIE-32GB", 64).device_s


@contextlib.contextmanager
def busy_cores(processes: int) -> Iterator[None]:
    """Keep cores of this machine busy with ordinary work."""
    script = "while True: sum(range(10000))"
    spinning = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.mark.parametrize(("busy", "p95_within"), [(0, 0.01), (2, 0.05)], ids=["idle", "both-cores-busy"])
def test_step_times_are_those_of_the_profile(kubectl: Kubectl, busy: int, p95_within: float) -> None:
    with busy_cores(busy):
        kubectl.apply(train_pod("train", "--model", "resnet50", "--batch-size", "64", "--steps", str(STEPS)))
        kubectl.wait_phase("train", "Succeeded", within_s=120)
    summary = kubectl.summary("train")
    profiled = profiled_step_s()
    assert summary["steps_done"] == STEPS
    assert summary["step_s"]["mean"] == pytest.approx(profiled, rel=0.01)
    assert summary["step_s"]["median"] == pytest.approx(profiled, rel=0.01)
    assert summary["step_s"]["p95"] == pytest.approx(profiled, rel=p95_within)


def test_four_devices_divide_the_batch(kubectl: Kubectl) -> None:
    kubectl.apply(train_pod("four", "--model", "resnet50", "--batch-size", "256", "--steps", "50", gpus=4))
    kubectl.wait_phase("four", "Succeeded", within_s=120)
    summary = kubectl.summary("four")
    assert len(summary["devices"]) == 4
    assert summary["step_s"]["mean"] == pytest.approx(summary["profiled_step_s"], rel=0.01)
    assert summary["profiled_step_s"] > profiled_step_s()  # the batch per device is 64, and an all-reduce comes on top


def test_nvidia_smi_in_the_pod(kubectl: Kubectl, workers: list[Node]) -> None:
    kubectl.apply(train_pod("busy", "--model", "resnet50", "--batch-size", "64", "--steps", "100000", gpus=2))
    kubectl.wait_phase("busy", "Running")
    listing = kubectl("exec", "busy", "--", "nvidia-smi", "-L")
    assert listing.count("Tesla_V100-PCIE-32GB") == 2
    uuids = kubectl("exec", "busy", "--", "nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader").split()
    assert all(uuid in listing for uuid in uuids)
    table = kubectl("exec", "busy", "--", "nvidia-smi")
    assert table.count("Tesla_V100-PCIE-32GB") == 2
    lines = (len(table.splitlines()), len(kubectl("exec", "busy", "--", "emugpu", "smi").splitlines()))
    assert lines[0] == lines[1]
    assert "train" in table  # the process is listed
