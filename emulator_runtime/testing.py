"""Fakes for tests of what runs on an emulated GPU: no socket, no process, no host time.

manager = FakeManager(stop_at=3)
outcome = TrainingRun(order, ManualClock(), manager).run()
assert outcome.kind == "stopped" and manager.calls[-1] == ("release", 3)
"""

from __future__ import annotations

from collections.abc import Mapping

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.lease import Lease


class FakeManager:
    """A sharing manager with one device for one job; it keeps every call and every lease.

    `stop_at`: the step whose request is answered with stop. `busy_ns`: device time of others in front of each lease.
    `errors`: what the call of that name raises (`{"reserve": OutOfMemoryError("full")}`).
    """

    def __init__(
        self, *, stop_at: int | None = None, busy_ns: int = 0, errors: Mapping[str, EmuGpuError] | None = None
    ) -> None:
        self._stop_at = stop_at
        self._busy_ns = busy_ns
        self._errors = errors or {}
        self.calls: list[tuple[object, ...]] = []
        self.leases: list[Lease] = []

    def attach(self, steps_done: int) -> None:
        self._note("attach", steps_done)

    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None:
        self._note("reserve", persistent_bytes, peak_bytes)

    def lease(self, step: int, duration_ns: int, issue_ns: int) -> Lease:
        """Device time from `issue_ns` on, after what the device has been given before and after `busy_ns` of others."""
        self._note("lease", step, duration_ns, issue_ns)
        if step == self._stop_at:
            return Lease(issue_ns, issue_ns, stop=True)
        free_ns = self.leases[-1].end_ns if self.leases else 0
        start_ns = max(issue_ns, free_ns) + self._busy_ns
        self.leases.append(Lease(start_ns, start_ns + duration_ns))
        return self.leases[-1]

    def release(self, steps_done: int) -> None:
        self._note("release", steps_done)

    def finish(self, steps_done: int) -> None:
        self._note("finish", steps_done)

    def fail(self, reason: str) -> None:
        self._note("fail", reason)

    def _note(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self._errors:
            raise self._errors[name]
