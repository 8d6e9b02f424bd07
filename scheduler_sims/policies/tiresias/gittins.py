"""The Gittins index: how likely a job ends within the next `delta` of service, per expected service until then.

G(a) = P / E, where for samples above the attained service a: P is the share of them that is at most a + delta, and E their mean
service until then. Gu et al., Tiresias, NSDI 2019, section 3.3; constants as in SymbioticLab/Tiresias at 959f9b0: the index is
computed at each sample less 1, and a job beyond the last sample has the index 0.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

from emulator_runtime.domain.errors import InputError

DELTA = 3250.0
"""GPU-seconds that the index looks ahead; the limit of Tiresias' first queue."""


@dataclass(frozen=True)
class Table:
    """The index for jobs with any attained service, from the service of earlier jobs in `samples` (sorted)."""

    samples: tuple[float, ...]
    delta: float = DELTA

    @classmethod
    def of(cls, samples: Iterable[float], delta: float = DELTA) -> Table:
        return cls(tuple(sorted(samples)), delta)

    def index(self, attained: float) -> float:
        """The index, rounded to four digits per million; 0 beyond the last sample."""
        at = bisect_right(self.samples, attained)
        return self._indices[at] if at < len(self.samples) else 0.0

    def place(self, attained: float) -> int:
        """The number of larger indices in the table: the rank of a job, exact where indices are close."""
        return self._places[self.index(attained)]

    @cached_property
    def _places(self) -> Mapping[float, int]:
        return {index: place for place, index in enumerate(sorted({0.0, *self._indices}, reverse=True))}

    @cached_property
    def _indices(self) -> Sequence[float]:
        sums = [0.0, *accumulate(self.samples)]
        return [self._at(sample - 1, sums) for sample in self.samples]

    def _at(self, attained: float, sums: Sequence[float]) -> float:
        """Sums are over all samples before an index."""
        number = len(self.samples)
        first = bisect_right(self.samples, attained)
        ahead = attained + self.delta
        last = number - 1 if ahead > self.samples[-1] - 1 else bisect_right(self.samples, ahead)
        rest = number - first
        likely = round((last - first) / rest, 5)
        expected = round((sums[last] - sums[first] + self.delta * (number - last)) / rest, 5)
        return round(likely * 1e6 / expected, 4) if expected else 0.0


def read_samples(path: Path) -> tuple[float, ...]:
    """The GPU-seconds of earlier jobs: one number a line, a first line without a number is a heading.

    Raises InputError with the line.
    """
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"can't read the GPU-seconds of earlier jobs: {error}") from error
    samples = []
    for number, row in enumerate(rows, 1):
        try:
            samples.append(float(row[0]))
        except (IndexError, ValueError) as error:
            if number > 1:
                raise InputError(f"{path}:{number}", f"must be GPU-seconds, one number a line, not {row}") from error
    if not samples or min(samples) <= 0:
        raise InputError(str(path), "must have at least one number, all above 0")
    return tuple(sorted(samples))
