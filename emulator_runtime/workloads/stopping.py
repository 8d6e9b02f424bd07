"""SIGTERM and Ctrl-C of a training process: a flag that is looked at between two steps, and a way out of what blocks.

A pod has a few seconds between SIGTERM and SIGKILL. A step that ends soon is finished; one that takes longer, or a manager
that doesn't answer, is left at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns

PATIENCE_S = 1.5
"""How long a process that was told to stop goes on with what it is doing (host seconds); the grace period is 5 s or less."""


class StopNow(BaseException):  # not an error: what handles errors on the way must not take it for one
    """The process was told to stop and what it is in the middle of would take too long."""


class StopSwitch:
    """Whether this process was told to stop, and by which signal (0: not)."""

    def __init__(self, now: Callable[[], int] = monotonic_ns) -> None:
        self._now = now
        self._asked_ns = 0
        self._raises = False
        self.signal = 0

    def install(self) -> None:
        """From now on SIGTERM and SIGINT turn the switch, and SIGALRM ends what still blocks later; for the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGALRM, lambda number, frame: self.interrupt())

    def _on_signal(self, number: int, _frame: object) -> None:
        self.turn(number)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)

    def turn(self, number: int) -> None:
        """Tell the process to stop; the first signal counts."""
        if not self.signal:
            self.signal, self._asked_ns = number, self._now()

    def interrupt(self) -> None:
        """Raises StopNow within `interruptible`; there it may be anywhere."""
        if self._raises:
            self._raises = False
            raise StopNow

    @property
    def asked(self) -> bool:
        return self.signal != 0

    def check(self, patience_s: float = PATIENCE_S) -> None:
        """Raises StopNow where the process was told to stop more than `patience_s` ago; called by what waits in slices."""
        if self.signal and self._now() - self._asked_ns >= patience_s * NS_PER_S:
            raise StopNow

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A call that may block for who knows how long: it is left with StopNow where the process was told to stop and has
        waited for it for `PATIENCE_S`. It must be fit to be left anywhere."""
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False
