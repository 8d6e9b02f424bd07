"""The scheduler as a child: real processes, which do as a scheduler program does."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import sleep_ns
from operators.experiments.scheduler_output import Decision
from operators.experiments.scheduler_process import MAX_RESTARTS, Files, SchedulerProcess

pytestmark = pytest.mark.processes
Commands = Callable[..., list[str]]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def begin(tmp_path: Path, said: list[str]) -> Iterator[Callable[[list[str]], SchedulerProcess]]:
    begun: list[SchedulerProcess] = []

    def begin(command: list[str]) -> SchedulerProcess:
        begun.append(SchedulerProcess(command, Files.within(tmp_path, "s"), said.append).__enter__())
        return begun[-1]

    yield begin
    for process in begun:
        process.end()


def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        sleep_ns(10_000_000)
    raise AssertionError("never came true")


def over(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] == "Z"


Begin = Callable[[list[str]], SchedulerProcess]


def test_its_decisions_are_read_and_it_ends_when_told(begin: Begin, scheduler: Commands) -> None:
    code = """
line = {"at": "2026-01-01T00:00:01.5Z", "started": {"a": {}, "b": {}}, "stopped": ["c"], "queued": 3, "holding": 2}
nothing = {"at": "2026-01-01T00:00:01Z", "started": {}, "stopped": [], "queued": 0, "holding": 0}
print(json.dumps(nothing), json.dumps(line), "not json", json.dumps(line)[:30], sep="\\n", end="", flush=True)
time.sleep(600)
"""
    process = begin(scheduler(code))
    until(lambda: len(process.decisions()) == 2)
    assert process.ready
    start_ns = 1_767_225_600_000_000_000
    assert process.decisions() == [
        Decision(start_ns + 1_000_000_000),
        Decision(start_ns + 1_500_000_000, ("a", "b"), ("c",), jobs=5),
    ]
    process.check()
    pid = process.pid
    process.end()
    process.end()
    assert over(pid) and process.notes() == []


def test_one_that_dies_is_started_again_and_the_report_says_so(
    begin: Begin, scheduler: Commands, said: list[str]
) -> None:
    process = begin(scheduler())
    until(lambda: process.ready)
    first = process.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: over(first))
    process.check()
    assert process.pid != first
    assert said == ["the scheduler ended with status -9 and is restarted"]
    assert process.notes() == ["the scheduler died and was restarted once"]


def test_one_that_dies_again_and_again_ends_the_run(begin: Begin, scheduler: Commands) -> None:
    process = begin(scheduler("print('no room', file=sys.stderr); sys.exit(3)"))
    with pytest.raises(ClusterError, match=r"ended with status 3: .*no room"):
        until(lambda: process.check() is not None)
    assert process.restarts == MAX_RESTARTS


def test_a_mistake_in_its_arguments_is_no_accident(begin: Begin, scheduler: Commands) -> None:
    process = begin(scheduler("print('emugpu: unknown policy', file=sys.stderr); sys.exit(2)"))
    with pytest.raises(ClusterError, match=r"status 2: .*emugpu: unknown policy"):
        until(lambda: process.check() is not None)
    assert process.restarts == 0


def test_one_that_can_not_reach_the_cluster_for_a_while_is_restarted(tmp_path: Path, begin: Begin) -> None:
    """Ready at first, then killed; its successors end with status 2 before they are ready, until the API server is back."""
    code = f"""
import os, sys, time
count = len(os.listdir({str(tmp_path / "starts")!r}))
open(os.path.join({str(tmp_path / "starts")!r}, str(count)), "w").close()
if count in (1, 2):
    print("emugpu: list nodes: the API server can't be reached", file=sys.stderr)
    sys.exit(2)
print("{{}}", flush=True)
time.sleep(600)
"""
    (tmp_path / "starts").mkdir()
    process = begin([sys.executable, "-c", code])
    until(lambda: process.ready)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.check() is None and len(process._files.decisions.read_text().splitlines()) == 2)
    assert process.restarts == 3


def test_one_that_has_done_its_work_may_go(begin: Begin, scheduler: Commands) -> None:
    process = begin(scheduler("sys.exit(0)"))
    pid = process.pid
    until(lambda: over(pid))
    process.check()
    assert (process.restarts, process.notes()) == (0, [])


def test_one_that_will_not_end_is_killed(begin: Begin, scheduler: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.experiments.scheduler_process._END_S", 0.2)
    process = begin(scheduler("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint(1, flush=True)\ntime.sleep(600)"))
    until(lambda: process.ready and len(process._files.decisions.read_text().splitlines()) == 2)
    pid = process.pid
    process.end()
    assert over(pid)


def test_complaints_are_passed_on_once_and_are_no_decisions(begin: Begin, scheduler: Commands, said: list[str]) -> None:
    """A line that is not complete yet is read when it is."""
    code = """
line = {"at": "2026-01-01T00:00:01Z", "complaint": "the plan places job 'b' on n1, where it does not fit beside the rest",
        "kind": "plan-refused", "job": "b", "retry": True, "count": 3}
text = json.dumps(line) + "\\n"
print(text[:60], end="", flush=True)
time.sleep(1)
print(text[60:], end="", flush=True)
time.sleep(600)
"""
    process = begin(scheduler(code))
    until(lambda: "complaint" in process._files.decisions.read_text())
    process.check()
    assert said == []
    until(lambda: process.check() is None and bool(said))
    process.check()
    assert said == ["the scheduler: the plan places job 'b' on n1, where it does not fit beside the rest (3 times)"]
    assert process.decisions() == []


def test_a_complaint_that_nothing_can_resolve_ends_the_run(begin: Begin, scheduler: Commands) -> None:
    code = """
print(json.dumps({"complaint": "needs 8 CPUs on a node, the largest has 2", "job": "b", "retry": False}), flush=True)
time.sleep(600)
"""
    process = begin(scheduler(code))
    with pytest.raises(ClusterError, match="can't go on: job b: needs 8 CPUs on a node, the largest has 2"):
        until(lambda: process.check() is not None)
