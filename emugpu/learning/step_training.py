"""Trains an estimator from whole steps alone: constants of the roofline, and weights of features of the works.

One step time says little about a single kernel, so that all move only as far from a common start as the step times ask for
(step_fit.py). Nothing of the catalogue's constants is used, since these were fitted to measurements, too. The error is that of
steps whose program was left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emugpu.learning.measured_steps import Copied, MeasuredStep
from emugpu.learning.step_fit import fit, step_times
from emugpu.learning.step_model import CONSTANTS, FIRST_FEATURE, KINDS, Array, StepModel, StepWorks
from emugpu.learning.training import error_of
from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.learned.estimator_file import LARGEST_RATIO, STEP, STEPS, Error, LearnedGpu
from emulator_runtime.prediction.learned.features import KINDS as KIND_NAMES
from emulator_runtime.prediction.learned.features import feature
from emulator_runtime.prediction.learned.trees import Forest
from emulator_runtime.prediction.records import Work
from emulator_runtime.profiles.cuda_properties import Roofline, cuda_properties

FEWEST_PROGRAMS = 5

START = Roofline(0.6, 0.6, 0.75, 1.0, 8.0, 8.0, 2000.0, 25000.0)
"""Where each fit begins: usual shares of peak rates."""
HOLD = Roofline(0.01, 0.3, 0.01, 0.05, 1.0, 1.0, 0.01, 0.01)
"""How strongly each constant is held there (step_fit.fit), of its logarithm."""
HOLD_OF_LAUNCHES = 0.03
"""The same for what a launch of a kind of work takes of the host, compared with others."""
_HOLD_OF_FEATURES = 0.02
_OF_CONVOLUTIONS = (
    "token=forward",
    "token=filter",
    "token=data",
    "pointwise",
    "pointwise*token=forward",
    "pointwise*token=filter",
    "dense_3x3",
    "dense_3x3*token=forward",
    "dense_3x3*token=filter",
    "large_filter",
    "large_filter*token=forward",
    "large_filter*token=filter",
    "strided",
    "narrow",
    "shallow",
    "log_gflop",
)
_OF_OTHERS = (
    "kind=memory_bound*token=forward",
    "kind=memory_bound*token=backward",
    "kind=memory_bound*log_mb",
    "kind=kernel",
    "kind=kernel*log_mb",
    "kind=kernel*token=add",
    "token=conv_depthwise2d_forward_kernel<3",
    "token=conv_depthwise2d_forward_kernel<5",
    "token=conv_depthwise2d_backward_kernel<3",
    "token=conv_depthwise2d_backward_kernel<5",
    "token=depthwise2d*token=weight",
    "token=pool",
    "token=reduce",
    "token=catarraybatchedcopy",
)
FEATURES: Mapping[str, float] = dict.fromkeys(
    (*(f"kind=convolution*{name}" for name in _OF_CONVOLUTIONS), *_OF_OTHERS), _HOLD_OF_FEATURES
)
"""Features that are given weights, and how strongly each weight is held at 0."""


@dataclass(frozen=True, slots=True)
class Task:
    """The model of some steps of a GPU type, ready for fits."""

    model: StepModel
    steps: Sequence[StepWorks]
    measured_ns: Array
    programs: Sequence[str]

    def fitted(self, programs: Collection[str] | None = None, begin: Array | None = None) -> Array:
        """The parameters by the steps of these programs, or of all. `begin`: where the search for them begins."""
        kept = [number for number, program in enumerate(self.programs) if programs is None or program in programs]
        steps = [self.steps[number] for number in kept]
        return fit(self.model, steps, self.measured_ns[kept], start(), hold(), begin=begin)

    def left_out(self) -> Iterator[tuple[str, Array]]:
        """Each program, and the parameters by the steps of all others. The search for them begins at those of a half of the
        programs, in which the program isn't, so that nothing of it is known."""
        programs = list(dict.fromkeys(self.programs))
        for own, others in ((programs[::2], programs[1::2]), (programs[1::2], programs[::2])):
            begin = self.fitted(others)
            for program in own:
                yield program, self.fitted({*programs} - {program}, begin)


def start() -> Array:
    """The parameters (step_model.CONSTANTS) where a fit is held."""
    constants = [float(getattr(START, name)) for name in CONSTANTS]
    return np.concatenate([np.log(constants), np.zeros(KINDS + len(FEATURES))])


def hold() -> Array:
    """How strongly."""
    constants = [float(getattr(HOLD, name)) for name in CONSTANTS]
    return np.array([*constants, *[HOLD_OF_LAUNCHES] * KINDS, *FEATURES.values()])


def task_of(measured: Sequence[MeasuredStep], gpu_type: str) -> Task:
    """Raises InputError for a GPU type without properties of its processors."""
    numbers: dict[Work | Copied, int] = {}
    steps = []
    for each in measured:
        works = np.array([numbers.setdefault(part.work, len(numbers)) for part in each.parts])
        distinct, own = np.unique(works, return_inverse=True)
        launched = np.array([part.launched for part in each.parts])
        waits = tuple(number for number, part in enumerate(each.parts) if part.waited)
        steps.append(StepWorks(distinct, own, launched, waits).turned())
    features = [found for name in FEATURES if (found := feature(name)) is not None]
    model = StepModel(list(numbers), cuda_properties(gpu_type, "--gpu"), features)
    model.x = model.describe(np.log([float(getattr(START, name)) for name in CONSTANTS]))
    return Task(model, steps, np.array([each.ns for each in measured]), [each.program for each in measured])


def left_out_errors(task: Task) -> list[float]:
    """Estimate / measured time - 1 of each step, by a fit without the steps of its program."""
    found = np.zeros(len(task.steps))
    for program, parameters in task.left_out():
        own = [number for number, each in enumerate(task.programs) if each == program]
        times, _ = step_times(task.model, [task.steps[number] for number in own], parameters)
        found[own] = times / task.measured_ns[own] - 1
    return [float(each) for each in found]


def train_steps(measured: Sequence[MeasuredStep], gpu_type: str, source: str) -> LearnedGpu:
    """What step times tell of a GPU type. Raises InputError if they are of too few programs."""
    programs = {each.program for each in measured}
    if len(programs) < FEWEST_PROGRAMS:
        raise InputError("TRACE", f"has steps of {len(programs)} programs; at least {FEWEST_PROGRAMS} are needed")
    task = task_of(measured, gpu_type)
    errors = {STEP: error_of([abs(error) for error in left_out_errors(task)])}
    return learned_of(task, task.fitted(), errors, source)


def learned_of(task: Task, parameters: Array, errors: Mapping[str, Error], source: str) -> LearnedGpu:
    """The estimator with these parameters."""
    model, weights = task.model, parameters[FIRST_FEATURE:]
    constants = Roofline(**dict(zip(CONSTANTS, np.exp(parameters[: len(CONSTANTS)]).tolist(), strict=True)))
    kinds = [name for name, kind in KIND_NAMES.items() if kind in model.kinds_of_works]
    launches_ns = model.launches_by_kind(parameters).tolist()
    ratios = model.x @ weights
    return LearnedGpu(
        trained_from=STEPS,
        source=source,
        roofline=constants,
        kinds=kinds,
        features=list(FEATURES),
        ranges=[(float(column.min()), float(column.max())) for column in model.x.T],
        weights=weights.tolist(),
        forest=Forest([]),
        least=max(float(ratios.min()), -LARGEST_RATIO),
        most=min(float(ratios.max()), LARGEST_RATIO),
        errors=errors,
        launches_ns={name: launches_ns[KIND_NAMES[name]] for name in kinds},
    )
