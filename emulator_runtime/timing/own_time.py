"""The time of a program whose device is emulated, which goes on while the device works, as with CUDA streams: 60 ms of CPU work
during 100 ms of device work make a step of 100 ms.

The overhead of the emulator must not slow the program down. Therefore its own time is clock - lag. The lag is how late a wait
ended, plus the time that a call of the emulator took (a request to the sharing manager). The next wait that is long enough
removes it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from emulator_runtime.domain.clock import Clock


class OwnTime(threading.local):
    """The clock without the lag of the program's waits and of the emulator's own calls. CPU time between two calls belongs to the
    program and always counts. Each thread has its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lag_ns = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[int]:
        """A call of the emulator, which takes none of the program's time. Gives the program's time."""
        entered = self._clock.now_ns()
        yield entered - self.lag_ns
        self.lag_ns += self._clock.now_ns() - entered

    def wait_until_ns(self, end_ns: int) -> None:
        """Wait until work ends that may have ended already. Raises LateError on a strict clock."""
        now = self._clock.now_ns()
        resumed = max(end_ns, now - self.lag_ns)
        if end_ns > now:
            self._clock.wait_until_ns(end_ns)
        self.lag_ns = self._clock.now_ns() - resumed
