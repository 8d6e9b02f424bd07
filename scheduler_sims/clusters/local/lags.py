"""How late a local cluster was: starts and step ends against their deadlines, from all job processes."""

from __future__ import annotations

from emulator_runtime.ipc.frames import Message
from emulator_runtime.timing.lag import LagHistogram
from scheduler_sims.record import LagAccount


class Lags:
    """Collects the reports of ended runs."""

    def __init__(self) -> None:
        self._histograms = {"start": LagHistogram(), "step": LagHistogram()}

    def add_report(self, message: Message) -> None:
        """A job process's `ended` message."""
        self._histograms["start"].add(int(message["start_lag_ns"]))
        self._histograms["step"].merge(LagHistogram.from_json(message["lags"]))

    def accounts(self) -> dict[str, LagAccount]:
        return {kind: LagAccount.of(lags) for kind, lags in self._histograms.items() if lags.count}
