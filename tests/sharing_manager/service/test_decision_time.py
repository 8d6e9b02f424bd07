"""Up to which time a manager decides: by the host's clock, in warp, and after a restart."""

from __future__ import annotations

import socket

import pytest

from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.ipc.frames import Decoder, encode
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.sharing.demands import Demand
from emulator_runtime.timing.anchors import Anchors, FixedAnchors
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.warp import NEVER_NS
from sharing_manager.service import decision_time
from sharing_manager.service.admin_service import AdminService
from sharing_manager.service.decision_time import RunningDecisions, WarpDecisions
from sharing_manager.service.job_service import JobService

MS = 1_000_000
UUIDS = [device_uuid("n1", index) for index in range(3)]


class Service:
    """A job socket over a node whose devices are shared, served in turns by the test."""

    def __init__(self, node, path):
        self.node, self.path = node, path
        self.poller = Poller()
        self.jobs = JobService(node.manager)
        self.poller.listen(path, self.jobs.on_message, self.jobs.on_close, on_open=self.jobs.on_open)
        self.sockets = []

    def attached(self, job, **more):
        """A grant of the first device, and the socket of its job."""
        grant = self.node.manager.grant(job, UUIDS[:1], 0)
        return grant, self.attach(grant, **more)

    def attach(self, grant, name=""):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self.path))
        sock.setblocking(False)
        self.sockets.append(sock)
        token = self.node.manager.token_of(grant)
        self.send(sock, {"op": "attach", "version": 3, "token": token, "connection": name or grant.job_id})
        self.received(sock)
        return sock

    def send(self, sock, message):
        sock.sendall(encode(message))
        while self.poller.poll(0):
            pass

    def received(self, sock):
        try:
            return Decoder().feed(sock.recv(1 << 16))
        except BlockingIOError:
            return []

    def close(self):
        for sock in self.sockets:
            sock.close()
        self.poller.close()


@pytest.fixture
def service(make_node, tmp_path):
    service = Service(make_node("manager.db", "fifo"), tmp_path / "sock")
    service.node.clock._now_ns = 0
    yield service
    service.close()


def demand(number, ready_ns, work_ns):
    return {"op": "demand", "resource": UUIDS[0], "sequence": number, "ready_ns": ready_ns, "work_ns": work_ns}


def test_by_the_hosts_clock_what_is_due_is_decided_now(service):
    host = [1000 * MS]
    clock = HostClock(FixedAnchors(Anchors(1000 * MS, 0, 2.0), lambda: host[0]))  # twice as fast
    decisions = RunningDecisions(service.node.manager, service.jobs, clock)
    assert decisions.due_ns() is None
    _, sock = service.attached("a")
    service.send(sock, demand(0, 10 * MS, 4 * MS))
    assert decisions.due_ns() == 1005 * MS
    host[0] = 1005 * MS - 1
    decisions.turn()
    assert service.received(sock) == []
    host[0] = 1005 * MS
    decisions.turn()
    (piece,) = service.received(sock)
    assert (piece["start_ns"], piece["end_ns"]) == (10 * MS, 14 * MS)
    assert decisions.due_ns() is None


def test_in_warp_the_manager_reports_until_when_it_waits_and_decides_when_it_is_woken(service):
    reports = []
    decisions = WarpDecisions(service.node.manager, service.jobs, reports.append)
    decisions.turn()
    decisions.turn()
    assert reports == [{"op": "wait", "deadline_ns": NEVER_NS, "handled": 0, "frames": {}}]
    _, sock = service.attached("a", name="c.1")
    service.send(sock, demand(0, 10 * MS, 4 * MS))
    service.send(sock, demand(0, 10 * MS, 5 * MS))
    decisions.turn()
    assert reports[1:] == [{"op": "wait", "deadline_ns": 10 * MS, "handled": 0, "frames": {"c.1": (1, 3)}}]
    service.node.clock.advance_ns(12 * MS)
    decisions.turn()
    assert reports[2:] == []
    assert service.received(sock) == []  # only when it is woken
    decisions.handled += 1
    decisions.wake()
    decisions.turn()
    assert service.received(sock)[0]["op"] == "piece"
    assert reports[2:] == [{"op": "wait", "deadline_ns": NEVER_NS, "handled": 1, "frames": {"c.1": (2, 3)}}]
    sock.close()
    while service.poller.poll(0):
        pass
    decisions.turn()
    assert reports[3:] == [{"op": "wait", "deadline_ns": NEVER_NS, "handled": 1, "frames": {"c.1": None}}]


def test_in_warp_what_follows_from_a_decision_waits_for_the_next_wake(service):
    """Jobs react to the first decision; the second one must see that."""
    reports = []
    decisions = WarpDecisions(service.node.manager, service.jobs, reports.append)
    _, first = service.attached("a")
    (other,) = [service.node.manager.grant("b", UUIDS[:1], 0)]
    second = service.attach(other)
    service.send(first, demand(0, 10 * MS, 4 * MS))
    service.send(second, demand(0, 10 * MS, 4 * MS))
    decisions.turn()
    service.node.clock.advance_ns(50 * MS)
    decisions.wake()
    assert [len(service.received(sock)) for sock in (first, second)] == [1, 0]


def test_an_owner_that_connects_again_gets_everything_again(service):
    reports = []
    decisions = WarpDecisions(service.node.manager, service.jobs, reports.append)
    _, _sock = service.attached("a", name="c.1")
    decisions.turn()
    decisions.repeat()
    decisions.turn()
    assert reports[0] == reports[1] == {"op": "wait", "deadline_ns": NEVER_NS, "handled": 0, "frames": {"c.1": (1, 1)}}


@pytest.mark.parametrize("kind", ["running", "warp"])
def test_after_a_restart_nothing_is_decided_before_the_jobs_are_back(service, make_node, monkeypatch, kind):
    now = [1000 * MS]
    monkeypatch.setattr(decision_time, "monotonic_ns", lambda: now[0])
    manager = service.node.manager
    grants = [service.attached(job)[0] for job in "ab"]
    service.node.crash()
    again = Service(service.node, service.path.with_name("again"))
    reports = []
    if kind == "warp":
        decisions = WarpDecisions(service.node.manager, again.jobs, reports.append)
    else:
        clock = HostClock(FixedAnchors(Anchors(1000 * MS, 0, 1.0), lambda: 2000 * MS))
        decisions = RunningDecisions(service.node.manager, again.jobs, clock)
    decisions.turn()
    assert decisions.due_ns() == 1250 * MS
    sock = again.attach(grants[0])
    again.send(sock, demand(0, 0, MS))
    decisions.turn()
    assert (reports, again.received(sock)) == ([], [])
    if kind == "warp":
        now[0] = 1250 * MS  # one of them never comes
    else:
        again.attach(grants[1])
    decisions.turn()
    if kind == "warp":
        assert reports[0]["deadline_ns"] == 0
        decisions.wake()
    assert again.received(sock)[0]["op"] == "piece"
    assert manager is not service.node.manager
    again.close()


def test_without_a_warp_clock_nobody_counts_messages(service):
    for number in range(3):
        _, sock = service.attached(f"job-{number}", name=f"c.{number}")
        sock.close()
        while service.poller.poll(0):
            pass
    assert service.jobs.changed_counts() == {}


def test_only_messages_of_the_clocks_owner_count(service, tmp_path):
    reports = []
    admin = AdminService(service.node.manager, service.node.log)
    admin.decisions = WarpDecisions(service.node.manager, service.jobs, reports.append)
    service.poller.listen(tmp_path / "admin", admin.on_message, admin.on_close)
    for op, handled in (("status", 0), ("handled", 0), ("status", 1)):
        with socket.socket(socket.AF_UNIX) as other:
            other.connect(str(tmp_path / "admin"))
            service.send(other, {"op": op})
            assert admin.decisions.handled == 0
            if op == "handled":
                service.send(other, {"op": "status"})
                assert admin.decisions.handled == handled + 1
                admin.decisions.handled = 0


def test_a_manager_alone_tells_what_is_due_next(service):
    grant = service.node.manager.grant("a", UUIDS[:1], 0)
    grant = service.node.manager.attach(service.node.token(grant), "a", 0, 0)
    service.node.manager.demand(grant.main, UUIDS[0], Demand(grant.holder, 0, 7, 5))
    assert service.node.manager.next_decision_ns() == 7
