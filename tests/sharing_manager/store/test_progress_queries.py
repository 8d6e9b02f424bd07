"""A Redis that may lack progress isn't trusted: jobs wait instead of repeating steps."""

from __future__ import annotations

import time

import pytest

from sharing_manager.store.client import client_of
from sharing_manager.store.progress_queries import RedisProgressQuery
from sharing_manager.store.redis_errors import StoreUnavailableError

S = 1_000_000_000


class Clock:
    now_ns = 0

    def __call__(self):
        return self.now_ns


@pytest.fixture
def make_question(redis_server):
    """`make_question(settle_s=..)`: put to the real Redis, on a clock of the test's own."""
    clients = []

    def make(settle_s=0.0, options=""):
        clients.append(client_of(redis_server.url + options, "URL"))
        question = RedisProgressQuery(clients[-1], "redis", Clock(), settle_s=settle_s)
        question.clock = question._now_ns
        return question

    yield make
    for client in clients:
        client.close()
        client.connection_pool.disconnect()


@pytest.fixture
def lookup(poller):
    """`lookup(store, key)`: a list that gets the answer; `lookup.answer(list)` waits for it."""

    def lookup(store, key):
        answers = []
        store.progress.lookup(key, answers.append)
        return answers

    def wait(answers):
        poller.run_until(lambda: answers)
        return answers[0]

    def wait_in_vain(answers, for_s=0.5):
        until = time.monotonic() + for_s
        poller.run_until(lambda: answers or time.monotonic() > until)
        assert not answers

    lookup.answer, lookup.no_answer = wait, wait_in_vain
    return lookup


def test_asking_changes_nothing(redis_server, make_question):
    server = redis_server.start()
    assert make_question()(["u/0", "u/1"]) == [None, None]
    assert server.client().keys("*") == []
    server.client().zadd("emugpu:progress", {"u/0": 0, "u/1": 7})
    assert make_question()(["u/0", "u/1", "u/2"]) == [0, 7, None]
    assert server.client().zrange("emugpu:progress", 0, -1, withscores=True) == [("u/0", 0.0), ("u/1", 7.0)]


def test_a_redis_that_came_back_empty_is_not_believed_before_the_nodes_have_told_it(
    redis_server, make_log, make_store, lookup, eventually
):
    server = redis_server.start(persistent=False)
    elsewhere, here = make_log("elsewhere"), make_log("here")
    elsewhere.record("progress", "moved", 70)
    store = make_store(elsewhere, server.url)
    store.start()
    eventually(lambda: server.progress("team/uid-moved/0") == 70)
    store.stop()
    server.kill()
    server.start(persistent=False)
    asking = make_store(here, server.url, settle_s=2.0)
    asking.start()
    answers = lookup(asking, "team/uid-moved/0")
    lookup.no_answer(answers)
    make_store(elsewhere, server.url, settle_s=2.0).start()  # the other node has noticed
    assert lookup.answer(answers) == 70


def test_a_young_redis_says_how_young(redis_server, make_question):
    redis_server.start()
    with pytest.raises(
        StoreUnavailableError, match=r"redis: it started [0-9] s ago and may have lost data: jobs wait"
    ) as caught:
        make_question(settle_s=60)(["u/0"])
    assert caught.value.kind == "young"


def test_a_redis_that_is_full_is_not_believed_before_the_nodes_could_tell_it(
    redis_server, make_log, make_store, lookup, eventually
):
    """Reading works while it is full: what it answers is what the job had done when it became so."""
    server = redis_server.start()
    elsewhere, here = make_log("elsewhere"), make_log("here")
    elsewhere.record("progress", "moved", 40)
    store = make_store(elsewhere, server.url)
    store.start()
    eventually(lambda: server.progress("team/uid-moved/0") == 40)
    server.client().config_set("maxmemory", "1")
    elsewhere.record("progress", "moved", 90)
    eventually(lambda: store.status().problem == "memory")
    asking = make_store(here, server.url, settle_s=0.0)
    asking._lookups.start()
    answers = lookup(asking, "team/uid-moved/0")
    lookup.no_answer(answers)
    asking._lookups._query._settle_s = 2.0  # Redis isn't young any more
    server.client().config_set("maxmemory", "0")
    assert server.progress("team/uid-moved/0") == 40
    assert lookup.answer(answers) == 90


@pytest.mark.parametrize(
    ("options", "problem"),
    [(("--maxmemory", "1"), "memory"), (("--min-replicas-to-write", "1"), "replicas")],
)
def test_one_that_refused_writes_is_believed_after_a_while(redis_server, make_question, options, problem):
    server = redis_server.start(*options)
    question = make_question()
    with pytest.raises(StoreUnavailableError) as caught:
        question(["u/0"])
    assert caught.value.kind == problem
    server.client().config_set("maxmemory", "0")
    server.client().config_set("min-replicas-to-write", "0")
    question._uptime_s, question._settle_s = (lambda: 99), 15.0
    question.clock.now_ns = 15 * S - 1
    with pytest.raises(StoreUnavailableError, match="redis: it refused writes a moment ago: jobs wait") as caught:
        question(["u/0"])
    assert caught.value.kind == "settling"
    question.clock.now_ns = 15 * S
    assert question(["u/0"]) == [None]


def test_what_shipping_found_refused_counts_too(redis_server, make_question):
    redis_server.start()
    question = make_question(settle_s=15.0)
    question._uptime_s = lambda: 99
    assert question(["u/0"]) == [None]
    question.distrust()
    with pytest.raises(StoreUnavailableError, match="refused writes"):
        question(["u/0"])


def test_a_user_who_may_not_ask_how_old_it_is_is_answered(redis_server, make_question):
    server = redis_server.start()
    server.client().execute_command("ACL SETUSER u on >p ~emugpu:* +@write +@read +@transaction -info")
    server.client().zadd("emugpu:progress", {"u/0": 7})
    assert make_question(settle_s=60, options="?username=u&password=p")(["u/0"]) == [7]


def test_a_redis_that_is_away_is_asked_again_over_a_new_connection(redis_server, make_question):
    server = redis_server.start()
    question = make_question()
    assert question(["u/0"]) == [None]
    server.kill()
    with pytest.raises(StoreUnavailableError, match="it can't be reached"):
        question(["u/0"])
    server.start()
    assert question(["u/0"]) == [None]
