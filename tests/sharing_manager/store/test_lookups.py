"""Look-ups of a job's progress: answered in the poller's thread, whatever Redis does."""

from __future__ import annotations

import sqlite3
import threading
from random import Random

import pytest

from emulator_runtime.domain.errors import ClusterError, ManagerUnavailableError
from emulator_runtime.retrying import Backoff
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.store.lookups import RedisProgress, may_run_on_any_node
from sharing_manager.store.redis_errors import StoreUnavailableError


class Answers:
    def __init__(self):
        self.given, self.threads = {}, set()

    def take(self, key):
        def done(answer):
            assert key not in self.given
            self.given[key] = answer
            self.threads.add(threading.current_thread())

        return done


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def ask(answers, poller):
    """`ask(store, keys)`: the answers, once all have come."""

    def ask(store, *keys):
        answers.given.clear()
        for key in keys:
            store.progress.lookup(key, answers.take(key))
        poller.run_until(lambda: len(answers.given) == len(keys))
        assert answers.threads == {threading.current_thread()}
        return [answers.given[key] for key in keys]

    return ask


@pytest.fixture
def make_progress(log, poller):
    started = []

    def make(redis_answers, max_wait_s=60.0, open_outbox=log.outbox):
        """Progress that gets these answers one after the other; an exception is raised, the last one stays."""
        replies = list(redis_answers)

        def reply(keys):
            answer = replies.pop(0) if len(replies) > 1 else replies[0]
            if isinstance(answer, Exception):
                raise answer
            return [answer.get(key) for key in keys]

        backoff = Backoff(Random("x"), first_s=0.001, longest_s=0.01)
        progress = RedisProgress(reply, open_outbox, poller, backoff, monotonic_ns, max_wait_s=max_wait_s)
        progress.progress = progress
        progress.start()
        started.append(progress)
        return progress

    yield make
    for progress in started:
        progress.stop(5.0)


AWAY = StoreUnavailableError("redis://r", "away", "it can't be reached: start it")


def test_progress_of_other_nodes_and_of_this_one_that_is_not_shipped(
    redis_server, make_log, make_store, ask, eventually
):
    server = redis_server.start()
    elsewhere, here = make_log("elsewhere"), make_log("here")
    elsewhere.record("progress", "moved", 70)
    elsewhere.record("progress", "both", 10)
    make_store(elsewhere, server.url).start()
    eventually(lambda: server.progress("team/uid-both/0") == 10)
    here.record("progress", "both", 25)
    store = make_store(here, server.url)
    store.progress.start()  # nothing is shipped
    assert ask(store, "team/uid-moved/0", "team/uid-both/0", "team/uid-never/0") == [70, 25, None]


def test_a_redis_that_comes_back_in_time_is_waited_for(make_progress, ask):
    assert ask(make_progress([AWAY, AWAY, {"u/0": 5}]), "u/0") == [5]


def test_one_that_stays_away_is_reported_with_its_cause(make_progress, ask):
    (answer,) = ask(make_progress([AWAY], max_wait_s=0.05), "u/0")
    assert isinstance(answer, ManagerUnavailableError)
    assert (
        str(answer) == "the progress of job 'u/0' on other nodes is unknown: redis://r: it can't be reached: start it"
    )


def test_a_pod_on_its_own_never_waits_for_redis(make_progress, ask, log):
    """It can't have run on another node; its key is the pod's UID."""
    assert not may_run_on_any_node("0b9c-11")
    assert ask(make_progress([AWAY]), "0b9c-11") == [None]


def test_a_steps_count_that_this_node_has_and_redis_lost_counts(make_progress, ask, log):
    log.record("progress", "a", 12)
    log.record("progress", "a", 9)
    assert ask(make_progress([{"team/uid-a/0": 4}]), "team/uid-a/0") == [12]


def test_many_at_once_are_one_question(make_progress, ask):
    keys = [f"u/{number}" for number in range(1_000)]
    assert ask(make_progress([dict(zip(keys, range(1_000), strict=True))]), *keys) == list(range(1_000))


@pytest.mark.parametrize("error", [ClusterError("no such file"), sqlite3.OperationalError("disk I/O error")])
def test_an_outbox_that_cannot_be_read_is_a_reason_to_wait_too(make_progress, ask, log, error):
    class Failing:
        def progress_of(self, _key):
            raise error

        def close(self):
            pass

    (answer,) = ask(make_progress([{}], max_wait_s=0.02, open_outbox=Failing), "u/0")
    assert str(error) in str(answer)


def test_a_mistake_of_ours_does_not_leave_them_waiting_for_ever(make_progress, ask, caplog):
    progress = make_progress([RuntimeError("odd"), RuntimeError("odd"), {"u/0": 5, "u/1": 6}])
    assert ask(progress, "u/0") == [5]
    assert ask(progress, "u/1") == [6]
    assert caplog.text.count("looking up the progress of jobs failed (RuntimeError('odd')); it goes on") == 1
    assert "Traceback" in caplog.text


def test_a_mistake_that_stays_is_told_to_those_who_wait(make_progress, ask):
    (answer,) = ask(make_progress([ValueError("strange score")], max_wait_s=0.05), "u/0")
    assert isinstance(answer, ManagerUnavailableError)
    assert "strange score" in str(answer)


def test_who_still_waits_at_the_end_hears_so(make_progress, poller, answers):
    progress = make_progress([AWAY])
    progress.lookup("u/0", answers.take("u/0"))
    progress.stop(5.0)
    progress.stop(5.0)
    poller.run_until(lambda: answers.given)
    assert "is ending" in str(answers.given["u/0"])
