"""Evaluates the points of a sweep in processes, and keeps what is done in a journal."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from emugpu.evaluations.journal import Journal
from emugpu.evaluations.parallel import evaluate_in_parallel
from emugpu.sweep.evaluation import Outcome, evaluate, ignore_interrupts
from emugpu.sweep.plan import Point, Sweep, identity
from emulator_runtime.domain.errors import ClusterError

Ended = Callable[[Point, Outcome], None]


class SweepJournal:
    """The outcomes of points, those of policies in files by the files' contents too."""

    def __init__(self, path: Path, sweep: Sweep) -> None:
        """Raises InputError for an input that can't be read."""
        self._journal = Journal(path, sweep.inputs.subject(), "sweep")
        self._identities = {policy: identity(policy) for policy in sweep.policies}

    def read(self) -> dict[Point, Outcome]:
        """Those of this sweep's policies. Raises InputError for another sweep's file."""
        try:
            found = [self._outcome(values) for values in self._journal.read()]
        except (ValueError, KeyError, TypeError) as error:
            raise self._journal.damaged(error) from error
        return dict(one for one in found if one is not None)

    def append(self, point: Point, outcome: Outcome) -> None:
        """At once."""
        values = {"point": asdict(point), "policy": self._identities[point.policy], "outcome": outcome.as_dict()}
        self._journal.append(values)

    def _outcome(self, values: dict[str, Any]) -> tuple[Point, Outcome] | None:
        point = Point(**values["point"])
        outcome = Outcome(**{**values["outcome"], "jct_s": tuple(values["outcome"]["jct_s"])})
        return (point, outcome) if self._identities.get(point.policy) == values["policy"] else None


def run_sweep(sweep: Sweep, journal: SweepJournal, known: dict[Point, Outcome], workers: int, ended: Ended) -> None:
    """Evaluates the points that aren't known, and adds them to `known` and the journal; failed ones aren't written, so that they
    are tried again. Raises ClusterError if a process is killed."""
    missing = iter([point for point in sweep.points() if point not in known])
    context = multiprocessing.get_context("spawn")  # a fork would copy the progress bar's thread in an unknown state

    def done(point: Point, outcome: Outcome) -> None:
        known[point] = outcome
        if not outcome.error:
            journal.append(point, outcome)
        ended(point, outcome)

    with ProcessPoolExecutor(workers, mp_context=context, initializer=ignore_interrupts) as pool:
        try:
            evaluate_in_parallel(pool, workers, lambda _: next(missing, None), partial(evaluate, sweep.inputs), done)
        except BrokenProcessPool as error:
            problem = (
                "a process of the sweep was killed, perhaps for its memory: use fewer --workers; what is done is kept"
            )
            raise ClusterError(problem) from error
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            raise
