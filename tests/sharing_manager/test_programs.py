"""Programs that use `emugpu.gpu`, beside a real sharing manager."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from emugpu import gpu
from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import monotonic_ns

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
LAUNCHED_S = 0.15
"""Launching takes less, also on a busy machine."""
BUSY_S = 1.0
"""A busy machine may end a wait so late."""


def environment(daemon, token, count, **more):
    """What the device plugin would give to a container with so many devices."""
    return {
        "EMUGPU_TOKEN": token,
        "EMUGPU_MANAGER_SOCKET": str(daemon.job_socket),
        "EMUGPU_VISIBLE_DEVICES": ",".join(f"GPU-{n}" for n in range(count)),
        **more,
    }


@pytest.fixture
def session_of(uuids):
    """`session_of(daemon, job, count)`: a program of a job that is granted so many devices."""
    sessions = []

    def session_of(daemon, job="a", count=1, **more):
        token = daemon.grant(job, uuids[:count])
        sessions.append(gpu.Session(environment(daemon, token, count, **more)))
        return sessions[-1]

    yield session_of
    for session in sessions:
        session.close()


def test_work_is_launched_at_once_and_takes_as_long_as_the_device_would(daemon, session_of):
    session = session_of(daemon)
    device = session.device()
    assert (device.name, device.index, len(session)) == ("T", 0, 1)
    stream, other = device.stream(), device.stream()
    begin_s = time.monotonic()
    first = stream.record()
    for _ in range(10):
        stream.launch(0.02)
    second = stream.record()
    other.launch(0.1)
    third = other.record()
    assert time.monotonic() - begin_s < LAUNCHED_S
    assert not second.query()
    assert second.elapsed_s(third) == pytest.approx(0.1, abs=1e-9)  # one after the other
    session.synchronize()
    assert 0.3 <= time.monotonic() - begin_s < 0.3 + BUSY_S
    assert first.query() and second.query() and third.query()
    first.synchronize()


def test_work_of_the_processor_overlaps_that_of_the_device(daemon, session_of):
    stream = session_of(daemon).device().stream()
    begin_s = time.monotonic()
    for _ in range(5):
        stream.launch(0.2)
        time.sleep(0.15)
        stream.synchronize()
    assert 1.0 <= time.monotonic() - begin_s < 1.5  # 1.75 s one after the other


def test_an_event_orders_work_on_two_devices(daemon, session_of):
    session = session_of(daemon, count=2)
    one, two = session.device(0).stream(), session.device(1).stream()
    one.launch(0.05)
    two.wait(one.record())
    two.launch(0.01)
    assert one.record().elapsed_s(two.record()) == pytest.approx(0.01, abs=1e-9)


def test_memory_runs_out_as_on_the_device(daemon, session_of):
    device = session_of(daemon).device()
    memory = device.allocate(10 * gpu.GIB)
    with pytest.raises(gpu.OutOfMemoryError, match=r"asks for 20\.00 GiB"):
        device.allocate(10 * gpu.GIB)
    assert device.allocated_bytes == 10 * gpu.GIB
    memory.free()
    memory.free()
    device.allocate(12 * gpu.GIB)
    with pytest.raises(InputError, match="can't allocate -1 bytes"):
        device.allocate(-1)


def test_steps_are_counted_and_a_later_session_continues(daemon, session_of, eventually):
    session = session_of(daemon)
    stream = session.device().stream()
    for step in session.steps(10):
        stream.launch(0.005)
        if step == 4:
            break
    eventually(lambda: daemon.ask({"op": "steps", "job_id": "a"})["steps_done"] == 4)
    session.close()
    session = session_of(daemon)
    stream = session.device().stream()
    seen = []
    for step in session.steps(10):
        seen.append(step)
        stream.launch(0.005)
    assert seen == list(range(4, 10))
    last = daemon.events("a")[-1]
    assert (last["event"], last["steps_done"]) == ("finished", 10)


def test_a_stop_ends_the_steps_and_releases_the_devices(daemon, session_of):
    session = session_of(daemon)
    stream = session.device().stream()
    for step in session.steps(1000):
        stream.launch(0.005)
        if step == 3:
            daemon.ask({"op": "stop", "job_id": "a"})
    assert session.steps_done == 4
    assert [event["event"] for event in daemon.events("a") if event["event"] != "progress"][-2:] == [
        "stopping",
        "released",
    ]


@pytest.mark.parametrize("mode", ["fifo", "fair", "mps", "time-slicing"])
def test_two_programs_share_a_device(start_daemon, session_of, mode):
    daemon = start_daemon(mode)
    streams = [session_of(daemon, job).device().stream() for job in ("a", "b")]
    begin_ns = monotonic_ns()
    for _ in range(20):
        for stream in streams:
            stream.launch(0.005)
    ends = [stream.record() for stream in streams]
    for end in ends:
        end.synchronize()
    # an end is decided 1 ms before under processor sharing; time slicing has a cost of its own
    assert 0.198e9 <= monotonic_ns() - begin_ns < 0.25e9 + BUSY_S * 1e9
    assert abs(ends[0].elapsed_s(ends[1])) <= 0.05


def test_a_busy_shared_device_delays_the_wait_and_not_the_launch(start_daemon, session_of):
    daemon = start_daemon("fifo")
    first, second = (session_of(daemon, job).device().stream() for job in ("a", "b"))
    first.launch(0.3)
    begin_s = time.monotonic()
    second.launch(0.005)
    event = second.record()
    assert not event.query()
    assert time.monotonic() - begin_s < LAUNCHED_S
    event.synchronize()
    assert time.monotonic() - begin_s >= 0.25


@pytest.mark.parametrize("mode", ["exclusive", "fifo"])
def test_a_program_goes_on_after_the_manager_was_killed(start_daemon, session_of, mode):
    daemon = start_daemon(mode)
    session = session_of(daemon)
    stream = session.device().stream()
    for step in session.steps(100):
        stream.launch(0.005)
        if step == 30:
            daemon.kill()
        if step == (30 if mode == "fifo" else 60):
            daemon.start()
    assert daemon.events("a")[-1]["steps_done"] == 100


def test_wrong_uses(daemon, session_of):
    session = session_of(daemon)
    with pytest.raises(InputError, match="there is no device 1; this container has 1"):
        session.device(1)
    with pytest.raises(InputError, match="can't take -1 s"):
        session.device().stream().launch(-1)
    with pytest.raises(InputError, match="a job can't have -1 steps"):
        next(session.steps(-1))
    with pytest.raises(InputError, match="this container has no emulated GPU"):
        gpu.Session({})


def test_more_work_than_the_next_ten_seconds_may_be_launched(daemon, session_of):
    stream = session_of(daemon).device().stream()
    before = stream.record()
    for _ in range(3):
        stream.launch(11)
    stream.launch(0.001)
    assert before.elapsed_s(stream.record()) > 33


def test_memory_that_was_refused_is_not_asked_for_again_after_a_restart(daemon, session_of):
    device = session_of(daemon).device()
    device.allocate(4 * gpu.GIB)
    with pytest.raises(gpu.OutOfMemoryError):
        device.allocate(40 * gpu.GIB)
    daemon.kill()
    daemon.start()
    device.stream().launch(0.001)
    device.synchronize()
    assert daemon.ask({"op": "status"})["devices"][0]["used_bytes"] == 4 * gpu.GIB


def test_a_device_that_idles_between_steps_is_not_counted_as_busy(daemon, session_of):
    stream = session_of(daemon).device().stream()
    for _ in range(3):
        for _ in range(3):
            stream.launch(0.002)
        stream.synchronize()
        time.sleep(0.3)
    stream.launch(0.02)
    telemetry = daemon.ask({"op": "status"})["devices"][0]
    assert telemetry["utilisation"] < 0.2


@pytest.mark.parametrize("mode", ["exclusive", "fifo", "mps"])
def test_a_process_that_works_when_the_main_one_finishes_goes_on(start_daemon, uuids, mode):
    daemon = start_daemon(mode)
    token = daemon.grant("a", uuids[:1])
    main = gpu.Session(environment(daemon, token, 1))
    other = gpu.Session(environment(daemon, token, 1, RANK="1", LOCAL_RANK="1"))
    stream = other.device(0).stream()
    evaluation = main.device().stream()
    stream.launch(0.2)
    stream.launch(0.2)
    assert list(main.steps(3)) == [0, 1, 2]
    stream.launch(0.05)
    other.synchronize()
    evaluation.launch(0.01)
    main.synchronize()
    for session in (main, other):
        session.close()


def test_threads_have_a_time_of_their_own(daemon, session_of):
    device = session_of(daemon, count=2).device(0)
    long, short = device.stream(), device.stream()
    long.launch(0.4)
    threads = [threading.Thread(target=long.synchronize) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begin_ns = monotonic_ns()
    short.launch(0)
    assert abs(short.record()._end_ns() - begin_ns) < 0.3e9  # the threads' lags would be 1.6 s


WORKER = """
import os, sys
from emugpu import gpu
session = gpu.Session()
stream = session.device().stream()
first = session.steps_done
print("from", first, flush=True)
for step in session.steps(int(sys.argv[1])):
    stream.launch(0.02)
print("done", session.steps_done, flush=True)
"""


def test_a_process_for_each_device_each_killed_once(daemon, uuids):
    """As under torchrun: processes end and start again one by one, also the one that counts the steps."""
    token = daemon.grant("a", uuids[:2])

    def start(rank):
        more = environment(daemon, token, 2, LOCAL_RANK=str(rank), RANK=str(rank), PYTHONPATH=str(ROOT))
        command = [sys.executable, "-c", WORKER, "400"]
        return stack.enter_context(subprocess.Popen(command, env=os.environ | more, stdout=subprocess.PIPE, text=True))

    with contextlib.ExitStack() as stack:
        workers = [start(rank) for rank in range(2)]
        assert [worker.stdout.readline().split()[0] for worker in workers] == ["from"] * 2
        for rank in (1, 0):
            time.sleep(0.3)
            workers[rank].kill()
            workers[rank].wait()
            done = daemon.ask({"op": "steps", "job_id": "a"})["steps_done"]
            workers[rank] = start(rank)
            assert done <= int(workers[rank].stdout.readline().split()[1]) < 400
        assert [worker.communicate(timeout=30)[0] for worker in workers] == ["done 400\n"] * 2
    reached = 0
    for event in daemon.events("a"):
        assert event["from_step"] == reached
        reached = event["steps_done"]
    assert (event["event"], reached) == ("finished", 400)
