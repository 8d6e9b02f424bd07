"""Evaluates what is proposed, several at a time. `propose` may choose by the results so far."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TypeVar

Proposal = TypeVar("Proposal")
Result = TypeVar("Result")


def evaluate_in_parallel(
    pool: Executor,
    workers: int,
    propose: Callable[[int], Proposal | None],
    evaluate: Callable[[Proposal], Result],
    ended: Callable[[Proposal, Result], None],
) -> None:
    """Evaluates until nothing is proposed and nothing runs.

    `propose`: the next one, given how many run; None: none at the moment, asked again when one has ended. `ended` is called by
    this thread, in the order in which they end. Of what is raised, by `evaluate` too, the first ends it: what waits is
    cancelled, what runs isn't waited for.
    """
    running: dict[Future[Result], Proposal] = {}
    try:
        while True:
            while len(running) < workers and (proposal := propose(len(running))) is not None:
                running[pool.submit(evaluate, proposal)] = proposal
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                ended(running.pop(future), future.result())
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
