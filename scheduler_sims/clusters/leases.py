"""Leases: what round-based simulators mean by a round, so that their published figures can be met to the second.

Synergy's simulator (Mohan et al., OSDI 2022; msr-fiddle/synergy at 1bb2bed) gives a job the whole number of iterations
that fit into a round, and sees its end at the round's end; Gavel's holds devices to the round's end. Real jobs don't wait
for a round. So this is no property of our clusters: only a simulation that is compared with such a simulator asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns

_ROUNDING_NS = 1_000
"""Steps are cut to whole nanoseconds: those that fill a lease exactly may seem to end a little after it."""


@dataclass(frozen=True, slots=True)
class Leases:
    """A step that doesn't end by the end of the lease isn't begun in it, and a job's end is seen when its lease ends.

    Leases of `length_s` follow each other from `first_s` on, the same for all jobs; emulated seconds.
    """

    length_s: float
    first_s: float = 0.0

    def end_ns(self, at_ns: int) -> int:
        """When the lease ends in which something at `at_ns` happens (at an end: the next lease)."""
        length_ns, first_ns = to_ns(self.length_s), to_ns(self.first_s)
        return first_ns + ((at_ns - first_ns) // length_ns + 1) * length_ns

    def steps(self, times: StepTimes, first: int, begin_ns: int) -> int:
        """How many steps from step `first` end within the lease if they begin at `begin_ns`."""
        return times.steps_done(first, self.end_ns(begin_ns) - begin_ns + _ROUNDING_NS)
