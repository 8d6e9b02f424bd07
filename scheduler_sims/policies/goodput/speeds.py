"""Pollux's model of a data-parallel job: the time of a step, statistical efficiency, the batch size with the best goodput.

Qiao et al., Pollux, OSDI 2021, sections 3 and 4.1; constants as in petuum/adaptdl, branch osdi21-artifact at c793c70,
simulator (module goodput).

    compute  = a + b * m                       m samples on each GPU, for each of s + 1 accumulated parts
    exchange = 0 on one GPU, else r + r' * max(0, K - 2) with K GPUs, with other constants on several nodes
    step     = s * compute + (compute^g + exchange^g)^(1/g), 1 <= g <= 10: how far computation and exchange overlap
    throughput = K * m * (s + 1) / step;  efficiency = (noise + M0) / (noise + M) at M samples, M0 as submitted
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

_TINY = 1e-8
_BATCHES = 50
"""Number of batch sizes that are tried, in geometric progression."""
_SMOOTH = 1e-8
"""Added to mean squares: a root has no gradient at 0."""
_FIRST = (0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)


@dataclass(frozen=True, slots=True)
class Speeds:
    """The parameters, seconds: of computing, of an exchange between nodes, of one within a node; `overlap` has no unit."""

    compute_s: float
    compute_s_per_sample: float
    between_s: float
    between_s_per_gpu: float
    within_s: float
    within_s_per_gpu: float
    overlap: float

    def step_s(self, nodes: Array, gpus: Array, each: Array, accumulated: Array) -> Array:
        """Time of a step with `each` samples on each GPU, `accumulated` + 1 times."""
        compute = self.compute_s + self.compute_s_per_sample * each
        exchange = _exchange_s(np.array(astuple(self)), nodes, gpus)
        together = (compute**self.overlap + exchange**self.overlap) ** (1 / self.overlap)
        return np.asarray(accumulated * compute + together)


@dataclass(frozen=True, slots=True)
class Observation:
    """A step that the job has run: its time, and the part of it that is computation."""

    nodes: int
    gpus: int
    each: int
    step_s: float
    compute_s: float


@dataclass(frozen=True, slots=True)
class Batches:
    """What may be chosen: from `least` samples in a step (as submitted) to `most`; on each GPU from `least_each` to `most_each`.

    `accumulate`: larger batches are split on each GPU into parts that fit.
    """

    least: int
    most: int
    least_each: int
    most_each: int
    accumulate: bool = False


@dataclass(frozen=True, slots=True)
class Best:
    """The best goodput in samples of the submitted batch size per second, and how it is reached; an entry for each candidate."""

    goodput: Array
    each: NDArray[np.int64]
    accumulated: NDArray[np.int64]


def efficiency(batches: Batches, noise: float, batch_size: Array) -> Array:
    """How much a sample brings in a batch of this size, compared with the submitted size."""
    if noise == inf:
        return np.ones_like(batch_size, dtype=np.float64)
    return np.asarray((noise + batches.least) / (noise + batch_size))


def best(speeds: Speeds, batches: Batches, noise: float, nodes: Array, gpus: Array) -> Best:
    """The best batch size for each pair of `nodes` and `gpus`; goodput 0 where no batch size is allowed."""
    least = np.maximum(batches.least, batches.least_each * gpus)
    most = np.maximum(least, batches.most)
    total = np.geomspace(least, most, _BATCHES)
    if batches.accumulate:
        accumulated = np.ceil(total / gpus / batches.most_each - _TINY) - 1
        alone = (gpus == 1) & (total > batches.least + _TINY)
        accumulated = np.where(alone, np.maximum(accumulated, 1), accumulated)
    else:
        accumulated = np.zeros_like(total)
    each = np.ceil(total / gpus / (accumulated + 1) - _TINY)
    batch_size = gpus * each * (accumulated + 1)
    goodput = batch_size / speeds.step_s(nodes, gpus, each, accumulated) * efficiency(batches, noise, batch_size)
    allowed = (batches.least_each <= each) & (each <= batches.most_each) & (least <= batches.most)
    goodput = np.where(allowed, goodput, 0.0)
    chosen = goodput.argmax(axis=0), np.arange(goodput.shape[1])
    return Best(goodput[chosen], each[chosen].astype(np.int64), accumulated[chosen].astype(np.int64))


def fit(observed: Sequence[Observation]) -> Speeds:
    """The parameters that explain the observed steps best; what was never observed costs nothing (an optimistic prior).

    Least root mean square errors of the logarithms, with weak terms that prefer a small overlap and little cost of each
    further GPU.
    """
    nodes, gpus = (np.array([getattr(each, name) for each in observed], dtype=float) for name in ("nodes", "gpus"))
    each = np.array([o.each for o in observed], dtype=float)
    compute, step = (np.array([getattr(o, name) for o in observed]) for name in ("compute_s", "step_s"))
    first, low, high = np.array(_FIRST), np.array([_TINY] * 6 + [1.0]), np.array([np.inf] * 6 + [10.0])
    fixed = []
    if len(set(each)) == 1:
        first[0] = low[0] = high[0] = compute.mean() / 2
    if not (nodes > 1).any():
        fixed += [2, 3]
    if not ((nodes == 1) & (gpus > 1)).any():
        fixed += [4, 5]
    if not (gpus > 2).any():
        fixed += [3, 5]
    for index in fixed:
        first[index] = high[index] = low[index]
    found = minimize(
        _error,
        first,
        args=(nodes, gpus, each, np.log(compute), np.log(step)),
        jac=True,
        bounds=np.stack([low, high], axis=1),
        method="L-BFGS-B",
    ).x
    if not (nodes > 1).any():  # an exchange between nodes isn't faster than one within a node
        found[2], found[3] = max(found[2], found[4] * 1.1), max(found[3], found[5] * 1.1)
    return Speeds(*found.tolist())


def _exchange_s(p: Array, nodes: Array, gpus: Array) -> Array:
    further = np.maximum(gpus - 2, _TINY)
    between, within = p[2] + p[3] * further, p[4] + p[5] * further
    return np.where(nodes > 1, between, np.where(gpus > 1, within, _TINY))


def _error(
    p: Array, nodes: Array, gpus: Array, each: Array, log_compute: Array, log_step: Array
) -> tuple[float, Array]:
    """The error of parameters, and its gradient."""
    overlap, further = p[6], np.maximum(gpus - 2, _TINY)
    between, within = nodes > 1, (nodes <= 1) & (gpus > 1)
    compute, exchange = p[0] + p[1] * each, _exchange_s(p, nodes, gpus)
    log_c, log_e = np.log(compute), np.log(exchange)
    larger = np.maximum(log_c, log_e)
    parts = np.exp(overlap * (log_c - larger)) + np.exp(overlap * (log_e - larger))
    of_step = larger + np.log(parts) / overlap
    share_c = np.exp(overlap * (log_c - larger)) / parts
    share_e = 1 - share_c
    off_c, off_s = log_c - log_compute, of_step - log_step
    rms_c, rms_s = (float(np.sqrt((off**2).mean() + _SMOOTH)) for off in (off_c, off_s))
    grad_s = off_s / (len(each) * rms_s)
    grad_c = off_c / (len(each) * rms_c) + grad_s * share_c
    grad_e = grad_s * share_e / exchange
    mixed = (share_c * log_c + share_e * log_e - larger) / overlap - np.log(parts) / overlap**2
    gradient = np.array(
        [
            (grad_c / compute).sum(),
            (grad_c / compute * each).sum(),
            grad_e[between].sum(),
            (grad_e * further)[between].sum(),
            grad_e[within].sum(),
            (grad_e * further)[within].sum(),
            (grad_s * mixed).sum(),
        ]
    )
    error = rms_c + rms_s + 1e-3 * (overlap - 1) ** 2
    gradient[6] += 2e-3 * (overlap - 1)
    for constant, slope in ((2, 3), (4, 5)):
        ratio = p[slope] / p[constant]
        error += 1e-2 * ratio**2
        gradient[slope] += 2e-2 * ratio / p[constant]
        gradient[constant] -= 2e-2 * ratio**2 / p[constant]
    return float(error), gradient
