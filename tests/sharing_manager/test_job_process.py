"""Real job processes with a real daemon: how runs end, stop and resume, and a manager that is killed meanwhile."""

import contextlib
import itertools
import json
import socket
import sqlite3
import time
from random import Random

import pytest

from emulator_runtime.domain.job import ModelWork, TimedWork
from emulator_runtime.domain.units import to_ns
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.sharing.processor_sharing import LEAD_NS
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.workloads.order import RunOrder
from sharing_manager.core.half_served import CUT_NS

pytestmark = pytest.mark.processes
GIB, MS = 1024**3, 1_000_000
ENDED_S = 20
JOB = "emulator_runtime.workloads"
LONG = TimedWork(10.0)
"""Ended by somebody before it is done, however late they come."""


class Job:
    """The process of a job, as a local cluster starts it: it is told what to run over a socket."""

    def __init__(self, start_process):
        ours, theirs = socket.socketpair()
        self.process = start_process([JOB, "--standby", str(theirs.fileno())], {}, pass_fds=(theirs.fileno(),))
        theirs.close()
        ours.settimeout(ENDED_S)
        self.control = Channel(ours)
        assert self.control.receive() == {"op": "ready", "realtime_refused": False}

    def begin(self, order):
        self.control.send(order.to_message())
        return self

    def report(self, within_s=ENDED_S):
        """How the run has ended: (outcome, steps done, steps of this run, reason), and the whole report."""
        self.control.wait_up_to(within_s)
        message = self.control.receive()
        assert message["op"] == "ended"
        return tuple(message[field] for field in ("outcome", "steps_done", "steps_run", "reason")), message

    def close(self):
        """(exit code, output, errors)"""
        self.control.close()
        return ended(self.process)


class Run:
    """Job `a` of 40 steps of 5 ms on the first device, with its checkpoint in the daemon's directory."""

    def __init__(self, daemon, uuids, start_job):
        self.daemon, self.uuids, self.start_job = daemon, uuids, start_job
        self.checkpoint = daemon.directory / "job.json"

    def order(self, devices=None, **changes):
        done = json.loads(self.checkpoint.read_text())["samples_done"] if self.checkpoint.exists() else 0
        fields = {
            "manager": self.daemon.job_socket,
            "token": changes.get("token") or self.daemon.grant("a", devices or self.uuids[:1], done),
            "job_id": "a",
            "steps": 40,
            "work": TimedWork(0.2),
            "gpu_type": "T",
            "cpu_milli": 1000,
            "device_memory_bytes": GIB,
            "begin_ns": 0,
            "release_ns": 0,
            "checkpoint": self.checkpoint,
        }
        return RunOrder(**(fields | changes))

    def begin(self, order):
        """A process that runs the order."""
        return self.start_job().begin(order)

    def wait_for_step(self, step, job_id="a"):
        give_up = time.monotonic() + ENDED_S
        while self.daemon.ask({"op": "steps", "job_id": job_id})["steps_done"] < step:
            assert time.monotonic() < give_up
            time.sleep(0.005)

    def longer_than_restarts(self, times):
        """Host seconds (whole milliseconds) of a run that goes on when the manager was killed and started again so often."""
        began = time.monotonic()
        self.daemon.kill()
        self.daemon.start()
        return round(max(0.5, 2 * (times + 1) * (time.monotonic() - began)), 3)

    def ranges(self, job_id="a"):
        """The steps that the event log covers, checked to be without gap or overlap."""
        ranges = [(e["from_step"], e["steps_done"]) for e in self.daemon.events(job_id)]
        assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges)), ranges
        assert all(first <= last for first, last in ranges), ranges
        return ranges[0][0], ranges[-1][1]

    def last_lease_end_ns(self):
        """When the device had done the job's last step, as the event log remembers it."""
        with contextlib.closing(sqlite3.connect(self.daemon.directory / "state" / "manager.db")) as log:
            ((end_ns,),) = log.execute("select floor_ns from grants where job_id = 'a'").fetchall()
        return end_ns

    def kinds(self, job_id="a"):
        return [e["event"] for e in self.daemon.events(job_id) if e["event"] != "progress"]


@pytest.fixture
def start_job(start_process):
    jobs = []

    def start():
        jobs.append(Job(start_process))
        return jobs[-1]

    yield start
    for job in jobs:
        job.control.close()


@pytest.fixture
def run(daemon, uuids, start_job):
    return Run(daemon, uuids, start_job)


def ended(process):
    """(exit code, output, errors)"""
    output, errors = process.communicate(timeout=ENDED_S)
    return process.returncode, output, errors


def test_a_run_to_the_last_step(run):
    assert run.begin(run.order()).report()[0] == ("finished", 40, 40, "")
    assert run.ranges() == (0, 40)
    assert run.kinds() == ["granted", "attached", "finished"]
    assert run.daemon.ask({"op": "status"})["devices"][0]["leased_ns"] == 200 * MS
    assert not run.checkpoint.exists()


def test_a_stop_by_the_owner_leaves_a_checkpoint_and_the_next_run_goes_on_there(run, uuids):
    job = run.begin(run.order(work=TimedWork(1.2)))
    run.wait_for_step(5)
    run.daemon.ask({"op": "stop", "job_id": "a"})
    (outcome, done, steps_run, reason), _ = job.report()
    assert (outcome, steps_run, reason) == ("stopped", done, "")
    assert json.loads(run.checkpoint.read_text())["samples_done"] == done
    assert 5 <= done < 40
    assert run.kinds()[-2:] == ["stopping", "released"]
    assert run.daemon.ask({"op": "status"})["devices"][0]["holders"] == []

    next_run = run.begin(run.order(devices=uuids[1:2], work=TimedWork(1.2)))
    assert next_run.report()[0] == ("finished", 40, 40 - done, "")
    assert run.ranges() == (0, 40)
    leased = [device["leased_ns"] for device in run.daemon.ask({"op": "status"})["devices"]]
    assert leased == [done * 30 * MS, (40 - done) * 30 * MS]


def failed(job):
    """The reason of a run that has failed, in one line; the process goes on."""
    (outcome, _, _, reason), _ = job.report()
    assert (outcome, job.close()) == ("failed", (0, "", ""))
    assert "\n" not in reason
    return reason


def test_out_of_memory(run):
    reason = failed(run.begin(run.order(device_memory_bytes=15 * GIB)))
    assert reason.startswith("out of memory on GPU-")
    assert "a asks for 15.00 GiB (15.00 GiB of it persistent), 14.80 GiB of 14.80 GiB usable are free" in reason
    assert run.kinds() == ["granted", "attached", "oom", "failed"]
    assert run.daemon.events("a")[-1]["detail"] == reason


def test_a_refused_token(run):
    run.daemon.grant("a", run.uuids[:1])
    reason = failed(run.begin(run.order(token="stolen")))
    assert reason == "unknown token: it was never granted on this node, or its grant has ended"
    assert run.kinds() == ["granted"]


def test_a_revoked_job_ends(run):
    job = run.begin(run.order(work=LONG))
    run.wait_for_step(3)
    run.daemon.ask({"op": "revoke", "job_id": "a", "reason": "preempted by hand"})
    assert failed(job) == "the grant of job 'a' has ended (failed)"
    assert run.daemon.events("a")[-1]["detail"] == "preempted by hand"


def test_work_without_a_profile_keeps_the_steps_that_are_done(run):
    run.checkpoint.write_text('{"samples_done": 7}')
    reason = failed(run.begin(run.order(work=ModelWork("resnet51", 32), gpu_type="Tesla-T4")))
    assert "unknown model 'resnet51'; did you mean resnet50" in reason
    assert run.ranges() == (7, 7)
    assert run.kinds()[-1] == "failed"


def test_a_corrupt_checkpoint_loses_no_steps_in_the_books(run):
    order = run.order(token=run.daemon.grant("a", run.uuids[:1], 7))
    run.checkpoint.write_text("nonsense")
    assert f"{run.checkpoint}: is not a checkpoint" in failed(run.begin(order))
    assert run.ranges() == (7, 7)


def test_help_and_arguments(start_process):
    processes = [start_process([JOB, *arguments], {}) for arguments in (["--help"], ["--standby", "x"], [])]
    for process, code in zip(processes, (0, 2, 2), strict=True):
        status, output, _ = ended(process)
        assert status == code
        assert "--standby FD" in output


def test_run_after_run_until_the_socket_ends(run):
    job = run.begin(run.order())
    outcome, report = job.report()
    assert (outcome, report["reconnects"]) == (("finished", 40, 40, ""), 0)
    assert sum(report["lags"]["buckets"].values()) == 40
    outcome, _ = job.begin(run.order(device_memory_bytes=15 * GIB)).report()
    assert (outcome[0], outcome[2]) == ("failed", 0)
    assert outcome[3].startswith("out of memory on GPU-")
    assert job.close() == (0, "", "")


@pytest.mark.parametrize(("order", "field"), [({"op": "run"}, "manager"), ({"manager": "/m"}, "token")])
def test_an_order_that_is_none_ends_it_with_one_line(start_job, order, field):
    job = start_job()
    job.control.send(order)
    code, _, errors = ended(job.process)
    assert (code, errors) == (1, f"emugpu job: field '{field}' must be a text of at most 4096 characters\n")


# --- the manager is killed ------------------------------------------------------------------------------------------


def test_kill_minus_9_twice_and_every_step_is_run_once(run):
    job = run.start_job()
    job.begin(run.order(steps=100, work=TimedWork(run.longer_than_restarts(2))))
    for step in (20, 60):
        run.wait_for_step(step)
        run.daemon.kill()
        run.daemon.start()
    outcome, report = job.report()
    assert (outcome, report["reconnects"]) == (("finished", 100, 100, ""), 2)
    assert run.ranges() == (0, 100)
    assert run.kinds() == ["granted", "attached", "finished"]
    assert job.close()[0] == 0


def test_a_manager_that_is_away_for_a_while_delays_nothing_on_the_device(run):
    work, job = TimedWork(run.longer_than_restarts(1)), run.start_job()
    begin_ns = monotonic_ns() + 50 * MS
    job.begin(run.order(steps=100, work=work, begin_ns=begin_ns))
    run.wait_for_step(10)
    run.daemon.kill()
    time.sleep(0.1)
    run.daemon.start()
    outcome, report = job.report()
    assert (outcome, report["reconnects"]) == (("finished", 100, 100, ""), 1)
    assert run.last_lease_end_ns() == begin_ns + report["start_lag_ns"] + to_ns(work.duration_s)
    assert job.close()[0] == 0
    assert run.ranges() == (0, 100)


def test_two_jobs_share_a_device_through_a_crash(start_daemon, uuids, start_job):
    daemon = start_daemon("fifo")
    runs = {}
    for job_id in ("a", "b"):
        run = Run(daemon, uuids, start_job)
        order = run.order(
            job_id=job_id,
            token=daemon.grant(job_id, uuids[:1]),
            checkpoint=daemon.directory / f"{job_id}.json",
            device_memory_bytes=6 * GIB,
        )
        runs[job_id] = (run, run.begin(order))
    runs["a"][0].wait_for_step(5)
    daemon.kill()
    daemon.start()
    for job_id, (run, job) in runs.items():
        assert job.report()[0] == ("finished", 40, 40, "")
        assert run.ranges(job_id) == (0, 40)


@pytest.mark.parametrize("mode", ["fifo", "weighted", "mps", "time-slicing"])
def test_kills_at_random_moments_lose_nothing_of_two_jobs_that_share_a_device(start_daemon, uuids, start_job, mode):
    """The device does the work of both in no less time than it takes one after the other."""
    daemon, random, kills, runs = start_daemon(mode), Random(mode), 4, {}
    work = TimedWork(Run(daemon, uuids, start_job).longer_than_restarts(kills // 2))  # there are two jobs
    jobs = {job_id: start_job() for job_id in ("a", "b")}
    begin_ns = monotonic_ns() + 500 * MS
    for job_id, job in jobs.items():
        run = Run(daemon, uuids, start_job)
        order = run.order(
            job_id=job_id,
            token=daemon.grant(job_id, uuids[:1]),
            checkpoint=daemon.directory / f"{job_id}.json",
            device_memory_bytes=6 * GIB,
            begin_ns=begin_ns,
            steps=100,
            work=work,
        )
        runs[job_id] = (run, job.begin(order))
    for _ in range(kills):
        time.sleep(random.uniform(0.02, 0.3))
        daemon.kill()
        daemon.start()
    for job_id, (run, job) in runs.items():
        assert job.report(ENDED_S + 2 * work.duration_s)[0] == ("finished", 100, 100, "")
        assert run.ranges(job_id) == (0, 100)
        assert run.kinds(job_id) == ["granted", "attached", "finished"]
    assert monotonic_ns() - begin_ns >= 2 * to_ns(work.duration_s) - kills * (CUT_NS + 3 * LEAD_NS)
