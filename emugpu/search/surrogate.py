"""Expects what a configuration takes from what others took, for searches that can evaluate a dozen or two.

A Gaussian process of the logarithm of what is to be small: knobs mostly act as factors. Its kernel has a line and a smooth curve
for each knob with numbers, a deviation for each value of the others, and with less weight what depends on several knobs. A second
one expects the memory, so that what won't fit isn't tried: the best configurations are often those next to that border. What is
proposed has the largest expected improvement (Jones et al., J. Global Optimization 13, 1998), times the probability that it fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, pi
from random import Random
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from emugpu.search.expressions import Value
from emugpu.search.recipe import Configuration

Array: TypeAlias = NDArray[np.float64]

_REACH = 3.0
"""Steps of a knob with numbers over which its curve changes."""
_LINE = 6.0
"""Variance of the line of such a knob, relative to that of its curve."""
_LIKE = 0.5
"""Correlation of the values of another knob."""
_SINGLE = 0.7
"""Weight of what depends on one knob alone."""
_NOISE, _MEMORY_NOISE = 1e-3, 1e-2
_TOO_MUCH = 1.1
"""What ran out of memory without saying how much it needs is taken to need at least so many times what there is."""
_LEAST_DOUBT = 0.05
"""Standard deviation of an expected memory's logarithm, at least."""
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Observation:
    """`value`: None: it has none. `memory_bytes`: None: not known. `fits`: it didn't run out of memory."""

    configuration: Configuration
    value: float | None
    memory_bytes: float | None
    fits: bool


class Surrogate:
    """Proposes by what is known. `knobs`: values by name; those with numbers rise."""

    def __init__(self, knobs: Mapping[str, Sequence[Value]], random: Random) -> None:
        self._knobs = {name: list(values) for name, values in knobs.items() if len(values) > 1}
        self._numeric = [not any(isinstance(one, str | bool) for one in values) for values in self._knobs.values()]
        self._steps = np.array([len(values) - 1 for values in self._knobs.values()], dtype=np.float64)
        self._random = random

    def unlike(self, candidates: Sequence[Configuration], known: Sequence[Configuration]) -> Configuration:
        """One of those that differ most from all that is known, knob by knob."""
        if not known or not self._knobs:
            return self._random.choice(candidates)
        apart = np.abs(self._places(candidates)[:, None, :] - self._places(known)[None, :, :])
        spans = np.where(self._numeric, self._steps, 1.0)
        nearest = (np.minimum(apart, spans) / spans).sum(axis=2).min(axis=1)
        return candidates[self._random.choice(np.flatnonzero(nearest >= nearest.max() - 1e-9).tolist())]

    def best(
        self,
        candidates: Sequence[Configuration],
        known: Sequence[Observation],
        room_bytes: Sequence[float],
        under_way: Sequence[Configuration] = (),
    ) -> Configuration:
        """The candidate of which most improvement is expected. `room_bytes`: memory that each of them would have. At least one
        of `known` has a value. Those `under_way` are believed to take what is expected of them ("kriging believer": Ginsbourger
        et al., 2010), so that what is evaluated at the same time differs."""
        done = [one for one in known if one.value is not None]
        values = [log(one.value) for one in done if one.value is not None]
        failed = [one for one in known if one.value is None and one.fits]  # no better than the worst
        values += [max(values)] * len(failed)
        places, at = self._places(candidates), self._places([one.configuration for one in [*done, *failed]])
        taken = np.array(values)
        if under_way:
            going = self._places(under_way)
            believed, _ = self._expected(going, at, taken, _NOISE)
            at, taken = np.concatenate([at, going]), np.concatenate([taken, believed])
        mean, deviation = self._expected(places, at, taken, _NOISE)
        better = (taken.min() - mean) / deviation
        merit = deviation * (better * _below(better) + np.exp(-(better**2) / 2) / (2 * pi) ** 0.5)
        merit *= self._fitting(places, known, np.log(np.asarray(room_bytes, dtype=np.float64)))
        return candidates[int(np.argmax(merit))]

    def _fitting(self, places: Array, known: Sequence[Observation], room: Array) -> Array:
        """The probability that each has memory enough. `room`: the logarithm of what it has."""
        measured = [one for one in known if one.memory_bytes]
        needs = np.array([log(one.memory_bytes) for one in measured if one.memory_bytes])
        at = self._places([one.configuration for one in measured])
        if too_large := [one.configuration for one in known if not one.fits and not one.memory_bytes]:
            beyond = self._places(too_large)
            least = np.full(len(beyond), float(room.max()) + log(_TOO_MUCH))
            if measured:
                least = np.maximum(least, self._expected(beyond, at, needs, _MEMORY_NOISE)[0])
            at, needs = np.concatenate([at, beyond]), np.concatenate([needs, least])
        if not len(needs):
            return np.ones(len(places))
        mean, deviation = self._expected(places, at, needs, _MEMORY_NOISE)
        return _below((room - mean) / np.maximum(deviation, _LEAST_DOUBT))

    def _places(self, configurations: Sequence[Configuration]) -> Array:
        """The place of each knob's value among its values."""
        return np.array(
            [
                [_place(values, one[name]) for name, values in self._knobs.items()]
                for one in configurations
            ],
            dtype=np.float64,
        ).reshape(len(configurations), len(self._knobs))  # fmt: skip

    def _expected(self, places: Array, known: Array, values: Array, noise: float) -> tuple[Array, Array]:
        """Mean and standard deviation at `places`, given the values at `known`."""
        middle = values.mean()
        inner = np.linalg.cholesky(self._kernel(known, known) + noise * np.eye(len(known)))
        between = np.linalg.solve(inner, self._kernel(known, places))
        seen = np.linalg.solve(inner, values - middle)
        scale = (seen @ seen + 0.05) / (len(values) + 1)
        spread = self._own(places) - (between**2).sum(axis=0)
        return middle + between.T @ seen, np.sqrt(np.maximum(spread, 1e-9) * scale)

    def _kernel(self, one: Array, other: Array) -> Array:
        single, joint = np.zeros((len(one), len(other))), np.ones((len(one), len(other)))
        for knob, numeric in enumerate(self._numeric):
            apart = np.abs(one[:, knob, None] - other[None, :, knob])
            like = np.exp(-apart / _REACH) if numeric else np.where(apart > 0, _LIKE, 1.0)
            single += like
            if numeric:
                single += _LINE * self._centred(one, knob)[:, None] * self._centred(other, knob)[None, :]
            joint *= like
        return np.asarray(_SINGLE * single / len(self._numeric) + (1 - _SINGLE) * joint)

    def _own(self, places: Array) -> Array:
        """The kernel of each place with itself."""
        lines = np.zeros(len(places))
        for knob, numeric in enumerate(self._numeric):
            if numeric:
                lines += _LINE * self._centred(places, knob) ** 2
        return np.asarray(_SINGLE * (1 + lines / len(self._numeric)) + 1 - _SINGLE)

    def _centred(self, places: Array, knob: int) -> Array:
        """From -1 to 1 over a knob's values."""
        return np.asarray(2 * places[:, knob] / self._steps[knob] - 1)


def _place(values: Sequence[Value], value: Value) -> int:
    return next(place for place, one in enumerate(values) if type(one) is type(value) and one == value)


def _below(bound: Array) -> Array:
    """The normal distribution's probability of less."""
    return np.array([_NORMAL.cdf(one) for one in bound.tolist()])
