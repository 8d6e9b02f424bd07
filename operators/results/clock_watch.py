"""Measures the clocks of all nodes now and then, in threads of its own: a measurement waits for seconds to begin."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from operators.results.clocks import ClockOffset, measure, second_of

EVERY_S = 300.0
"""Between two rounds (host seconds): at 20 ppm clocks drift apart by 6 ms meanwhile."""
NOBODY_S = 5.0
"""And where there was nobody to ask: nodes may not have been listed yet."""
AT_ONCE = 8
"""So many nodes at a time: each takes up to 12 s, nearly all of it waiting. More would disturb each other, for clocks that are
kept are all asked at the same moments."""

Addresses = Callable[[], Mapping[str, tuple[str, int]]]
"""Node -> host and metrics port of its manager, as they are now; called in the watch's thread."""
Ask = Callable[[str, str, int], int]


class ClockWatch:
    """Its thread runs from `start` to `stop`. `note` is told of each measurement there; what it raises of ours is told."""

    def __init__(
        self,
        addresses: Addresses,
        note: Callable[[ClockOffset], None],
        now_ns: Callable[[], int],
        *,
        every_s: float = EVERY_S,
        ask: Ask = second_of,
        at_once: int = AT_ONCE,
    ) -> None:
        self._addresses, self._note, self._now_ns = addresses, note, now_ns
        self._every_s, self._ask, self._at_once = every_s, ask, at_once
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emugpu-clocks", daemon=True)
        self._troubles: dict[str, str] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Twice is once."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def round(self) -> bool:
        """Measure each node once; one that can't be asked holds up no other and is told of once. False: there is none."""
        addresses = sorted(self._addresses().items())
        if not addresses:
            return False
        with ThreadPoolExecutor(self._at_once, "emugpu-clock") as threads:
            for (node, _), found in zip(addresses, threads.map(self._measured, addresses), strict=True):
                self._take(node, found)
        return True

    def _measured(self, of: tuple[str, tuple[str, int]]) -> ClockOffset | EmuGpuError | None:
        """In one of the threads; None: there was no time."""
        node, (host, port) = of
        if self._stopping.is_set():
            return None
        try:
            return measure(node, partial(self._ask, node, host, port), self._now_ns, self._sleep)
        except EmuGpuError as error:
            return None if self._stopping.is_set() else error

    def _take(self, node: str, found: ClockOffset | EmuGpuError | None) -> None:
        try:
            if isinstance(found, EmuGpuError):
                raise found
            if found is not None:
                self._note(found)
                self._troubles.pop(node, None)
        except EmuGpuError as error:
            self._tell(node, error)

    def _run(self) -> None:
        while not self._stopping.is_set():
            asked = True
            try:
                asked = self.round()
            except (
                Exception
            ) as error:  # the thread must outlive a list of nodes that can't be had, or a disk that is full
                self._tell("", error)
            self._stopping.wait(self._every_s if asked else min(NOBODY_S, self._every_s))

    def _sleep(self, duration_ns: int) -> None:
        self._stopping.wait(duration_ns / NS_PER_S)

    def _tell(self, node: str, error: Exception) -> None:
        if self._troubles.get(node) != str(error):
            self._troubles[node] = str(error)
            print(f"clocks: {error}", file=sys.stderr, flush=True)
