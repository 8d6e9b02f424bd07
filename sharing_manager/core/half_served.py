"""The demands that devices were serving when the manager was killed, so that they are not served again from the beginning.

Modes that serve one job after the other answer a demand when it begins, and answers are kept (shared_time.py). Where all are
served at once, a demand is answered when it ends. Between two events (a demand begins, is answered or ends) every session is
served at a constant rate, so it is enough to know what was left of each demand at an event: from there on, repeated demands give
the same decisions. All that is left at one event is a *cut*:

    entry of the device             number of the cut, its time
    entries of the sessions, x 2    number of the demand, time of the cut, the same plus the work that is left

Cuts use the sessions' two entries in turn, and a cut counts when the device's entry names it: a kill between two stores leaves
the cut before it. A cut costs a store for each session, so there are at least CUT_NS between two: what happened in the last
CUT_NS before a kill is decided anew, as if the demands that were answered in this time had not been there.
"""

from __future__ import annotations

from collections.abc import Iterable

from emulator_runtime.domain.lease import Lease
from sharing_manager.persistence.interval_keys import device_key, key_of
from sharing_manager.persistence.interval_table import IntervalTable

CUT_NS = 10_000_000
"""The shortest time between two cuts of a device (emulated nanoseconds)."""


class HalfServedCuts:
    """Keeps the last cut of each device in `table`."""

    def __init__(self, table: IntervalTable) -> None:
        self._table = table
        intervals = table.intervals()
        self._cuts = {key: cut for key, cut in intervals.items() if key == device_key(key)}
        self._restored_cuts = dict(self._cuts)
        self._restored = {key: state for key, state in intervals.items() if key not in self._cuts}
        """What sessions had left before the restart, as long as they haven't come back."""

    def cut_ns(self, uuid: str) -> int:
        """When the device's last cut was; 0: never."""
        cut = self._cuts.get(key_of(uuid)) if self._cuts else None
        return 0 if cut is None else cut[1].start_ns

    def save(self, uuid: str, at_ns: int, left: Iterable[tuple[str, str, int, int]]) -> None:
        """Replace the cut by one at `at_ns`. `left`: digest of the grant, name of the session, number of its demand, and the work
        that is left of it. Raises ClusterError if the disk is full."""
        number = self._cuts.get(key_of(uuid), (0,))[0] + 1
        for digest, name, sequence, left_ns in left:
            key = key_of(f"{number % 2} {uuid}", digest, name)
            self._restored.pop(key, None)
            self._table.record(key, sequence, Lease(at_ns, at_ns + left_ns))
        cut = self._cuts[key_of(uuid)] = number, Lease(at_ns, at_ns)
        self._table.record(key_of(uuid), *cut)

    def resume(self, uuid: str, digest: str, name: str, sequence: int) -> int | None:
        """What was left of this demand at the device's last cut before the restart; None: it had not begun. Later calls return
        None."""
        if not self._restored:
            return None
        number, at = self._restored_cuts.get(key_of(uuid), (0, None))
        state = self._restored.pop(key_of(f"{number % 2} {uuid}", digest, name), None)
        if at is None or state is None or state[0] != sequence or state[1].start_ns != at.start_ns:
            return None
        return state[1].end_ns - state[1].start_ns

    def forget(self, uuid: str, digest: str, name: str) -> None:
        """The session's demands are numbered from anew, if there are any."""
        for turn in range(2):
            key = key_of(f"{turn} {uuid}", digest, name)
            self._restored.pop(key, None)
            self._table.forget(key)

    def forget_restored(self) -> None:
        """Those that haven't come back have ended."""
        for key in self._restored:
            self._table.forget(key)
        self._restored.clear()
