"""The order of a job process: one uninterrupted run of a job on the devices of its grants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.domain.job import ModelWork, TimedWork, Work
from emulator_runtime.domain.sensitivity import HostShare, Knots, Sensitivity
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.ipc.fields import flag, mapping, mappings, seconds, text, texts, whole
from emulator_runtime.ipc.frames import Message
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.work import Spread, step_times


@dataclass(frozen=True, slots=True)
class ProgramOrder:
    """A program that runs in place of emulated training (program_run.py). `variables`: by which it finds its devices."""

    words: tuple[str, ...]
    variables: Mapping[str, str]
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One run of a job. Times are emulated nanoseconds.

    `begin_ns`: when the first step begins, if the process is ready by then (it includes start, restore and warm-up).
    `release_ns`: time from the last step of a stopped run until its devices are free. `gpu_type`: empty for a CPU
    configuration. `profiles`: a file with the user's profiles, or empty. `cpu_milli` and `host_memory_bytes`: CPUs and
    memory at the start of the run; they may change during the run. A gang has `gpus` devices on each node and one grant
    from each node's manager; `others` are the grants of all nodes except the first, as (socket, token). `linked` and
    `nodes_linked`: which of its devices NVLink joins (Spread). Step `first_step` begins with sample `first_sample`, and
    each step has `step_samples`; `steps` is the number of steps at the end of the job. `program` None: training is emulated.
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
    host_memory_bytes: int = 0
    gpus: int = 1
    others: tuple[tuple[Path, str], ...] = ()
    linked: bool = True
    nodes_linked: bool = False
    first_step: int = 0
    first_sample: int = 0
    step_samples: int = 1
    program: ProgramOrder | None = None

    @property
    def host(self) -> HostShare:
        """The CPUs and memory with which the run starts."""
        return HostShare(self.cpu_milli, self.host_memory_bytes)

    def profile_table(self) -> ProfileTable | None:
        """The profiles for this work; None for work that needs none. Raises InputError for an invalid file."""
        if not isinstance(self.work, ModelWork):
            return None
        return ProfileTable.bundled().with_file(self.profiles) if self.profiles else ProfileTable.bundled()

    def step_times(self, profiles: ProfileTable | None, host: HostShare | None = None) -> StepTimes:
        """When the steps end, with `host` instead of the order's share if given. Raises errors of the profile look-up."""
        spread = Spread(self.gpus, 1 + len(self.others), self.linked, self.nodes_linked)
        return step_times(self.work, self.steps, self.gpu_type or None, host or self.host, profiles, spread=spread)

    def samples_done(self, steps_done: int) -> int:
        """Samples that are done when `steps_done` steps are, before the end of the job."""
        return self.first_sample + (steps_done - self.first_step) * self.step_samples

    def memory_bytes(self, profiles: ProfileTable | None) -> tuple[int, int]:
        """(persistent, peak) on each device. The job states the peak; the persistent part comes from the model's profile."""
        if isinstance(self.work, ModelWork) and profiles is not None:
            _, persistent = profiles.memory(self.work.model, self.work.batch_size)
            return min(persistent, self.device_memory_bytes), self.device_memory_bytes
        return self.device_memory_bytes, self.device_memory_bytes

    def to_message(self) -> Message:
        program = {"program": _program_message(self.program)} if self.program is not None else {}
        return program | {
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
            "host_memory_bytes": self.host_memory_bytes,
            "gpus": self.gpus,
            "others": [{"manager": str(manager), "token": token} for manager, token in self.others],
            "linked": self.linked,
            "nodes_linked": self.nodes_linked,
            "first_step": self.first_step,
            "first_sample": self.first_sample,
            "step_samples": self.step_samples,
        }

    @classmethod
    def from_message(cls, message: Message) -> RunOrder:
        """The order in a message. Raises ProtocolError naming the field."""
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
            host_memory_bytes=whole(message, "host_memory_bytes", 0),
            gpus=whole(message, "gpus", 1),
            others=tuple((Path(text(each, "manager")), text(each, "token")) for each in mappings(message, "others")),
            linked=flag(message, "linked", default=True),
            nodes_linked=flag(message, "nodes_linked"),
            first_step=whole(message, "first_step", 0),
            first_sample=whole(message, "first_sample", 0),
            step_samples=whole(message, "step_samples", 1, least=1),
            program=_program(mapping(message, "program")) if "program" in message else None,
        )


def _program_message(program: ProgramOrder) -> Message:
    return {"words": list(program.words), "variables": dict(program.variables), "resumes": program.resumes}


def _program(message: Message) -> ProgramOrder:
    variables = mapping(message, "variables")
    words = texts(message, "words")
    if not words:
        raise ProtocolError("field 'words' must not be empty: it is the command")
    variable_texts = {name: text(variables, name) for name in variables}
    return ProgramOrder(tuple(words), variable_texts, flag(message, "resumes"))


def _work_message(work: Work) -> Message:
    stages = asdict(work.stages) if work.stages else {}
    if isinstance(work, TimedWork):
        stated: Message = {"duration_s": work.duration_s, "host_s": work.host_s}
        if work.sensitivity is not None:
            stated |= {"cpu_speeds": _lists(work.sensitivity.cpu), "memory_speeds": _lists(work.sensitivity.memory)}
        return stated | stages
    exchanges = {name: True for name in ("exchanges", "starts") if getattr(work, name)}
    stated = {
        "model": work.model,
        "batch_size": work.batch_size,
        "input_cpu_s": work.input_cpu_s,
        "host_s": work.host_s,
    }
    return stated | exchanges | stages


def _work(message: Message) -> Work:
    stages = StageTimes(*(whole(message, field.name, 0) for field in fields(StageTimes)))
    if "duration_s" in message:
        speeds = _sensitivity(message) if "cpu_speeds" in message else None
        return TimedWork(seconds(message, "duration_s"), speeds, seconds(message, "host_s", 0.0), stages)
    return ModelWork(
        text(message, "model"),
        whole(message, "batch_size", least=1),
        seconds(message, "input_cpu_s", 0.0),
        exchanges=flag(message, "exchanges"),
        starts=flag(message, "starts"),
        host_s=seconds(message, "host_s", 0.0),
        stages=stages,
    )


def _lists(curve: Knots) -> list[list[int | float]]:
    return [[amount, speed] for amount, speed in curve]


def _sensitivity(message: Message) -> Sensitivity:
    try:
        cpu, memory = (
            tuple((int(amount), float(speed)) for amount, speed in message[name])
            for name in ("cpu_speeds", "memory_speeds")
        )
        return Sensitivity(cpu, memory)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"cpu_speeds and memory_speeds must be lists of [amount, speed]: {error}") from error
