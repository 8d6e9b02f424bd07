"""Proposals are evaluated several at a time, and may depend on results."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from emugpu.evaluations.parallel import evaluate_in_parallel


def test_all_are_evaluated_two_at_a_time() -> None:
    both = Barrier(2, timeout=20)
    waiting, done = iter(range(6)), {}

    def evaluate(number: int) -> int:
        both.wait()  # passes only if two run at once
        return number * number

    with ThreadPoolExecutor(2) as pool:
        evaluate_in_parallel(pool, 2, lambda _: next(waiting, None), evaluate, done.__setitem__)
    assert done == {n: n * n for n in range(6)}


def test_proposals_may_wait_for_results() -> None:
    found: list[int] = []

    def propose(running: int) -> int | None:
        return len(found) if running == 0 and len(found) < 3 else None

    with ThreadPoolExecutor(4) as pool:
        evaluate_in_parallel(pool, 4, propose, lambda n: n, lambda n, _: found.append(n))
    assert found == [0, 1, 2]


def test_an_error_ends_it() -> None:
    def evaluate(number: int) -> int:
        raise ValueError(f"number {number}")

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="number 0"):
        numbers = iter(range(5))
        evaluate_in_parallel(pool, 1, lambda _: next(numbers, None), evaluate, lambda n, _: None)
    assert next(numbers) == 1  # nothing more was proposed
