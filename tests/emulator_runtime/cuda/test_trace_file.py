"""The file of `--trace`: which process writes it, and what is in it when a process ends otherwise than by returning."""

import json
import re
from pathlib import Path

import pytest

START = "import signal, subprocess, sys, threading\n"


def kernels(trace: Path, *, ended: bool = True) -> int:
    """How many there are in the file, which must be valid; `ended`: with its closing bracket."""
    text = trace.read_text()
    return sum(event.get("name") == "kernel" for event in json.loads(text if ended else text + "{}]"))


@pytest.fixture
def trace(tmp_path):
    return tmp_path / "trace.json"


def test_a_process_that_only_counts_devices_leaves_the_trace_alone(run_core, trace):
    run_core(
        START
        + """
stream = core.default_stream()
core.launch(stream, 200)
core.synchronize(stream)
count = "from core_calls import *; assert Core().library.emu_device_count() == 1"
subprocess.run([sys.executable, "-c", count], check=True)
core.launch(stream, 200)
core.synchronize(stream)
""",
        trace=trace,
    )
    assert kernels(trace) == 400


def test_without_work_there_is_no_trace(run_core, trace):
    run_core("assert core.library.emu_device_count() == 1", trace=trace)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("trace.json", r"trace\.\d+\.json"),
        ("trace", r"trace\.\d+"),
        (".trace", r"\.trace\.\d+"),
        ("a.b.c", r"a\.b\.\d+\.c"),
    ],
)
def test_further_processes_write_beside_the_first_one_and_say_so(run_core, tmp_path, name, own):
    folder = tmp_path / "with.dot"
    folder.mkdir()
    printed = run_core(
        START
        + """
work = "from core_calls import *; core = Core(); core.launch(core.default_stream(), 7); core.synchronize(core.default_stream())"
subprocess.run([sys.executable, "-c", work.replace("7", "2")], check=True)
core.launch(core.default_stream(), 3)
core.synchronize(core.default_stream())
subprocess.run([sys.executable, "-c", work], check=True)
""",
        trace=folder / name,
    )
    others = [file for file in folder.iterdir() if re.fullmatch(own, file.name)]
    assert len(others) + 1 == len(list(folder.iterdir()))
    assert (kernels(folder / name), sorted(map(kernels, others))) == (2, [3, 7])
    for other in others:
        assert f"another process has the trace {folder / name}; this one's is {other}\n" in printed


def test_only_one_of_processes_that_begin_at_once_takes_the_trace(run_core, tmp_path, trace):
    run_core(
        START
        + """
work = "from core_calls import *; core = Core(); input(); core.launch(core.default_stream(), 5)"
started = [subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE) for _ in range(6)]
for process in started:
    process.stdin.write(b"go\\n")
    process.stdin.flush()
assert [process.wait() for process in started] == [0] * 6
""",
        trace=trace,
    )
    assert [kernels(file) for file in tmp_path.glob("trace*.json")] == [5] * 6


@pytest.mark.parametrize("name", ["trace.json", "trace-%p.json"])
def test_a_child_that_ends_by_exit_leaves_whole_records_of_its_own(run_core, tmp_path, name):
    run_core(
        """
        assert core.library.emu_device_count() == 1
        child = os.fork()
        core.launch(core.default_stream(), 3 if child else 2)
        core.synchronize(core.default_stream())
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        trace=tmp_path / name,
    )
    texts = [file.read_text() for file in tmp_path.glob("trace*.json")]
    assert sorted(text.count('"kernel"') for text in texts) == [2, 3], texts


def test_a_process_that_a_signal_ends_leaves_all_but_its_last_moments(run_core, trace):
    run_core(
        START
        + f"""
core.launch(core.default_stream(), 300)
watch = Stopwatch()
while open({str(trace)!r}).read().count("kernel") < 300:
    assert watch.s < 20
    time.sleep(0.01)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.kill(os.getpid(), signal.SIGINT)
""",
        trace=trace,
        expect=-2,
    )
    assert kernels(trace, ended=False) == 300


def test_a_signal_cuts_no_record(run_core, trace):
    run_core(
        START
        + """
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    core.launch(core.default_stream(), 100)
    core.synchronize(core.default_stream())
""",
        trace=trace,
        warp=1,
        expect=-9,
    )
    assert kernels(trace, ended=False) > 1000


def test_a_program_may_close_the_library(run_core, trace):
    run_core(
        """
        import _ctypes
        core.launch(core.default_stream(), 3)
        _ctypes.dlclose(core.library._handle)
        time.sleep(0.5)  # the thread that writes comes by
        """,
        trace=trace,
    )
    assert kernels(trace) == 3


def test_a_full_disk_ends_the_trace_after_a_whole_record(run_core, trace):
    printed = run_core(
        """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        core.launch(core.default_stream(), 3000)
        """,
        trace=trace,
        warp=1,
    )
    assert printed.count("the trace ends: File too large\n") == 1
    assert 0 < kernels(trace, ended=False) < 3000
