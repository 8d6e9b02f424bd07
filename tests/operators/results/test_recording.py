"""What the controller runs beside itself, put together from settings: from Redis to an outcome, and to the file's end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.jobs.recording import Clocks, Links, Recording
from operators.jobs.settings import Settings
from operators.results.reading import ResultReader

CLOCKS = Clocks(wall_ns, monotonic_ns)


class Leader:
    def __init__(self):
        self.leads, self.changes = True, 0

    def links(self):
        return Links(lambda: self.leads, self.change)

    def change(self, uids):
        self.changes += len(uids)


def settings(**more):
    return Settings(image="i", identity="me", **more)


def wait_for(condition, within_s=30.0):
    give_up = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.fixture
def record():
    made = []

    def record(registry=None, leader=None, **more):
        made.append(Recording(settings(**more), registry or CollectorRegistry(), CLOCKS, (leader or Leader()).links()))
        made[-1].start()
        return made[-1]

    yield record
    for recording in made:
        recording.stop()


def test_from_redis_to_an_outcome_and_to_a_reader(server, record, facts, tmp_path):
    path, leader = tmp_path / "results.db", Leader()
    recording = record(leader=leader, redis_url=server.url, store=str(path))
    recording.results.note(facts(steps=3))
    wait_for(lambda: recording.results.outcome("job"))
    server.write("a", [1, 2, 3])
    wait_for(lambda: recording.results.outcome("job").result.finished)
    assert leader.changes >= 2
    reader = ResultReader.open(path)
    assert [result.steps_done for result in reader.jobs()] == [3]
    reader.close()


def test_whether_it_hears_is_known(server, record):
    """While nothing was tried yet, and once Redis was reached; not while it is away."""
    assert Recording(settings(redis_url=server.url), CollectorRegistry(), CLOCKS, Leader().links()).log_connected
    recording = record(redis_url=server.url)
    wait_for(lambda: recording._collector.problem == "")
    assert recording.log_connected
    server.kill()
    wait_for(lambda: not recording.log_connected)
    assert recording.results.problem == ""  # nothing is lost
    server.start()
    wait_for(lambda: recording.log_connected, within_s=20)


def test_a_store_that_can_not_be_used_is_a_problem_until_it_can(record, facts, tmp_path):
    path = tmp_path / "none" / "results.db"
    recording = record(store=str(path))
    wait_for(lambda: recording.results.problem.startswith(f"{path}: can't use this file as the operator's store"))
    assert not recording.log_connected
    path.parent.mkdir()
    wait_for(lambda: recording.results.problem == "", within_s=20)


def test_who_does_not_lead_takes_nothing_away(server, record, facts):
    leader = Leader()
    leader.leads = False
    recording = record(leader=leader, redis_url=server.url)
    recording.results.note(facts(steps=3))
    server.write("a", [1, 2, 3])
    wait_for(lambda: recording.results.outcome("job"))
    time.sleep(0.5)
    assert recording.results.outcome("job").result.steps_done == 0
    leader.leads = True
    wait_for(lambda: recording.results.outcome("job").result.finished)


def test_without_redis_kubernetes_word_counts_at_once_and_it_is_said(record, facts, capsys):
    recording = record()
    recording.results.note(facts(completed_ns=1_700_000_009 * 10**9))
    wait_for(lambda: recording.results.outcome("job"))
    assert recording.results.outcome("job").settled
    assert capsys.readouterr().err.startswith("jobs: EMUGPU_JOBS_REDIS_URL is empty: times come from Kubernetes")


def test_a_store_that_nobody_named_is_gone_at_the_end(record, facts):
    recording = record()
    recording.results.note(facts())
    wait_for(lambda: recording.results.outcome("job"))
    path: Path = recording._path
    assert path.exists()
    recording.stop()
    recording.stop()
    assert not path.parent.exists()


def test_a_wrong_url_is_reported_before_anything_starts():
    with pytest.raises(EmuGpuError, match="EMUGPU_JOBS_REDIS_URL: 'host://6379' is not a Redis URL"):
        Recording(settings(redis_url="host:6379"), CollectorRegistry(), CLOCKS, Leader().links())
