"""Policies that put jobs together on a device: each pod has the device and the share that the policy chose for it."""

from __future__ import annotations

import csv
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.cases.conftest import ROOT, allocatable
from e2e.cases.emujobs.test_emujobs import at_s
from e2e.cases.emujobs.test_scheduler import emujob, scheduler, wait_all_done
from e2e.cases.kube import Kubectl, Node, Object, eventually

pytestmark = [pytest.mark.alone, pytest.mark.long]

EXAMPLE = ROOT / "examples" / "mps-pack"
EXPERIMENT_LABEL = "emugpu.dev/experiment"
POOL = """
pools:
- name: default
  gpus:
  - {type: V100, count: %d}
  sharing:
    mode: %s
    mps:
      resources:
      - {name: emugpu.dev/emuGPU, replicas: 4}
"""
TOGETHER = """
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement

SHARES = {"a": (750, 1), "b": (250, 0)}

class Together:
    needs_estimates = False

    def plan(self, view):
        node = min(view.nodes.values(), key=lambda node: (not node.devices, node.name))
        device = node.devices[-1]
        start = {}
        for job in view.queued():
            milli, priority = SHARES[job.job_id]
            share = DeviceShare(device.uuid, device.gpu_type, milli, 0, priority)
            task = TaskPlacement(node.name, (share,), job.configurations[0].cpu_milli)
            start[job.job_id] = Allocation(job.configurations[0].name, (task,))
        return view.plan.evolve(start=start)
"""


@pytest.fixture
def shared(
    pools: Callable[[Path], None], admin: Kubectl, workers: list[Node], tmp_path: Path
) -> Callable[[str, int], None]:
    """`shared(mode, devices)`: each node has so many devices, and up to four pods share each."""

    def use(mode: str, devices: int) -> None:
        values = tmp_path / "values.yaml"
        values.write_text(POOL % (devices, mode), encoding="utf-8")
        pools(values)
        for worker in workers:
            eventually(
                f"4 parts of each device on {worker.name}",
                lambda w=worker: allocatable(admin, w.name) == 4 * devices,
            )

    return use


def devices_of(run: Object) -> list[str]:
    """The UUIDs of the devices on which a run was, by the event log of its node."""
    return [device.partition("::")[0] for device in run["devices"]]


def check_devices(emujobs: list[Object]) -> None:
    """Each pod was on the devices that the policy chose."""
    for found in emujobs:
        status = found["status"]
        chosen = status["allocation"]["devices"]
        assert chosen and devices_of(status["runs"][-1]) == chosen, (found["metadata"]["name"], status)


def test_packed_jobs_take_as_long_as_predicted(
    admin: Kubectl, shared: Callable[[str, int], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example under MPS: mean JCT predicted and observed within 2%, and two jobs on each device from the first moment."""
    shared("mps", 1)
    files = (str(EXAMPLE / "workload.csv"), "--policy", f"{EXAMPLE / 'pack.py'}:Pack", "--out", str(tmp_path / "out"))
    where = ("--on", "kubernetes", "--kubeconfig", str(admin.kubeconfig), "--keep")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "emugpu", "compare", *files, *where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, env=environ, check=False)
    namespaces = [found["metadata"]["name"] for found in admin.list("namespaces", "-l", EXPERIMENT_LABEL)]
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        with (tmp_path / "out" / "jobs.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        jct = {
            cluster: [float(row["jct_s"]) for row in rows if row["cluster"] == cluster and row["status"] == "finished"]
            for cluster in ("simulated", "kubernetes")
        }
        predicted, observed = (statistics.fmean(times) for times in jct.values())
        with capsys.disabled():
            print(f"\nmps-pack: mean JCT predicted {predicted:.1f} s, observed {observed:.1f} s")
        assert len(jct["kubernetes"]) == len(jct["simulated"]) == 12
        assert predicted == pytest.approx(observed, rel=0.02)
        jobs = [job for name in namespaces for job in admin.within(name).list("emujobs")]
        packed = [job for job in jobs if job["metadata"]["name"].startswith("small-")]
        assert len(packed) == 12
        check_devices(packed)
    finally:
        for name in namespaces:
            admin("delete", "namespace", name, "--timeout=120s", timeout_s=150)


@pytest.mark.parametrize(
    ("mode", "seconds", "expected"),
    [("weighted", (30.0, 30.0), 0.75), ("priority", (30.0, 30.0), 1.0), ("srtf", (20.0, 60.0), 1.0)],
)
def test_the_share_of_the_first_of_two_jobs(
    kubectl: Kubectl, shared: Callable[[str, int], None], tmp_path: Path, mode: str, seconds: Any, expected: float
) -> None:
    """Two jobs on one device: with weights 3:1 job a has 75% of it, with a priority or less work left all of it."""
    shared(mode, 2)
    (tmp_path / "together.py").write_text(TOGETHER, encoding="utf-8")
    jobs = [emujob(name, length, row, "jobs") for row, (name, length) in enumerate(zip("ab", seconds, strict=True))]
    for job in jobs:
        job["spec"]["resources"] = {"emuGPU": 1}
        del job["spec"]["memory"]
        job["metadata"]["annotations"]["emugpu.dev/batch"] = "two/2"
    kubectl.create(*jobs)
    log = tmp_path / "log"
    with scheduler(kubectl, f"{tmp_path}/together.py:Together", log):
        found = wait_all_done(kubectl, 2, log)
    a, b = (found[name]["runs"][-1] for name in "ab")
    begin_s, end_s = max(at_s(a["from"]), at_s(b["from"])), at_s(a["to"])
    alone_s = begin_s - at_s(a["from"])  # until b was there, a had the device
    assert (seconds[0] - alone_s) / (end_s - begin_s) == pytest.approx(expected, abs=0.05)  # times are whole seconds
    check_devices(kubectl.list("emujobs"))
    assert devices_of(a) == devices_of(b)
