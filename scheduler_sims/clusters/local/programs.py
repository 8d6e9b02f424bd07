"""Programs in the place of emulated training on a local cluster: the settings by which a program finds the devices of its run.

A program computes in real time: its cluster's clock neither warps nor runs at another speed. How far a running program has
come is not visible from outside; until its end it counts as having done what its profile says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.cuda import launch
from emulator_runtime.cuda.build import built
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.files import write_new
from emulator_runtime.workloads.order import ProgramOrder
from scheduler_sims.clusters.base import Start
from scheduler_sims.clusters.local.options import LocalOptions
from scheduler_sims.inputs.cluster_file import ClusterSpec


def check_programs(jobs: Iterable[JobSpec], options: LocalOptions) -> None:
    """Raises InputError if jobs run programs, and time wouldn't be real."""
    job = next((job for job in jobs if job.program is not None), None)
    if job is None:
        return
    reasons = {"--warp": options.warp, "--speed": options.speed != 1, "--realtime": options.realtime}
    for option, given in reasons.items():
        if given:
            raise InputError(
                option, f"job {job.job_id!r} runs a program, whose own work takes real time; leave {option} out"
            )


@dataclass(frozen=True, slots=True)
class _Running:
    first: int
    begin_ns: int
    times: StepTimes

    def steps_done(self, now_ns: int) -> int:
        done = self.first + self.times.steps_done(self.first, now_ns - self.begin_ns) if now_ns > self.begin_ns else 0
        return max(self.first, min(done, self.times.steps - 1))


class Programs:
    """The programs of a cluster's jobs. `directory`: for settings, which only this user can read, since they have tokens."""

    def __init__(self, spec: ClusterSpec, directory: Path, clock: Path) -> None:
        self._devices = {
            device.uuid: launch.DeviceSettings(device.gpu_type, device.uuid, device.memory_bytes)
            for node in spec.nodes
            for device in node.devices
        }
        self._directory, self._clock = directory, clock
        self._libraries: Path | None = None
        self._running: dict[str, _Running] = {}
        self._runs = 0

    def prepare(self, jobs: Iterable[JobSpec]) -> None:
        """Compiles the emulated CUDA libraries, if a job runs a program and they aren't there. Raises BuildError."""
        if any(job.program is not None for job in jobs):
            self._libraries = built()
            self._directory.mkdir(mode=0o700)

    def order(self, start: Start, manager: Path, tokens: Sequence[str]) -> ProgramOrder | None:
        """What the job's process runs; None: training is emulated."""
        program = start.job.program
        if program is None:
            return None
        assert self._libraries is not None  # `prepare` has them compiled
        (task,) = start.allocation.tasks
        process = launch.ProcessSettings(estimator="roofline", clock=self._clock, manager=manager, token=tokens[0])
        devices = [self._devices[share.device] for share in task.shares if share.device is not None]
        self._runs += 1
        settings = self._directory / str(self._runs)
        write_new(settings, launch.settings_text(process, devices).encode(), sync=False, mode=0o600)
        words = program.words(start.job.steps, start.job.batch_size // max(1, len(task.shares)))
        return ProgramOrder(words, self._variables(settings), program.resumes)

    def started(self, start: Start, begin_ns: int, times: StepTimes) -> None:
        """A run of a program begins."""
        self._running[start.job.job_id] = _Running(start.steps_done, begin_ns, times)

    def steps_done(self, job_id: str, now_ns: int) -> int | None:
        """By its profile; None: the job runs no program."""
        running = self._running.get(job_id)
        return None if running is None else running.steps_done(now_ns)

    def _variables(self, settings: Path) -> Mapping[str, str]:
        assert self._libraries is not None
        return launch.environment(self._libraries, settings, {})
