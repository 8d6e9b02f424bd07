"""The progress in a STOPPED event: the progress that there should be by now, and none of a program that begins anew."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.job import Configuration, JobSpec, Program, TimedWork
from emulator_runtime.domain.samples import RunSamples
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.profiles.table import ProfileTable
from operators.scheduling.track.loop_events import LoopEvents
from operators.scheduling.track.tracked_job import Pace, TrackedJob
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts

S = 1_000_000_000


@pytest.mark.parametrize(
    ("program", "done"),
    [(None, 4), (Program(("python", "train.py")), 0), (Program(("python", "train.py"), resumes=True), 4)],
)
def test_what_a_stopped_job_has_done(program: Program | None, done: int) -> None:
    configuration, work = Configuration("gpu", 1, 1000), {"gpu": TimedWork(10.0)}
    spec = JobSpec("a", "u", 0.0, 10, (configuration,), work, 0, program=program)
    run = RunSamples(0, 0, 1, 10)
    times = StepTimes(10, 10 * S, start_ns=S if program is not None else 0)
    now_ns = 4 * S + (S if program is not None else 0) + S // 2
    events = LoopEvents(OpenTruth(ProfileTable.bundled()), ClusterCosts(), lambda: now_ns, 0, {})
    tracked = TrackedJob("uid", "lab/a", "a", 0, spec=spec, run=run, pace=Pace(0, 0, times, run))
    assert events.steps_done(tracked) == 4, "while it runs, by its profile"
    assert events.stopped(tracked, None).steps_done == done
