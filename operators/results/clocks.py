"""By how much a node's wall clock is ahead of the operator's: measured over HTTP, used to put events of several nodes in order.

A node's manager says in each HTTP answer what second it is (RFC 9110, section 6.6.1: Date). Asked at well-chosen moments,
whole seconds tell much more: each answer bounds the offset from both sides, and asking where the next second is expected
to begin halves what is left. Ten questions leave a millisecond and the round trip. No change to the node is needed for it.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from emulator_runtime.domain.errors import EmuGpuError, ProtocolError
from emulator_runtime.domain.units import NS_PER_S

FLAG_NS = 50_000_000
"""An offset above this is told with every result that it was used for: it is a quarter of a typical step."""
DRIFT_PER_S = 20_000
"""By how many nanoseconds a second a measurement loses its worth: clocks that NTP keeps drift apart by up to 20 ppm."""
_QUESTIONS = 12
_ENOUGH_NS = 2_000_000
_UNREACHABLE = "look whether its pod runs and whether EMUGPU_MANAGER_METRICS_PORT is open to the operator"


class ClockUnknownError(EmuGpuError):
    """A node didn't say what time it is; it may later."""

    code = "clock-unknown"
    retry_helps = True


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """At `measured_ns` (operator's wall clock) the node's was `ahead_ns` ahead, give or take `uncertain_ns`."""

    node: str
    measured_ns: int
    ahead_ns: int
    uncertain_ns: int

    def worth_ns(self, at_ns: int) -> int:
        """How wrong it may be at another moment."""
        return self.uncertain_ns + abs(at_ns - self.measured_ns) * DRIFT_PER_S // NS_PER_S


class Clocks:
    """The offsets of all nodes. The order in which they are given makes no difference."""

    def __init__(self, offsets: Iterable[ClockOffset] = ()) -> None:
        self._of: dict[str, list[ClockOffset]] = {}
        for offset in offsets:
            self._of.setdefault(offset.node, []).append(offset)

    def offset(self, node: str, at_ns: int) -> ClockOffset | None:
        """The measurement that is believed for this moment; None: this node's clock was never measured."""
        known = self._of.get(node, ())
        return min(known, key=lambda o: (o.worth_ns(at_ns), o.measured_ns, o.ahead_ns), default=None)

    def corrected_ns(self, node: str, wall_ns: int) -> int:
        """What the operator's clock showed when the node's showed `wall_ns`; as it is where nothing was measured."""
        offset = self.offset(node, wall_ns)
        return wall_ns - (offset.ahead_ns if offset is not None else 0)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The node's clock is ahead by at least `least_ns` and at most `most_ns`."""

    least_ns: int
    most_ns: int

    @classmethod
    def of(cls, sent_ns: int, second: int, received_ns: int) -> Bounds:
        """Between sending and receiving, the node's clock showed some moment of `second`."""
        return cls(second * NS_PER_S - received_ns, (second + 1) * NS_PER_S - sent_ns)

    def and_also(self, other: Bounds) -> Bounds | None:
        """None: they contradict each other, so one of the clocks was set in between."""
        both = Bounds(max(self.least_ns, other.least_ns), min(self.most_ns, other.most_ns))
        return both if both.least_ns <= both.most_ns else None

    @property
    def middle_ns(self) -> int:
        return (self.least_ns + self.most_ns) // 2

    @property
    def best(self) -> tuple[int, int]:
        """Which offset to believe, and how wrong that may be. None, if that is possible: clocks are kept, and a correction by
        half of what isn't known would move apart what was together."""
        if self.least_ns <= 0 <= self.most_ns:
            return 0, max(-self.least_ns, self.most_ns)
        return self.middle_ns, -(-self.width_ns // 2)

    @property
    def width_ns(self) -> int:
        return self.most_ns - self.least_ns

    def ask_at_ns(self, now_ns: int) -> int:
        """The next moment from `now_ns` on at which a second begins on the node if the offset is in the middle."""
        return now_ns + (-(now_ns + self.middle_ns)) % NS_PER_S


def measure(
    node: str, ask: Callable[[], int], now_ns: Callable[[], int], sleep_ns: Callable[[int], None]
) -> ClockOffset:
    """`ask` answers the node's second since 1970. Takes up to `_QUESTIONS` seconds. Raises what `ask` raises, and
    ClockUnknownError where a clock was set meanwhile or answers took too long to tell anything."""
    bounds = _ask(ask, now_ns)
    trip_ns = 0
    for _ in range(_QUESTIONS):
        if bounds.width_ns <= 2 * (trip_ns + _ENOUGH_NS):
            break
        sleep_ns(max(0, bounds.ask_at_ns(now_ns()) - trip_ns // 2 - now_ns()))
        begun_ns = now_ns()
        narrower = bounds.and_also(_ask(ask, now_ns))
        trip_ns = now_ns() - begun_ns
        if narrower is None:
            raise ClockUnknownError(
                f"node {node}: its clock or the operator's was set while it was measured; try again"
            )
        bounds = narrower
    offset = ClockOffset(node, now_ns(), *bounds.best)
    if bounds.width_ns > 2 * FLAG_NS:
        rough = f"its clock can't be measured better than +-{bounds.width_ns / 2e6:.0f} ms"
        raise ClockUnknownError(f"node {node}: {rough}; its manager answers too slowly, try again")
    return offset


def _ask(ask: Callable[[], int], now_ns: Callable[[], int]) -> Bounds:
    sent_ns = now_ns()
    second = ask()
    return Bounds.of(sent_ns, second, now_ns())


def second_of(node: str, host: str, port: int, timeout_s: float = 2.0) -> int:
    """What second since 1970 the manager's HTTP server says it is. Raises ClockUnknownError, ProtocolError."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", "/healthz")
        date = connection.getresponse().getheader("Date", "")
    except (OSError, http.client.HTTPException) as error:
        problem = f"can't be asked for its time at {host}:{port} ({error or type(error).__name__}); {_UNREACHABLE}"
        raise ClockUnknownError(f"node {node}: {problem}") from error
    finally:
        connection.close()
    try:
        return int(parsedate_to_datetime(date).timestamp())
    except ValueError as error:
        raise ProtocolError(f"node {node}: {host}:{port} answers Date {date!r}, which is no HTTP date") from error
