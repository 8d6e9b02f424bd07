"""Elastic jobs on a real cluster: pods with other GPUs and another batch size go on where those before them stopped."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.cases.conftest import ROOT
from e2e.cases.emujobs.test_experiment import cluster_file, nodes_of
from e2e.cases.emujobs.test_scheduler import check_steps, emujob, scheduler, statuses, wait_all_done
from e2e.cases.kube import Kubectl, eventually
from e2e.cases.ledger import Ledger

pytestmark = [pytest.mark.alone, pytest.mark.long]

EXAMPLE = ROOT / "examples" / "elastic-8"
STEPS, BATCH_SIZE = 250, 256
SIZES = """
from dataclasses import replace
from scheduler_sims.policies.placing import FreeSpace

TABLE = [(0, 2, 0), (SOON, 8, 512), (LATER, 4, 0)]

class Sizes:
    \"\"\"GPUs and batch size of each job, by the number of its samples.\"\"\"

    needs_estimates = False

    def plan(self, view):
        space, start, stop = FreeSpace.now(view), {}, []
        for job in view.jobs.values():
            done = view.samples_done(job)
            gpus, batch_size = next(size for samples, *size in reversed(TABLE) if samples <= done)
            held = view.plan.allocations.get(job.job_id)
            if job.queued and (allocation := space.place(job.configurations[0].with_gpus(gpus))) is not None:
                start[job.job_id] = replace(allocation, batch_size=batch_size)
            elif held is not None and (held.gpus, held.batch_size) != (gpus, batch_size):
                stop.append(job.job_id)
        return replace(view.plan.evolve(start=start, stop=stop), wake_at_s=view.now_s + 1)
"""


def elastic(name: str, row: int) -> dict[str, Any]:
    document = emujob(name, 1, row, "jobs")
    scheduling = document["spec"]["scheduler"]
    resources = {"emuGPU": 2, "minEmuGPU": 1, "maxEmuGPU": 8}
    work = {"steps": STEPS, "model": "resnet50", "batchSize": BATCH_SIZE}
    return {**document, "spec": {**work, "resources": resources, "scheduler": scheduling}}


def test_a_job_in_three_sizes_does_each_sample_once(kubectl: Kubectl, ledger: Ledger, tmp_path: Path) -> None:
    """2 GPUs, then 8 with steps of twice as many samples, then 4. The scheduler is killed between, and another one goes on."""
    samples = STEPS * BATCH_SIZE
    source = SIZES.replace("SOON", str(samples // 4)).replace("LATER", str(samples * 3 // 4))
    (tmp_path / "sizes.py").write_text(source, encoding="utf-8")
    policy, log = f"{tmp_path}/sizes.py:Sizes", tmp_path / "log"
    kubectl.create(elastic("a", 0), elastic("b", 1))

    def sizes() -> set[tuple[int, int]]:
        found = (status.get("allocation", {}) for status in statuses(kubectl).values())
        return {(each["gpus"], each["batchSize"]) for each in found if each}

    with scheduler(kubectl, policy, log):
        eventually("both have 2 GPUs", lambda: sizes() == {(2, 256)}, within_s=60)
        eventually("one has 8 GPUs", lambda: (8, 512) in sizes(), within_s=120)
    with scheduler(kubectl, policy, log):
        found = wait_all_done(kubectl, 2, log)
    for status in found.values():
        assert (status["progressUnit"], status["steps"], status["stepsDone"]) == ("samples", samples, samples)
        assert status["preemptions"] == 2 and status["rejections"] == 0
        assert [len(run["devices"]) for run in status["runs"]] == [2, 8, 4]
        assert all(run["toStep"] - run["fromStep"] > 0 for run in status["runs"])
    check_steps(kubectl, ledger, dict.fromkeys(found, samples))


def test_the_example_is_observed_as_it_is_predicted(admin: Kubectl, tmp_path: Path) -> None:
    """examples/elastic-8 on the nodes of this cluster, four times as fast: its policy stops and starts jobs with other GPUs."""
    lines = (EXAMPLE / "workload.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split(",") for line in lines if not line.startswith("#")]
    cpus = rows[0].index("cpus")
    small = [rows[0], *([*row[:cpus], "0.1", *row[cpus + 1 :]] for row in rows[1:])]  # the nodes have few CPUs
    (tmp_path / "workload.csv").write_text("\n".join(map(",".join, small)) + "\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text(cluster_file(nodes_of(admin.kubeconfig)), encoding="utf-8")
    out = tmp_path / "out"
    files = [str(tmp_path / "workload.csv"), "--cluster", str(tmp_path / "cluster.yaml"), "--out", str(out)]
    policies = ["--policy", "fifo", "--policy", f"{EXAMPLE}/grow.py:Grow:patience=1", "--stretch", "0.25"]
    where = ["--on", "kubernetes", "--kubeconfig", str(admin.kubeconfig)]
    command = [sys.executable, "-m", "emugpu", "compare", *files, *policies, *where]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with (out / "jobs.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    jct_s: dict[tuple[str, str], list[float]] = {}
    for row in found:
        assert row["status"] == "finished", row
        jct_s.setdefault((row["policy"], row["cluster"]), []).append(float(row["jct_s"]))
    assert {len(each) for each in jct_s.values()} == {8}
    for policy in {policy for policy, _ in jct_s}:
        predicted, observed = (sum(jct_s[policy, cluster]) / 8 for cluster in ("simulated", "kubernetes"))
        assert observed == pytest.approx(predicted, rel=0.1), (policy, predicted, observed)
    assert any(
        int(row["preemptions"]) for row in found if row["policy"].startswith("Grow") and row["cluster"] == "kubernetes"
    )
