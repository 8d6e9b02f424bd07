"""Results beside the controller: what is told comes out as outcomes, paced, counted once, kept over restarts and failures."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

import operators.results.keeper as module
from emulator_runtime.domain.errors import ClusterError
from operators.results.keeper import Keeping, ResultKeeper
from operators.results.metrics import ResultMetrics
from operators.results.predicted import Prediction
from operators.results.store import Batch, ResultStore

S = 1_000_000_000
T0 = 1_700_000_000 * S


class Beside:
    """Results over a file, with clocks that stand still until they are set; `collect` is the collector."""

    def __init__(self, path, **more):
        self.path, self.now_s, self.changes = path, 0.0, 0
        self.registry, self.fails = CollectorRegistry(), []
        clocks = (lambda: T0 + round(self.now_s * S)), (lambda: round((1000 + self.now_s) * S))
        self.results = ResultKeeper(self.open, ResultMetrics(self.registry), *clocks, changed=self.change, **more)
        self.results.cluster_gpus = 8
        self._collector = ResultStore(path)

    def open(self):
        if self.fails:
            raise self.fails.pop()
        return ResultStore(self.path)

    def change(self, uids):
        assert uids and set(uids) <= set(self.results._shown)
        self.changes += 1

    def collect(self, events):
        batch = Batch(tuple(events))
        self._collector.write(batch)
        self.results.stored(batch)

    def at(self, now_s):
        self.now_s = now_s
        self.results.round()
        return self

    def steps(self, uid="job"):
        return self.results.outcome(uid).result.steps_done

    def count(self, outcome="finished"):
        labels = {"policy": "none", "outcome": outcome}
        return self.registry.get_sample_value("emugpu_job_completion_seconds_count", labels) or 0

    def close(self):
        self.results.close()
        self._collector.close()


@pytest.fixture
def make(tmp_path):
    made = []

    def make(**more):
        made.append(Beside(tmp_path / "r.db", **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_job_from_its_noting_to_its_end(make, facts, teller):
    beside, node = make(), teller("n1")
    beside.results.note(facts(steps=10, isolated_s=4.0, gpus=4))
    assert beside.results.outcome("job") is None  # nobody has looked yet
    assert beside.at(0).steps() == 0
    beside.collect([node.tell("attached", 1, detail="GPU-1")])
    beside.at(1.1)
    assert beside.results.outcome("job").result.runs[0].devices == ("GPU-1",)
    beside.collect([node.tell("finished", 9, 10)])
    outcome = beside.at(9.1).results.outcome("job")
    assert (outcome.result.jct_s, outcome.settled, outcome.fairness) == (9.0, True, 9 / 4)
    assert (beside.count(), beside.changes) == (1, 3)
    beside.at(10)
    assert (beside.count(), beside.changes) == (1, 3)


def test_progress_is_looked_at_every_few_seconds_and_an_end_at_once(make, facts, teller):
    beside, node = make(), teller("n1")
    beside.results.note(facts(steps=100))
    beside.collect([node.tell("attached", 0)])
    beside.at(0)
    seen = []
    for tenth in range(1, 100):
        beside.collect([node.tell("progress", tenth / 10, tenth)])
        seen.append(beside.at(tenth / 10).steps())
    assert sorted(set(seen)) == [0, 40, 80]
    beside.collect([node.tell("released", 9.95, 99)])
    assert beside.at(9.96).steps() == 99
    beside.collect([node.tell("progress", 10, 100)])  # the last step is an end, whatever its event is called
    assert beside.at(10).results.outcome("job").result.finished


def test_many_running_jobs_share_the_looks(make, facts, teller):
    beside, node = make(), teller("n1")
    uids = [f"job{number}" for number in range(200)]
    for uid in uids:
        beside.results.note(facts(uid, steps=1000))
    beside.at(0)
    looks, seen = 0, dict.fromkeys(uids, 0)
    for second in range(1, 31):
        beside.collect([node.tell("progress", second, second, key=f"{uid}/0") for uid in uids])
        beside.at(float(second))
        now = {uid: beside.steps(uid) for uid in uids}
        looks += sum(now[uid] != seen[uid] for uid in uids)
        seen = now
    assert looks <= 30 * 20
    assert min(seen.values()) >= 30 - 4 - 200 / 20


def test_events_may_come_before_their_job_is_known(make, facts, teller):
    beside, node = make(), teller("n1")
    beside.collect([node.tell("attached", 1)])
    assert beside.at(1).results.outcome("job") is None
    beside.results.note(facts(steps=10))
    assert len(beside.at(2).results.outcome("job").result.runs) == 1


def test_what_kubernetes_says_of_an_end_settles_after_a_while_or_at_once_without_a_log(make, facts):
    beside = make()
    beside.results.note(facts(completed_ns=T0 + 5 * S))
    assert not beside.at(6).results.outcome("job").settled
    assert (beside.at(64.9).results.outcome("job").settled, beside.count()) == (False, 0)
    assert (beside.at(65).results.outcome("job").settled, beside.count()) == (True, 1)
    alone = make(log=False)
    alone.results.note(facts("other", completed_ns=T0 + 5 * S))
    assert alone.at(6).results.outcome("other").settled


def test_what_pods_tell_goes_into_the_store(make, facts, teller):
    beside = make(log=False)
    beside.results.note(facts())
    told = [teller("n1").tell("attached", 1), teller("n1").tell("finished", 4)]
    beside.results.tell([replace(event, stream="kubernetes:u", sequence=n) for n, event in enumerate(told)])
    assert beside.at(5).results.outcome("job").result.jct_s == 4.0


def test_after_a_restart_the_histograms_and_the_open_jobs_are_as_before(make, facts, teller):
    beside, node = make(), teller("n1")
    beside.results.note(facts(steps=10), Prediction(8.0, "fifo", T0))
    beside.results.note(facts("open", steps=10))
    beside.collect([node.tell("finished", 9, 10)])
    beside.at(10)
    later = make()
    later.at(11)
    assert [known.uid for known in later.results.open_jobs()] == ["open"]
    assert later.count() == 1
    value = later.registry.get_sample_value("emugpu_job_prediction_error_ratio_sum", {"policy": "fifo"})
    assert value == pytest.approx(1 / 9)
    later.results.note(facts(steps=10))
    assert later.at(12).results.outcome("job").result.jct_s == 9.0
    assert later.count() == 1


def test_what_ended_long_ago_is_archived_and_later_forgotten(make, facts, teller):
    beside, node = make(keeping=Keeping(events_s=100, results_s=1000, results=5)), teller("n1")
    beside.results.note(facts(steps=10))
    beside.collect([node.tell("finished", 9, 10)])
    beside.at(10).at(105)
    assert len(beside._collector.events("job")) == 1
    beside.at(170)
    assert (beside._collector.events("job"), len(beside._collector.archived())) == ([], 1)
    assert beside.results.outcome("job").result.jct_s == 9.0  # its EmuJob is still there
    later = make(keeping=Keeping(events_s=100, results_s=1000, results=5))
    assert later.at(200).count() == 1
    later.at(1100)
    assert later._collector.archived() == []


@pytest.mark.parametrize("keeping", [Keeping(100, 1000, 5), Keeping(100, 10**6, 0)])
def test_nothing_is_kept_of_a_job_that_is_forgotten(make, facts, teller, keeping):
    beside, node = make(keeping=keeping), teller("n1")
    beside.results.note(facts(steps=10))
    beside.collect([node.tell("finished", 9, 10)])
    beside.at(10)
    beside.results.gone("job")
    beside.at(1100).at(2200)
    assert beside.results._stays._of == {}
    kept = {name: value for name, value in vars(beside.results).items() if isinstance(value, (dict, set))}
    assert not any(kept.values()), kept
    assert beside.results._metrics._jobs == set()
    assert beside.count() == 1


def test_a_restart_computes_nothing_of_what_nobody_asks_for(make, facts, teller, monkeypatch):
    """A full store made it take time that grew with the square of its results."""
    beside, node = make(), teller("n1")
    for uid in ("a", "b"):
        beside.results.note(facts(uid, steps=10, isolated_s=4.0, gpus=4))
        beside.collect([node.tell("finished", 9, 10, key=f"{uid}/0")])
    beside.at(10)
    asked = []
    monkeypatch.setattr(module, "fairness", lambda result, *_: asked.append(result.facts.uid))
    later = make()
    later.at(11)
    assert (asked, later.count()) == ([], 2)
    monkeypatch.undo()
    later.results.note(facts("a", steps=10, isolated_s=4.0, gpus=4))
    assert later.at(12).results.outcome("a").fairness == beside.results.outcome("a").fairness == 9 / 4


def test_a_job_that_is_gone_has_an_end_and_is_asked_for_no_more(make, facts, teller):
    beside, node = make(), teller("n1")
    beside.results.note(facts(steps=10))
    beside.collect([node.tell("attached", 1)])
    beside.at(2)
    beside.results.note(facts(steps=10, deleted_ns=T0 + 5 * S))
    beside.results.gone("job")
    beside.at(70)
    assert (beside.results.outcome("job"), beside.results.open_jobs()) == (None, [])
    result = beside._collector.job("job")
    assert (result.outcome, result.finished_ns, result.jct_s, result.runs[0].ended) == (
        "deleted",
        T0 + 5 * S,
        None,
        "untold",
    )
    assert beside.count("deleted") == 0


def test_a_store_that_fails_loses_nothing_of_what_was_said(make, facts, teller, capsys):
    beside, node = make(), teller("n1")
    beside.fails = [sqlite3.OperationalError("disk I/O error"), sqlite3.OperationalError("disk I/O error")]
    beside.results.note(facts(steps=10))
    beside.collect([node.tell("attached", 1)])
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError) as caught:
            beside.at(1)
        beside.results.failed(caught.value)
        beside.results.note(facts(steps=10, policy="las"))
    assert beside.results.problem == "disk I/O error"
    assert beside.at(2).results.outcome("job").result.facts.policy == "las"
    assert beside.results.problem == ""
    assert capsys.readouterr().err == "results: disk I/O error; it is tried again\n"


def test_a_damaged_row_of_the_archive_leaves_the_others_alone(tmp_path, facts, teller, capsys):
    path = tmp_path / "r.db"
    with contextlib.closing(ResultStore(path)) as store:
        store.note_job(facts("job"))
        store.write(Batch((teller("n1").tell("attached", 1),)))
        store._db.execute("insert into results values ('uid-x', 1, 'cut')")
    registry = CollectorRegistry()
    results = ResultKeeper(lambda: ResultStore(path), ResultMetrics(registry), lambda: T0, lambda: 1)
    results.note(facts("job"))
    results.note(facts("uid-x"))
    results.round()
    assert results.outcome("job") is not None and results.outcome("uid-x") is None
    assert registry.get_sample_value("emugpu_results_store_up") == 1
    results.close()
    assert f"results: {path}: left out, as what is archived of them is damaged: job uid-x;" in capsys.readouterr().err


def test_whether_the_store_can_be_used_is_a_metric(tmp_path):
    registry, path = CollectorRegistry(), tmp_path / "none" / "r.db"
    results = ResultKeeper(lambda: ResultStore(path), ResultMetrics(registry), lambda: T0, lambda: 1)

    def up():
        return registry.get_sample_value("emugpu_results_store_up")

    def turn():
        try:
            results.round()
        except ClusterError as error:
            results.failed(error)
        return up()

    assert (up(), turn()) == (1, 0)  # before it was tried nothing is wrong
    path.parent.mkdir()
    assert turn() == 1
    results.close()
    path.parent.rename(tmp_path / "moved")
    results._store = None
    assert turn() == 0


def test_its_thread_does_all_of_it(tmp_path, facts, teller):
    changed = threading.Event()
    results = ResultKeeper(
        lambda: ResultStore(tmp_path / "r.db"),
        ResultMetrics(CollectorRegistry()),
        lambda: T0,
        lambda: 1,
        changed=lambda uids: changed.set(),
    )
    results.note(facts())
    results.start()
    assert changed.wait(10)
    assert results.outcome("job") is not None
    results.stop()
    results.stop()


def test_a_thread_whose_store_can_not_be_opened_goes_on_trying(tmp_path, facts, capsys):
    path, changed = tmp_path / "none" / "r.db", threading.Event()
    results = ResultKeeper(
        lambda: ResultStore(path),
        ResultMetrics(CollectorRegistry()),
        lambda: T0,
        lambda: 1,
        changed=lambda uids: changed.set(),
    )
    results.note(facts())
    results.start()
    try:
        for _ in range(1000):
            if results.problem:
                break
            changed.wait(0.01)
        assert "can't use this file as the operator's store" in results.problem
        path.parent.mkdir()
        assert changed.wait(10)
    finally:
        results.stop()
