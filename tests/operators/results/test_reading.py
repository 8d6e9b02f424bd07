"""A reader beside the writer: the same results, one moment at a time, and what has changed since."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from emulator_runtime.domain.errors import ClusterError
from operators.results.computing import job_result
from operators.results.predicted import Prediction
from operators.results.reading import ResultReader
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


@pytest.fixture
def reader(tmp_path, store):
    with closing(ResultReader.open(tmp_path / "results.db")) as opened:
        yield opened


def test_a_reader_sees_what_the_writer_has_committed(store, reader, told, facts):
    assert (reader.jobs(), reader.job("job"), reader.predictions()) == ([], None, {})
    store.note_job(facts())
    store.note_job(facts("failed", failed_ns=T0 + S))
    store.write(Batch(tuple(told), unread=(("emugpu:events:n2", (1, 1)),)))
    store.note_prediction("job", Prediction(5.0, "fifo", T0))
    failed = job_result(facts("failed", failed_ns=T0 + S), [])
    store.archive([failed])
    assert reader.jobs() == [failed, job_result(facts(), told)]
    assert (reader.job("failed"), reader.job("job")) == (failed, job_result(facts(), told))
    assert reader.events("job") == told
    assert reader.predictions() == {"job": Prediction(5.0, "fifo", T0)} == {"job": reader.prediction("job")}
    assert reader.unread() == 1


def test_the_version_grows_with_what_changes_and_says_of_which_jobs(store, reader, told, facts):
    def news():
        """The jobs that have changed since the last call."""
        versions.append(reader.version())
        version, uids, more = reader.changes_page(versions[-2], 100)
        assert (version, more) == (versions[-1], False)
        return uids

    versions = [reader.version()]
    assert versions == [0]
    store.note_job(facts())
    store.note_job(facts("other"))
    assert news() == ["job", "other"]
    store.note_job(facts())
    store.write(Batch(unread=(("emugpu:events:n2", (1, 1)),)))
    assert news() == []  # it is known already, or is of no job
    store.write(Batch(tuple(told)))
    assert news() == ["job"]
    store.write(Batch(tuple(told)))
    assert news() == []
    store.note_prediction("other", Prediction(5.0, "fifo", T0))
    store.note_prediction("other", Prediction(6.0, "fifo", T0))
    assert news() == ["other"]
    store.archive([store.job("job")])
    assert news() == ["job"]
    assert store.forget(T0 + 100 * S, 10) == ["job"]
    assert news() == ["job"] and versions[-1] > versions[-2]  # so that readers drop it
    assert reader.job("job") is None
    assert versions == sorted(versions)


def test_a_reader_can_not_write(reader):
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._db.execute("delete from jobs")


def test_any_thread_may_ask(store, reader, told, facts):
    store.note_job(facts())
    store.write(Batch(tuple(told)))
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: reader.jobs(), range(50)))
    assert found == [[job_result(facts(), told)]] * 50


def test_one_answer_is_of_one_moment(store, reader, told, facts):
    store.note_job(facts())
    with reader._moment():
        before = reader.jobs()
        store.write(Batch(tuple(told)))
        assert reader.jobs() == before
    assert reader.jobs() != before


def test_where_there_is_no_store_yet_it_is_reported_and_none_is_made(tmp_path):
    with pytest.raises(ClusterError, match=r"r\.db: can't read this file as the operator's store: .*: does it run"):
        ResultReader.open(tmp_path / "r.db")
    assert list(tmp_path.iterdir()) == []


def test_a_store_of_another_version_is_reported(tmp_path):
    ResultStore(tmp_path / "r.db").close()
    with closing(sqlite3.connect(tmp_path / "r.db")) as db:
        db.execute("pragma user_version = 99")
    with pytest.raises(ClusterError, match="is of version 99, not 1"):
        ResultReader.open(tmp_path / "r.db")


def test_a_name_with_odd_letters_is_a_name(tmp_path):
    path = tmp_path / "a?mode=rw#b%.db"
    ResultStore(path).close()
    ResultReader.open(path).close()
