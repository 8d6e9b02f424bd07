"""The demands that devices were serving when the manager was killed, so that they are not served again from the beginning.

Modes that serve one job after the other answer a demand when it begins, and answers are kept (shared_time.py). Where all are
served at once, a demand is answered when it ends. Between two events (a demand begins, is answered or ends) every session is
served at a constant rate, so it is enough to know what was left of each demand at an event: from there on, repeated demands give
the same decisions. All that is left at one event is a *cut*:

    slot of the device              number of the cut, its time
    slots of the sessions, x 2      number of the demand, time of the cut, the same plus the work that is left

Cuts use the sessions' two slots in turn, and a cut counts when the device's slot names it: a kill between two stores leaves the
cut before it. A cut costs a store for each session, so there are at least CUT_NS between two: what happened in the last CUT_NS
before a kill is decided anew, as if the demands that were answered in this time had not been there.
"""

from __future__ import annotations

from collections.abc import Iterable

from emulator_runtime.domain.lease import Lease
from sharing_manager.persistence.lease_book import LeaseBook
from sharing_manager.persistence.slot_names import device_slot, slot_of

CUT_NS = 10_000_000
"""The shortest time between two cuts of a device (emulated nanoseconds)."""


class HalfServedBook:
    """Keeps the last cut of each device in `book`."""

    def __init__(self, book: LeaseBook) -> None:
        self._book = book
        slots = book.leases()
        self._cuts = {slot: cut for slot, cut in slots.items() if slot == device_slot(slot)}
        self._restored_cuts = dict(self._cuts)
        self._restored = {slot: state for slot, state in slots.items() if slot not in self._cuts}
        """What sessions had left before the restart, as long as they haven't come back."""

    def cut_ns(self, uuid: str) -> int:
        """When the device's last cut was; 0: never."""
        cut = self._cuts.get(slot_of(uuid)) if self._cuts else None
        return 0 if cut is None else cut[1].start_ns

    def save(self, uuid: str, at_ns: int, left: Iterable[tuple[str, str, int, int]]) -> None:
        """Replace the cut by one at `at_ns`. `left`: digest of the grant, name of the session, number of its demand, and the work
        that is left of it. Raises ClusterError if the disk is full."""
        number = self._cuts.get(slot_of(uuid), (0,))[0] + 1
        for digest, name, sequence, left_ns in left:
            slot = slot_of(f"{number % 2} {uuid}", digest, name)
            self._restored.pop(slot, None)
            self._book.record(slot, sequence, Lease(at_ns, at_ns + left_ns))
        cut = self._cuts[slot_of(uuid)] = number, Lease(at_ns, at_ns)
        self._book.record(slot_of(uuid), *cut)

    def resume(self, uuid: str, digest: str, name: str, sequence: int) -> int | None:
        """What was left of this demand at the device's last cut before the restart; None: it had not begun. Later calls return
        None."""
        if not self._restored:
            return None
        number, at = self._restored_cuts.get(slot_of(uuid), (0, None))
        state = self._restored.pop(slot_of(f"{number % 2} {uuid}", digest, name), None)
        if at is None or state is None or state[0] != sequence or state[1].start_ns != at.start_ns:
            return None
        return state[1].end_ns - state[1].start_ns

    def forget(self, uuid: str, digest: str, name: str) -> None:
        """The session's demands are numbered from anew, if there are any."""
        for turn in range(2):
            slot = slot_of(f"{turn} {uuid}", digest, name)
            self._restored.pop(slot, None)
            self._book.forget(slot)

    def forget_restored(self) -> None:
        """Those that haven't come back have ended."""
        for slot in self._restored:
            self._book.forget(slot)
        self._restored.clear()
