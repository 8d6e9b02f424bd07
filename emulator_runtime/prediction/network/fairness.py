"""How flows that share links divide them: max-min fair, piecewise over time, from event to event.

A flow uses each of its links by a constant part while it runs alone. When flows together want more of a link than there is,
each runs slower, and uses all of its links proportionally less. What a flow gets of the link that it uses most rises equally
for all flows (by their weights) until a link is full, as with max-min fair rates of bytes on one link (Bertsekas and Gallager,
Data Networks, section 6.5.2), and for several links at once in the sense of dominant shares (Ghodsi et al., NSDI 2011).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

_FULL = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Flow:
    """`duration_ns`: alone. `uses`: links, and the part of each that it uses meanwhile (above 0, up to 1). `weight`: of its claim
    on a link, compared with others."""

    start_ns: int
    duration_ns: int
    uses: Sequence[tuple[Hashable, float]]
    weight: float = 1.0


def fair_speeds(flows: Sequence[Flow]) -> list[float]:
    """Of flows that run at the same time, as parts of their speed alone."""
    wanted: defaultdict[Hashable, float] = defaultdict(float)
    for flow in flows:
        for link, part in flow.uses:
            wanted[link] += part
    if all(part <= _FULL for part in wanted.values()):
        return [1.0] * len(flows)
    dominant = [max((part for _, part in flow.uses), default=0.0) for flow in flows]
    speeds = [0.0 if part else 1.0 for part in dominant]
    rising = {number for number, part in enumerate(dominant) if part}
    free = dict.fromkeys(wanted, 1.0)
    level = 0.0
    while rising:
        growth: defaultdict[Hashable, float] = defaultdict(float)
        for number in rising:
            for link, part in flows[number].uses:
                growth[link] += flows[number].weight * part / dominant[number]
        step = min(free[link] / rate for link, rate in growth.items())
        step = min(step, *(dominant[number] / flows[number].weight - level for number in rising))
        level += step
        for link, rate in growth.items():
            free[link] -= step * rate
        full = {link for link in growth if free[link] <= 1e-12}
        for number in sorted(rising):
            speeds[number] = min(1.0, level * flows[number].weight / dominant[number])
            if speeds[number] >= 1.0 - 1e-12 or any(link in full for link, _ in flows[number].uses):
                rising.discard(number)
    return speeds


def shared_ends(flows: Sequence[Flow]) -> list[int]:
    """When each flow ends if they share their links. A flow that shares nothing ends when it would alone, to the nanosecond."""
    return _Sharing(flows).run()


class _Sharing:
    """The state at a moment: which flows run, how much of each is left, and their speeds."""

    def __init__(self, flows: Sequence[Flow]) -> None:
        self._flows = flows
        self._running: defaultdict[Hashable, set[int]] = defaultdict(set)
        """By link."""
        self._left_ns = [float(flow.duration_ns) for flow in flows]
        self._speeds = [1.0] * len(flows)
        self._since_ns: list[float] = [flow.start_ns for flow in flows]
        self._ends: list[int] = [flow.start_ns + flow.duration_ns for flow in flows]
        self._exact_ends_ns: list[float] = [float(end) for end in self._ends]
        self._events: list[tuple[float, int]] = []
        """Tentative ends."""

    def run(self) -> list[int]:
        starts = sorted(range(len(self._flows)), key=lambda number: (self._flows[number].start_ns, number))
        for number in starts:
            start_ns = self._flows[number].start_ns
            self._end_until(start_ns)
            if not self._flows[number].duration_ns:
                continue
            for link, _ in self._flows[number].uses:
                self._running[link].add(number)
            heapq.heappush(self._events, (self._exact_ends_ns[number], number))
            self._change(number, start_ns)
        self._end_until(float("inf"))
        return self._ends

    def _end_until(self, limit_ns: float) -> None:
        while self._events and self._events[0][0] <= limit_ns:
            end_ns, number = heapq.heappop(self._events)
            if end_ns != self._exact_ends_ns[number]:
                continue  # it ends at another time by now
            self._exact_ends_ns[number] = -1.0
            neighbours = self._neighbours((number,)) - {number}
            for link, _ in self._flows[number].uses:
                self._running[link].discard(number)
            self._share(neighbours, end_ns)

    def _change(self, number: int, now_ns: float) -> None:
        """A flow has begun."""
        self._share(self._neighbours((number,)), now_ns)

    def _neighbours(self, numbers: Iterable[int]) -> set[int]:
        """Flows that share links with these, directly or through others."""
        found, waiting = set(numbers), list(numbers)
        seen: set[Hashable] = set()
        while waiting:
            for link, _ in self._flows[waiting.pop()].uses:
                if link not in seen:
                    seen.add(link)
                    new = self._running[link] - found
                    found |= new
                    waiting.extend(new)
        return found

    def _share(self, numbers: set[int], now_ns: float) -> None:
        order = sorted(numbers)
        speeds = fair_speeds([self._flows[number] for number in order])
        for number, speed in zip(order, speeds, strict=True):
            if speed == self._speeds[number]:
                continue
            self._left_ns[number] -= (now_ns - self._since_ns[number]) * self._speeds[number]
            self._since_ns[number], self._speeds[number] = now_ns, speed
            end_ns = now_ns + max(0.0, self._left_ns[number]) / speed
            self._exact_ends_ns[number], self._ends[number] = end_ns, round(end_ns)
            heapq.heappush(self._events, (end_ns, number))
