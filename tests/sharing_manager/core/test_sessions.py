"""Several processes of one container: each has its own memory, time and place in line, and none takes from another container."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import OutOfMemoryError, ProtocolError, RefusedError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.units import GIB
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.sharing.demands import Demand, Piece, Terms
from emulator_runtime.sharing.modes import MODES
from sharing_manager.grants.session import MAX_SESSIONS
from tests.sharing_manager.conftest import Node

MS, S = 1_000_000, 1_000_000_000
UUIDS = [device_uuid("n1", index) for index in range(3)]


@pytest.fixture
def node_of(make_node):
    """`node_of(mode, a=2)`: a node whose clock stands at 0, and the sessions "a.0" and "a.1" of job a on its first device."""

    def node_of(mode, devices=1, **processes):
        node = make_node(f"{mode}.db", mode)
        node.clock._now_ns = 0
        sessions = {}
        for row, (job, count) in enumerate(processes.items()):
            grant = node.manager.grant(job, UUIDS[:devices], 0, [Terms(row)] * devices)
            node.manager.attach(node.token(grant), job, 0, 0)
            for n in range(count):
                session = node.manager.open_session(grant, f"{n}")
                session.connected = True
                sessions[f"{job}.{n}"] = session
        return node, sessions

    return node_of


def ask(node, session, number, ready_ns, work_ns, uuid=UUIDS[0]):
    node.manager.demand(session, uuid, Demand(session.key, number, ready_ns, work_ns))


def decide(node, until_ns):
    """What is decided by then, as (process, number, start, end)."""
    node.clock.advance_to_ns(max(until_ns, node.clock.now_ns()))
    return [
        (
            f"{d.session.grant.job_id}.{d.session.name}",
            d.answer.sequence,
            d.answer.piece.start_ns,
            d.answer.piece.end_ns,
        )
        for d in node.manager.decide(until_ns)
    ]


def test_processes_take_turns_on_a_device_of_their_container(node_of):
    node, sessions = node_of("exclusive", a=2)
    assert [node.manager.mode_for(session, UUIDS[0]) for session in sessions.values()] == ["fifo", "fifo"]
    ask(node, sessions["a.0"], 0, 0, 10 * MS)
    ask(node, sessions["a.1"], 0, 2 * MS, 10 * MS)
    ask(node, sessions["a.1"], 0, 2 * MS, 10 * MS)  # repeated
    assert decide(node, 10 * MS) == [("a.0", 0, 0, 10 * MS), ("a.1", 0, 10 * MS, 20 * MS)]
    ask(node, sessions["a.0"], 1, 10 * MS, 10 * MS)
    ask(node, sessions["a.1"], 0, 2 * MS, 10 * MS)  # repeated once more
    assert sorted(decide(node, 20 * MS)) == [("a.0", 1, 20 * MS, 30 * MS), ("a.1", 0, 10 * MS, 20 * MS)]


def test_each_process_numbers_its_demands_from_0_also_after_another_has_ended(node_of):
    node, sessions = node_of("fifo", a=2)
    for name in ("a.0", "a.1"):
        ask(node, sessions[name], 0, 0, MS)
    assert len(decide(node, MS)) == 2
    node.manager.close_session(sessions["a.0"])
    again = node.manager.open_session(sessions["a.0"].grant, "0")
    assert again is not sessions["a.0"]
    ask(node, again, 0, MS, MS)
    ask(node, sessions["a.1"], 1, MS, MS)
    assert [(name, number) for name, number, *_ in decide(node, 5 * MS)] == [("a.0", 0), ("a.1", 1)]


@pytest.mark.parametrize("mode", [name for name, mode in MODES.items() if mode.shared])
def test_more_processes_get_a_container_no_larger_part(node_of, mode):
    """One container with three processes beside one with one: each container is served for half of the time."""
    node, sessions = node_of(mode, a=3, b=1)
    numbers = dict.fromkeys(sessions, 0)
    for name, session in sessions.items():
        for number in range(2):
            ask(node, session, number, 0, 10 * MS)
            numbers[name] = number
    work = {"a": 0, "b": 0}
    for now_ms in range(1000):
        for name, _, _, end_ns in decide(node, now_ms * MS):
            work[name[0]] += 10
            numbers[name] += 1
            ask(node, sessions[name], numbers[name], end_ns, 10 * MS)
    assert sum(work.values()) >= 950
    assert work["a"] / sum(work.values()) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("mode", ["exclusive", "fifo", "mps", "fair"])
def test_what_a_device_does_for_a_process_ends_with_the_process_and_others_go_on(node_of, mode):
    node, sessions = node_of(mode, a=2)
    ask(node, sessions["a.0"], 0, 0, 100 * S)
    ask(node, sessions["a.1"], 0, MS, MS)
    decide(node, 2 * MS)
    node.clock.advance_to_ns(10 * MS)
    node.manager.close_session(sessions["a.0"])
    assert decide(node, 11 * MS) == [("a.1", 0, 10 * MS, 11 * MS)]
    assert "0" not in sessions["a.0"].grant.named


def test_a_process_that_ends_leaves_nothing_behind(node_of):
    node, sessions = node_of("fifo", a=1, b=1)
    grant = sessions["a.0"].grant
    for n in range(300):
        session = node.manager.open_session(grant, f"process {n}")
        node.manager.reserve(session, Reservation(GIB, GIB))
        node.clock.advance_to_ns(n * MS)
        ask(node, session, 7, n * MS, MS // 2)
        decide(node, n * MS + MS // 2)
        node.manager.close_session(session)
    (device, *_) = node.manager.telemetry().devices
    assert device.used_bytes == 0
    assert len(node.manager._shared._last) <= 2  # of the device


def test_memory_is_each_process_own(node_of):
    node, sessions = node_of("exclusive", a=2)
    node.manager.reserve(sessions["a.0"], Reservation(4 * GIB, 10 * GIB))
    with pytest.raises(OutOfMemoryError, match=r"the rest is held by a, process 0 4\.00 GiB"):
        node.manager.reserve(sessions["a.1"], Reservation(4 * GIB, 10 * GIB))
    node.manager.close_session(sessions["a.0"])
    node.manager.reserve(sessions["a.1"], Reservation(4 * GIB, 10 * GIB))
    sessions["a.1"].pid = 77
    (device, *_) = node.manager.telemetry().devices
    assert [(p.pid, p.used_bytes) for p in device.processes] == [(77, 10 * GIB)]
    node.manager.finish(sessions["a.1"].grant, 5)
    (device, *_) = node.manager.telemetry().devices
    assert device.used_bytes == 0


def test_a_process_uses_only_the_devices_that_it_named(node_of):
    node, sessions = node_of("exclusive", devices=2, a=1)
    grant = sessions["a.0"].grant
    second = node.manager.open_session(grant, "second", [1])
    second.connected = True
    assert [device.uuid for device in node.manager.specs(second)] == UUIDS[1:2]
    with pytest.raises(ProtocolError, match="is no device of job 'a'"):
        ask(node, second, 0, 0, MS)
    with pytest.raises(ProtocolError, match="is no device of job 'a'"):
        node.manager.reserve(second, Reservation(1, 1), UUIDS[0])
    with pytest.raises(ProtocolError, match="field 'devices': job 'a' has 2 devices"):
        node.manager.open_session(grant, "third", [2])
    node.manager.close_session(sessions["a.0"])
    assert node.manager.mode_for(second, UUIDS[1]) == "exclusive"


def test_use_is_counted_and_only_the_main_session_counts_steps(node_of):
    node, sessions = node_of("exclusive", devices=2, a=1)
    session = sessions["a.0"]
    node.manager.report_use(session, Piece(0, 10 * MS, 4 * MS), uuid=UUIDS[1])
    assert [device.leased_ns for device in node.manager.telemetry().devices[:2]] == [0, 4 * MS]
    with pytest.raises(RefusedError, match="process 0 doesn't speak for job 'a'"):
        node.manager.report_steps(session, 3)
    node.manager.report_use(session.grant.main, Piece(10 * MS, 20 * MS, 10 * MS), steps_done=3)
    assert (session.grant.steps_done, session.grant.leased_ns) == (3, 14 * MS)


@pytest.mark.parametrize("used", [Piece(5, 4, 0), Piece(0, 10, 11), Piece(0, 2 * 10**18, 1), Piece(11 * S, 12 * S, S)])
def test_an_impossible_use_is_refused_and_books_nothing(node_of, used):
    node, sessions = node_of("exclusive", a=1)
    with pytest.raises(ProtocolError):
        node.manager.report_use(sessions["a.0"], used)
    assert node.manager.free_ns(sessions["a.0"]) == 0


def test_a_report_of_a_device_that_is_shared_delays_nobody(node_of):
    node, sessions = node_of("fifo", a=1, b=1)
    node.manager.report_use(sessions["a.0"], Piece(0, 100 * S, 100 * S))
    ask(node, sessions["b.0"], 0, 0, MS)
    assert decide(node, 0) == [("b.0", 0, 0, MS)]


@pytest.mark.parametrize("steps_done", [None, 1])
@pytest.mark.parametrize("places", [None, []])
def test_of_a_report_of_a_device_that_is_shared_only_the_steps_are_kept(node_of, steps_done, places):
    node, sessions = node_of("fifo", a=1, b=1)
    grant = sessions["a.0"].grant
    main = node.manager.open_session(grant, "", places)
    node.manager.report_use(main, Piece(0, 10**17, 10**17), steps_done=steps_done)
    assert (grant.leased_ns, grant.steps_done, node.manager.free_ns(main)) == (0, steps_done or 0, 0)
    node.crash()
    again = node.manager.attach(node.token(sessions["b.0"].grant), "b", None, 0)
    ask(node, again.main, 0, 0, MS)
    assert [decision.answer.piece for decision in node.manager.decide(0)] == [Piece(0, MS, MS)]


def test_a_process_that_does_not_come_back_after_a_restart_leaves_with_its_job(node_of):
    node, sessions = node_of("fifo", a=1, b=1)
    ask(node, sessions["a.0"], 0, 0, 500 * S)
    decide(node, 0)
    node.crash()
    again = node.manager.attach(node.token(sessions["b.0"].grant), "b", None, 0)
    ask(node, again.main, 0, MS, MS)
    assert node.manager.next_decision_ns() == 500 * S
    node.clock.advance_to_ns(MS)
    node.manager.revoke("a", "killed")
    assert node.manager.next_decision_ns() == MS


def test_so_many_processes_and_no_more(node_of):
    node, sessions = node_of("fifo", a=MAX_SESSIONS)
    with pytest.raises(RefusedError, match="has 64 sessions open; end some"):
        node.manager.open_session(sessions["a.0"].grant, "one more")


def test_processes_that_do_not_come_back_after_a_restart_are_forgotten(node_of):
    node, sessions = node_of("fifo", a=2)
    for session in sessions.values():
        ask(node, session, 4, 0, MS)
    decide(node, 5 * MS)
    node.crash()
    (grant,) = node.manager.grants()
    stays = node.manager.open_session(node.manager.attach(node.token(grant), "a", None, 0), "0")
    with pytest.raises(ProtocolError, match="out of order: demand 4 has been answered"):
        ask(node, stays, 3, 5 * MS, MS)
    pieces = node.manager._shared._pieces
    assert len(pieces.intervals()) == 2
    node.clock.advance_to_ns(60 * S)
    ask(node, stays, 5, 60 * S, MS)
    assert len(pieces.intervals()) == 2  # of the process, and of the device, which the other one used
    ask(node, node.manager.open_session(stays.grant, "1"), 0, 60 * S, MS)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_no_device_is_held_twice_however_processes_come_and_go(tmp_path_factory, data):
    mode = data.draw(st.sampled_from(["exclusive", "fifo", "fair", "weighted", "srtf"]))
    node = Node(tmp_path_factory.mktemp("node") / "manager.db", mode)
    node.clock._now_ns = 0
    grants = []
    for job in "a" if mode == "exclusive" else "ab":
        grant = node.manager.grant(job, UUIDS[:1], 0)
        grants.append(node.manager.attach(node.token(grant), job, 0, 0))
    live, numbers, pieces, cut = {}, {}, [], {}
    for _ in range(data.draw(st.integers(5, 40))):
        node.clock.advance_to_ns(node.clock.now_ns() + data.draw(st.integers(0, 8)) * MS)
        now_ns = node.clock.now_ns()
        grant, name = data.draw(st.sampled_from(grants)), data.draw(st.sampled_from(["x", "y", "z"]))
        key = grant.job_id, name
        if key not in live:
            live[key], numbers[key] = node.manager.open_session(grant, name), 0
        elif data.draw(st.integers(0, 5)) == 0:
            session = live.pop(key)
            node.manager.close_session(session)
            cut[session] = now_ns
        else:
            ask(
                node,
                live[key],
                numbers[key],
                now_ns + data.draw(st.integers(0, 3)) * MS,
                data.draw(st.integers(1, 9)) * MS,
            )
            numbers[key] += 1
        pieces += node.manager.decide(now_ns)
    node.clock.advance_to_ns(node.clock.now_ns() + 10 * S)
    pieces += node.manager.decide(node.clock.now_ns())
    spans = [
        (p.answer.piece.start_ns, min(p.answer.piece.end_ns, max(p.answer.piece.start_ns, cut.get(p.session, 1 << 62))))
        for p in pieces
    ]
    spans = sorted({(start, end) for start, end in spans if end > start})
    assert all(before[1] <= after[0] for before, after in pairwise(spans)), spans


def test_a_process_that_attaches_again_with_other_devices_leaves_nothing_on_the_first(node_of):
    node, sessions = node_of("fifo", devices=2, a=1)
    session = sessions["a.0"]
    node.manager.reserve(session, Reservation(GIB, 12 * GIB))
    for number, places in enumerate([[1], [0], [], [0, 1]] * 50):
        assert node.manager.open_session(session.grant, "0", places) is session
        for uuid in session.uuids:
            node.clock.advance_to_ns(node.clock.now_ns() + MS)
            ask(node, session, number, node.clock.now_ns(), MS // 2, uuid)
        decide(node, node.clock.now_ns())
        assert [device.used_bytes for device in node.manager.telemetry().devices] == [0, 0, 0]
    node.manager.close_session(session)
    assert len(node.manager._shared._last) == 2  # of the devices


@pytest.mark.parametrize("name", ["", "0"])
def test_a_process_that_names_its_devices_has_the_same_answer_after_a_restart(node_of, name):
    node, sessions = node_of("fair", devices=2, a=1)
    session = node.manager.open_session(sessions["a.0"].grant, name, [1])
    ask(node, session, 7, 0, 10 * MS, UUIDS[1])
    first = decide(node, 10 * MS)
    node.crash()
    grant = node.manager.attach(node.token(session.grant), "a", None, 0)
    for _ in range(2):
        session = node.manager.open_session(grant, name, [1])
        ask(node, session, 7, 0, 10 * MS, UUIDS[1])
        assert decide(node, 10 * MS) == first


@pytest.mark.parametrize("again", ["next job", "after a crash"])
def test_what_a_job_was_to_be_given_delays_no_later_job(node_of, again):
    node, sessions = node_of("exclusive", a=1)
    session = sessions["a.0"]
    node.manager.report_use(session.grant.main, Piece(0, 600 * S, 600 * S), steps_done=0)
    node.manager.report_use(session, Piece(0, 10**17, 10**17))
    ask(node, session, 0, S, 10 * S)
    decide(node, S)
    ask(node, session, 1, 2 * S, 10 * S)
    node.manager.revoke("a", "killed")
    if again == "after a crash":
        node.crash()
    grant = node.manager.grant("b", UUIDS[:1], 0)
    node.manager.attach(node.token(grant), "b", 0, 0)
    assert node.manager.free_ns(grant.main) == S
    assert session.grant.leased_ns <= 600 * S + 10**17 + 10 * S


@pytest.mark.parametrize("ends_s", [100, 900])
def test_a_device_is_idle_after_a_job_that_had_reported_more(node_of, ends_s):
    node, sessions = node_of("exclusive", a=1)
    node.manager.report_use(sessions["a.0"].grant.main, Piece(0, 10**17, 10**17), steps_done=1)
    node.clock.advance_to_ns(ends_s * S)
    node.manager.revoke("a", "killed")
    node.clock.advance_ns(2 * S)
    (device, *_) = node.manager.telemetry().devices
    assert (device.utilisation, device.leased_ns) == (0, ends_s * S)


def test_a_killed_process_leaves_its_own_device_free(node_of):
    node, sessions = node_of("exclusive", devices=2, a=2)
    grant = sessions["a.0"].grant
    one = node.manager.open_session(grant, "one", [0])
    node.manager.report_use(one, Piece(0, 60 * S, 60 * S))
    node.manager.report_use(sessions["a.1"], Piece(0, 7 * S, 7 * S), uuid=UUIDS[0])
    node.clock.advance_to_ns(S)
    node.manager.close_session(one)
    assert (
        node.manager.free_ns(node.manager.open_session(grant, "again", [0])) == 7 * S
    )  # another process has it so long
    node.manager.close_session(sessions["a.1"])
    assert node.manager.free_ns(node.manager.open_session(grant, "at last", [0])) == S


@pytest.mark.parametrize("mode", ["time-slicing", "mps", "fifo", "exclusive"])
def test_a_process_that_ends_when_its_answer_is_due_takes_no_demand_of_another_along(node_of, mode):
    node, sessions = node_of(mode, a=2)
    ask(node, sessions["a.0"], 0, 0, 10 * MS)
    decide(node, MS)
    ask(node, sessions["a.1"], 0, 2 * MS, 10 * MS)
    node.clock.advance_to_ns(9 * MS + MS // 2)  # under processor sharing it is decided at 9 ms
    node.manager.close_session(sessions["a.0"])
    assert [name for name, *_ in decide(node, 40 * MS)] == ["a.1"]


def test_a_further_process_neither_begins_a_run_nor_moves_its_steps(make_pod_node, pod):
    pods = make_pod_node()
    token = pods.mint("t", UUIDS[0])
    grant = pods.attach(token, pod("a"))
    pods.manager.report_steps(grant.main, 8)
    pods.attach(token, pod("a"), 5)
    pods.attach(token, pod("a"), main=False)
    assert grant.steps_done == 5
    pods.manager.finish(grant, 9)
    assert pods.attach(token, pod("a"), main=False) is grant
    assert (grant.live, pods.kinds(grant.job_id)[-1]) == (False, "finished")
