"""Which part of a rank's work is a training step, and the factor on estimates that gives it a measured time.

A step is a sequence of work that repeats, as in the online emulation (cuda/src/core/step.c). The core looks at the last works
while the program runs; here the whole trace is there, so that evaluation at its end or an irregular beginning does no harm.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import eq

from emulator_runtime.prediction.estimators import TABLE, Estimate, Estimator
from emulator_runtime.prediction.records import Copy, HostWaits, Launch, Mark, RankTrace, Work

SHORTEST, LONGEST = 0.4, 2.5
"""A step by estimates may be so much shorter or longer than the measured one."""
_LEAST_FACTOR, _LARGEST_FACTOR, _HALVINGS = 0.02, 50.0, 60
_CANDIDATES = 12


@dataclass(frozen=True, slots=True)
class ComputeWork:
    """What a rank gives to the compute units of the device that it uses most: the indexes of the records, a key for each that is
    equal for equal work, and before which of them the program waited until the device had nothing to do."""

    device: int
    records: array[int]
    keys: list[int]
    waited: frozenset[int]


@dataclass(frozen=True, slots=True)
class Steps:
    """`count` steps of `length` works each, from number `first` of the works on."""

    first: int
    length: int
    count: int


@dataclass(frozen=True, slots=True)
class StepWork:
    """A piece of work in a step (emu_step_work in the core). `measured`: the factor doesn't apply to the duration."""

    duration_ns: int
    dispatch_ns: int = 0
    measured: bool = False
    waited: bool = False


def compute_work(rank: RankTrace) -> ComputeWork:
    """The work of a rank, as far as steps are found by it."""
    launches = Counter(record.device for record in rank.records if isinstance(record, Launch))
    device = launches.most_common(1)[0][0] if launches else 0
    records, keys, waited = array("q"), list[int](), set[int]()
    by_identity, by_value = dict[int, int](), dict[Work | tuple[int, int, int], int]()
    last_mark, last_work = -1, -1
    for index, record in enumerate(rank.records):
        if isinstance(record, Launch):
            if record.device != device:
                continue
            key = by_identity.get(id(record.work), -1)
            if key < 0:
                key = by_identity[id(record.work)] = by_value.setdefault(record.work, len(by_value))
        elif isinstance(record, Copy):
            if not record.to_device == record.from_device == device:
                continue
            key = by_value.setdefault((record.to_device, record.from_device, record.bytes), len(by_value))
        else:
            if isinstance(record, Mark):
                last_mark = index
            elif isinstance(record, HostWaits) and last_mark > last_work:
                waited.add(len(keys))
            continue
        records.append(index)
        keys.append(key)
        last_work = index
    return ComputeWork(device, records, keys, frozenset(waited))


def find_steps(keys: Sequence[int], fits: Callable[[Steps], bool] = lambda steps: True) -> Steps | None:
    """The shortest sequence whose repetitions cover over half of what any sequence's cover; a layer's cover a part of a step.

    `fits`: whether what repeats may be a step. None: nothing comes twice in a row.
    """
    runs = [run for length in _candidates(keys) if (run := _longest_run(keys, length)) and fits(run)]
    longest = max((run.length * run.count for run in runs), default=0)
    return min((run for run in runs if 2 * run.length * run.count > longest), key=lambda run: run.length, default=None)


def _candidates(keys: Sequence[int]) -> Iterable[int]:
    """Likely lengths: distances between equal works, by how much of the sequence they span."""
    last: dict[int, int] = {}
    spans: Counter[int] = Counter()
    for index, key in enumerate(keys):
        if key in last:
            distance = index - last[key]
            spans[distance] += distance
        last[key] = index
    return [distance for distance, _ in spans.most_common(_CANDIDATES)]


def _longest_run(keys: Sequence[int], length: int) -> Steps | None:
    """The longest part of the sequence that repeats itself after `length` works, at least twice in a row."""
    equal = bytes(map(eq, keys, islice(keys, length, None)))
    run = max(equal.split(b"\0"), key=len)
    if len(run) < length:
        return None
    return Steps(equal.index(run), length, len(run) // length + 1)


def step_works(work: ComputeWork, steps: Steps, rank: RankTrace, estimator: Estimator) -> list[StepWork]:
    """The works of the last step."""
    first = steps.first + (steps.count - 1) * steps.length
    found = []
    for number in range(first, first + steps.length):
        record = rank.records[work.records[number]]
        estimate = estimate_of(record, estimator)
        dispatch_ns = 0
        if isinstance(record, Launch) and record.dispatched:
            dispatch_ns = estimator.dispatch_ns if estimate.dispatch_ns is None else estimate.dispatch_ns
        waited = number in work.waited
        found.append(StepWork(estimate.duration_ns, dispatch_ns, estimate.source == TABLE, waited))
    return found


def estimate_of(record: object, estimator: Estimator) -> Estimate:
    """Of a launch or a copy."""
    if isinstance(record, Launch):
        return estimator.work(record.work)
    assert isinstance(record, Copy)
    return estimator.copy(record.to_device, record.from_device, record.bytes)


def step_ns(works: Sequence[StepWork], factor: float = 1.0) -> float:
    """How long these works take if they are done again and again, estimates multiplied by `factor`."""
    launched_ns = end_ns = first_end_ns = 0.0
    for _ in range(2):  # the first round fills the pipeline
        first_end_ns = end_ns
        for work in works:
            if work.waited and launched_ns < end_ns:
                launched_ns = end_ns
            start_ns = max(launched_ns, end_ns)
            end_ns = start_ns + work.duration_ns * (1.0 if work.measured else factor)
            launched_ns += work.dispatch_ns * factor
    return end_ns - first_end_ns


def step_factor(works: Sequence[StepWork], wanted_ns: float) -> float:
    """The factor with which they take so long, between 0.02 and 50."""
    low, high = _LEAST_FACTOR, _LARGEST_FACTOR
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if step_ns(works, middle) < wanted_ns:
            low = middle
        else:
            high = middle
    return high
