"""Gavel's priority mechanism: which jobs run in the next round, so that each gets its share of time on each GPU type.

A job's priority on a GPU type is its share divided by the time that it has received there since the last reset; the jobs with
the highest priorities run (Narayanan et al., OSDI 2020, section 5; details from stanford-futuredata/gavel at c4fa400,
scheduler.py). Gavel divides the received time by that of all jobs on the type, which doesn't change the order.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

_NEVER_RAN = 1e9
"""The priority of a job without received time is its share times this."""


@dataclass(frozen=True, slots=True)
class Credit:
    """Shares, and how far the jobs have received them. Tuples have one entry for each GPU type.

    `shares`: fraction of the time since the reset at `reset_s` that the job should run on each type; jobs that came later have
    none. `received_s`: how long it ran there since the reset, plus half a round, which dampens the first rounds. `deficit_s`:
    how much less than its share the job had received at the last reset, summed over resets.
    """

    reset_s: float | None = None
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    received_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    deficit_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def updated(self, jobs: Sequence[str], types: int, ran: Mapping[str, tuple[int, float]], half_s: float) -> Credit:
        """The credit of the present `jobs` after a round in which `ran` gives type and seconds of each job that ran."""
        fresh, none = (half_s,) * types, (0.0,) * types
        if jobs == list(self.received_s):
            received, deficit = dict(self.received_s), self.deficit_s
        else:
            received = {job: self.received_s.get(job, fresh) for job in jobs}
            deficit = {job: self.deficit_s.get(job, none) for job in jobs}
        for job, (index, seconds) in ran.items():
            if job in received:
                old = received[job]
                received[job] = (*old[:index], old[index] + seconds, *old[index + 1 :])
        return Credit(self.reset_s, self.shares, received, deficit)

    def reset(self, now_s: float, shares: Mapping[str, tuple[float, ...]], half_s: float) -> Credit:
        """New shares from now on."""
        elapsed_s = now_s - (self.reset_s or 0.0)
        deficit = {
            job: tuple(
                due + share * elapsed_s - (received - half_s)
                for due, share, received in zip(
                    self.deficit_s[job], self.shares.get(job, (0.0,) * len(all_received)), all_received, strict=True
                )
            )
            for job, all_received in self.received_s.items()
        }
        fresh = {job: (half_s,) * len(received) for job, received in self.received_s.items()}
        return Credit(now_s, shares, fresh, deficit)

    def order(self, index: int, without: Container[str] = ()) -> list[str]:
        """The other jobs by priority on a GPU type, highest first; ties: deficit, share, order of submission."""
        shares, deficits, none = self.shares, self.deficit_s, (0.0,) * (index + 1)
        ranks = {}
        for job, received_s in self.received_s.items():
            if job in without:
                continue
            share, received = shares.get(job, none)[index], received_s[index]
            ranks[job] = (share / received if received > 0 else share * _NEVER_RAN, deficits[job][index], share)
        return sorted(ranks, key=ranks.__getitem__, reverse=True)

    def share(self, job: str, index: int) -> float:
        """The job's share of time on a GPU type; 0 before the first reset after its submission."""
        return self.shares[job][index] if job in self.shares else 0.0


@dataclass(frozen=True, slots=True)
class Slots:
    """What a round has to give: `capacity` is the number of GPUs of each type, `order` the types in which jobs are chosen."""

    capacity: Sequence[int]
    order: Sequence[int]


def choose(
    credit: Credit,
    slots: Slots,
    gpus: Mapping[str, int],
    rates: Mapping[str, Sequence[float]],
    *,
    shares_only: bool,
    newcomers_wait: bool,
) -> dict[str, int]:
    """The jobs of the next round with their GPU types, in the order in which they were chosen.

    A job that doesn't fit is skipped, later ones may still fit (backfill). `shares_only`: jobs without a share on a type
    don't run there. `newcomers_wait`: jobs that came after the last reset occupy what they are chosen for, but don't run
    (as coded in Gavel).
    """
    chosen: dict[str, int] = {}
    for index in slots.order:
        left = slots.capacity[index]
        for job in credit.order(index, without=chosen) if left else ():
            if gpus[job] > left or rates[job][index] <= 0:
                continue
            if shares_only and credit.share(job, index) <= 0:
                continue
            chosen[job] = index
            left -= gpus[job]
            if not left:
                break
    if newcomers_wait:
        return {job: index for job, index in chosen.items() if job in credit.shares}
    return chosen
