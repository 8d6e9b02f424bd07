from __future__ import annotations

import logging
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sharing_manager.kubernetes.problem_log import BackOff, Complaint


@given(st.integers(), st.integers(1, 30))
def test_waits_grow_from_0_2_to_10_seconds_and_begin_anew(seed: int, failures: int) -> None:
    back_off = BackOff(Random(seed))
    waits = [back_off.next_s() for _ in range(failures)]
    for number, wait in enumerate(waits):
        assert min(10.0, 0.2 * 2**number) <= wait <= min(10.0, 0.25 * 2**number)
    back_off.reset()
    assert 0.2 <= back_off.next_s() <= 0.25


def test_nodes_do_not_come_in_step() -> None:
    waits = {BackOff(Random(f"node-{number}/watch")).next_s() for number in range(13)}
    assert len(waits) == 13


def test_a_complaint_is_said_when_it_begins_changes_and_ends(caplog) -> None:
    caplog.set_level(logging.INFO)
    complaint = Complaint("all is well again")
    complaint.over()
    for text in ("away", "away", "forbidden", "away"):
        complaint.say(text)
    complaint.over()
    complaint.over()
    assert caplog.messages == ["away", "forbidden", "away", "all is well again"]
