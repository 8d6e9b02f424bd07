"""How late a local cluster was: starts, steps and stops against their deadlines."""

from __future__ import annotations

from emulator_runtime.ipc.frames import Message
from emulator_runtime.timing.lag import LagHistogram
from scheduler_sims.record import LagAccount


class Lags:
    """Collects the reports of ended runs, and the cluster's own delays."""

    def __init__(self) -> None:
        self._histograms = {kind: LagHistogram() for kind in ("start", "step", "stop")}

    def add_report(self, message: Message) -> None:
        """A job process's `ended` message."""
        self._histograms["start"].add(int(message["start_lag_ns"]))
        self._histograms["step"].merge(LagHistogram.from_json(message["lags"]))

    def add_stop(self, lag_ns: int) -> None:
        """A stop was delivered `lag_ns` after it was due."""
        self._histograms["stop"].add(lag_ns)

    def accounts(self) -> dict[str, LagAccount]:
        return {kind: LagAccount.of(lags) for kind, lags in self._histograms.items() if lags.count}
