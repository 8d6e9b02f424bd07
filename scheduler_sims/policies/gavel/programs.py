"""The linear programs of Gavel's objectives, solved by HiGHS (dual simplex, one thread, so that equal input gives equal output).

All have the same form. x[j, w] >= 0 is the share of time of job j on GPU type w:

    maximise   level + sum values * x + sum lift
    with       sum_w gain[j, w] * x[j, w] >= floor[j] + demand[j] * level + lift[j]     for each job
               sum_w x[j, w] <= 1                                                       for each job
               sum_j gpus[j] * x[j, w] <= capacity[w]                                   for each type

A solve starts from the basis of an earlier one, which for a few changed jobs takes 2 instead of 100 iterations. A basis is plain
data, so that it can be part of a policy's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import highspy
import numpy as np

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.policies.gavel.problem import Array, Problem

_TOLERANCE = 1e-9
"""By how much a row may be exceeded: below the precision of the objectives."""

_BASIC, _LOWER = int(highspy.HighsBasisStatus.kBasic), int(highspy.HighsBasisStatus.kLower)
_STATUS = {int(status): status for status in highspy.HighsBasisStatus.__members__.values()}


@dataclass(frozen=True, slots=True)
class Basis:
    """A basis: the statuses of each job's shares and of its two rows; `common`: those of level and the types' rows."""

    jobs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    common: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """One linear program; without `demand` there is no level, without `most_lift` no lift."""

    gain: Array
    demand: Array | None = None
    floor: Array | None = None
    values: Array | None = None
    most_lift: Array | None = None


@dataclass(frozen=True)
class Solution:
    """`level`: the common level, 0 without a demand."""

    x: Array
    level: float
    lift: Array
    basis: Basis


def solve(problem: Problem, program: Program, start: Basis | None = None) -> Solution:
    """The optimum. Raises PolicyError where HiGHS finds none, which numbers of unlike size may cause."""
    m, n = program.gain.shape
    highs = highspy.Highs()
    for option, value in (("output_flag", False), ("threads", 1), ("presolve", "off"), ("solver", "simplex")):
        highs.setOptionValue(option, value)
    highs.setOptionValue("primal_feasibility_tolerance", _TOLERANCE)
    highs.passModel(_model(problem, program))
    if start is not None and start.common and program.most_lift is None:
        highs.setBasis(_spread(problem.jobs, n, start))
    highs.run()
    status = highs.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise PolicyError(f"gavel: HiGHS answers {highs.modelStatusToString(status)!r} to the shares of {m} jobs")
    values = np.array(highs.getSolution().col_value)
    basis = _gathered(problem.jobs, n, highs.getBasis()) if program.most_lift is None else Basis()
    return Solution(values[: m * n].reshape(m, n), float(values[m * n]), values[m * n + 1 :], basis)


def _model(problem: Problem, program: Program) -> highspy.HighsLp:
    """Columns: x row by row, the level, lifts. Rows: the jobs' levels, the jobs' times, the types."""
    (m, n), zeros = program.gain.shape, np.zeros(len(problem.jobs))
    demand = program.demand if program.demand is not None else zeros
    lifts = m if program.most_lift is not None else 0
    values = program.values if program.values is not None else np.zeros((m, n))
    most_lift = program.most_lift if program.most_lift is not None else zeros[:0]
    chosen = program.demand is not None and program.values is None and not lifts
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = m * n + 1 + lifts, 2 * m + n
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.concatenate([values.ravel(), [float(chosen)], np.ones(lifts)])
    lp.col_lower_ = np.zeros(lp.num_col_)
    can = np.where(problem.rates > 0, 1.0, 0.0).ravel()
    lp.col_upper_ = np.concatenate([can, [highspy.kHighsInf if program.demand is not None else 0.0], most_lift])
    lp.row_lower_ = np.concatenate(
        [program.floor if program.floor is not None else zeros, np.full(m + n, -highspy.kHighsInf)]
    )
    lp.row_upper_ = np.concatenate([np.full(m, highspy.kHighsInf), np.ones(m), problem.capacity])
    job, kind = np.repeat(np.arange(m), n), np.tile(np.arange(n), m)
    of_x = np.stack([job, m + job, 2 * m + kind], axis=1).ravel()
    in_x = np.stack([program.gain.ravel(), np.ones(m * n), np.repeat(problem.gpus, n)], axis=1).ravel()
    matrix = lp.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    matrix.start_ = np.concatenate(
        [np.arange(0, 3 * m * n, 3), [3 * m * n], 3 * m * n + m + np.arange(lifts + 1)]
    ).astype(np.int32)
    matrix.index_ = np.concatenate([of_x, np.arange(m), np.arange(lifts)]).astype(np.int32)
    matrix.value_ = np.concatenate([in_x, -demand, np.full(lifts, -1.0)])
    return lp


def _spread(jobs: tuple[str, ...], n: int, basis: Basis) -> highspy.HighsBasis:
    """A basis for `jobs`: those of `basis` keep their statuses, new jobs begin with no share."""
    new = (*(_LOWER,) * n, _BASIC, _BASIC)
    each = [basis.jobs.get(job, new) for job in jobs]
    result = highspy.HighsBasis()
    result.col_status = [_STATUS[s] for row in each for s in row[:n]] + [_STATUS[basis.common[0]]]
    result.row_status = [_STATUS[row[k]] for k in (n, n + 1) for row in each] + [_STATUS[s] for s in basis.common[1:]]
    return result


def _gathered(jobs: tuple[str, ...], n: int, basis: highspy.HighsBasis) -> Basis:
    """The same as plain data."""
    columns, rows, m = [int(s) for s in basis.col_status], [int(s) for s in basis.row_status], len(jobs)
    of_jobs = {job: (*columns[j * n : (j + 1) * n], rows[j], rows[m + j]) for j, job in enumerate(jobs)}
    return Basis(of_jobs, (columns[m * n], *rows[2 * m :]))
