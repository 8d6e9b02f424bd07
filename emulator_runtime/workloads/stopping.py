"""Handles SIGTERM and Ctrl-C of a training process: a flag that is checked between steps, and an exception for blocking calls.

A pod has a few seconds between SIGTERM and SIGKILL. A step that ends soon is finished; a longer step, or a call to a manager
that doesn't answer, is aborted.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns

PATIENCE_S = 1.5
"""How long a stopping process continues its current work (host seconds)."""
RELEASE_TIMEOUT_S = 1.5
"""How long it then tries to release its devices; the manager also notices that the process has ended."""
GRACE_S = 5
"""Termination grace period of an EmuJob's pods: PATIENCE_S, RELEASE_TIMEOUT_S, and time for Python to end."""


class StopNow(BaseException):  # not an Exception: error handlers must not catch it
    """The process must stop, and its current work would take too long."""


class StopSwitch:
    """Whether this process must stop, and the signal that said so (0: none)."""

    def __init__(self, now: Callable[[], int] = monotonic_ns) -> None:
        self._now = now
        self._asked_ns = 0
        self._raises = False
        self.signal = 0

    def install(self) -> None:
        """Handle SIGTERM and SIGINT, and abort blocking calls later with SIGALRM. For the main thread only."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, lambda number, frame: self.interrupt())

    def _on_signal(self, number: int, _frame: object) -> None:
        self.turn(number)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)

    def turn(self, number: int) -> None:
        """Request the stop; only the first signal counts."""
        if not self.signal:
            self.signal, self._asked_ns = number, self._now()

    def interrupt(self) -> None:
        """Raise StopNow if the process is inside `interruptible`."""
        if self._raises:
            self._raises = False
            raise StopNow

    @property
    def asked(self) -> bool:
        return self.signal != 0

    def check(self, patience_s: float = PATIENCE_S) -> None:
        """Raise StopNow if the stop was requested more than `patience_s` ago; called by waits that work in slices."""
        if self.signal and self._now() - self._asked_ns >= patience_s * NS_PER_S:
            raise StopNow

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A context for calls that may block. StopNow aborts them when the stop was requested `PATIENCE_S` ago. The calls
        must tolerate StopNow at any point."""
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False
