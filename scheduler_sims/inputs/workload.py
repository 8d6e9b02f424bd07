"""Reads a workload (CSV or Parquet, one job per row) into JobSpecs, and knows what the jobs really cost.

A row gives durations (`gpu_duration_s`, `cpu_duration_s`: isolated run time in that configuration), a profiled model with
a number of steps (`model`, `batch_size` per GPU, `steps`), or a model whose speed depends on its CPUs and host memory
(`model` synergy/..., `steps`). Columns that a workload doesn't need may be left out.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from pathlib import Path

from emulator_runtime.domain.errors import BeyondProfileError, EmuGpuError, InputError, UnknownNameError
from emulator_runtime.domain.job import (
    STEPS_PLACE,
    Configuration,
    JobSpec,
    ModelWork,
    Program,
    TimedWork,
    Work,
)
from emulator_runtime.domain.mig import instance_types
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.units import GIB, MAX_SECONDS, NS_PER_S, to_ns
from emulator_runtime.domain.wording import quoted
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.inputs import parallel_columns, sensitivity
from scheduler_sims.inputs.like_rows import CPU_CONFIGURATION, DEFAULT_STEPS, GPU_CONFIGURATION, MOST_WHOLE, Likes
from scheduler_sims.inputs.table_file import Table, csv_table, is_parquet, place_of, read_table

_ELASTIC = ("min_gpus", "max_gpus", "min_nodes", "max_nodes")
_STAGES = ("fetch_s", "transfer_s", "exchange_s")
_OF_PROGRAMS = ("resumes", "image")
_WITHOUT_RANGE = "is for jobs on one number of GPUs; leave it or the range out"
_WITHOUT_SENSITIVITY = "is for jobs whose speed doesn't depend on their CPUs and memory"

COLUMNS: Mapping[str, str] = {
    "job_id": "name of the job, unique",
    "user": "who submits it (default: user)",
    "submit_s": "submit time in emulated seconds (default 0)",
    "num_gpus": "GPUs of the GPU configuration, on all its nodes together (default 1)",
    "nodes": "nodes that the GPU configuration is split over equally, all at once (default 1); where it is given, a model's "
    "step includes the exchange of gradients between its GPUs",
    "min_gpus": "least GPUs of a job with a model or microbatches, where a policy may change their number (default: num_gpus)",
    "max_gpus": "most GPUs of such a job (default: num_gpus)",
    "min_nodes": "least nodes that a policy may split such a job over (default: nodes)",
    "max_nodes": "most nodes that a policy may split such a job over (default: nodes)",
    **parallel_columns.COLUMNS,
    "gpu_type": "GPU types that it may run on, separated by '|' (default: any)",
    "cpus": "CPUs of the GPU configuration, on all its nodes together (default 1)",
    "memory_gib": "host memory, on all its nodes together (default 0: not accounted)",
    "gpu_memory_gib": "peak memory on each GPU (default: from the model's profile, else 0)",
    "gpu_duration_s": "isolated run time on its GPUs (beside a model synergy/NAME: with its proportional share)",
    "cpu_duration_s": "isolated run time in its CPU configuration",
    "cpu_cpus": "CPUs of the CPU configuration (default 1)",
    "speedup": "how many times as fast it runs with best_cpus and best_memory_gib as with cpus and memory_gib (default 1)",
    "best_cpus": "CPUs beyond which it gets no faster (default: cpus)",
    "best_memory_gib": "host memory beyond which it gets no faster (default: memory_gib)",
    "model": "profiled model (see `emugpu profile list`, or synergy/NAME), instead of gpu_duration_s",
    "batch_size": "batch size per GPU of the model, with num_gpus GPUs",
    "input_cpu_s": "CPU seconds that the input pipeline needs per step (default 0)",
    "host_s": "seconds before each step in which the host works and the GPU waits, part of gpu_duration_s (default 0)",
    "fetch_s": "seconds for which a step's input needs the storage of each of the job's nodes (default 0)",
    "transfer_s": "seconds for which a step's input needs the link of each GPU (default 0)",
    "exchange_s": "seconds for which each step needs the network of each of the job's nodes when the GPUs are done (default 0)",
    "steps": f"training steps (default {DEFAULT_STEPS} for durations)",
    "weight": "share weight of the job (default 1)",
    "program": "the command of a training program, which then runs in place of emulated training; {steps} and {batch} in it are "
    "replaced",
    "resumes": "whether that program goes on from its own checkpoint after a stop: yes, or no (default: it begins anew)",
    "image": "the image that the program runs in on Kubernetes",
}
_TEXTS = frozenset(("job_id", "user", "gpu_type", "model", "program", "resumes", "image"))
_WHOLE = frozenset(("num_gpus", "nodes", "batch_size", "steps", *_ELASTIC, *parallel_columns.COLUMNS))


@dataclass(frozen=True)
class Workload:
    """The jobs of a workload in row order; `profiles` is the table that their models are looked up in.

    `lines`: where each job is in its file, see place_of; empty where they come from elsewhere.
    """

    name: str
    jobs: tuple[JobSpec, ...]
    profiles: ProfileTable
    lines: tuple[int, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[str, JobSpec]:
        return {job.job_id: job for job in self.jobs}

    def stretched(self, factor: float) -> Workload:
        """The same jobs on a longer (above 1) or shorter time line: submit times and durations are multiplied.

        Timed work keeps its number of steps; a model's steps take as long as they do, so it gets more or fewer of them (at
        least 1). Raises InputError for a factor that isn't above 0 and for a job that becomes too long.
        """
        if not 0 < factor <= MAX_SECONDS:
            raise InputError("--stretch", f"must be a number above 0 and at most {MAX_SECONDS:g}, not {factor:g}")
        return self if factor == 1 else replace(self, jobs=tuple(_stretched(job, factor) for job in self.jobs))

    def exchanging(self) -> Workload:
        """The same jobs as pods run them: the GPUs of a model's job exchange gradients, whether the file says `nodes` or not."""
        jobs = (replace(job, work={name: _exchanging(work) for name, work in job.work.items()}) for job in self.jobs)
        return replace(self, jobs=tuple(jobs))


def load_workload(path: Path, profiles_path: Path | None = None) -> Workload:
    """The workload in `path`; `profiles_path` adds the user's own profiles.

    Raises InputError that names file, line (of a Parquet file: row) and column.
    """
    profiles = ProfileTable.bundled()
    if profiles_path is not None:
        profiles = profiles.with_file(profiles_path)
    return _workload(read_table(path, "the workload"), path.name, profiles)


def parse_workload(text: str, place: str, name: str, profiles: ProfileTable) -> Workload:
    """The workload of a CSV file's text. Raises InputError that begins with `place`, the line and the column."""
    return _workload(csv_table(text, place), name, profiles)


def column_type(name: str) -> type:
    """How a Parquet file has this column: as str, float or int."""
    return str if name in _TEXTS else int if name in _WHOLE else float


def _workload(table: Table, name: str, profiles: ProfileTable) -> Workload:
    lines, jobs = zip(*_read(table, profiles), strict=True)
    return Workload(name, jobs, profiles, lines)


def _exchanging(work: Work) -> Work:
    return replace(work, exchanges=True) if isinstance(work, ModelWork) else work


def _stretched(job: JobSpec, factor: float) -> JobSpec:
    counted = any(isinstance(work, ModelWork) for work in job.work.values())
    if job.program is not None and not job.program.counts_steps:
        problem = f"can't change the length of job {job.job_id!r}: its program has no {STEPS_PLACE} in its command"
        raise InputError("--stretch", problem)
    work = {name: _stretched_work(work, factor) for name, work in job.work.items()}
    lengths = [job.submit_s * factor, *(each.duration_s for each in work.values() if isinstance(each, TimedWork))]
    if max(lengths) > MAX_SECONDS or min(lengths[1:], default=1.0) < 1 / NS_PER_S:
        raise InputError("--stretch", f"{factor:g} takes job {job.job_id!r} out of 1 ns to {MAX_SECONDS:g} s")
    steps = max(1, round(job.steps * factor)) if counted else job.steps
    return replace(job, submit_s=lengths[0], steps=steps, work=work)


def _stretched_work(work: Work, factor: float) -> Work:
    if not isinstance(work, TimedWork):
        return work
    return replace(
        work, duration_s=work.duration_s * factor, host_s=work.host_s * factor, stages=work.stages.stretched(factor)
    )


def _read(table: Table, profiles: ProfileTable) -> list[tuple[int, JobSpec]]:
    """The jobs with the number of their line or row; at least one."""
    header = _header(table)
    jobs: dict[str, tuple[int, JobSpec]] = {}
    likes = Likes(header)
    for row, (n, cells) in enumerate(table.rows):
        job = likes.job(cells, row)
        if job is None:
            where = place_of(table.place, n)
            job = _Row(dict(zip(header, cells, strict=False)), len(cells) - len(header), where, row, profiles).job()
            likes.learn(cells, job)
        if job.job_id in jobs:
            first = f"first in {'row' if is_parquet(table.place) else 'line'} {jobs[job.job_id][0]}"
            raise InputError(place_of(table.place, n), f"job_id {quoted(job.job_id)} is used twice, {first}")
        jobs[job.job_id] = (n, job)
    if not jobs:
        raise InputError(table.place, "has a header but no jobs")
    return list(jobs.values())


def _header(table: Table) -> Sequence[str]:
    if not table.header:
        raise InputError(table.place, f"is empty; the first line names columns of {', '.join(COLUMNS)}")
    for name in table.header:
        if name not in COLUMNS:
            raise UnknownNameError(table.header_place, "column", name, COLUMNS)
    if len(set(table.header)) < len(table.header):
        raise InputError(table.header_place, "a column is named twice")
    return table.header


@dataclass(frozen=True)
class _Row:
    """One row on its way from texts to a JobSpec."""

    cells: Mapping[str, str]
    surplus: int
    place: str
    row: int
    profiles: ProfileTable

    def job(self) -> JobSpec:
        if self.surplus != 0:
            raise InputError(self.place, f"has {abs(self.surplus)} cells too {'many' if self.surplus > 0 else 'few'}")
        job_id = self._text("job_id")
        if not job_id:
            raise InputError(f"{self.place}: job_id", "is missing")
        for column in ("job_id", "user"):
            if not self._text(column).isprintable():
                raise InputError(
                    f"{self.place}: {column}", f"has characters that can't be shown: {quoted(self._text(column))}"
                )
        configurations, work = self._ways()
        program = self._program(work)
        if program is not None:
            work = {name: replace(each, starts=True) for name, each in work.items() if isinstance(each, ModelWork)}
        return JobSpec(
            job_id=job_id,
            user=self._text("user") or "user",
            submit_s=self._number("submit_s", 0.0),
            steps=self._whole("steps", DEFAULT_STEPS, least=1),
            configurations=tuple(configurations),
            work=work,
            row=self.row,
            weight=self._number("weight", 1.0, least=1e-9),
            program=program,
        )

    def _program(self, work: Mapping[str, Work]) -> Program | None:
        """What the job runs. `work`: of its configurations."""
        if not self._text("program"):
            for column in _OF_PROGRAMS:
                if self._text(column):
                    raise InputError(
                        f"{self.place}: {column}", "belongs to a program; give its command in the column program"
                    )
            return None
        try:
            command = tuple(shlex.split(self._text("program")))
        except ValueError as error:
            raise InputError(f"{self.place}: program", f"isn't a command: {error}") from error
        if not all(isinstance(each, ModelWork) for each in work.values()):
            problem = "needs a model, whose profile says how long it takes (`emugpu profile from-trace`), and no cpu_duration_s"
            raise InputError(f"{self.place}: program", problem)
        for column in (*_ELASTIC, *parallel_columns.COLUMNS, *_STAGES, "host_s", "input_cpu_s"):
            if self._text(column):
                raise InputError(f"{self.place}: {column}", "is for emulated training; a program does what it does")
        if self._nodes() > 1:
            raise InputError(f"{self.place}: nodes", "a program runs on one node; leave nodes out")
        resumes = self._text("resumes") or "no"
        if resumes not in ("yes", "no"):
            raise InputError(f"{self.place}: resumes", f"must be yes or no, not {quoted(resumes)}")
        return Program(command, resumes == "yes", self._text("image"))

    def _ways(self) -> tuple[list[Configuration], dict[str, Work]]:
        configurations: list[Configuration] = []
        work: dict[str, Work] = {}
        if (known := self._gpu_work()) is not None:
            gpu_work, host = known
            configurations.append(self._gpu_configuration(gpu_work, host))
            work[GPU_CONFIGURATION] = gpu_work
        if self._text("cpu_duration_s"):
            cpu_milli = self._cpu_milli("cpu_cpus")
            configurations.append(Configuration(CPU_CONFIGURATION, 0, cpu_milli, self._memory("memory_gib")))
            work[CPU_CONFIGURATION] = TimedWork(self._number("cpu_duration_s", 1.0, least=1 / NS_PER_S))
        if not configurations:
            raise InputError(self.place, "says neither gpu_duration_s, cpu_duration_s nor model: how long does it run?")
        return configurations, work

    def _gpu_work(self) -> tuple[Work, sensitivity.Host] | None:
        model = self._text("model")
        timed, family = bool(self._text("gpu_duration_s")), sensitivity.named_family(model)
        for column in ("nodes", *parallel_columns.COLUMNS, *_STAGES) if not timed and not model else ():
            if self._text(column):
                problem = "is for jobs on GPUs; give gpu_duration_s or model, or leave it out"
                raise InputError(f"{self.place}: {column}", problem)
        nodes = self._nodes()
        least = HostShare(*(ceil(each / nodes) for each in (self._cpu_milli("cpus"), self._memory("memory_gib"))))
        if timed and not family:
            # A model beside a duration is a label: the duration counts.
            timed_work, host = sensitivity.of_columns(self._gpu_duration_s(), least, nodes, self._number, self.place)
            return replace(timed_work, host_s=self._host_s(timed_work), stages=self._stages(timed_work)), host
        for column in ("host_s", *parallel_columns.COLUMNS, *_STAGES) if family else ():
            if self._text(column):
                raise InputError(f"{self.place}: {column}", _WITHOUT_SENSITIVITY)
        for column in parallel_columns.COLUMNS:
            if self._text(column):
                problem = "belongs to gpu_duration_s; the profiles are of models that are whole on each GPU"
                raise InputError(f"{self.place}: {column}", problem)
        for column in sensitivity.COLUMNS:
            if self._text(column):
                raise InputError(
                    f"{self.place}: {column}", "belongs to gpu_duration_s; a model's speeds are in its profile"
                )
        if family:
            return self._family_work(model, least)
        if not model:
            return None
        if model not in self.profiles.models:
            raise UnknownNameError(f"{self.place}: model", "model", model, self.profiles.models)
        for needed in ("batch_size", "steps"):
            if not self._text(needed):
                raise InputError(f"{self.place}: {needed}", f"is missing, but model is {model}")
        batch_size, input_cpu_s = self._whole("batch_size", 1, least=1), self._number("input_cpu_s", 0.0)
        host_s, exchanges = self._number("host_s", 0.0), any(self._text(name) for name in ("nodes", *_ELASTIC))
        work = ModelWork(model, batch_size, input_cpu_s, exchanges=exchanges, host_s=host_s)
        work = replace(work, stages=self._stages(work))
        return work, sensitivity.Host(least, HostShare(0))

    def _host_s(self, work: TimedWork) -> float:
        """The host's part of each step, which must leave time for the GPU."""
        host_s, steps = self._number("host_s", 0.0), self._whole("steps", DEFAULT_STEPS, least=1)
        if host_s and work.sensitivity is not None:
            raise InputError(f"{self.place}: host_s", _WITHOUT_SENSITIVITY)
        if host_s * steps >= work.duration_s and host_s:
            problem = (
                f"{steps} steps with {host_s:g} s of the host each leave none of {work.duration_s:g} s for the GPU"
            )
            raise InputError(f"{self.place}: host_s", problem)
        return host_s

    def _stages(self, work: Work) -> StageTimes:
        """What each step needs of the resources that the jobs of a node share."""
        times = {column: to_ns(self._number(column, 0.0)) for column in _STAGES}
        for column in (column for column, stage_ns in times.items() if stage_ns):
            if isinstance(work, TimedWork) and work.sensitivity is not None:
                raise InputError(f"{self.place}: {column}", _WITHOUT_SENSITIVITY)
            if any(self._text(name) for name in _ELASTIC):
                raise InputError(f"{self.place}: {column}", _WITHOUT_RANGE)
        return StageTimes(*times.values())

    def _nodes(self) -> int:
        """How many equal parts the GPU configuration has."""
        nodes, gpus = self._whole("nodes", 1, least=1), self._whole("num_gpus", 1, least=1)
        if gpus % nodes:
            what = f"num_gpus {gpus}" if self._text("num_gpus") else f"num_gpus (not given: {gpus})"
            raise InputError(f"{self.place}: nodes", f"{what} can't be split equally over {nodes} nodes")
        return nodes

    def _gpu_range(self) -> tuple[range, range]:
        """From the least to the most GPUs, and nodes."""
        nodes, gpus = self._nodes(), self._whole("num_gpus", 1, least=1)
        least, most = (self._whole(column, gpus, least=1) for column in ("min_gpus", "max_gpus"))
        min_nodes, max_nodes = (self._whole(column, nodes, least=1) for column in ("min_nodes", "max_nodes"))
        samples = gpus * self._whole("batch_size", most, least=1)
        between = f"{min_nodes} to {nodes}" if min_nodes < nodes else f"{nodes}"
        for column, wrong, problem in (
            ("min_nodes", min_nodes > nodes, f"must be at most nodes ({nodes}), not {min_nodes}"),
            ("max_nodes", max_nodes < nodes, f"must be at least nodes ({nodes}), not {max_nodes}"),
            ("min_gpus", least > gpus, f"must be at most num_gpus ({gpus}), not {least}"),
            (
                "min_gpus",
                all(least % each for each in range(min_nodes, nodes + 1)),
                f"{least} can't be split equally over {between} nodes",
            ),
            ("max_gpus", most < gpus, f"must be at least num_gpus ({gpus}), not {most}"),
            (
                "max_gpus",
                most > samples,
                f"a step has {samples} samples, at most so many GPUs can have one; not {most}",
            ),
        ):
            if wrong:
                raise InputError(f"{self.place}: {column}", problem)
        return range(least, most + 1), range(min_nodes, max_nodes + 1)

    def _family_work(self, model: str, stated: HostShare) -> tuple[Work, sensitivity.Host]:
        """What the row states of `cpus` and `memory_gib` goes before what the profile says."""
        if not self._text("steps") and not self._text("gpu_duration_s"):
            raise InputError(f"{self.place}: steps", f"is missing, and so is gpu_duration_s, but model is {model}")
        duration_s = self._gpu_duration_s() if self._text("gpu_duration_s") else None
        steps, gpus = (self._whole(column, 1, least=1) for column in ("steps", "num_gpus"))
        work, host = sensitivity.of_family(model, (steps, duration_s), gpus // self._nodes(), f"{self.place}: model")
        cpu_milli = stated.cpu_milli if self._text("cpus") else host.least.cpu_milli
        least = HostShare(cpu_milli, stated.memory_bytes or host.least.memory_bytes)
        best = HostShare(max(cpu_milli, host.best.cpu_milli), max(least.memory_bytes, host.best.memory_bytes))
        return work, sensitivity.Host(least, best)

    def _gpu_configuration(self, work: Work, host: sensitivity.Host) -> Configuration:
        named = [name.strip() for name in self._text("gpu_type").split("|") if name.strip()]
        catalogue = self.profiles.catalogue
        types = tuple(catalogue.spec(name, f"{self.place}: gpu_type").gpu_type for name in named) or None
        memory = self._memory("gpu_memory_gib")
        nodes, gpus = self._nodes(), self._whole("num_gpus", 1, least=1)
        gpu_range, node_range = self._gpu_range()
        elastic = any(self._text(column) for column in _ELASTIC)
        numbers = parallel_columns.GpuRange(gpus, nodes, gpu_range.start, gpu_range[-1], node_range)
        parallelism = parallel_columns.parallelism(self._whole, numbers, self.place)
        if isinstance(work, ModelWork):
            largest = replace(work, batch_size=ceil(work.batch_size * gpus / gpu_range.start))
            types = self._profiled_types(largest, types)
            memory = memory or self._peak(largest)
        elif elastic and not parallelism.microbatches:
            problem = (
                "are for jobs whose speed on any number of GPUs is known: models (batch_size, steps), and durations with "
                "microbatches; others run on num_gpus"
            )
            raise InputError(f"{self.place}: {', '.join(_ELASTIC)}", problem)
        elif elastic and (work.sensitivity is not None or work.host_s):
            column = "host_s" if work.host_s else "speedup"
            raise InputError(f"{self.place}: {column}", _WITHOUT_RANGE)
        return Configuration(
            GPU_CONFIGURATION,
            gpus // nodes,
            host.least.cpu_milli,
            host.least.memory_bytes,
            types,
            memory,
            nodes,
            node_range[-1],
            best_cpu_milli=host.best.cpu_milli,
            best_memory_bytes=host.best.memory_bytes,
            min_gpus=gpu_range.start if elastic else 0,
            max_gpus=gpu_range[-1] if elastic else 0,
            fewest_tasks=node_range.start if node_range.start < nodes else 0,
            parallelism=parallelism,
        )

    def _profiled_types(self, work: ModelWork, types: tuple[str, ...] | None) -> tuple[str, ...]:
        """The types (of those named, else all and their MIG instances) that have a profile for this model at this batch size."""
        wanted = types or self.profiles.gpu_types_of(work.model)
        usable, reasons = [], {}
        for gpu_type in wanted:
            try:
                self.profiles.step_profile(work.model, gpu_type, work.batch_size)
            except BeyondProfileError:
                reasons[gpu_type] = self.profiles.last_measured_batch(work.model, gpu_type)
            except EmuGpuError as error:
                raise InputError(f"{self.place}: model", str(error)) from error
            else:
                usable.append(gpu_type)
        if not usable or (types and reasons):
            with_least = " on each of min_gpus" if self._text("min_gpus") else ""
            measured = ", ".join(f"{batch} on {gpu_type}" for gpu_type, batch in reasons.items())
            raise InputError(
                f"{self.place}: batch_size",
                f"{work.batch_size}{with_least} is beyond what was measured for {work.model} (up to {measured}); choose a "
                "smaller one",
            )
        return tuple(usable) if types else tuple(each for whole in usable for each in (whole, *instance_types(whole)))

    def _peak(self, work: ModelWork) -> int:
        try:
            return self.profiles.memory(work.model, work.batch_size)[0]
        except EmuGpuError as error:
            raise InputError(f"{self.place}: batch_size", str(error)) from error

    def _text(self, column: str) -> str:
        return self.cells.get(column, "").strip()

    def _gpu_duration_s(self) -> float:
        return self._number("gpu_duration_s", 1.0, least=1 / NS_PER_S)

    def _cpu_milli(self, column: str) -> int:
        return round(self._number(column, 1.0, least=0.001) * 1000)

    def _memory(self, column: str) -> int:
        return round(self._number(column, 0.0) * GIB)

    def _number(self, column: str, default: float, *, least: float = 0.0) -> float:
        text = self._text(column)
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= MAX_SECONDS:
            raise InputError(
                f"{self.place}: {column}", f"must be a number from {least:g} to {MAX_SECONDS:g}, not {quoted(text)}"
            )
        return value

    def _whole(self, column: str, default: int, *, least: int) -> int:
        text = self._text(column)
        if not text:
            return default
        digits = text.lstrip("0") or "0"
        wrong = not (text.isascii() and text.isdigit()) or len(digits) > len(str(MOST_WHOLE))
        if wrong or not least <= int(digits) <= MOST_WHOLE:
            problem = f"must be a whole number from {least} to {MOST_WHOLE}, not {quoted(text)}"
            raise InputError(f"{self.place}: {column}", problem)
        return int(digits)
