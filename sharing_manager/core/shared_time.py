"""Time that processes demand: of devices that several holders share, of a holder's device that several of its
processes use, and of what the jobs of a node share beside devices (devices/host_resources.py).

A demand names one device. It is answered by a piece of time once the device's engine has decided (emulator_runtime.sharing):
decisions follow the times that demands state, not the order in which they arrive. A process should queue its next demand while
the present one is served; otherwise others always come first.

The processes of one grant take turns within its part of a device (lane.py).
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable
from typing import NamedTuple

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import ClusterError, ProtocolError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.units import MAX_UNIT_NS, to_s
from emulator_runtime.sharing.demands import Answer, Demand, Piece
from sharing_manager.core.half_served import CUT_NS, HalfServedCuts
from sharing_manager.core.lane import Lane
from sharing_manager.devices.pool import DevicePool, Served
from sharing_manager.grants.grant import Grant
from sharing_manager.grants.session import Session
from sharing_manager.persistence.interval_keys import device_key, device_part, grant_part, key_of
from sharing_manager.persistence.interval_table import IntervalTable

_NOT_ANSWERED = -1, Lease(0, 0)
MAX_NUMBER = 2**62
_MANY_DUES = 64
_RESTORED = ""
"""The holder of a piece from before a restart."""
_log = logging.getLogger("sharing_manager")


class Decision(NamedTuple):
    """An engine's answer to a demand of `session` for the device `uuid`; its sequence is the session's number."""

    session: Session
    uuid: str
    answer: Answer


class SharedTime:
    """Decides up to the time that `decide` is given.

    `pieces` keeps the last piece of each session on each device, so that a repeated demand gets the same answer; a device isn't
    free before the last one of them ends. For sessions that have ended, the device's own entry says how long they used it.
    `half_served` keeps what was done of the demands that aren't answered. All this also after a restart.
    """

    def __init__(self, pool: DevicePool, clock: Clock, pieces: IntervalTable, half_served: IntervalTable) -> None:
        self._pool, self._clock, self._pieces = pool, clock, pieces
        self._half_served = HalfServedCuts(half_served)
        self._last = dict(pieces.intervals())
        self._work_ns: dict[str, int] = {}
        """The work of these pieces. It isn't stored: after a restart it is that of the repeated demand."""
        self._asked = {key: number for key, (number, _) in self._last.items()}
        """The number of the last demand of each session for each device."""
        self._lanes: dict[tuple[str, str], Lane] = {}
        """By UUID and holder: what holders demand of the devices that they use."""
        self._in_use: dict[str, Served] = {}
        """By UUID: the devices whose engines have holders."""
        self._dues: dict[str, int] = {}
        """By UUID: when these engines decide next, if they have something to decide."""
        self._due_heap: list[tuple[int, str]] = []
        """What was put into `_dues`; an entry that isn't there any more is dropped late."""
        self._ends_after: dict[Session, int] = {}
        """The number of the last demand that is answered, because the run is to stop."""
        self._undelivered: list[Decision] = []
        self._unclaimed = {key for key in self._last if key != device_key(key)}
        self._restored: set[str] = set()
        """UUIDs of the devices whose pieces from before the restart are booked."""
        self.restore()

    def restore(self) -> None:
        """Book the pieces from before the restart, of devices that the pool hadn't until now."""
        for device in self._pool.all():
            if device.name not in self._restored:
                self._restored.add(device.name)
                if end_ns := self._last_of(device_part(key_of(device.name))).end_ns:
                    device.book(_RESTORED, end_ns)

    def demand(self, session: Session, uuid: str, wanted: Demand, now_ns: int) -> None:
        """Queue a demand of an attached session. A repeated one is answered again, or replaces the one that waits; one that comes
        after a stop, or with a lower number than the last one, isn't answered. It is ready when the last piece has ended, at the
        earliest.

        Raises ProtocolError for work that is too long or ready too far ahead, and a number before that of the last answer.
        """
        self._pool.check_length(uuid, wanted.work_ns)
        _check_ahead(wanted, now_ns)
        key = _key(session, uuid)
        number, last = self._last.get(key, _NOT_ANSWERED)
        if wanted.sequence > self._ends_after.get(session, wanted.sequence) and uuid in session.uuids:
            return
        if wanted.sequence == number:
            piece = Piece(last.start_ns, last.end_ns, self._work_ns.get(key, wanted.work_ns))
            self._undelivered.append(Decision(session, uuid, Answer(session.key, number, last.start_ns, piece)))
        elif wanted.sequence < number:
            raise ProtocolError(f"demand {wanted.sequence} is out of order: demand {number} has been answered")
        elif wanted.sequence >= self._asked.get(key, 0):  # a lower one is being served, or has been replaced
            lane = self._lane(session.grant, uuid)
            left_ns = self._half_served.resume(uuid, session.grant.digest, session.name, wanted.sequence)
            if left_ns is not None:
                lane.resumed[session] = wanted.sequence, left_ns
            if wanted.sequence != self._asked.get(key) or not lane.serves(session):
                late = wanted.ready_ns < last.end_ns
                lane.put(session, wanted._replace(ready_ns=last.end_ns) if late else wanted)
                self._asked[key] = wanted.sequence
                self._note_due(lane.device)

    def knows(self, grant: Grant, name: str) -> bool:
        """Whether the grant's present run has demanded time of this device or resource."""
        return (name, grant.holder) in self._lanes

    def rebooked(self, uuids: Iterable[str]) -> None:
        """What is booked of these devices has changed, and with it, maybe, when their engines decide next."""
        for uuid in uuids:
            if (device := self._in_use.get(uuid)) is not None:
                self._note_due(device)

    def stop(self, session: Session) -> int:
        """The run is to stop after the step that is being served: take back the demands for the next one, which no device has
        begun. Returns the number of the last demand that is answered; -1: none. A second call has no effect.

        All demands of a further process are answered: it knows where its step ends, and ends by itself.
        """
        if session.name:
            return MAX_NUMBER
        last, waiting = -1, []
        for uuid in session.uuids:
            number = self._asked.get(_key(session, uuid), -1)
            lane = self._lanes.get((uuid, session.grant.holder))
            if lane is not None and lane.waits(session):
                waiting.append((lane, number))
                number -= 1
            last = max(last, number)
        for lane, number in waiting:
            if number > last:
                lane.drop(session)
                self._note_due(lane.device)
        return self._ends_after.setdefault(session, last)

    def claim(self, session: Session) -> None:
        """The session is known again after a restart."""
        self._unclaimed.difference_update(_key(session, name) for name in self._names(session.uuids))

    def forget_unclaimed(self) -> None:
        """The processes from before the restart that haven't come back have ended."""
        for key in self._unclaimed:
            self._forget_piece(key, MAX_NUMBER)
        self._unclaimed.clear()
        self._half_served.forget_restored()

    def leave(self, grant: Grant) -> None:
        """The grant's run has ended: what devices would do for it after now isn't done, and its next run numbers its demands
        from anew."""
        now_ns = self._clock.now_ns()
        for uuid in self._names(grant.uuids):
            self._leave_device(grant, uuid, now_ns)
            part = grant_part(key_of(uuid, grant.digest))
            for key in [key for key in self._unclaimed if key.startswith(part)]:
                self._unclaimed.discard(key)
                self._forget_piece(key, now_ns)
        for session in grant.sessions:
            self._forget(session, now_ns)

    def leave_session(self, session: Session) -> None:
        """A process has ended, and with it what devices would do for it after now; other processes of the grant go on."""
        now_ns, grant = self._clock.now_ns(), session.grant
        for uuid in self._names(session.uuids):
            lane = self._lanes.get((uuid, grant.holder))
            if lane is not None:
                lane.drop(session)
            works = lane is not None and (lane.serves(session) or self._piece_of(session, uuid).end_ns > now_ns)
            if works:
                self._leave_device(grant, uuid, now_ns)
            if self._end_ns(session, uuid) > now_ns:
                self._pool.cut(grant.holder, (uuid,), now_ns)
                self._forget_piece(_key(session, uuid), now_ns)
                others_ns = max([0, *(self._end_ns(other, uuid) for other in grant.sessions if other is not session)])
                device = self._pool.find(uuid)
                if device is not None and others_ns > now_ns:  # what others were given stays
                    device.book(grant.holder, others_ns)
            if works and lane is not None and lane.waiting:
                self._lane(grant, uuid).take_over(lane)
            self.rebooked((uuid,))
        self._forget(session, now_ns)

    def next_ns(self) -> int | None:
        """When `decide` has something to do; None: not before another demand."""
        if self._undelivered:
            return self._undelivered[0].answer.decided_ns
        due = self._next_device()
        return None if due is None else due[0]

    def decide(self, until_ns: int) -> list[Decision]:
        """All decisions that are due by `until_ns`."""
        now_ns = self._clock.now_ns()
        while (due := self._next_device()) is not None and due[0] <= until_ns:
            self._decide(self._in_use[due[1]], due[0], now_ns)
        decided, self._undelivered = self._undelivered, []
        return decided

    def _next_device(self) -> tuple[int, str] | None:
        """Which device decides next, and when."""
        heap = self._due_heap
        while heap and self._dues.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _note_due(self, device: Served) -> None:
        """The device's engine has other demands than before."""
        uuid, due_ns = device.name, device.engine.next_ns()
        if due_ns is None or uuid not in self._in_use:
            self._dues.pop(uuid, None)
        elif self._dues.get(uuid) != due_ns:
            self._dues[uuid] = due_ns
            heapq.heappush(self._due_heap, (due_ns, uuid))
            if len(self._due_heap) > _MANY_DUES * len(self._dues):  # a job may replace its demand again and again
                self._due_heap = [(due_ns, uuid) for uuid, due_ns in self._dues.items()]
                heapq.heapify(self._due_heap)

    def _decide(self, device: Served, until_ns: int, now_ns: int) -> None:
        uuid = device.name
        answers = device.engine.advance(until_ns)
        self._cut(device, until_ns - CUT_NS)  # before the answers are kept: a demand is in the cut, or has its answer
        for given in answers:
            lane = self._lanes[uuid, given.session]
            session, answer = lane.answered(given)
            lane.feed()
            piece = answer.piece
            lease = Lease(piece.start_ns, piece.end_ns)
            key = _key(session, uuid)
            self._record(key, answer.sequence, lease)
            self._work_ns[key] = piece.work_ns
            if uuid not in self._pool.resources:
                lane.grant.leased_ns += piece.work_ns
                self._pool.book(lane.grant.holder, uuid, lease, now_ns, work_ns=piece.work_ns)
            self._undelivered.append(Decision(session, uuid, answer))
        self._note_due(device)

    def _cut(self, device: Served, before_ns: int = MAX_NUMBER) -> None:
        """Keep what is left of the demands that the device is serving, unless there is a cut after `before_ns`."""
        uuid = device.name
        cut_ns = self._half_served.cut_ns(uuid)
        state = device.engine.half_served() if cut_ns <= before_ns else None
        if state is None or state.at_ns <= cut_ns:
            return
        left = []
        for holder, (number, left_ns) in state.left.items():
            begun = self._lanes[uuid, holder].begun.get(number)
            if begun is not None:  # otherwise it has been answered and ends within a millisecond
                session, demand = begun
                left.append((session.grant.digest, session.name, demand.sequence, left_ns))
        try:
            self._half_served.save(uuid, state.at_ns, left)
        except ClusterError as error:
            _log.warning("after a restart, work will be served again: %s", error)

    def _lane(self, grant: Grant, uuid: str) -> Lane:
        """The grant's demands for the device; its engine knows the grant from now on. Raises ProtocolError."""
        device = self._pool.served(uuid)
        if device is None:
            raise ProtocolError(f"field 'resource': there is no device {uuid} on this node")
        self._in_use[uuid] = device
        lane = self._lanes.get((uuid, grant.holder))
        if lane is None:
            key = key_of(uuid, grant.digest)
            device.engine.join(device.session_of(grant.holder, grant.terms_of(uuid, device.replicas)))
            end_ns, begins_ns = self._last_of(grant_part(key)).end_ns, self._half_served.cut_ns(uuid)
            lane = self._lanes[uuid, grant.holder] = Lane(grant, device, end_ns=end_ns, begins_ns=begins_ns)
        return lane

    def _names(self, uuids: tuple[str, ...]) -> tuple[str, ...]:
        """What a job with these devices may have demanded: them, and what the node's jobs share beside devices."""
        return (*uuids, *self._pool.resources)

    def _last_of(self, part: str) -> Lease:
        """The piece that ends last, of those whose keys begin with this."""
        pieces = [lease for key, (_, lease) in self._last.items() if key.startswith(part)]
        return max(pieces, key=lambda lease: lease.end_ns, default=Lease(0, 0))

    def _leave_device(self, grant: Grant, uuid: str, now_ns: int) -> None:
        """The engine forgets the grant, after it has decided what was due before now."""
        lane = self._lanes.get((uuid, grant.holder))
        if lane is None:
            return
        engine = lane.device.engine
        lane.take_back()
        lane.closed = True
        while (due_ns := engine.next_ns()) is not None and due_ns < now_ns:
            self._decide(lane.device, due_ns, now_ns)
        self._decide(lane.device, now_ns - 1, now_ns)
        del self._lanes[uuid, grant.holder]
        engine.leave(grant.holder, now_ns)
        self._cut(lane.device)
        if not engine.in_use:
            self._in_use.pop(uuid, None)
            lane.device.settle()
        self._note_due(lane.device)

    def _end_ns(self, session: Session, uuid: str) -> int:
        """Until when the device works for the session: its last piece, or what it has reported."""
        return max(self._piece_of(session, uuid).end_ns, session.used_until_ns.get(uuid, 0))

    def _piece_of(self, session: Session, uuid: str) -> Lease:
        """The last piece of the session on this device."""
        return self._last.get(_key(session, uuid), _NOT_ANSWERED)[1]

    def _forget(self, session: Session, now_ns: int) -> None:
        self._ends_after.pop(session, None)
        session.used_until_ns.clear()
        self._undelivered = [decision for decision in self._undelivered if decision.session is not session]
        for uuid in self._names(session.uuids):
            self._forget_piece(_key(session, uuid), now_ns)
            self._half_served.forget(uuid, session.grant.digest, session.name)
            self._cut_restored(uuid, now_ns)

    def _cut_restored(self, uuid: str, now_ns: int) -> None:
        """The device is free now, if only sessions that have ended had it since the restart."""
        device = self._pool.find(uuid)
        if device is None or _RESTORED not in device.bookings.until_ns:
            return
        if self._last_of(device_part(key_of(uuid))).end_ns <= now_ns:
            device.cut(_RESTORED, now_ns)
            self.rebooked((uuid,))

    def _record(self, key: str, number: int, lease: Lease) -> None:
        """In memory at least: a full disk must not stop the jobs of the node."""
        self._last[key] = number, lease
        try:
            self._pieces.record(key, number, lease)
        except ClusterError as error:
            _log.warning("a restart will not know all device time: %s", error)

    def _forget_piece(self, key: str, now_ns: int) -> None:
        """The session has ended, and with it what the device would do for it after now."""
        self._asked.pop(key, None)
        self._work_ns.pop(key, None)
        found = self._last.pop(key, None)
        if found is None:
            return
        last, of_device = found[1], device_key(key)
        free_ns = min(last.end_ns, now_ns)
        if free_ns > self._last.get(of_device, _NOT_ANSWERED)[1].end_ns:
            self._record(of_device, 0, Lease(min(last.start_ns, free_ns), free_ns))
        self._pieces.forget(key)


def _check_ahead(wanted: Demand, now_ns: int) -> None:
    ahead_ns = wanted.ready_ns - now_ns
    if ahead_ns > MAX_UNIT_NS:
        limit_s = to_s(MAX_UNIT_NS)
        raise ProtocolError(
            f"demand {wanted.sequence} is ready in {to_s(ahead_ns):g} s; demand at most {limit_s:g} s ahead"
        )


def _key(session: Session, uuid: str) -> str:
    """The key of the last piece of a session on a device."""
    return key_of(uuid, session.grant.digest, session.name)
