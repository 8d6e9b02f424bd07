"""Precise waiting until a time of the host's clock: sleep until shortly before it, then spin for the rest.

How early the sleep must end is learned from how late the previous sleeps ended, because this differs by a factor of ten
between hosts (bare metal 5 us, a virtual machine 50 us, an idle core in a deep sleep state 150 us).
"""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

DEFAULT_SPIN_NS = 300_000
"""The longest time that one wait spins; chosen with `python -m tests.benchmarks wait_accuracy --spin-us 0,50,300`.

Lag p50 / p99 and CPU time of one wait of 5 ms, microseconds, on a virtual machine with 2 cores:

| wait | idle: lag | idle: CPU | 8 busy: lag | 8 busy: CPU |
|---|---|---|---|---|
| plain `time.sleep` | 105 / 335 | 38 | 76 / 7,170 | 15 |
| spin 0             | 59 / 234  | 44 | 29 / 74 | 20 |
| spin 300           | 0.6 / 73  | 121 | 0.6 / 15 | 52 |

Compared with no spinning, a wait uses some 80 us more CPU time if cores are idle, where it doesn't matter, and 30 us more if
they are busy: 0.2% of a core for steps of 20 ms. Spinning holds the interpreter's lock. 50 us are enough for a good p50.
"""

_STEP_SHARE = 8
_STEP_FLOOR_NS = 1_000
_DOWN_SHARE = 199  # a step down is 1/199 of a step up: in balance, 1 of 200 sleeps ends later than the margin allows


class Waiter:
    """Waits for one thread. `spin_ns` limits the CPU time that a wait spends on spinning; 0 means no spinning.

    A sleep that ends more than `spin_ns` late has waited for a free core. An earlier wake-up would not have helped, so
    the margin doesn't grow, which would load a busy host further.
    """

    def __init__(
        self,
        spin_ns: int = DEFAULT_SPIN_NS,
        now: Callable[[], int] = monotonic_ns,
        sleep: Callable[[int], None] = sleep_ns,
    ) -> None:
        if spin_ns < 0:
            raise InputError("spin_ns", f"must be >= 0, got {spin_ns}")
        self.now = now
        self._sleep = sleep
        self._spin_ns = spin_ns
        self.margin_ns = spin_ns // 4
        """How long before its deadline the next wait stops sleeping and starts to spin; at most `spin_ns`."""

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Wait until `deadline_ns` of the host's clock and return the lag in host nanoseconds (>= 0)."""
        now = self.now
        moment = now()
        while (remaining := deadline_ns - moment) > self.margin_ns:
            wake_at = deadline_ns - self.margin_ns
            self._sleep(remaining - self.margin_ns)
            moment = now()
            self._learn(moment - wake_at)
        while moment < deadline_ns:
            moment = now()
        return moment - deadline_ns

    def doze(self, duration_ns: int) -> None:
        """Sleep for about `duration_ns`; the caller then checks the time itself."""
        self._sleep(duration_ns)

    def _learn(self, oversleep_ns: int) -> None:
        """Move the margin towards the 99.5th percentile of the oversleeps below `spin_ns` (stochastic quantile estimate)."""
        step = self.margin_ns // _STEP_SHARE + _STEP_FLOOR_NS
        if self.margin_ns < oversleep_ns <= self._spin_ns:
            self.margin_ns = min(self._spin_ns, self.margin_ns + step)
        else:
            self.margin_ns = max(0, self.margin_ns - step // _DOWN_SHARE)
