"""Reads a recipe: a training command with placeholders, its knobs, and what is wanted.

    command: torchrun --nproc-per-node {dp} train.py --batch {batch} {checkpointing}
    knobs:
      dp: [1, 2, 4]
      batch: [8, 16, 32, 64]
      checkpointing: ["", --checkpointing]
    constraints: [dp * batch <= 64]
    gpus: dp                              # GPUs of the job (default: 1)
    samples: dp * batch                   # in a step, so that different steps are compared (default: 1)
    gpu_types: [A100, V100]               # searched like a knob
    prices: {A100: 3.67, V100: 2.48}      # of a GPU for an hour, in one currency
    objective: cost                       # or time (default): of a sample
    memory_rises_with: [batch]            # a larger value never needs less memory, all else equal
    network_gbps: 100                     # of a node
    baseline: {dp: 4, batch: 8, checkpointing: "", gpu_type: A100}    # what the best is compared with

A job of many ranks, of which only those run that differ:

    command: python train.py --tp {tp} --pp {pp} --micro-batch {micro_batch} --microbatches {traced}
    knobs: {tp: [1, 2], pp: [1, 2, 4], micro_batch: [1, 2, 4]}
    constants: {batch: 512}
    derived:                              # names for expressions and the command; they may use those before them
      microbatches: batch * tp * pp // (32 * micro_batch)
      traced: min(microbatches, 2 * pp)
    gpus: 32
    layout: {tp: tp, pp: pp}              # as `emugpu trace --layout`
    gpus_per_node: 8
    microbatches: microbatches            # of a step
    traced_microbatches: traced           # of a step of the command (default: all); at least twice as many as stages

Expressions are those of `expressions.py`, over the knobs, `constants`, `derived`, and `gpu_type`.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from keyword import iskeyword
from pathlib import Path

from emugpu.prediction.inputs import prices_in, yaml_field
from emugpu.prediction.virtual_trace import Job
from emugpu.search.expressions import FUNCTIONS, Expression, Value
from emulator_runtime.cuda.launch import devices_of
from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.json_document import Field
from emulator_runtime.prediction.links import NETWORK_GBPS
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.virtual_ranks.layout import ORDER, REST, STAGES

GPU_TYPE = "gpu_type"
"""The knob of the GPU types."""
TIME, COST = "time", "cost"
GPUS_PER_NODE = 8
"""Of a job with a layout, unless the recipe says otherwise; as in `emugpu trace`."""
MAX_CONFIGURATIONS = 1_000_000
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_OPTIONAL = (
    "constants", "derived", "constraints", "gpus", "layout", "gpus_per_node", "microbatches", "traced_microbatches", "samples",
    "gpu_types", "prices", "objective", "memory_rises_with", "network_gbps", "baseline",
)  # fmt: skip

Configuration = Mapping[str, Value]
"""A value for each knob."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is searched. `place`: its file, for errors. `knobs`: values by name; numbers rise. `derived`: names that follow from
    them, each from those before it. `layout`: size by axis of a job whose ranks are virtual; empty: they aren't. `microbatches`:
    of a step; None: it says nothing of them. `traced_microbatches`: of a step of the command; None: all. `prices`: of a GPU for
    an hour, by GPU type. `baseline`: a configuration with which the best is compared."""

    place: str
    command: Sequence[str]
    knobs: Mapping[str, Sequence[Value]]
    constants: Mapping[str, Value]
    derived: Mapping[str, Expression]
    constraints: Sequence[Expression]
    gpus: Expression
    layout: Mapping[str, Expression]
    gpus_per_node: int
    microbatches: Expression | None
    traced_microbatches: Expression | None
    samples: Expression
    prices: Mapping[str, float]
    objective: str
    memory_rises_with: frozenset[str]
    network_gbps: float
    baseline: Configuration | None

    def words(self, configuration: Configuration) -> list[str]:
        """The command, without words that become empty."""
        values = self.values(configuration)
        filled = (_PLACEHOLDER.sub(lambda found: _text(values[found[1]]), word) for word in self.command)
        return [word for word in filled if word]

    def values(self, configuration: Configuration) -> Mapping[str, Value]:
        """What expressions see. A derived name is worked out when it is asked for, and not among those that are listed before:
        InputError, if it can't be."""
        return _Values({**self.constants, **configuration}, self.derived)

    def gpu_count(self, configuration: Configuration) -> int:
        """GPUs of the job. Raises InputError if it isn't a whole number above 0."""
        return self._whole("gpus", self.gpus, configuration)

    def samples_in_step(self, configuration: Configuration) -> float:
        """Raises InputError if it isn't a number above 0."""
        return self._number(self.samples, configuration)

    def axes(self, configuration: Configuration) -> Mapping[str, int]:
        """Ranks by axis of the layout. Raises InputError as `gpu_count` does."""
        return {axis: self._whole(f"layout.{axis}", size, configuration) for axis, size in self.layout.items()}

    def microbatch_counts(self, configuration: Configuration) -> tuple[int, int]:
        """Microbatches of a step, and of a step of the command. Raises InputError as `gpu_count` does, for more traced ones than
        there are, and for some that are too few to fill the pipeline."""
        if self.microbatches is None:
            return 1, 1
        count = self._whole("microbatches", self.microbatches, configuration)
        if self.traced_microbatches is None:
            return count, count
        traced = self._whole("traced_microbatches", self.traced_microbatches, configuration)
        stages = self.axes(configuration).get(STAGES, 1)
        if traced > count:
            raise self._wrong("traced_microbatches", f"are {traced} of {count}", configuration)
        if traced < min(count, 2 * stages):
            problem = f"must be at least {2 * stages} (twice as many as stages) or all {count}, and are {traced}"
            raise self._wrong("traced_microbatches", problem, configuration)
        return count, traced

    def _whole(self, name: str, expression: Expression, configuration: Configuration) -> int:
        found = self._number(expression, configuration)
        if found != int(found):
            raise self._wrong(name, f"must be a whole number, and is {_text(found)}", configuration)
        return int(found)

    def _number(self, expression: Expression, configuration: Configuration) -> float:
        try:
            return expression.number(self.values(configuration))
        except InputError as error:
            raise _with(error, configuration) from error

    def _wrong(self, name: str, problem: str, configuration: Configuration) -> InputError:
        return InputError(f"{self.place}: {name}", f"{problem} with {shown(configuration)}")

    def check(self, configurations: Iterable[Configuration]) -> None:
        """Raises InputError for one that can't be evaluated whatever its program does: one whose GPUs, layout, microbatches,
        samples or command can't be. Of those that differ in nothing that decides this, one is looked at."""
        deciding, seen = self._deciding(), set[object]()
        for configuration in configurations:
            values = [configuration[name] for name in deciding]
            if (key := (*values, *map(type, values))) not in seen:
                seen.add(key)
                self._check(configuration)

    def _check(self, configuration: Configuration) -> None:
        gpus, axes = self.gpu_count(configuration), self.axes(configuration)
        ranks = math.prod(axes.values())
        if axes and (gpus != ranks if REST in axes else gpus % ranks):
            spelled = " x ".join(f"{axis} {size}" for axis, size in axes.items())
            wanted = f"be {gpus}" if REST in axes else f"divide {gpus}"
            raise self._wrong("layout", f"must {wanted}, the number of GPUs, and {spelled} is {ranks}", configuration)
        field, problem = _no_job(gpus, self.gpus_per_node if axes else None)
        if problem:
            raise self._wrong(field, problem, configuration)
        self.microbatch_counts(configuration)
        self.samples_in_step(configuration)
        try:
            self.words(configuration)
        except InputError as error:
            raise _with(error, configuration) from error

    def _deciding(self) -> Sequence[str]:
        """The knobs on which it depends what `_check` finds."""
        counts = (self.gpus, self.samples, self.microbatches, self.traced_microbatches, *self.layout.values())
        names = {name for expression in counts if expression is not None for name in expression.names}
        names |= {name for word in self.command for name in _PLACEHOLDER.findall(word) if name in self.derived}
        for name, expression in reversed(list(self.derived.items())):
            if name in names:
                names |= expression.names
        return [name for name in self.knobs if name in names]

    def allows(self, configuration: Configuration) -> bool:
        """Whether all constraints hold. Raises InputError for one that can't be worked out."""
        values = self.values(configuration)
        return all(constraint.value(values) for constraint in self.constraints)

    def configurations(self) -> Iterator[Configuration]:
        """Those that the constraints allow. Raises InputError as `allows` does."""
        for values in itertools.product(*self.knobs.values()):
            configuration = dict(zip(self.knobs, values, strict=True))
            if self.allows(configuration):
                yield configuration


class _Values(dict[str, Value]):
    """With the derived ones, which are worked out when they are asked for."""

    def __init__(self, given: Mapping[str, Value], derived: Mapping[str, Expression]) -> None:
        super().__init__(given)
        self._derived = derived

    def __missing__(self, name: str) -> Value:
        value = self[name] = self._derived[name].value(self)
        return value


@lru_cache
def _no_job(gpus: int, gpus_per_node: int | None) -> tuple[str, str]:
    """Why `emugpu trace` can't have so many GPUs, and the field that says so; empty: it can. `gpus_per_node`: of virtual ranks;
    None: they aren't."""
    field = "gpus"
    try:
        if gpus_per_node is not None:
            Job(gpus, gpus_per_node, at_once=1)
            field = "gpus_per_node"
        devices_of("A100", gpus if gpus_per_node is None else min(gpus, gpus_per_node), "")
    except InputError as error:
        return field, _problem(error)
    return "", ""


def _with(error: InputError, configuration: Configuration) -> InputError:
    return InputError(error.place, f"{_problem(error)}, in the configuration {shown(configuration)}")


def _problem(error: InputError) -> str:
    return str(error).removeprefix(f"{error.place}: ")


def shown(configuration: Configuration) -> str:
    """For people: `dp 4, batch 16`. Knobs whose value is empty are left out."""
    return ", ".join(f"{name} {_text(value)}" for name, value in configuration.items() if value != "")


def read_recipe(path: Path) -> Recipe:
    """Raises InputError and UnknownNameError that name the file and the field."""
    top = yaml_field(path, "recipe").members(("command", "knobs"), _OPTIONAL)
    knobs = {name: _knob(name, field) for name, field in top["knobs"].items().items()}
    constants = {name: _value(field) for name, field in top["constants"].items().items()} if "constants" in top else {}
    for name in constants:
        if name in knobs or name == GPU_TYPE:
            raise top["constants"].error(f"{name} is a knob, too; keep one of them")
    if "gpu_types" in top:
        knobs[GPU_TYPE] = _gpu_types(top["gpu_types"])
    else:
        knobs[GPU_TYPE] = ("NVIDIA_A100-SXM4-40GB",)
    count = math.prod(len(values) for values in knobs.values())
    if count > MAX_CONFIGURATIONS:
        raise top["knobs"].error(f"have {count:,} combinations; at most {MAX_CONFIGURATIONS:,}: leave values out")
    names = {*knobs, *constants}
    derived = _derived(top["derived"], names) if "derived" in top else {}
    names |= set(derived)
    if "traced_microbatches" in top and "microbatches" not in top:
        raise top["traced_microbatches"].error("needs `microbatches`, those of a step")
    recipe = Recipe(
        place=top["command"].place,
        command=_command(top["command"], names),
        knobs=knobs,
        constants=constants,
        derived=derived,
        constraints=[_expression(one, names) for one in top["constraints"].elements()] if "constraints" in top else [],
        gpus=_expression(top["gpus"], names) if "gpus" in top else Expression("1", names, "gpus"),
        layout=_layout(top["layout"], names) if "layout" in top else {},
        gpus_per_node=top["gpus_per_node"].whole(least=1) if "gpus_per_node" in top else GPUS_PER_NODE,
        microbatches=_expression(top["microbatches"], names) if "microbatches" in top else None,
        traced_microbatches=_expression(top["traced_microbatches"], names) if "traced_microbatches" in top else None,
        samples=_expression(top["samples"], names) if "samples" in top else Expression("1", names, "samples"),
        prices=(prices := prices_in(top["prices"]) if "prices" in top else {}),
        objective=_objective(top, prices, knobs),
        memory_rises_with=_rising(top["memory_rises_with"], knobs) if "memory_rises_with" in top else frozenset(),
        network_gbps=top["network_gbps"].number(above=0) if "network_gbps" in top else NETWORK_GBPS,
        baseline=_baseline(top["baseline"], knobs) if "baseline" in top else None,
    )
    if recipe.baseline is not None and not recipe.allows(recipe.baseline):
        raise top["baseline"].error("is nothing that the constraints allow")
    return recipe


def _text(value: Value) -> str:
    """As in a command: whole numbers without a point or an exponent, whatever they were worked out from."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _value(field: Field) -> Value:
    if isinstance(field.value, bool):
        return field.value
    if isinstance(field.value, str):
        return field.text()
    number = field.number()
    return int(number) if isinstance(field.value, int) else number


def _knob(name: str, field: Field) -> Sequence[Value]:
    """Numbers are sorted, since neighbours are alike."""
    if not name.isidentifier() or name == GPU_TYPE:
        raise field.error("must have a name of letters, digits and _" if name != GPU_TYPE else "is what gpu_types says")
    values = [_value(one) for one in field.elements()]
    if not values:
        raise field.error("must have at least one value")
    if len(set(map(repr, values))) < len(values):
        raise field.error("has a value twice")
    numbers = [value for value in values if not isinstance(value, str | bool)]
    return tuple(sorted(numbers)) if len(numbers) == len(values) else tuple(values)


def _gpu_types(field: Field) -> Sequence[Value]:
    types = [gpu_spec(one.text(), f"{one.place}: {one.path}").gpu_type for one in field.elements()]
    if not types:
        raise field.error("must name at least one GPU type")
    if len(set(types)) < len(types):
        raise field.error("has a GPU type twice")
    return tuple(types)


def _command(field: Field, names: set[str]) -> Sequence[str]:
    try:
        words = shlex.split(field.text(least=1, most=10_000))
    except ValueError as error:
        raise field.error(f"is no command: {error}") from error
    for word in words:
        for name in _PLACEHOLDER.findall(word):
            if name not in names:
                raise UnknownNameError(f"{field.place}: {field.path}", "knob", name, sorted(names))
    if not words:
        raise field.error("is empty")
    return words


def _expression(field: Field, names: set[str]) -> Expression:
    text = str(field.whole(least=1)) if isinstance(field.value, int) else field.text(least=1)
    return Expression(text, names, f"{field.place}: {field.path}")


def _derived(field: Field, names: set[str]) -> dict[str, Expression]:
    derived: dict[str, Expression] = {}
    for name, one in field.items().items():
        if not (name.isidentifier() and name.isascii()) or name in names or name == GPU_TYPE:
            raise one.error("must have a name of letters, digits and _, which no knob or constant has")
        if iskeyword(name) or name in FUNCTIONS:
            raise one.error(f"must have another name: {name} means something else in expressions")
        derived[name] = _expression(one, names | set(derived))
    return derived


def _layout(field: Field, names: set[str]) -> dict[str, Expression]:
    for axis, size in field.items().items():
        if axis not in ORDER.split("-"):
            raise UnknownNameError(f"{size.place}: {size.path}", "axis", axis, ORDER.split("-"))
    return {axis: _expression(size, names) for axis, size in field.items().items()}


def _baseline(field: Field, knobs: Mapping[str, Sequence[Value]]) -> Configuration:
    """A value for each knob; one for the GPU type only if there are several."""
    given = field.members([name for name, values in knobs.items() if name != GPU_TYPE or len(values) > 1], [GPU_TYPE])
    baseline: dict[str, Value] = {}
    for name, values in knobs.items():
        value = _value(given[name]) if name in given else values[0]
        if name == GPU_TYPE and name in given:
            value = gpu_spec(str(value), f"{field.place}: {field.path}").gpu_type
        if repr(value) not in map(repr, values):
            raise field.error(f"{name} has no value {value!r}")
        baseline[name] = value
    return baseline


def _objective(top: Mapping[str, Field], prices: Mapping[str, float], knobs: Mapping[str, Sequence[Value]]) -> str:
    objective = top["objective"].text() if "objective" in top else TIME
    if objective not in (TIME, COST):
        raise top["objective"].error(f"must be {TIME} or {COST}, not {objective}")
    missing = [name for name in knobs[GPU_TYPE] if name not in prices]
    if objective == COST and missing:
        raise top["objective"].error(f"is cost, but `prices` has no {missing[0]}")
    return objective


def _rising(field: Field, knobs: Mapping[str, Sequence[Value]]) -> frozenset[str]:
    names = [one.text() for one in field.elements()]
    for name, one in zip(names, field.elements(), strict=True):
        if name not in knobs:
            raise UnknownNameError(f"{one.place}: {one.path}", "knob", name, sorted(knobs))
        if any(isinstance(value, str | bool) for value in knobs[name]):
            raise one.error(f"{name} has values that are no numbers")
    return frozenset(names)
