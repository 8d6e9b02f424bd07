"""What all tests share: a bound on host time that means the same on a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import settings

settings.register_profile("any machine", deadline=None)  # an example that takes 200 ms says how busy the machine is
settings.load_profile("any machine")
_SAMPLE_S = 0.05


def slowdown() -> float:
    """How many times longer than alone this process takes now for what it computes; about 1 on a machine that has time for it."""
    began_s, used_s = time.monotonic(), time.process_time()
    while (computed_s := time.process_time() - used_s) < _SAMPLE_S:
        pass
    return (time.monotonic() - began_s) / computed_s


@pytest.fixture(name="slowdown")
def slowdown_now() -> Callable[[], float]:
    """`slowdown()`, for tests."""
    return slowdown


@pytest.fixture
def in_time() -> Callable[..., bool]:
    """`in_time(most_s=, since_s=)`: whether at most so many host seconds have passed since this moment of time.monotonic(), or,
    where other work keeps us from the CPU, as many times more as it makes everything here slower."""

    def judge(*, most_s: float, since_s: float) -> bool:
        passed_s = time.monotonic() - since_s
        return passed_s <= most_s or passed_s <= most_s * slowdown()

    return judge
