"""What a job process is told to run: one uninterrupted run of a job on the devices of one grant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.job import ModelWork, TimedWork, Work
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.ipc.fields import mapping, seconds, text, whole
from emulator_runtime.ipc.frames import Message
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.work import step_times


@dataclass(frozen=True, slots=True)
class RunOrder:
    """Times are emulated nanoseconds.

    `begin_ns`: when the first step begins, if the process is ready by then (start, restore and warm-up are in it).
    `release_ns`: from the last step of a stopped run until its devices are free. `gpu_type` empty: a CPU configuration.
    `profiles`: a file of the user's own, or empty.
    """

    manager: Path
    token: str
    job_id: str
    steps: int
    work: Work
    gpu_type: str
    cpu_milli: int
    device_memory_bytes: int
    begin_ns: int
    release_ns: int
    checkpoint: Path
    profiles: str = ""

    def profile_table(self) -> ProfileTable | None:
        """The profiles that this work is looked up in; None for work that needs none. Raises InputError for a bad file."""
        if not isinstance(self.work, ModelWork):
            return None
        return ProfileTable.bundled().with_file(self.profiles) if self.profiles else ProfileTable.bundled()

    def step_times(self, profiles: ProfileTable | None) -> StepTimes:
        """When the steps end. Raises errors of the profile look-up."""
        return step_times(self.work, self.steps, self.gpu_type or None, self.cpu_milli, profiles)

    def memory_bytes(self, profiles: ProfileTable | None) -> tuple[int, int]:
        """(persistent, peak) on each device. The peak is what the job states; a model's profile tells the persistent part."""
        if isinstance(self.work, ModelWork) and profiles is not None:
            _, persistent = profiles.memory(self.work.model, self.work.batch_size)
            return min(persistent, self.device_memory_bytes), self.device_memory_bytes
        return self.device_memory_bytes, self.device_memory_bytes

    def to_message(self) -> Message:
        return {
            "op": "run",
            "manager": str(self.manager),
            "token": self.token,
            "job_id": self.job_id,
            "steps": self.steps,
            "work": _work_message(self.work),
            "gpu_type": self.gpu_type,
            "cpu_milli": self.cpu_milli,
            "device_memory_bytes": self.device_memory_bytes,
            "begin_ns": self.begin_ns,
            "release_ns": self.release_ns,
            "checkpoint": str(self.checkpoint),
            "profiles": self.profiles,
        }

    @classmethod
    def from_message(cls, message: Message) -> RunOrder:
        """Raises ProtocolError that names the field."""
        return cls(
            manager=Path(text(message, "manager")),
            token=text(message, "token"),
            job_id=text(message, "job_id"),
            steps=whole(message, "steps", least=1),
            work=_work(mapping(message, "work")),
            gpu_type=text(message, "gpu_type", ""),
            cpu_milli=whole(message, "cpu_milli", 1000, least=1),
            device_memory_bytes=whole(message, "device_memory_bytes", 0),
            begin_ns=whole(message, "begin_ns", 0),
            release_ns=whole(message, "release_ns", 0),
            checkpoint=Path(text(message, "checkpoint")),
            profiles=text(message, "profiles", ""),
        )


def _work_message(work: Work) -> Message:
    if isinstance(work, TimedWork):
        return {"duration_s": work.duration_s}
    return {"model": work.model, "batch_size": work.batch_size, "input_cpu_s": work.input_cpu_s}


def _work(message: Message) -> Work:
    if "duration_s" in message:
        return TimedWork(seconds(message, "duration_s"))
    return ModelWork(
        text(message, "model"), whole(message, "batch_size", least=1), seconds(message, "input_cpu_s", 0.0)
    )
