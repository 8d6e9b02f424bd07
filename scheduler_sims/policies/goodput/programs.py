"""Sia's integer program, solved by HiGHS: each job gets one of its configurations or waits.

    minimise   sum cost[j, c] * x[j, c] + penalty * (number of jobs - sum x),   x binary
    with       sum_c x[j, c] <= 1            for each job
               sum gpus[c] * x[j, c] <= capacity   for each GPU type

One thread, a relative gap and a limit of nodes instead of a time limit, so that equal input gives equal output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from emulator_runtime.domain.errors import PolicyError

_GAP, _MOST_NODES = 1e-4, 2_000
_FOUND = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kSolutionLimit)


@dataclass(frozen=True, slots=True)
class Choice:
    """One configuration of one job: `cost` (smaller is better), and how many GPUs of which type it takes."""

    job: int
    cost: float
    gpu_type: int
    gpus: int


def choose(choices: Sequence[Choice], jobs: int, capacity: Sequence[int], penalty: float) -> list[int]:
    """The indices of the chosen configurations. Raises PolicyError where HiGHS finds none."""
    if not choices:
        return []
    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", 0),
        ("presolve", "off"),  # it takes fifteen times as long as the rest
        ("mip_rel_gap", _GAP),
        ("mip_max_nodes", _MOST_NODES),
    ):
        highs.setOptionValue(option, value)
    count = len(choices)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count, jobs + len(capacity)
    lp.col_cost_ = np.array([choice.cost - penalty for choice in choices])
    lp.col_lower_, lp.col_upper_ = np.zeros(count), np.ones(count)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * count
    lp.row_lower_ = np.full(lp.num_row_, -highspy.kHighsInf)
    lp.row_upper_ = np.concatenate([np.ones(jobs), np.array(capacity, dtype=float)])
    matrix = lp.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    matrix.start_ = np.arange(0, 2 * count + 1, 2).astype(np.int32)
    matrix.index_ = np.array([[c.job, jobs + c.gpu_type] for c in choices], dtype=np.int32).ravel()
    matrix.value_ = np.array([[1.0, c.gpus] for c in choices]).ravel()
    highs.passModel(lp)
    highs.run()
    status = highs.getModelStatus()
    if status not in _FOUND:
        raise PolicyError(f"sia: HiGHS answers {highs.modelStatusToString(status)!r} to {jobs} jobs")
    return [index for index, value in enumerate(highs.getSolution().col_value) if value > 0.5]
