"""What a traced job takes on a GPU type: step time, MFU, memory, and what bounds it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.units import NS_PER_S, to_s
from emulator_runtime.prediction.estimators import Anchored, Estimator, KernelTable, Roofline
from emulator_runtime.prediction.intervals import Interval, total, union, within, without
from emulator_runtime.prediction.learned.estimator import learned_estimator
from emulator_runtime.prediction.links import NETWORK_GBPS, SEND_RECEIVE, CollectiveEstimator, Links
from emulator_runtime.prediction.network.contention import Contention, replay
from emulator_runtime.prediction.network.fabric import Fabric
from emulator_runtime.prediction.network.topology import RING, TREE, Topology
from emulator_runtime.prediction.records import Collective, Copy, Launch, RankTrace, Trace
from emulator_runtime.prediction.simulation import RankRun
from emulator_runtime.prediction.steps import (
    LONGEST,
    SHORTEST,
    ComputeWork,
    Steps,
    compute_work,
    estimate_of,
    find_steps,
    step_factor,
    step_ns,
    step_works,
)

COMMUNICATION, BUBBLE, PEERS, COPIES, HOST = "communication", "bubble", "peers", "copies", "host"
"""Where a device's time goes beside what its own work is limited by (estimators.COMPUTE, MEMORY, LAUNCH): collectives and copies
beside which it computes nothing, waiting for the other side of a message (BUBBLE) or for other ranks at a collective (PEERS), and
waiting for the host."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is known beside the GPU type. `network_gbps`: of a node, one direction. `kernel_table`: measured times. `topology`:
    None: nodes as they were recorded, with `network_gbps`. `shared_links`: collectives that run at once share their links.
    `sm_share`: part of the compute units that a collective takes from kernels beside it (0 to below 1). `learned`: a file of
    `emugpu profile import-trace`."""

    network_gbps: float = NETWORK_GBPS
    kernel_table: Path | None = None
    topology: Topology | None = None
    shared_links: bool = True
    sm_share: float = 0.0
    learned: Path | None = None

    def estimator(self, roofline: Roofline) -> Estimator:
        """Measured times where there are any, else what was learned, else the roofline's. Raises InputError and OSError."""
        estimator: Estimator = roofline
        if self.learned is not None:
            estimator = learned_estimator(self.learned, roofline.spec.gpu_type, roofline)
        if self.kernel_table is None:
            return estimator
        return KernelTable(self.kernel_table, estimator, roofline.constants.kernel_ns)


STANDARD_CONDITIONS = Conditions()


@dataclass(frozen=True, slots=True)
class RankPrediction:
    """`step_s`: mean of the `steps` that were found, but for the first ones; None: none was. `seconds`: where that time goes, by
    COMPUTE, MEMORY, LAUNCH, COMMUNICATION, BUBBLE, PEERS, COPIES, HOST; of the whole trace if there is no step. `mfu`: the time
    that the device would need at peak rates for the operations of a step, as a share of it. `factor`: on estimates, if they are
    anchored. `memory_bytes`: peak by device. `source_s`: estimated time of the work by the source of the estimates.
    `source_errors`: relative error of these times, where the source states it, weighted by time. `last_step_ns`: when the last
    step began and ended in the run; the whole run if there is no step. `stands_for`: how many ranks of the job do the same,
    itself among them."""

    rank: int
    total_s: float
    steps: int
    step_s: float | None
    seconds: Mapping[str, float]
    mfu: float | None
    factor: float | None
    memory_bytes: Mapping[int, int]
    source_s: Mapping[str, float]
    last_step_ns: Interval = (0, 0)
    source_errors: Mapping[str, float] = field(default_factory=dict)
    stands_for: int = 1


@dataclass(frozen=True, slots=True)
class Prediction:
    """A job on a GPU type, of which a device has `device_memory_bytes`."""

    gpu_type: str
    device_memory_bytes: int
    ranks: Sequence[RankPrediction]
    runs: Sequence[RankRun] = field(repr=False, default=())
    settled: bool = True
    """Whether the times of collectives that share links were found (network/contention.py)."""

    @property
    def total_s(self) -> float:
        return max(rank.total_s for rank in self.ranks)

    @property
    def step_s(self) -> float | None:
        """Of the slowest rank; None if a rank has no steps."""
        times = [rank.step_s for rank in self.ranks]
        return None if None in times else max(time for time in times if time is not None)

    @property
    def gpus(self) -> int:
        """Devices that the job uses."""
        return sum(max(1, len(rank.memory_bytes)) * rank.stands_for for rank in self.ranks)

    @property
    def mfu(self) -> float | None:
        """Mean over the job's ranks."""
        known = [rank.mfu * rank.stands_for for rank in self.ranks if rank.mfu is not None]
        return sum(known) / self.world_size if len(known) == len(self.ranks) else None

    @property
    def world_size(self) -> int:
        """Ranks of the job, also those that others stand for."""
        return sum(rank.stands_for for rank in self.ranks)

    @property
    def memory_bytes(self) -> int:
        """Peak of the device that has least left."""
        return max((peak for rank in self.ranks for peak in rank.memory_bytes.values()), default=0)

    @property
    def out_of_memory(self) -> tuple[int, ...]:
        """Ranks that need more memory than a device has."""
        return tuple(
            rank.rank
            for rank in self.ranks
            if any(peak > self.device_memory_bytes for peak in rank.memory_bytes.values())
        )

    @property
    def seconds(self) -> Mapping[str, float]:
        """Where the time of a step goes, mean over the job's ranks."""
        parts = dict.fromkeys(part for rank in self.ranks for part in rank.seconds)
        return {
            part: sum(rank.seconds.get(part, 0.0) * rank.stands_for for rank in self.ranks) / self.world_size
            for part in parts
        }

    @property
    def sources(self) -> Mapping[str, tuple[float, float | None]]:
        """By the source of estimates: its share of the estimated time, and the largest of the ranks' errors if they have any."""
        total_s = sum(seconds for rank in self.ranks for seconds in rank.source_s.values())
        shares: defaultdict[str, float] = defaultdict(float)
        errors: dict[str, float] = {}
        for rank in self.ranks:
            for source, seconds in rank.source_s.items():
                shares[source] += seconds / total_s if total_s else 0.0
            for source, error in rank.source_errors.items():
                errors[source] = max(error, errors.get(source, 0.0))
        return {source: (share, errors.get(source)) for source, share in shares.items()}

    @property
    def bound(self) -> str:
        """The part that takes most time."""
        seconds = self.seconds
        return max(seconds, key=lambda part: seconds[part]) if any(seconds.values()) else HOST


def recorded_type(trace: Trace) -> str:
    """The GPU type under which a trace was recorded. Raises InputError if that isn't one."""
    types = sorted({gpu_type for rank in trace.ranks for gpu_type in rank.gpu_types})
    if len(types) != 1:
        has = f"the GPU types {', '.join(types)}" if types else "no GPU type"
        raise InputError("--gpu", f"the trace was recorded with {has}; name the one to predict for")
    return types[0]


@dataclass(frozen=True, slots=True)
class Anchors:
    """For each rank its step and the factor on its estimates."""

    steps: Sequence[Steps]
    factors: Sequence[float]


class Predictor:
    """Predictions of one trace. What doesn't depend on the GPU type, such as its steps, is found once."""

    def __init__(self, trace: Trace) -> None:
        """Raises InputError for a trace without ranks."""
        if not trace.ranks:
            raise InputError("TRACE", "has no ranks")
        self.trace = trace
        self._works = [compute_work(rank) for rank in trace.ranks]

    def predict(
        self, gpu_type: str, conditions: Conditions = STANDARD_CONDITIONS, anchors: Anchors | None = None
    ) -> Prediction:
        """The job on a GPU type of the catalogue, an alias or a MIG instance.

        Raises UnknownNameError for a type that doesn't exist, DeadlockError, and InputError for a trace that contradicts itself.
        """
        roofline = Roofline(gpu_type)
        others = conditions.estimator(roofline)
        steps: Sequence[Steps | None] = self._steps if anchors is None else anchors.steps
        estimators = [others] * len(steps) if anchors is None else _anchored(others, anchors.factors)
        links, contention = _network(roofline.spec, conditions, self.trace)
        found = replay(self.trace, lambda place, device: estimators[place], links, contention)
        runs = found.runs
        ranks = tuple(
            _RankReport(run, work, steps_of_rank, estimator, roofline).prediction()
            for run, work, steps_of_rank, estimator in zip(runs, self._works, steps, estimators, strict=True)
        )
        return Prediction(roofline.spec.gpu_type, roofline.spec.memory_bytes, ranks, runs, settled=found.settled)

    def anchor(self, gpu_type: str, step_s: float, conditions: Conditions = STANDARD_CONDITIONS) -> Anchors:
        """The factors with which a step takes so long on a GPU type. Raises InputError if a rank has no step that is near it."""
        estimator = conditions.estimator(Roofline(gpu_type))
        pairs = zip(self.trace.ranks, self._works, strict=True)
        steps, factors = zip(*(_anchor(rank, work, estimator, step_s) for rank, work in pairs), strict=True)
        return Anchors(steps, factors)

    @cached_property
    def _steps(self) -> list[Steps | None]:
        found: list[Steps | None] = []
        for number, work in enumerate(self._works):
            same = number > 0 and work.keys == self._works[number - 1].keys  # ranks mostly do the same
            found.append(found[-1] if same else find_steps(work.keys))
        return found


def _network(spec: GpuSpec, conditions: Conditions, trace: Trace) -> tuple[CollectiveEstimator, Contention]:
    """What collectives take alone, and what they share. Without a topology they take what they do on emulated GPUs.

    Ranks that stand for others have fixed shares of the network (Communicator.network_share), since what the others send isn't
    replayed. Raises InputError for a topology on which such ranks would have to be placed.
    """
    topology = conditions.topology
    if any(rank.stands_for > 1 for rank in trace.ranks):
        if topology is not None:
            raise InputError(
                "--topology",
                "and the options that place ranks anew can't be used for ranks that stand for others; "
                "trace with --gpus-per-node, or trace all ranks",
            )
        return Links.between([spec], conditions.network_gbps), Contention(None, conditions.sm_share)
    recorded = Topology(network_gbps=conditions.network_gbps, algorithms=(RING, TREE))
    fabric = Fabric.of(topology or recorded, spec, trace.ranks)
    links = fabric if topology is not None else Links.between([spec], conditions.network_gbps)
    return links, Contention(fabric if conditions.shared_links else None, conditions.sm_share)


def _anchored(others: Estimator, factors: Sequence[float]) -> list[Estimator]:
    """One object for equal factors, so that the simulation looks durations up once."""
    by_factor = {factor: Anchored(others, factor) for factor in factors}
    return [by_factor[factor] for factor in factors]


def _anchor(rank: RankTrace, work: ComputeWork, estimator: Estimator, step_s: float) -> tuple[Steps, float]:
    wanted_ns = step_s * NS_PER_S

    def fits(steps: Steps) -> bool:
        estimate_ns = step_ns(step_works(work, steps, rank, estimator))
        return SHORTEST * wanted_ns <= estimate_ns <= LONGEST * wanted_ns

    steps = find_steps(work.keys, fits)
    if steps is None:
        raise InputError(
            "--step-time",
            f"rank {rank.rank} does nothing twice in a row that takes {SHORTEST} to {LONGEST} times {step_s * 1000:.3f} ms "
            "by estimates; trace at least two steps, and give the time of one",
        )
    return steps, step_factor(step_works(work, steps, rank, estimator), wanted_ns)


@dataclass(frozen=True, slots=True)
class _RankReport:
    """A rank's run, read for what is worth knowing."""

    run: RankRun
    work: ComputeWork
    steps: Steps | None
    estimator: Estimator
    roofline: Roofline

    def prediction(self) -> RankPrediction:
        window, rounds, numbers = (0, self.run.end_ns), 1, range(len(self.work.records))
        if self.steps is not None:
            window, rounds = self._steady(self.steps)
            numbers = range(self.steps.first, self.steps.first + self.steps.length)
        limits, sources, errors, ideal_s = self._work_of([self.work.records[number] for number in numbers])
        length_s = to_s(window[1] - window[0]) / rounds
        context_bytes = self.roofline.context_bytes - self.run.trace.context_bytes
        return RankPrediction(
            rank=self.run.trace.rank,
            total_s=to_s(self.run.end_ns),
            steps=0 if self.steps is None else self.steps.count,
            step_s=None if self.steps is None else length_s,
            seconds={**limits, **self._idle_s(window, rounds)},
            mfu=ideal_s / length_s if ideal_s and length_s else None,
            factor=self.estimator.factor if isinstance(self.estimator, Anchored) else None,
            memory_bytes={device: peak + context_bytes for device, peak in self.run.memory_peaks.items()},
            source_s=sources,
            last_step_ns=(window[1] - (window[1] - window[0]) // rounds, window[1]),
            source_errors=errors,
            stands_for=self.run.trace.stands_for,
        )

    def _steady(self, steps: Steps) -> tuple[Interval, int]:
        """The time of the steps that are like each other, and how many these are. In the first one a program makes its state
        and pipelines fill; how late the host was with it shows in when the second one begins."""
        skipped = min(2, steps.count - 1)
        first = self.work.records[steps.first + skipped * steps.length - 1]
        last = self.work.records[steps.first + steps.count * steps.length - 1]
        spans = self.run.device_work
        ends = {index: end for index, end in zip(spans.records, spans.ends_ns, strict=True) if index in (first, last)}
        return (ends[first], ends[last]), steps.count - skipped

    def _work_of(self, records: Sequence[int]) -> tuple[dict[str, float], dict[str, float], dict[str, float], float]:
        """Seconds of work by what limits it and by the source of the estimate, the source's error, and seconds at peak rates of
        the data sheet."""
        limits: defaultdict[str, float] = defaultdict(float)
        sources: defaultdict[str, float] = defaultdict(float)
        wrong: defaultdict[str, float] = defaultdict(float)
        ideal_s = 0.0
        for index in records:
            record = self.run.trace.records[index]
            estimate = estimate_of(record, self.estimator)
            limits[estimate.limit] += to_s(estimate.duration_ns)
            sources[estimate.source] += to_s(estimate.duration_ns)
            if estimate.error is not None:
                wrong[estimate.source] += to_s(estimate.duration_ns) * estimate.error
            if isinstance(record, Launch) and record.work.flops:
                ideal_s += record.work.flops / self.roofline.peak_operations_per_s(record.work.precision)
        errors = {source: seconds / sources[source] for source, seconds in wrong.items() if sources[source]}
        return dict(limits), dict(sources), errors, ideal_s

    def _idle_s(self, window: Interval, rounds: int) -> dict[str, float]:
        """Seconds of a step in which the compute units do nothing, by the reason."""
        engine, calls = self.run.compute.get(self.work.device), self.run.collectives
        taken = within(zip(engine.starts, engine.ends, strict=True), *window) if engine else []
        waits: dict[str, list[Interval]] = {BUBBLE: [], PEERS: []}
        for index, arrival_ns, start_ns in zip(calls.records, self.run.arrivals_ns, calls.starts_ns, strict=True):
            call = self.run.trace.records[index]
            message = isinstance(call, Collective) and call.operation == SEND_RECEIVE
            waits[BUBBLE if message else PEERS].append((arrival_ns, start_ns))
        reasons = (
            (COMMUNICATION, zip(calls.starts_ns, calls.ends_ns, strict=True)),
            *waits.items(),
            (COPIES, self._copies()),
        )
        seconds = {}
        for reason, intervals in reasons:
            found = without(union(within(intervals, *window)), taken)
            seconds[reason] = to_s(total(found)) / rounds
            taken = union([*taken, *found])
        seconds[HOST] = to_s(window[1] - window[0] - total(taken)) / rounds
        return seconds

    def _copies(self) -> Iterator[Interval]:
        work, records = self.run.device_work, self.run.trace.records
        for index, start_ns, end_ns in zip(work.records, work.starts_ns, work.ends_ns, strict=True):
            if isinstance(records[index], Copy):
                yield start_ns, end_ns
