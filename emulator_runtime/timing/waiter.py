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

Lag p50 / p99 and CPU time of one wait of 5 ms, microseconds, on a virtual machine with 2 cores:

| wait | idle: lag | idle: CPU | 8 busy: lag | 8 busy: CPU |
|---|---|---|---|---|
| plain `time.sleep` | 105 / 335 | 38 | 76 / 7,170 | 15 |
| spin 0             | 59 / 234  | 44 | 29 / 74 | 20 |
| spin 300           | 0.6 / 73  | 121 | 0.6 / 15 | 52 |

So a wait burns some 80 us more than without spinning where cores are idle, which nobody misses, and 30 us where they are
short: 0.2% of a core for steps of 20 ms. It holds the interpreter's lock while it spins. 50 is enough for p50 alone.
"""

_STEP_SHARE = 8
_STEP_FLOOR_NS = 1_000
_DOWN_SHARE = 199  # 199 small steps down balance one step up: the margin settles where 1 sleep of 200 ends later


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
        """Follow the 99.5th percentile of the oversleeps that a spin can cover (a stochastic quantile estimate)."""
        step = self._margin_ns // _STEP_SHARE + _STEP_FLOOR_NS
        if self._margin_ns < oversleep_ns <= self._spin_ns:
            self._margin_ns = min(self._spin_ns, self._margin_ns + step)
        else:
            self._margin_ns = max(0, self._margin_ns - step // _DOWN_SHARE)
