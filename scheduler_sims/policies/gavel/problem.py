"""Gavel's allocation problem as arrays: jobs are rows, GPU types columns, both in a fixed order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Shares = Mapping[str, tuple[float, ...]]
"""Job -> fraction of time on each GPU type."""


@dataclass(frozen=True)
class Problem:
    """What an objective needs to know. `rates`: steps per second of each job on each type, 0 where it can't run.

    `gpus`: of each job. `capacity`: GPUs of each type. `steps_left`, `age_s` (since submission) and `weights`: of each job.
    `prices`: of a GPU of each type per hour, all 1 if nobody cares.
    """

    jobs: tuple[str, ...]
    types: tuple[str, ...]
    rates: Array
    gpus: Array
    capacity: Array
    weights: Array
    steps_left: Array
    age_s: Array
    prices: Array

    @property
    def equal_rates(self) -> Array:
        """Steps per second if each job had an equal part of each type: X_equal of the paper, as coded one row for all jobs."""
        return np.asarray(self.rates @ (self.capacity / self.capacity.sum()))

    @property
    def isolated_shares(self) -> Array:
        """The shares of time if the cluster were divided equally among the jobs: N_w / (m * gpus), at most all the time."""
        shares = self.capacity[None, :] / len(self.jobs) / self.gpus[:, None]
        return np.asarray(shares / np.maximum(1.0, shares.sum(axis=1, keepdims=True)))

    @property
    def isolated_rates(self) -> Array:
        """Steps per second with `isolated_shares`."""
        return np.asarray((self.rates * self.isolated_shares).sum(axis=1))

    def shares(self, x: Array) -> dict[str, tuple[float, ...]]:
        """`x` by job, limited to 0..1."""
        return dict(zip(self.jobs, map(tuple, np.clip(x, 0.0, 1.0).tolist()), strict=True))


def array(values: Sequence[float] | Sequence[Sequence[float]]) -> Array:
    return np.array(values, dtype=np.float64)
