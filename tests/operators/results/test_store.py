"""The operator's store: once each, with the position, through restarts."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import pytest

from emulator_runtime.domain.errors import ClusterError
from operators.results.computing import job_result
from operators.results.predicted import Prediction
from operators.results.store import Batch, ResultStore

S = 1_000_000_000
T0 = 1_700_000_000 * S


@pytest.fixture
def told(teller):
    node = teller("n1")
    node.tell("attached", 1)
    node.tell("progress", 3, 5)
    node.tell("finished", 6, 10)
    return node.events


def test_an_event_is_in_it_once_and_the_first_receipt_counts(store, told, facts):
    store.note_job(facts())
    assert store.write(Batch(tuple(told))) == 3
    assert store.write(Batch(tuple(replace(event, received_ns=1) for event in told))) == 0
    assert [event.received_ns for event in store.events("job")] == [event.received_ns for event in told]
    assert store.job("job") == job_result(facts(), told)


def test_the_position_is_the_newest_id_and_never_goes_back(store, told):
    assert store.position("emugpu:events:n1") is None
    store.write(Batch(tuple(told[1:])))
    store.write(Batch(tuple(told[:1])))
    assert store.position("emugpu:events:n1") == (1000, 3)
    store.write(Batch((replace(told[0], epoch=2000),)))
    assert store.position("emugpu:events:n1") == (2000, 1)


def test_what_kubernetes_tells_has_no_position(store, told):
    store.write(Batch((replace(told[0], stream="kubernetes:u"),)))
    assert store.position("kubernetes:u") is None


def test_an_entry_that_nobody_could_read_is_a_known_gap(store):
    gap = Batch(unread=(("emugpu:events:n1", (1000, 9)),))
    store.write(gap)
    store.write(gap)
    assert (store.unread(), store.position("emugpu:events:n1")) == (1, (1000, 9))


def test_a_write_that_fails_leaves_neither_events_nor_a_position(store, told):
    broken = replace(told[2], steps_done=2**70)  # more than the file's integers hold
    with pytest.raises(OverflowError):
        store.write(Batch((told[0], broken)))
    assert (store.events("job"), store.position("emugpu:events:n1")) == ([], None)


def test_all_of_it_survives_and_two_connections_see_the_same(tmp_path, told, facts):
    path = tmp_path / "r.db"
    with closing(ResultStore(path)) as first, closing(ResultStore(path)) as second:
        first.note_job(facts())
        first.write(Batch(tuple(told)))
        first.note_prediction("job", Prediction(5.0, "fifo", T0))
        seen = second.job("job")
    with closing(ResultStore(path)) as later:
        assert later.job("job") == seen
        assert seen.jct_s == 6
        assert later.prediction("job") == Prediction(5.0, "fifo", T0)
        assert later.noted() == [facts()]


def test_what_is_committed_is_on_the_disk_because_redis_may_delete_it_then(store):
    assert store._db.execute("pragma synchronous").fetchone() == (2,)  # FULL (sqlite.org, pragma synchronous)


def test_the_prediction_at_submission_stays(store):
    assert store.prediction("job") is None
    first = store.note_prediction("job", Prediction(5.0, "fifo", T0))
    assert store.note_prediction("job", Prediction(9.0, "las", T0 + 1)) == first == store.prediction("job")


def test_facts_sent_again_keep_the_submission(store, facts):
    store.note_job(facts())
    store.note_job(replace(facts(policy="las"), submitted_ns=T0 + 5))
    assert store.facts("job") == facts(policy="las")


def test_of_a_job_that_ended_long_ago_the_result_stays(store, told, facts):
    store.note_job(facts(steps=10))
    store.note_job(facts("other"))
    store.write(Batch(tuple(told)))
    before = store.job("job")
    store.archive([before])
    assert store.events("job") == []
    store.write(Batch(tuple(told)))  # Redis gives them again
    store.note_job(facts(policy="las"))
    assert (store.events("job"), store.job("job"), store.archived()) == ([], before, [before])
    assert [known.uid for known in store.noted()] == ["other"]


def test_events_of_jobs_that_nobody_noted_go_with_time(store, told, facts):
    store.write(Batch(tuple(told)))
    store.drop_orphans(T0)
    store.note_job(facts())
    assert store.events("job") == told
    store.write(Batch(tuple(replace(event, job_key="other/0") for event in told)))
    store.drop_orphans(T0 + 100 * S)
    store.note_job(facts("other"))
    assert (store.events("job"), store.events("other")) == (told, [])


def test_the_archive_has_a_limit_of_age_and_of_number(store, facts, teller):
    for number in range(4):
        uid = f"job{number}"
        store.note_job(facts(uid, failed_ns=T0 + number * S))
        store.note_prediction(uid, Prediction(1.0, "fifo", T0))
    store.archive(store.jobs())
    assert store.forget(T0 + S, 9) == ["job0"]
    assert store.forget(0, 2) == ["job1"]
    assert [result.facts.uid for result in store.archived()] == ["job2", "job3"]
    assert sorted(store.predictions()) == ["job2", "job3"]
    assert store.forget(0, 2) == []


def test_a_file_that_is_no_store_is_reported(tmp_path):
    (tmp_path / "r.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ClusterError, match=r"can't use this file as the operator's store: .*move the file away"):
        ResultStore(tmp_path / "r.db")


def test_a_store_of_a_newer_emugpu_is_reported(tmp_path):
    ResultStore(tmp_path / "r.db").close()
    with closing(sqlite3.connect(tmp_path / "r.db")) as db:
        db.execute("pragma user_version = 99")
    with pytest.raises(ClusterError, match="a newer emugpu wrote it"):
        ResultStore(tmp_path / "r.db")


def test_a_thousand_events_of_a_job_are_read_at_once(store, teller, facts):
    node = teller("n1")
    node.tell("attached", 0)
    for step in range(1, 20_001):
        node.tell("progress", step / 100, step)
    store.note_job(facts(steps=20_000))
    store.write(Batch(tuple(node.events)))
    begun = time.monotonic()
    assert store.job("job").steps_done == 20_000
    assert time.monotonic() - begun < 10  # what is quadratic takes minutes
