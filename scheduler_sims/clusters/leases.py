"""Leases: the rounds of round-based simulators, to reproduce their published figures to the second.

Synergy's simulator (Mohan et al., OSDI 2022; msr-fiddle/synergy at 1bb2bed) gives a job the whole number of iterations
that fit into a round, and sees its end at the round's end; Gavel's holds devices to the round's end. Real jobs don't wait
for a round, so leases are used only to compare a simulation with such a simulator.
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns

_ROUNDING_NS = 1_000
"""Steps are whole nanoseconds: steps that fill a lease exactly may end a rounding error after it."""


@dataclass(frozen=True, slots=True)
class Leases:
    """A step begins only in a lease in which it can end; a job's end is seen when its lease ends.

    Leases last `length_s` and follow each other from `first_s` on, the same for all jobs; emulated seconds.
    """

    length_s: float
    first_s: float = 0.0

    def end_ns(self, at_ns: int) -> int:
        """The end of the lease that contains `at_ns` (a boundary belongs to the next lease)."""
        length_ns, first_ns = to_ns(self.length_s), to_ns(self.first_s)
        return first_ns + ((at_ns - first_ns) // length_ns + 1) * length_ns

    def steps(self, times: StepTimes, first: int, begin_ns: int) -> int:
        """Number of steps from `first` on that end within the lease if they begin at `begin_ns`."""
        return times.steps_done(first, self.end_ns(begin_ns) - begin_ns + _ROUNDING_NS)
