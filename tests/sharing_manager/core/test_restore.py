"""After a crash, a new manager on the same log keeps all grants and leases, and counts each step once."""

import itertools
import sqlite3

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from emulator_runtime.domain.errors import ClusterError, RefusedError
from emulator_runtime.memory.rules import Reservation
from sharing_manager.persistence.event_log import SqliteEventLog

STEPS = 4


class HonestJob:
    """What ipc.client.ManagerClient does, without a socket: after a crash it attaches again and repeats its request."""

    def __init__(self, node, token, steps_done):
        self.node, self.token, self.steps_done = node, token, steps_done
        self.after_ns = 0
        self.leases = []
        self.grant = None

    def attach(self):
        self.grant = self.node.manager.attach(self.token, "a", self.steps_done, self.after_ns)

    def step(self):
        """Ask for the next step's lease, run it."""
        lease = self.node.manager.lease(self.grant, self.steps_done, 50, self.node.clock.now_ns())
        if not lease.stop:
            self.after_ns = lease.start_ns
            self.leases.append(lease)
            self.node.clock.wait_until_ns(lease.end_ns)
            self.steps_done += 1
        return lease

    def finish(self):
        self.node.manager.finish(self.grant, self.steps_done)


def life(node, uuids):
    """A job's life as a list of actions; each is repeated when its reply is lost."""
    job = HonestJob(node, "", 0)

    def grant():
        job.token = node.token(node.manager.grant("a", uuids, 0))

    def reserve():
        node.manager.reserve(job.grant.main, Reservation(10, 20))

    def flush():
        node.manager.flush_progress()

    return job, [grant, job.attach, reserve, job.step, job.step, flush, job.step, job.step, job.finish]


@pytest.mark.parametrize("point", range(10))
@pytest.mark.parametrize("reply_lost", [False, True])
def test_a_crash_at_any_point_of_a_jobs_life(node, uuids, point, reply_lost):
    job, actions = life(node, uuids[:2])
    for number, action in enumerate(actions):
        if number == point:
            node.crash()
            if number > 1:
                job.attach()
        before = (job.steps_done, job.after_ns, list(job.leases))
        action()
        if number == point and reply_lost:
            job.steps_done, job.after_ns, job.leases = before
            node.crash()
            if number > 0:
                job.attach()
            if job.grant is None or job.grant.live:
                action()
    assert job.steps_done == STEPS
    assert node.covered("a") == STEPS
    assert [e.kind for e in node.events("a")].count("finished") == 1
    assert [e.kind for e in node.events("a")].count("granted") == 1
    assert all(left.end_ns <= right.start_ns for left, right in itertools.pairwise(job.leases))
    assert node.manager.grants() == []
    node.manager.grant("b", uuids, 0)


def test_a_restarted_manager_still_protects_what_it_promised(node, uuids):
    token = node.token(node.manager.grant("a", uuids[:1], 5))
    node.crash()
    with pytest.raises(RefusedError, match="exclusive and a holds it"):
        node.manager.grant("b", uuids[:1], 0)
    assert node.token(node.manager.grant("a", uuids[:1], 5)) == token
    assert node.manager.steps_done("a") == 5


def test_a_stop_is_remembered(node, uuids):
    grant = node.manager.grant("a", uuids[:1], 0)
    node.manager.stop("a")
    node.crash()
    grant = node.manager.attach(node.token(grant), "a", 0, 0)
    assert node.manager.lease(grant, 0, 50, 1_000).stop


def test_the_end_of_a_grant_is_remembered(node, uuids):
    grant = node.manager.grant("a", uuids[:1], 0)
    node.manager.revoke("a", "x")
    node.crash()
    assert not node.manager.attach(node.token(grant), "a", 0, 0).live
    second = node.manager.grant("a", uuids[1:2], 0)
    node.crash()
    assert node.token(node.manager.grant("a", uuids[1:2], 0)) == node.token(second)


def test_no_time_is_given_before_the_last_lease(node, uuids):
    grant = node.manager.attach(node.token(node.manager.grant("a", uuids[:1], 0)), "a", 0, 0)
    node.clock.advance_to_ns(3_000)
    lease = node.manager.lease(grant, 0, 50, 3_000)
    node.crash()
    grant = node.manager.attach(node.token(grant), "a", 0, lease.start_ns)
    assert node.manager.lease(grant, 0, 50, 2_000).start_ns == 3_000


def test_a_job_that_claims_the_future_gets_no_more_than_now(node, uuids):
    grant = node.manager.attach(node.token(node.manager.grant("a", uuids[:1], 0)), "a", 0, 2**62)
    assert node.manager.lease(grant, 0, 50, 900).start_ns == 1_000


def test_devices_that_are_gone_after_the_restart(make_node, uuids):
    shared = make_node("manager.db", "fifo")
    for job_id in "ab":
        shared.manager.grant(job_id, uuids[:1], 0)
    with pytest.raises(
        ClusterError, match=r"job 'b' was granted devices before the restart: .*a holds it; .*; restore the inv"
    ):
        make_node("manager.db", "exclusive")


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be read as one" * 100, None])
def test_a_file_that_is_no_log(tmp_path, content):
    path = tmp_path / "manager.db"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(
        ClusterError, match=rf"^{path}: can't use this file as event log: .+; move it away to start afresh"
    ):
        SqliteEventLog(path)


def test_a_record_is_all_or_nothing(node, uuids, monkeypatch):
    grant = node.manager.grant("a", uuids[:1], 0)

    def broken(_):
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(node.log, "_write_grant", broken)
    with pytest.raises(sqlite3.OperationalError):
        node.manager.finish(grant, 4)
    node.crash()
    assert [e.kind for e in node.events("a")] == ["granted"]
    assert node.token(node.manager.grant("a", uuids[:1], 0)) == node.token(grant)


class Crashing(RuleBasedStateMachine):
    """Jobs come, train, stop, are revoked, while the manager crashes whenever it likes."""

    jobs = st.sampled_from(["a", "b", "c"])

    def __init__(self, node, uuids):
        super().__init__()
        self.node, self.uuids = node, uuids
        self.grants, self.leases, self.truth = {}, {}, {}

    @rule(job_id=jobs, first=st.integers(0, 2), count=st.integers(0, 2))
    def grant(self, job_id, first, count):
        devices = self.uuids[first : first + count]
        if job_id in self.grants:
            return
        try:
            grant = self.node.manager.grant(job_id, devices, self.truth.get(job_id, 0))
        except RefusedError:
            return
        self.truth.setdefault(job_id, 0)
        self.grants[job_id] = self.node.manager.attach(self.node.token(grant), job_id, self.truth[job_id], 0)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), pause=st.integers(0, 30), duration=st.integers(1, 40))
    def step(self, data, pause, duration):
        job_id = data.draw(st.sampled_from(sorted(self.grants)))
        grant, done = self.grants[job_id], self.truth[job_id]
        self.node.clock.advance_ns(pause)
        lease = self.node.manager.lease(grant, done, duration, self.node.clock.now_ns())
        assert lease == self.node.manager.lease(grant, done, duration, self.node.clock.now_ns())
        if lease.stop:
            self.node.manager.release(grant, done)
            del self.grants[job_id]
            return
        self.truth[job_id] = done + 1
        for uuid in grant.devices:
            others = self.leases.setdefault(uuid, [])
            assert all(lease.start_ns >= other.end_ns for other in others)
            others.append(lease)
        self.node.clock.wait_until_ns(lease.end_ns)

    @precondition(lambda self: self.grants)
    @rule(data=st.data(), how=st.sampled_from(["stop", "revoke", "finish"]))
    def end(self, data, how):
        job_id = data.draw(st.sampled_from(sorted(self.grants)))
        if how == "stop":
            self.node.manager.stop(job_id)
        else:
            # the cluster revokes only what isn't running any more: what was done is done
            self.node.manager.attach(self.node.token(self.grants[job_id]), job_id, self.truth[job_id], 0)
            if how == "finish":
                self.node.manager.finish(self.grants[job_id], self.truth[job_id])
            else:
                self.node.manager.revoke(job_id, "x")
            del self.grants[job_id]

    @rule()
    def flush(self):
        self.node.manager.flush_progress()

    @rule()
    def crash(self):
        self.node.log.close()
        self.node.crash()
        for job_id, grant in self.grants.items():
            self.grants[job_id] = self.node.manager.attach(self.node.token(grant), job_id, self.truth[job_id], 0)

    @invariant()
    def no_step_is_lost_or_counted_twice(self):
        for job_id, done in self.truth.items():
            covered = self.node.covered(job_id)
            if job_id not in self.grants:
                assert covered == done

    @invariant()
    def the_books_agree(self):
        assert {g.job_id for g in self.node.manager.grants()} == set(self.grants)
        for device in self.node.pool.all():
            assert device.holders == {j for j, g in self.grants.items() if device.device.uuid in g.devices}

    def teardown(self):
        self.node.log.close()


def test_any_life_with_any_crashes(make_node, uuids):
    numbers = itertools.count()

    def machine():
        return Crashing(make_node(f"{next(numbers)}.db"), uuids)

    run_state_machine_as_test(machine, settings=settings(max_examples=30, stateful_step_count=25, deadline=None))
