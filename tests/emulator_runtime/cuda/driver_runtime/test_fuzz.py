"""Random calls: an error code at worst, never a crash."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., str]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_calls(run_cuda: Run, seed: int) -> None:
    run_cuda(f"import fuzz; fuzz.fuzz({seed}, 10_000)", devices=2, kernel_ns=100, peer_link_bytes_per_s=1e11)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_random_calls(run_cuda: Run) -> None:
    run_cuda(
        "import fuzz; fuzz.fuzz(3, 1_000_000)", devices=2, kernel_ns=100, timeout_s=900, peer_link_bytes_per_s=1e11
    )
