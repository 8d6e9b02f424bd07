"""The whole scheduler over a cluster in miniature: what users see of it."""

from __future__ import annotations

from typing import Any

import pytest


def ended(world: Any, *names: str) -> Any:
    return lambda: all(world.phase(name) == "Succeeded" for name in names)


def test_jobs_wait_for_a_device_run_and_end(world: Any, lab: Any) -> None:
    here = world.of(gpus=2)
    for number in range(5):
        here.submit(f"j{number}", 10)
    lab(here).run(ended(here, *(f"j{n}" for n in range(5))))
    assert [name for name, _, _ in here.runs] == ["j0", "j1", "j2", "j3", "j4"]
    assert here.now_ns - 1_767_225_600_000_000_000 < 45e9


def test_a_shorter_job_stops_a_longer_one_which_goes_on_later(world: Any, lab: Any) -> None:
    here = world.of(gpus=1)
    here.submit("long", 60)
    program = lab(here, "srtf")
    program.run(lambda: here.phase("long") == "Running" and here.now_ns > 1_767_225_600_000_000_000 + 10 * 10**9)
    here.submit("short", 5)
    again = lab(here, "srtf")
    again.run(ended(here, "long", "short"))
    assert [name for name, _, _ in here.runs] == ["long", "short", "long"]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las:threshold_s=5", "allox", "synergy:round_s=10"])
def test_every_policy_ends_all_jobs(world: Any, lab: Any, policy: str) -> None:
    here = world.of(nodes=2, gpus=2)
    for number in range(8):
        here.submit(f"j{number}", 4 + 3 * number)
    program = lab(here, policy)
    program.run(ended(here, *(f"j{n}" for n in range(8))))
    assert not program.failures
    assert here.held() == {}
    assert all(here.phase(f"j{n}") == "Succeeded" for n in range(8))
