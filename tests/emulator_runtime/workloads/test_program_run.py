"""A run of a job by a program: its end, its failure, a stop, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.workloads import program_run
from emulator_runtime.workloads.program_run import ProgramRun

pytestmark = pytest.mark.processes
S = 1_000_000_000


@dataclass
class Manager:
    """Records its calls. It asks for a stop as soon as the file `stop_when` is there."""

    stop_when: Path | None = None
    told: list[tuple[str, object]] = field(default_factory=list)
    away: bool = False

    @property
    def stopping(self) -> bool:
        return self.stop_when is not None and self.stop_when.exists()

    def finish(self, steps_done: int) -> None:
        self.told.append(("finish", steps_done))

    def release(self, steps_done: int) -> None:
        self.told.append(("release", steps_done))

    def fail(self, reason: str) -> None:
        if self.away:
            raise ManagerUnavailableError("away")
        self.told.append(("fail", reason))


def run_of(code: str, manager: Manager, **members: object) -> ProgramRun:
    given: dict[str, object] = {"first": 3, "steps": 10, "kept_after": lambda _ns: 0, "variables": {}, **members}
    return ProgramRun([sys.executable, "-c", code], manager=manager, clock=HostClock.of_host(), **given)  # type: ignore[arg-type]


def test_the_end_of_a_program_is_that_of_the_job(tmp_path: Path) -> None:
    manager, file = Manager(), tmp_path / "seen"
    code = f"import os; open({str(file)!r}, 'w').write(os.environ['MINE'])"
    outcome = run_of(code, manager, variables={"MINE": "yes"}).run()
    assert (outcome.kind, outcome.steps_done, outcome.steps_run) == ("finished", 10, 7)
    assert manager.told == [("finish", 10)] and file.read_text() == "yes"


@pytest.mark.parametrize(
    ("code", "how", "signalled"),
    [
        ("raise SystemExit(3)", "ended with exit status 3", False),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL", True),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40", True),
    ],
)
def test_a_program_that_fails(code: str, how: str, signalled: bool) -> None:
    manager = Manager()
    run = run_of(code, manager)
    outcome = run.run()
    assert (outcome.kind, outcome.steps_done) == ("failed", 3) and run.signalled is signalled
    assert outcome.reason.startswith(f"the program {how}") and manager.told == [("fail", outcome.reason)]


def test_a_failure_is_reported_although_the_manager_is_away() -> None:
    assert run_of("raise SystemExit(3)", Manager(away=True)).run().kind == "failed"


def test_a_program_that_is_not_there() -> None:
    manager = Manager()
    run = run_of("", manager)
    run.words = ["/no/such/program"]
    assert run.run().reason == "can't start /no/such/program: No such file or directory"
    assert manager.told[0][0] == "fail"


STARTED = "import signal, sys, time; {}; open({!r}, 'w'); time.sleep(60)"


@pytest.mark.parametrize(
    ("kept", "done"), [(lambda ns: 5 if ns > 0 else 0, 5), (lambda _ns: 0, 3), (lambda _ns: 99, 9)]
)
def test_a_stop_ends_the_program_and_keeps_what_it_has_saved(
    tmp_path: Path, kept: Callable[[int], int], done: int
) -> None:
    started = tmp_path / "started"
    manager = Manager(stop_when=started)
    outcome = run_of(STARTED.format("pass", str(started)), manager, kept_after=kept).run()
    assert (outcome.kind, outcome.steps_done) == ("stopped", done) and manager.told == [("release", done)]


def test_a_program_that_ignores_the_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_run, "STOP_S", 0.2)
    started = tmp_path / "started"
    ignoring = STARTED.format("signal.signal(signal.SIGTERM, signal.SIG_IGN)", str(started))
    assert run_of(ignoring, Manager(stop_when=started)).run().kind == "stopped"


def test_what_a_program_has_started_ends_with_it(tmp_path: Path) -> None:
    """The pipe has an end when the program's child, which holds its other end, is dead."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    child = f"import time; end = open({str(pipe)!r}, 'w'); print('open', flush=True); time.sleep(600)"
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
    )
    assert run_of(code, Manager()).run().kind == "finished"
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_program_gets_signals_that_its_parent_ignores() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = "import signal; raise SystemExit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
        assert run_of(code, Manager()).run().kind == "finished"
    finally:
        signal.signal(signal.SIGINT, before)
