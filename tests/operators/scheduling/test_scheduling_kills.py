"""A scheduler that is killed at any of its writes, before or after it came through: the next one goes on, all the same."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

JOBS = 6


def submit(here: Any, actuator: str) -> None:
    for number in range(JOBS):
        here.submit(f"j{number}", 3 + 2 * number, actuator=actuator, resources={"emuGPU": 1 + number % 2})


def all_done(here: Any) -> bool:
    return all(here.phase(f"j{n}") == "Succeeded" for n in range(JOBS))


def run_to_the_end(here: Any, lab: Any, killed: type[BaseException], policy: str, random: Random) -> int:
    """Programs one after the other, each killed at some write, until all jobs are done; how many there were."""
    for programs in range(1, 80):
        here.api.kill_at = here.api.writes + random.randint(1, 12)
        here.api.kill_after = random.random() < 0.5
        try:
            program = lab(here, policy)
        except killed:
            continue
        try:
            program.run(lambda: all_done(here))
        except killed:
            here.now_ns += random.randint(0, 3) * 10**9
            continue
        assert not program.failures
        if all_done(here):
            return programs
    raise AssertionError("never done")


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las:threshold_s=4,quantum_s=2", "synergy:round_s=6"])
@pytest.mark.parametrize("actuator", ["jobs", "gated", "binding"])
@pytest.mark.parametrize("seed", range(2))
def test_killed_again_and_again(
    world: Any, lab: Any, killed: type[BaseException], policy: str, actuator: str, seed: int
) -> None:
    here = world.of(nodes=2, gpus=2)
    submit(here, actuator)
    programs = run_to_the_end(here, lab, killed, policy, Random(f"{seed}/kills"))
    assert programs > 1
    assert here.held() == {}
    for number in range(JOBS):
        uid = here.emujob(f"j{number}")["metadata"]["uid"]
        assert here.done[uid] >= 10
