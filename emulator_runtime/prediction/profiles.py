"""Profiles from traces: a program that was traced at some batch sizes becomes a model of the profile table.

A trace of one rank has what a profile wants: the step on one GPU. The exchange of gradients between GPUs is modelled where
profiles are used, from the size of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import to_s
from emulator_runtime.prediction.prediction import Conditions, Prediction, Predictor
from emulator_runtime.prediction.records import Copy, Launch, RankTrace, Trace
from emulator_runtime.prediction.steps import ComputeWork, Steps, compute_work, find_steps

_OPTIMIZER = "multi_tensor_apply"
_FORWARD_PART = 1 / 3
"""Of a step, where the trace doesn't show it: a backward pass has about twice the operations of the forward pass."""
_COPIES_OF_PARAMETERS = 3
"""In a profile's persistent memory: weights, gradients and momentum (profiles/table.py, `gradient_bytes`)."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A step at one batch size. `memory_bytes`: peak, with the largest context of the GPU types. Seconds are by GPU type; the
    copies of the batch are in the forward pass, the optimizer in the backward pass. `start_s`: what the whole program takes
    beside its steps; empty: not known."""

    batch: int
    memory_bytes: int
    parameter_bytes: int
    forward_s: Mapping[str, float]
    backward_s: Mapping[str, float]
    start_s: Mapping[str, float] = field(default_factory=dict)


def traced_step(
    trace: Trace,
    batch: int,
    gpu_types: Sequence[str],
    conditions: Conditions,
    place: str,
    steps_done: int | None = None,
) -> TracedStep:
    """The step of a trace on each GPU type.

    `steps_done`: how many the program did; None: as many as its work has the length of. `place` names the trace in errors.
    Raises InputError for a trace of several ranks or without steps, UnknownNameError for a GPU type that doesn't exist, and
    what predictions raise.
    """
    if len(trace.ranks) != 1:
        raise InputError(place, f"has {len(trace.ranks)} ranks; a profile is of one GPU: trace the program on one")
    (rank,) = trace.ranks
    work = compute_work(rank)
    steps = find_steps(work.keys)
    if steps is None:
        raise InputError(place, "nothing in it repeats, so that there is no step; trace at least two, six are better")
    predictor = Predictor(trace)
    found = {one.gpu_type: one for one in (predictor.predict(name, conditions) for name in gpu_types)}
    part = _forward_part(rank, work, steps)
    times = {name: one.step_s for name, one in found.items() if one.step_s is not None}
    return TracedStep(
        batch=batch,
        memory_bytes=max(1, *(one.memory_bytes for one in found.values())),
        parameter_bytes=_parameter_bytes(rank, work, steps),
        forward_s={name: time * part for name, time in times.items()},
        backward_s={name: time * (1 - part) for name, time in times.items()},
        start_s=_start_s(rank, found, times, steps_done or _steps_in(work, steps)),
    )


def _steps_in(work: ComputeWork, steps: Steps) -> int:
    """The number of training steps. The first one differs from the others where it makes the optimizer's state."""
    before = steps.first
    after = len(work.records) - before - steps.count * steps.length
    return steps.count + round(before / steps.length) + round(after / steps.length)


def _start_s(
    rank: RankTrace, found: Mapping[str, Prediction], times: Mapping[str, float], steps_done: int
) -> dict[str, float]:
    """By GPU type, all that the program takes beside its steps: imports, building the model, slower first steps, its end."""
    if not rank.before_ns:
        return {}
    host_s = to_s(rank.before_ns + rank.after_ns)
    return {name: max(0.0, host_s + found[name].total_s - steps_done * time) for name, time in times.items()}


def profile_document(steps: Sequence[TracedStep]) -> dict[str, object]:
    """The model as an entry of a file of profiles (profiles/user_file.py). `steps`: at least one, by rising batch size."""
    memory = [
        {
            "batch": step.batch,
            "peak_bytes": step.memory_bytes,
            "persistent_bytes": max(1, min(step.memory_bytes, _COPIES_OF_PARAMETERS * step.parameter_bytes)),
        }
        for step in steps
    ]
    started = all(step.start_s for step in steps)
    gpus = {
        gpu_type: {
            "knots": [
                {"batch": step.batch, "forward_s": step.forward_s[gpu_type], "backward_s": step.backward_s[gpu_type]}
                | ({"start_s": step.start_s[gpu_type]} if started else {})
                for step in steps
            ]
        }
        for gpu_type in steps[0].forward_s
    }
    return {"sample_bytes": 0, "memory": {"knots": memory}, "gpus": gpus}  # the copies of samples are in the times


def _forward_part(rank: RankTrace, work: ComputeWork, steps: Steps) -> float:
    """PyTorch's backward pass is issued by threads of its own, and its optimizers are known by name. The part is that of the
    operations and bytes, each as a share of the step's."""
    numbers = range(steps.first, steps.first + steps.length)
    launches = [one for number in numbers if isinstance(one := rank.records[work.records[number]], Launch)]
    own = [one for one in launches if one.thread == 0]
    if len(own) == len(launches):
        return _FORWARD_PART
    forward = [one for one in own if _OPTIMIZER not in one.work.name]
    amounts = ("flops", "bytes")
    totals = [sum(getattr(one.work, name) for one in launches) for name in amounts]
    parts = [
        sum(getattr(one.work, name) for one in forward) / total
        for name, total in zip(amounts, totals, strict=True)
        if total
    ]
    part = sum(parts) / len(parts) if parts else _FORWARD_PART
    return min(max(part, 0.01), 0.99)


def _parameter_bytes(rank: RankTrace, work: ComputeWork, steps: Steps) -> int:
    """What was copied to the device before the first step, but for the batch, of which each step copies one."""
    begin = work.records[steps.first]
    last = steps.first + (steps.count - 1) * steps.length
    before, per_step = 0, 0
    for index, record in enumerate(rank.records):
        if isinstance(record, Copy) and record.from_device < 0 <= record.to_device:
            before += record.bytes if index < begin else 0
            per_step += record.bytes if work.records[last - steps.length] <= index < work.records[last] else 0
    return max(0, before - per_step)
