"""examples/traced-12 as it stands: its jobs have profiles, run programs that are there, and are predicted."""

from __future__ import annotations

from pathlib import Path

from scheduler_sims.experiment import Experiment

EXAMPLE = Path(__file__).parents[2] / "examples" / "traced-12"


def test_all_jobs_are_predicted():
    profiles = EXAMPLE / "profiles.json"
    experiment = Experiment.load(EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml", profiles=profiles)
    jobs = experiment.simulate("fifo").jobs
    assert len(jobs) == 12 and all(job.status == "finished" for job in jobs)


def test_each_program_is_there_and_knows_its_steps():
    for job in Experiment.load(
        EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml", profiles=EXAMPLE / "profiles.json"
    ).workload.jobs:
        assert job.program is not None and job.program.counts_steps and job.program.image
        _, script, *_ = job.program.command
        assert (EXAMPLE / "programs" / script).is_file()
