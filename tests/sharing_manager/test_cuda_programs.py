"""Processes with the emulated CUDA core beside a real sharing manager: accounts, memory, shared devices, restarts."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import built

pytestmark = pytest.mark.processes
CALLS = Path(__file__).parents[1] / "emulator_runtime" / "cuda"
MS = 1_000_000


@pytest.fixture
def program(uuids, tmp_path):
    """`program(daemon, token, code)`: a process with the container's devices, whose kernels take 10 ms each."""
    processes = []

    def start(daemon, token, code, devices=1, log=1, kernel_ns=10 * MS):
        file = tmp_path / f"settings{len(processes)}"
        lines = ["emugpu-cuda 1", "estimator constant", f"constant_ns {kernel_ns}", f"log {log}"]
        lines += [f"manager {daemon.job_socket}", f"token {token}"]
        for index in range(devices):
            lines += [f"device {index}", f"uuid {uuids[index]}", f"memory_bytes {16 << 30}", "context_bytes 1048576"]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        environment = os.environ | {
            "PYTHONPATH": f"{CALLS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "CORE": str(built() / "libemugpu_core.so"),
            "EMUGPU_CUDA_SETTINGS": str(file),
        }
        command = [sys.executable, "-c", "from core_calls import *\ncore = Core()\n" + textwrap.dedent(code)]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def output(process):
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, out + errors
    return out


def status(daemon, device=0):
    return daemon.ask({"op": "status"})["devices"][device]


WAIT_FOR_A_LINE = "print('ready', flush=True); input()\n"


def test_an_exclusive_device_works_without_asking_and_is_accounted(daemon, program, uuids, eventually):
    process = program(
        daemon,
        daemon.grant("a", uuids[:1]),
        """
        memory = core.allocate(4 << 30)
        stream, watch = core.stream(), Stopwatch()
        core.launch(stream, 50)
        assert watch.s < 0.2
        core.synchronize(stream)
        assert 0.5 <= watch.s < 1
        print('ready', flush=True)
        input()
        core.free(memory)
        print('ready', flush=True)
        input()
        """,
    )
    assert process.stdout.readline() == "ready\n", process.communicate()
    eventually(lambda: 0.3 < status(daemon)["utilisation"] <= 1)
    assert status(daemon)["used_bytes"] == (4 << 30) + (1 << 20)
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    eventually(lambda: status(daemon)["used_bytes"] == 1 << 20)
    process.stdin.write("\n")
    output(process)
    eventually(lambda: status(daemon)["used_bytes"] == 0)


@pytest.mark.parametrize("mode", ["fifo", "fair", "mps", "time-slicing"])
def test_two_programs_share_a_device(start_daemon, program, uuids, mode):
    daemon = start_daemon(mode)
    code = """
        stream = core.stream()
        core.launch(stream)
        core.synchronize(stream)
        print('ready', flush=True)
        input()
        watch, begin = Stopwatch(), core.record(stream)
        for _ in range(20):
            core.launch(stream, 5)
            core.synchronize(stream)
        print(watch.s)
    """
    both = [program(daemon, daemon.grant(job, uuids[:1]), code) for job in "ab"]
    for process in both:
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        assert 1.7 < float(output(process)) < 2.6  # 1 s each, one after the other or both at half the speed


def test_work_of_several_streams_on_a_shared_device_overlaps_the_host(start_daemon, program, uuids):
    daemon = start_daemon("fifo")
    code = """
        one, two = core.stream(), core.stream()
        begin = core.record(one)
        core.launch(one, 10)
        watch = Stopwatch()
        core.wait(two, core.record(one))
        core.launch(two, 10)
        end = core.record(two)
        pinned, memory = core.allocate(1 << 20, HOST), core.allocate(1 << 20)
        core.copy(two, pinned, memory, 1 << 20, blocking=False)
        assert watch.s < 0.1, watch.s
        time.sleep(0.15)
        core.synchronize(two)
        assert watch.s < 0.4, watch.s
        assert 200 <= core.elapsed_ms(begin, end) < 240
    """
    output(program(daemon, daemon.grant("a", uuids[:1]), code))


@pytest.mark.parametrize("mode", ["fifo", "time-slicing"])
def test_a_little_work_behind_a_copy_is_asked_for_while_it_is_awaited(start_daemon, program, uuids, mode):
    """It joins a chunk only when the copy has taken place, after the program began to wait."""
    code = """
        stream, pinned, memory = core.stream(), core.allocate(1 << 20, HOST), core.allocate(1 << 20)
        watch = Stopwatch()
        for _ in range(3):
            core.launch(stream, 12)
            core.copy(stream, pinned, memory, 1 << 20, blocking=False)
            core.launch(stream, 2)
        core.synchronize(stream)
        assert watch.s < 5
    """
    daemon = start_daemon(mode)
    output(program(daemon, daemon.grant("a", uuids[:1]), code, kernel_ns=MS))


def test_jobs_on_one_device_have_its_memory_together(start_daemon, program, uuids):
    daemon = start_daemon("fifo")
    first = program(daemon, daemon.grant("a", uuids[:1]), "core.allocate(10 << 30)\n" + WAIT_FOR_A_LINE)
    first.stdout.readline()
    code = """
        assert core.status("emu_memory_allocate", 0, DEVICE, c_size_t(10 << 30), byref(c_void_p())) == OUT_OF_MEMORY
        core.allocate(4 << 30)
    """
    output(program(daemon, daemon.grant("b", uuids[:1]), code))
    first.stdin.write("\n")
    output(first)


def test_a_program_may_fill_the_nominal_memory(daemon, program, uuids):
    """It reserves what it really has, its context included; profiles leave that out and may fill 92.5%."""
    code = """
        core.allocate((16 << 30) - (1 << 20))
        assert core.status("emu_memory_allocate", 0, DEVICE, c_size_t(512), byref(c_void_p())) == OUT_OF_MEMORY
    """
    output(program(daemon, daemon.grant("a", uuids[:1]), code))


def test_the_devices_are_those_that_the_manager_names(start_daemon, program, uuids):
    """The settings file may be older than a scheduler's choice."""
    code = f"""
        core.library.emu_device.restype = c_size_t
        stream = core.stream()
        core.launch(stream, 5)
        core.synchronize(stream)
        assert b"{uuids[1]}" in ctypes.string_at(core.library.emu_device(0), 512)
    """
    daemon = start_daemon("fifo")
    output(program(daemon, daemon.grant("a", uuids[1:2]), code))


def test_processes_of_one_container(daemon, program, uuids, eventually):
    """Each with a device of its own, so that neither has to ask; the second one doesn't begin the run again."""
    token = daemon.grant("a", uuids[:2])
    code = """
        memory = core.allocate(1 << 30, device=%d)
        stream = core.stream(device=%d)
        core.launch(stream, 20)
        core.synchronize(stream)
    """
    both = [program(daemon, token, textwrap.dedent(code % (n, n)) + WAIT_FOR_A_LINE, devices=2) for n in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n", process.communicate()
    assert [status(daemon, n)["used_bytes"] for n in range(2)] == [(1 << 30) + (1 << 20)] * 2
    for process in both:
        process.stdin.write("\n")
        output(process)


@pytest.mark.parametrize("mode", ["exclusive", "fifo"])
def test_a_program_goes_on_after_the_manager_was_killed(start_daemon, program, uuids, mode, eventually):
    daemon = start_daemon(mode)
    process = program(
        daemon,
        daemon.grant("a", uuids[:1]),
        """
        stream, memory = core.stream(), core.allocate(1 << 30)
        core.launch(stream)
        core.synchronize(stream)
        print('ready', flush=True)
        for _ in range(20):
            core.launch(stream, 5)
            core.synchronize(stream)
        print('done', flush=True)
        input()
        """,
    )
    assert process.stdout.readline() == "ready\n", process.communicate()
    daemon.kill()
    daemon.start()
    assert process.stdout.readline() == "done\n", process.communicate()
    eventually(lambda: status(daemon)["used_bytes"] == (1 << 30) + (1 << 20))


def test_a_device_that_is_lost_fails_every_call(daemon, program, uuids):
    process = program(
        daemon,
        daemon.grant("a", uuids[:1]),
        """
        stream = core.stream()
        core.launch(stream)
        core.synchronize(stream)
        print('ready', flush=True)
        input()
        give_up = Stopwatch()
        while core.status("emu_stream_synchronize", stream) == 0:
            assert give_up.s < 20
            time.sleep(0.01)
        assert core.status("emu_stream_synchronize", stream) == LAUNCH_FAILED
        assert core.status("emu_memory_allocate", 0, DEVICE, c_size_t(512), byref(c_void_p())) == LAUNCH_FAILED
        """,
    )
    assert process.stdout.readline() == "ready\n", process.communicate()
    daemon.ask({"op": "revoke", "job_id": "a"})
    process.stdin.write("\n")
    process.stdin.flush()
    output(process)


def test_little_work_before_a_function_of_the_host_is_asked_for(start_daemon, program, uuids):
    """The program doesn't wait through CUDA, so nothing but time tells that the chunk is complete."""
    code = """
        import threading
        stream, ran = core.stream(), threading.Event()
        core.launch(stream)
        core.work(stream, kind=0, name=b"short")
        core.host_function(stream, ran.set)
        assert ran.wait(20)
    """
    daemon = start_daemon("fifo")
    output(program(daemon, daemon.grant("a", uuids[:1]), code))


def test_threads_that_begin_at_once(daemon, program, uuids):
    """Two first uses of two devices, and two allocations that fit only one at a time."""
    code = """
        import threading
        answers, watch = [], Stopwatch()

        def allocate(device):
            for _ in range(2):
                answers.append(core.status("emu_memory_allocate", device, DEVICE, c_size_t(9 << 30), byref(c_void_p())))

        threads = [threading.Thread(target=allocate, args=(n % 2,)) for n in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sorted(answers) == [0, 0] + [OUT_OF_MEMORY] * 6, answers
        assert watch.s < 20, watch.s
    """
    output(program(daemon, daemon.grant("a", uuids[:2]), code, devices=2))


def test_a_child_process_leaves_its_parents_memory_alone(daemon, program, uuids, eventually):
    process = program(
        daemon,
        daemon.grant("a", uuids[:1]),
        """
        memory = core.allocate(4 << 30)
        child = os.fork()
        if child == 0:
            core.status("emu_memory_free", DEVICE, memory)
            os._exit(0)
        os.waitpid(child, 0)
        core.launch(core.stream())
        core.call("emu_device_synchronize", 0)
        print('ready', flush=True)
        input()
        """,
    )
    assert process.stdout.readline() == "ready\n", process.communicate()
    assert status(daemon)["used_bytes"] == (4 << 30) + (1 << 20)


def test_a_program_without_its_manager_gives_up_with_a_reason(daemon, program, uuids):
    process = program(daemon, "a-token-that-nobody-gave", "core.status('emu_context_primary', 0)\ncore.stream()")
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "doesn't admit this process" in errors
