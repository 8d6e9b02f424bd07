"""A run of a job by a program of the user's, in place of emulated training: start it, wait for its end or for a stop, report.

The program finds the job's devices by itself, as emulated CUDA devices (emulator_runtime/cuda); its processes have sessions of
their own. This process has the main session: the run begins with the program and ends with it, so that what lies before its
first and after its last use of a device counts, too. How far the program has come isn't visible from outside; its end is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import stat
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.workloads.training import Outcome

STOP_S = 4.0
"""How long a program that is asked to stop (SIGTERM) may take before it is killed: a little less than the grace of a pod."""
_LOOK_MS = 50
"""How often to look for a stop; the program's end is noticed at once."""
_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 4096


class ProgramManager(Protocol):
    """The methods of the sharing manager's client (ipc.client.ManagerClient) that a run of a program uses."""

    @property
    def stopping(self) -> bool: ...
    def finish(self, steps_done: int) -> None: ...
    def release(self, steps_done: int) -> None: ...
    def fail(self, reason: str) -> None: ...


@dataclass(slots=True)
class ProgramRun:
    """`words`: the command; `variables`: added to this process's environment. The run begins with step `first` of `steps`.
    `kept_after`: how many steps of the job needn't be done again if the program is stopped so many nanoseconds after its start.
    `release_ns`: from the end of a stopped program until its devices are free. `signalled`: the exit status was a signal.
    """

    words: Sequence[str]
    variables: Mapping[str, str]
    manager: ProgramManager
    clock: Clock
    first: int
    steps: int
    kept_after: Callable[[int], int]
    release_ns: int = 0
    asked_to_stop: Callable[[], bool] = lambda: False
    signalled: bool = field(default=False, init=False)

    def run(self) -> Outcome:
        """Run the program, and report its end to the manager. Raises EmuGpuError if the manager can't be reached."""
        began_ns = self.clock.now_ns()
        try:
            program = start_program(self.words, self.variables)
        except OSError as error:
            return self._failed(f"can't start {self.words[0]}: {error.strerror}")
        try:
            status = self._watched(program)
        finally:
            _end_group(program)
        if status is None:
            done = max(self.first, min(self.kept_after(self.clock.now_ns() - began_ns), self.steps - 1))
            self.clock.wait_until_ns(self.clock.now_ns() + self.release_ns)
            self.manager.release(done)
            return Outcome("stopped", done, done - self.first)
        if status == 0:
            self.manager.finish(self.steps)
            return Outcome("finished", self.steps, self.steps - self.first)
        self.signalled = status < 0
        how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with exit status {status}"
        return self._failed(f"the program {how}{_last_line()}")

    def _failed(self, reason: str) -> Outcome:
        with contextlib.suppress(EmuGpuError):  # the failure itself is what counts
            self.manager.fail(reason)
        return Outcome("failed", self.first, 0, reason)

    def _watched(self, program: subprocess.Popen[bytes]) -> int | None:
        """The program's exit status (negative: a signal ended it); None: it was asked to stop, and has ended."""
        end = os.pidfd_open(program.pid)
        try:
            watch = select.poll()
            watch.register(end, select.POLLIN)
            while not watch.poll(_LOOK_MS):
                if self.asked_to_stop() or self.manager.stopping:
                    self._stop(program, watch)
                    return None
            _end_group(program)
            return program.wait()
        finally:
            os.close(end)

    def _stop(self, program: subprocess.Popen[bytes], watch: select.poll) -> None:
        give_up_ns = monotonic_ns() + round(STOP_S * NS_PER_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGTERM)
        while not watch.poll(max(0, (give_up_ns - monotonic_ns()) // 1_000_000)) and monotonic_ns() < give_up_ns:
            continue
        _end_group(program)


def start_program(words: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """The program in a process group of its own, whose first process ends with this one. Raises OSError."""
    environment = {**os.environ, **variables}
    return subprocess.Popen(
        words, env=environment, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_begin_as_child
    )  # this process has one thread


def _begin_as_child() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM):  # an ignored signal stays ignored in a new program
        signal.signal(number, signal.SIG_DFL)


def _end_group(program: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the program and of what it has started; not when it has been waited for, since its number may be
    another's then."""
    if program.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _last_line() -> str:
    """The last line of the standard error that this process and the program share, if it is a file."""
    try:
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        with Path("/proc/self/fd/2").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return f": {lines[-1][:500]}" if lines else ""
