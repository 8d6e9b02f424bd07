"""Fits constants and weights of a step model to measured step times: least squares of logarithms, with outliers damped.

Parameters are held near a start. With few steps and many parameters the hold decides: a parameter moves only as far as the
times ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emugpu.learning.step_model import Array, StepModel, StepWorks

OUTLIER = 0.15
"""A step time with a larger relative error counts less."""
_ROUNDS, _SMALLEST_CHANGE, _SMALLEST_GAIN = 40, 1e-4, 1e-4


def fit(
    model: StepModel,
    steps: Sequence[StepWorks],
    measured_ns: Array,
    start: Array,
    hold: Array,
    *,
    begin: Array | None = None,
    outlier: float = OUTLIER,
) -> Array:
    """The parameters. `hold`: for each, how much its distance from `start` counts beside an error of a step (both squared).
    `begin`: where the search begins, if not at `start`."""
    x, damping = (start if begin is None else begin).copy(), 1e-2
    residuals, slopes = _residuals(model, steps, measured_ns, x)
    loss = _loss(residuals, x - start, hold, outlier)
    for _ in range(_ROUNDS):
        weights = 1 / np.sqrt(1 + (residuals / outlier) ** 2)
        normal = slopes.T @ (slopes * weights[:, None]) + np.diag(hold)
        right = -slopes.T @ (weights * residuals) - hold * (x - start)
        change = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), right)
        tried = x + change
        residuals_then, slopes_then = _residuals(model, steps, measured_ns, tried)
        loss_then = _loss(residuals_then, tried - start, hold, outlier)
        if loss_then < loss:
            x, residuals, slopes, damping = tried, residuals_then, slopes_then, damping / 3
            improved, loss = loss - loss_then, loss_then
            if np.abs(change).max() < _SMALLEST_CHANGE or improved < _SMALLEST_GAIN * loss:
                break
        else:
            damping *= 5
            if damping > 1e8:
                break
    return x


def step_times(model: StepModel, steps: Sequence[StepWorks], parameters: Array) -> tuple[Array, Array]:
    """Nanoseconds of each step, and the derivatives of their logarithms by the parameters."""
    durations, slopes = model.durations(parameters)
    dispatches = model.launches_by_kind(parameters)[model.kinds]
    found = [model.step(step, durations, slopes, dispatches) for step in steps]
    return np.array([ns for ns, _ in found]), np.array([gradient for _, gradient in found])


def _residuals(model: StepModel, steps: Sequence[StepWorks], measured_ns: Array, x: Array) -> tuple[Array, Array]:
    times, slopes = step_times(model, steps, x)
    return np.log(times / measured_ns), slopes


def _loss(residuals: Array, moved: Array, hold: Array, outlier: float) -> float:
    damped = 2 * outlier**2 * (np.sqrt(1 + (residuals / outlier) ** 2) - 1)
    return float(damped.sum() + (hold * moved**2).sum())
