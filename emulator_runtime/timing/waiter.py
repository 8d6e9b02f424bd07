"""Wait until a moment of the host's clock, precisely: sleep until a little before it, then spin the rest.

How much earlier than the deadline to wake is learnt from how late the last sleeps ended, because it differs by ten times
between hosts (a bare kernel 5 us, a virtual machine 50 us, an idle core's deep sleep 150 us).
"""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

DEFAULT_SPIN_NS = 300_000
"""The most that one wait spins; chosen from `python -m tests.benchmarks wait_accuracy --spin-us 0,50,300`.

Lag p50 and CPU time of one wait of 5 / 20 ms, microseconds, on a virtual machine with 2 cores (plain `time.sleep` idle: lag
92 / 104, CPU 22 / 34; with 8 busy processes: lag 3,600 / 3,800, CPU 9 / 10):

| spin | idle lag | idle CPU | 8 busy: lag | 8 busy: CPU |
|---|---|---|---|---|
| none | 45 / 59 | 26 / 40 | 26 / 27 | 18 / 19 |
| 50   | 0.4 / 12 | 31 / 40 | 0.5 / 0.5 | 21 / 24 |
| 300  | 0.4 / 0.8 | 82 / 99 | 0.5 / 0.5 | 22 / 24 |

Where cores are idle a wait burns some 60 us more than without spinning, which nobody misses. Where they are short sleeps end
more evenly, the margin shrinks, and spinning costs 5 us: 0.03% of a core for steps of 20 ms. It holds the interpreter's lock
while it spins. 50 is enough unless waits are so long that the core falls asleep more deeply.
"""

_STEP_SHARE = 8
_STEP_FLOOR_NS = 1_000
_DOWN_SHARE = 39  # 39 small steps down balance one step up: the margin settles where 1 sleep of 40 ends later


class Waiter:
    """Waits for one thread; `spin_ns` bounds the CPU time that a wait may burn, 0 never spins.

    A sleep that ends more than `spin_ns` late was waiting for a core. Waking earlier would not have helped, so the margin
    doesn't learn from it: an oversubscribed host is not loaded further.
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
        self._margin_ns = spin_ns // 4

    @property
    def margin_ns(self) -> int:
        """How long before its deadline the next wait stops sleeping; at most `spin_ns`."""
        return self._margin_ns

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Return at `deadline_ns` of the host's clock or later; the answer is the lag in host nanoseconds (>= 0)."""
        now = self.now
        moment = now()
        while (remaining := deadline_ns - moment) > self._margin_ns:
            wake_at = deadline_ns - self._margin_ns
            self._sleep(remaining - self._margin_ns)
            moment = now()
            self._learn(moment - wake_at)
        while moment < deadline_ns:
            moment = now()
        return moment - deadline_ns

    def doze(self, duration_ns: int) -> None:
        """Sleep about `duration_ns`, imprecisely; for a caller that looks again afterwards."""
        self._sleep(duration_ns)

    def _learn(self, oversleep_ns: int) -> None:
        """Follow the 97.5th percentile of the oversleeps that a spin can cover (a stochastic quantile estimate)."""
        step = self._margin_ns // _STEP_SHARE + _STEP_FLOOR_NS
        if self._margin_ns < oversleep_ns <= self._spin_ns:
            self._margin_ns = min(self._spin_ns, self._margin_ns + step)
        else:
            self._margin_ns = max(0, self._margin_ns - step // _DOWN_SHARE)
