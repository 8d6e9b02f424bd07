"""Replicas of a service with real processes: they leave when they were predicted to, and serve as well."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler_sims.clusters.local import LocalOptions
from scheduler_sims.experiment import Experiment

JOBS = "job_id,submit_s,num_gpus,gpu_duration_s\na,0,2,40\nb,30,2,30\n"
CLUSTER = """
nodes: [{name: n, gpus: 4, gpu_type: V100, cpus: 16}]
costs: {start_s: 2, checkpoint_s: 1, restore_s: 1}
"""
SERVICES = """
services:
  - {name: s, service_s: 1, slo_s: 4, within: 0.9, weight: 2, until_s: 90, requests: [
      {at_s: 0, per_s: 0.5}, {at_s: 20, per_s: 2}, {at_s: 60, per_s: 0.5}]}
"""


@pytest.mark.processes
def test_replicas_leave_as_predicted(tmp_path: Path) -> None:
    for name, text in (("jobs.csv", JOBS), ("cluster.yaml", CLUSTER), ("services.yaml", SERVICES)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    experiment = Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml").serving(tmp_path / "services.yaml")
    predicted, observed = experiment.simulate("priority"), experiment.observe("priority", LocalOptions(warp=True))
    assert [(job.job_id, job.status) for job in observed.jobs] == [(job.job_id, job.status) for job in predicted.jobs]
    assert {job.status for job in predicted.jobs} == {"finished", "removed"}
    assert sum(job.preemptions for job in predicted.jobs) == sum(job.preemptions for job in observed.jobs) > 0
    for expected, job in zip(predicted.jobs, observed.jobs, strict=True):
        assert job.finish_s == pytest.approx(expected.finish_s, abs=0.5)
    assert observed.services[0].in_time == pytest.approx(predicted.services[0].in_time, abs=0.01)
