"""Rounds belong to the loop: it calls a policy that has them when each begins, and says which one it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_sims.interface.rounds import Round, Rounds
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.testing import Job, Node


@pytest.mark.parametrize(
    ("now_s", "number", "start_s", "end_s"),
    [(0, -1, 0, 30), (29.9, -1, 0, 30), (30, 0, 30, 330), (400, 1, 330, 630), (630 - 1e-8, 2, 630, 930)],
)
def test_the_round_of_a_time(now_s, number, start_s, end_s):
    assert Rounds(300, 30).at(now_s) == Round(number, start_s, end_s)


@given(length_s=st.floats(0.1, 1e4), first_s=st.floats(0, 1e4), now_s=st.floats(0, 1e7))
def test_each_time_is_in_one_round(length_s, first_s, now_s):
    found = Rounds(length_s, first_s).at(now_s)
    assert found.end_s > now_s
    assert found.start_s <= now_s + 1e-6 * length_s


class Watching(Fifo):
    """FIFO that notes its calls, and asks for those at `wakes`."""

    def __init__(self, rounds, *wakes):
        super().__init__()
        self.rounds, self.wakes, self.seen = rounds, wakes, []

    def plan(self, view):
        self.seen.append((view.now_s, view.round and view.round.number))
        wake_at_s = next((at_s for at_s in self.wakes if at_s > view.now_s), None)
        return view.plan.evolve(start=super().plan(view).started, wake_at_s=wake_at_s)


@pytest.mark.parametrize(
    ("rounds", "wakes", "seen"),
    [
        (Rounds(10, 5), (), [(0, -1), (5, 0), (15, 1), (25, 2)]),
        (Rounds(10), (12,), [(0, 0), (10, 1), (12, 1), (20, 2), (30, 3)]),
        (None, (12,), [(0, None), (12, None)]),
    ],
)
def test_a_policy_is_called_when_a_round_begins(simulate, rounds, wakes, seen):
    policy = Watching(rounds, *wakes)
    run = simulate(policy, [Node("n", gpus=1)], [Job("a", gpu_s=31)])
    assert (policy.seen, run.records["a"].finish_s) == (seen, 31)
