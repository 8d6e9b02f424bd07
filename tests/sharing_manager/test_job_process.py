"""Real job processes with a real daemon: exit codes, stop and resume, and a manager that is killed meanwhile."""

import contextlib
import itertools
import json
import signal
import sqlite3
import time
from random import Random

import pytest

from emulator_runtime.domain.job import ModelWork, TimedWork
from emulator_runtime.domain.units import to_ns
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.sharing.processor_sharing import LEAD_NS
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.shared_clock import SharedClockFile
from emulator_runtime.workloads.order import RunOrder
from sharing_manager.core.half_served import CUT_NS

pytestmark = pytest.mark.processes
GIB, MS = 1024**3, 1_000_000
ENDED_S = 20
JOB = "emulator_runtime.workloads"
LONG = TimedWork(10.0)
"""Ended by somebody before it is done, however late they come."""


class Run:
    """Job `a` of 40 steps of 5 ms on the first device, with its checkpoint in the daemon's directory."""

    def __init__(self, daemon, uuids, start_process):
        self.daemon, self.uuids, self._start_process = daemon, uuids, start_process
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

    def pod(self, order, **environment):
        """The process as a container runs it."""
        return self._start_process([JOB], {"EMUGPU_ORDER": json.dumps(order.to_message())} | environment)

    def standby(self, pair, **environment):
        """A process that is told what to run over a socket, and that socket."""
        ours, theirs = pair
        process = self._start_process(
            [JOB, "--standby", str(theirs.fileno())], environment, pass_fds=(theirs.fileno(),)
        )
        theirs.close()
        ours.settimeout(ENDED_S)
        return process, Channel(ours)

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
def run(daemon, uuids, start_process):
    return Run(daemon, uuids, start_process)


def ended(process, within_s=ENDED_S):
    """(exit code, output, errors)"""
    output, errors = process.communicate(timeout=within_s)
    return process.returncode, output, errors


def test_the_last_step_is_exit_code_0(run):
    assert ended(run.pod(run.order())) == (0, "", "")
    assert run.ranges() == (0, 40)
    assert run.kinds() == ["granted", "attached", "finished"]
    assert run.daemon.ask({"op": "status"})["devices"][0]["leased_ns"] == 200 * MS
    assert not run.checkpoint.exists()


def test_sigterm_is_143_with_a_checkpoint_and_the_next_run_goes_on_there(run, uuids):
    process = run.pod(run.order(work=TimedWork(1.2)))
    run.wait_for_step(5)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (143, "", "")
    done = json.loads(run.checkpoint.read_text())["samples_done"]
    assert 5 <= done < 40
    assert run.kinds()[-1] == "released"
    assert run.daemon.ask({"op": "status"})["devices"][0]["holders"] == []

    assert ended(run.pod(run.order(devices=uuids[1:2], work=TimedWork(1.2)))) == (0, "", "")
    assert run.ranges() == (0, 40)
    leased = [device["leased_ns"] for device in run.daemon.ask({"op": "status"})["devices"]]
    assert leased == [done * 30 * MS, (40 - done) * 30 * MS]


def test_a_stop_by_the_owner_is_143_too(run):
    process = run.pod(run.order(work=LONG))
    run.wait_for_step(3)
    run.daemon.ask({"op": "stop", "job_id": "a"})
    assert ended(process)[0] == 143
    assert run.kinds()[-2:] == ["stopping", "released"]
    assert run.ranges() == (0, json.loads(run.checkpoint.read_text())["samples_done"])


def test_out_of_memory_is_one_line(run):
    code, _, errors = ended(run.pod(run.order(device_memory_bytes=15 * GIB)))
    assert code == 1
    assert errors.startswith("emugpu job: out of memory on GPU-")
    assert "a asks for 15.00 GiB (15.00 GiB of it persistent), 14.80 GiB of 14.80 GiB usable are free" in errors
    assert errors.count("\n") == 1
    assert run.kinds() == ["granted", "attached", "oom", "failed"]
    assert run.daemon.events("a")[-1]["detail"] in errors


def test_a_refused_token_is_one_line(run):
    run.daemon.grant("a", run.uuids[:1])
    assert ended(run.pod(run.order(token="stolen"))) == (
        1,
        "",
        "emugpu job: unknown token: it was never granted on this node, or its grant has ended\n",
    )
    assert run.kinds() == ["granted"]


def test_a_revoked_job_ends(run):
    process = run.pod(run.order(work=LONG))
    run.wait_for_step(3)
    run.daemon.ask({"op": "revoke", "job_id": "a", "reason": "preempted by hand"})
    assert ended(process) == (1, "", "emugpu job: the grant of job 'a' has ended (failed)\n")
    assert run.daemon.events("a")[-1]["detail"] == "preempted by hand"


def test_work_without_a_profile_keeps_the_steps_that_are_done(run):
    run.checkpoint.write_text('{"samples_done": 7}')
    code, _, errors = ended(run.pod(run.order(work=ModelWork("resnet51", 32), gpu_type="Tesla-T4")))
    assert code == 1
    assert "unknown model 'resnet51'; did you mean resnet50" in errors
    assert run.ranges() == (7, 7)
    assert run.kinds()[-1] == "failed"


def test_a_corrupt_checkpoint_is_one_line_and_loses_no_steps_in_the_books(run):
    order = run.order(token=run.daemon.grant("a", run.uuids[:1], 7))
    run.checkpoint.write_text("nonsense")
    code, _, errors = ended(run.pod(order))
    assert code == 1
    assert f"{run.checkpoint}: is not a checkpoint" in errors
    assert errors.count("\n") == 1
    assert run.ranges() == (7, 7)


BAD_ORDERS = [
    (None, "EMUGPU_ORDER: is missing: it holds the run order as JSON"),
    ("{", "EMUGPU_ORDER: is not JSON: "),
    ("[]", "EMUGPU_ORDER: must be a JSON object, not list"),
    ("[" * 50_000, "EMUGPU_ORDER: is not JSON: "),
    ('{"manager": "/m"}', "EMUGPU_ORDER: field 'token' must be a text"),
]


def test_a_bad_order_is_one_line(start_process):
    processes = [
        (start_process([JOB], {} if content is None else {"EMUGPU_ORDER": content}), message)
        for content, message in BAD_ORDERS
    ]
    for process, message in processes:
        code, output, errors = ended(process)
        assert errors.startswith(f"emugpu job: {message}")
        assert (code, output, errors.count("\n")) == (1, "", 1)


def test_a_warp_clock_needs_its_owner(run):
    clock = SharedClockFile.create(run.daemon.directory / "clock", 0.0, "warp")
    code, _, errors = ended(run.pod(run.order(), EMUGPU_CLOCK=clock.path))
    clock.close()
    assert code == 1
    assert "EMUGPU_CLOCK: is a warp clock" in errors


def test_help_and_arguments(start_process):
    helped, refused = start_process([JOB, "--help"], {}), start_process([JOB, "--standby", "x"], {})
    code, output, _ = ended(helped)
    assert code == 0
    assert "EMUGPU_ORDER" in output
    assert ended(refused)[0] == 2


# --- standby ----------------------------------------------------------------------------------------------------------


def test_run_after_run_until_the_socket_ends(run, socket_pair):
    process, control = run.standby(socket_pair)
    assert control.receive() == {"op": "ready", "realtime_refused": False}
    control.send(run.order().to_message())
    first = control.receive()
    assert (first["op"], first["outcome"], first["steps_done"], first["steps_run"]) == ("ended", "finished", 40, 40)
    assert (first["reason"], first["reconnects"]) == ("", 0)
    assert sum(first["lags"]["buckets"].values()) == 40
    control.send(run.order(device_memory_bytes=15 * GIB).to_message())
    second = control.receive()
    assert (second["outcome"], second["steps_run"]) == ("failed", 0)
    assert second["reason"].startswith("out of memory on GPU-")
    control.close()
    assert ended(process) == (0, "", "")


def test_an_order_that_is_none_ends_it_with_one_line(run, socket_pair):
    process, control = run.standby(socket_pair)
    control.receive()
    control.send({"op": "run"})
    code, _, errors = ended(process)
    control.close()
    assert (code, errors) == (1, "emugpu job: field 'manager' must be a text of at most 4096 characters\n")


# --- the manager is killed ------------------------------------------------------------------------------------------


def test_kill_minus_9_twice_and_every_step_is_run_once(run, socket_pair):
    work = TimedWork(run.longer_than_restarts(2))
    process, control = run.standby(socket_pair)
    control.receive()
    control.send(run.order(steps=100, work=work).to_message())
    for step in (20, 60):
        run.wait_for_step(step)
        run.daemon.kill()
        run.daemon.start()
    report = control.receive()
    assert (report["outcome"], report["steps_done"], report["steps_run"]) == ("finished", 100, 100)
    assert report["reconnects"] == 2
    assert run.ranges() == (0, 100)
    assert run.kinds() == ["granted", "attached", "finished"]
    control.close()
    assert ended(process)[0] == 0


def test_a_manager_that_is_away_for_a_while_delays_nothing_on_the_device(run, socket_pair):
    work = TimedWork(run.longer_than_restarts(1))
    process, control = run.standby(socket_pair)
    control.receive()
    begin_ns = monotonic_ns() + 50 * MS
    control.send(run.order(steps=100, work=work, begin_ns=begin_ns).to_message())
    run.wait_for_step(10)
    run.daemon.kill()
    time.sleep(0.1)
    run.daemon.start()
    report = control.receive()
    assert (report["outcome"], report["steps_run"], report["reconnects"]) == ("finished", 100, 1)
    assert run.last_lease_end_ns() == begin_ns + report["start_lag_ns"] + to_ns(work.duration_s)
    control.close()
    assert ended(process)[0] == 0
    assert run.ranges() == (0, 100)


def test_two_jobs_share_a_device_through_a_crash(start_daemon, uuids, start_process):
    daemon = start_daemon("fifo")
    runs = {}
    for job_id in ("a", "b"):
        run = Run(daemon, uuids, start_process)
        order = run.order(
            job_id=job_id,
            token=daemon.grant(job_id, uuids[:1]),
            checkpoint=daemon.directory / f"{job_id}.json",
            device_memory_bytes=6 * GIB,
        )
        runs[job_id] = (run, run.pod(order))
    runs["a"][0].wait_for_step(5)
    daemon.kill()
    daemon.start()
    for job_id, (run, process) in runs.items():
        assert ended(process) == (0, "", "")
        assert run.ranges(job_id) == (0, 40)


@pytest.mark.parametrize("mode", ["fifo", "weighted", "mps", "time-slicing"])
def test_kills_at_random_moments_lose_nothing_of_two_jobs_that_share_a_device(start_daemon, uuids, start_process, mode):
    """The device does the work of both in no less time than it takes one after the other."""
    daemon, random, kills, runs = start_daemon(mode), Random(mode), 4, {}
    work = TimedWork(Run(daemon, uuids, start_process).longer_than_restarts(kills // 2))  # there are two jobs
    begin_ns = monotonic_ns() + 500 * MS
    for job_id in ("a", "b"):
        run = Run(daemon, uuids, start_process)
        order = run.order(
            job_id=job_id,
            token=daemon.grant(job_id, uuids[:1]),
            checkpoint=daemon.directory / f"{job_id}.json",
            device_memory_bytes=6 * GIB,
            begin_ns=begin_ns,
            steps=100,
            work=work,
        )
        runs[job_id] = (run, run.pod(order))
    for _ in range(kills):
        time.sleep(random.uniform(0.02, 0.3))
        daemon.kill()
        daemon.start()
    for job_id, (run, process) in runs.items():
        assert ended(process, ENDED_S + 2 * work.duration_s) == (0, "", "")
        assert run.ranges(job_id) == (0, 100)
        assert run.kinds(job_id) == ["granted", "attached", "finished"]
    assert monotonic_ns() - begin_ns >= 2 * to_ns(work.duration_s) - kills * (CUT_NS + 3 * LEAD_NS)
