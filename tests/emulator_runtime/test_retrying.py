"""Pauses between attempts, and threads that must not end because of an error."""

from __future__ import annotations

import sqlite3
import threading
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.retrying import Backoff, keep_running


@pytest.fixture
def run():
    """`run(error, error, ..)`: work that raises these in turn, then ends; answers what `failed` got."""

    def run(*errors, failed=None):
        left, stopping, got = list(errors), threading.Event(), []

        def work():
            if not left:
                stopping.set()
            else:
                raise left.pop(0)

        keep_running("the work", work, stopping, Backoff(Random("x"), first_s=0.001), failed or got.append)
        return got

    return run


def test_work_goes_on_after_whatever_it_raises(run, caplog):
    errors = [RuntimeError("a"), RuntimeError("a"), KeyError("b"), RuntimeError("a")]
    assert run(*errors) == errors
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition("(")[2].partition(")")[0] for line in lines] == [
        "RuntimeError('a'",
        "KeyError('b'",
        "RuntimeError('a'",
    ]
    assert all(record.exc_info for record in caplog.records)


def test_what_can_be_expected_is_not_logged_as_a_mistake(run, caplog):
    errors = [ClusterError("no file"), sqlite3.OperationalError("disk full")]
    assert run(*errors) == errors
    assert not caplog.records


def test_a_report_that_fails_does_not_end_it(run):
    told = []

    def failed(error):
        told.append(error)
        raise OSError("stderr is closed")

    run(RuntimeError("a"), RuntimeError("b"), failed=failed)
    assert len(told) == 2


def test_what_ends_the_process_ends_it(run):
    with pytest.raises(SystemExit):
        run(SystemExit(1))


@given(st.integers(), st.floats(0.01, 1.0), st.integers(1, 100))
def test_pauses_double_up_to_a_limit_and_begin_again_after_a_success(seed: int, first_s: float, failures: int) -> None:
    backoff = Backoff(Random(seed), first_s=first_s, longest_s=10.0)
    for number in range(failures):
        most_s = min(10.0, first_s * 2**number)
        assert most_s / 2 <= backoff.next_s() <= most_s
    backoff.reset()
    assert backoff.next_s() <= first_s


def test_programs_with_other_names_do_not_retry_in_step() -> None:
    assert len({Backoff(Random(f"node-{number}/watch")).next_s() for number in range(13)}) == 13
