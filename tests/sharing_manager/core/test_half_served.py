"""Devices that serve all at once go on after a kill of the manager where they were."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.sharing.demands import Demand, Piece, Terms
from sharing_manager.core.half_served import HalfServedCuts
from sharing_manager.persistence.interval_table import IntervalFile, MemoryIntervals

MS = 1_000_000
FIRST = [("a", "", 7, 40), ("b", "x", 3, 50)]
SECOND = [("a", "", 7, 10), ("b", "x", 4, 90)]


class StopsEarly(MemoryIntervals):
    """Fails after so many stores, as if the process was killed."""

    stores = 1000

    def record(self, key: str, number: int, interval: Lease) -> None:
        if not self.stores:
            raise KeyboardInterrupt
        self.stores -= 1
        super().record(key, number, interval)


@pytest.fixture
def two_jobs(make_node, uuids):
    """Jobs a and b on a device in mode mps, and a function by which they demand."""
    node = make_node("manager.db", "mps")
    node.clock._now_ns = 0
    tokens = {
        job: node.token(node.manager.grant(job, uuids[:1], 0, [Terms(row)])) for row, job in enumerate(("a", "b"))
    }

    def ask(job, number, ready_ns, work_ns):
        session = node.manager.attach(tokens[job], job, None, 0).main
        node.manager.demand(session, uuids[0], Demand("", number, ready_ns, work_ns))

    return node, ask


def decide(node, until_ns):
    node.clock.advance_to_ns(until_ns)
    return [(each.session.grant.job_id, each.answer.piece) for each in node.manager.decide(until_ns)]


def test_a_demand_is_served_from_where_it_was(two_jobs):
    """Beside b, which has ended, a was served at half the rate. Only that b's last millisecond was not over is forgotten."""
    node, ask = two_jobs
    ask("a", 0, 0, 100 * MS)
    ask("b", 0, 0, 30 * MS)
    assert decide(node, 100 * MS) == [("b", Piece(0, 60 * MS, 30 * MS))]
    for _ in range(2):
        node.crash()
        ask("a", 0, 0, 100 * MS)
    assert decide(node, 200 * MS) == [("a", Piece(0, 129_500_000, 100 * MS))]


def test_a_run_that_is_numbered_from_anew_begins_from_the_beginning(two_jobs):
    node, ask = two_jobs
    ask("a", 0, 0, 100 * MS)
    decide(node, 50 * MS)
    node.crash()
    (grant,) = (grant for grant in node.manager.grants() if grant.job_id == "a")
    node.manager.attach(node.token(grant), "a", 5, 0)
    node.manager.attach(node.token(grant), "a", 0, 0)
    ask("a", 0, 50 * MS, 100 * MS)
    assert decide(node, 200 * MS) == [("a", Piece(50 * MS, 150 * MS, 100 * MS))]


def test_a_full_disk_stops_nobody(two_jobs, monkeypatch, caplog):
    node, ask = two_jobs

    def full(*_):
        raise ClusterError("no space left")

    monkeypatch.setattr(IntervalFile, "record", full)
    ask("a", 0, 10 * MS, MS)
    assert decide(node, 20 * MS) == [("a", Piece(10 * MS, 11 * MS, MS))]
    assert "after a restart, work will be served again: no space left" in caplog.text


@pytest.mark.parametrize("stores", range(4))
def test_a_cut_counts_when_it_is_complete(stores):
    table = StopsEarly()
    served = HalfServedCuts(table)
    served.save("GPU", 1000, SECOND)
    served.save("GPU", 2000, FIRST)
    table.stores = stores
    if stores < 3:
        with pytest.raises(KeyboardInterrupt):
            served.save("GPU", 3000, SECOND)
    else:
        served.save("GPU", 3000, SECOND)
    restored = HalfServedCuts(table)
    assert restored.cut_ns("GPU") == (2000 if stores < 3 else 3000)
    for digest, name, sequence, left_ns in FIRST if stores < 3 else SECOND:
        assert restored.resume("GPU", digest, name, sequence) == left_ns
        assert restored.resume("GPU", digest, name, sequence) is None


def test_who_was_not_in_the_last_cut_begins_from_the_beginning():
    table = MemoryIntervals()
    HalfServedCuts(table).save("GPU", 1000, FIRST)
    between = HalfServedCuts(table)  # b doesn't come back in time
    for number in range(2):
        between.save("GPU", 2000 + number, FIRST[:1])
    restored = HalfServedCuts(table)
    assert restored.resume("GPU", "b", "x", 3) is None
    assert restored.resume("GPU", "a", "", 6) is None  # another demand
    assert HalfServedCuts(table).resume("other GPU", "a", "", 7) is None


@pytest.mark.parametrize("restart", [False, True])
def test_who_has_ended_leaves_nothing_behind(restart):
    table = MemoryIntervals()
    served = HalfServedCuts(table)
    for number in range(2):
        served.save("GPU", 1000 + number, FIRST)
    if restart:
        HalfServedCuts(table).forget_restored()
    else:
        for digest, name, *_ in FIRST:
            served.forget("GPU", digest, name)
    assert len(table.intervals()) == 1  # the device's
