"""A step with many microbatches, from a trace with fewer: once a pipeline is full, each further one takes as long as the last.

Tracing and replaying each of hundreds of microbatches would show nothing new. The first ones fill the pipeline, so at least
twice as many as there are stages should be traced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import to_s
from emulator_runtime.prediction.intervals import Interval
from emulator_runtime.prediction.prediction import Prediction
from emulator_runtime.prediction.records import Launch, Work
from emulator_runtime.prediction.simulation import RankRun


def with_microbatches(found: Prediction, traced: int, count: int, stages: int) -> tuple[float, Mapping[str, float]]:
    """Seconds of a step that has `count` microbatches, and where they go; `found` is of a step that has `traced` ones.

    Where time goes is divided as in the traced step, which has a larger part of the pipeline's filling, and of what a step does
    once. Raises InputError if the trace has no steps, or no kernel that shows when the last rank's microbatches end.
    """
    if found.step_s is None:
        raise InputError("TRACE", "has no steps")
    ends_ns = microbatch_ends_ns(found.runs[-1], found.ranks[-1].last_step_ns, traced)
    more_s = (count - traced) * microbatch_interval_s(ends_ns, stages)
    factor = 1 + more_s / found.step_s
    return found.step_s + more_s, {part: seconds * factor for part, seconds in found.seconds.items()}


def microbatch_ends_ns(run: RankRun, step_ns: Interval, microbatches: int) -> list[int]:
    """When a rank ended the same kernel of each microbatch of a step (`step_ns`: when it began and ended), in order.

    It is the one with most operations among those that each microbatch launches once; in a language model that of the logits,
    which only the last stage computes. InputError: there is none.
    """
    ends: dict[Work, list[int]] = {}
    for index, end_ns in zip(run.device_work.records, run.device_work.ends_ns, strict=True):
        record = run.trace.records[index]
        if step_ns[0] < end_ns <= step_ns[1] and isinstance(record, Launch):
            ends.setdefault(record.work, []).append(end_ns)
    once = [work for work, times in ends.items() if len(times) == microbatches]
    if not once:
        raise InputError("TRACE", f"has no kernel that runs once for each of a step's {microbatches} microbatches")
    return sorted(ends[max(once, key=lambda work: work.flops)])


def microbatch_interval_s(ends_ns: Sequence[int], stages: int) -> float:
    """By how many seconds each microbatch makes a step longer, once the pipeline is full.

    `ends_ns`: when the last stage ended a kernel of each microbatch of a step, in order. It is the mean over the second half of
    them, and over whole rounds if there is room: a round is as many microbatches as there are stages, since in the interleaved
    schedule a stage computes one of its chunks for so many, and then another one. Within a round the ends are close therefore.
    InputError: it is one microbatch only.
    """
    half = len(ends_ns) // 2
    count = half - half % stages if half >= stages else half
    if count == 0:
        raise InputError("TRACE", "has steps of one microbatch, so that nothing says what a further one takes")
    return to_s(ends_ns[-1] - ends_ns[-1 - count]) / count
