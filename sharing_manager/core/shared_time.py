"""Device time of devices that several holders share: what they demand, and what the devices' engines decide.

A demand names one device. It is answered by a piece of time once the device's engine has decided (emulator_runtime.sharing):
decisions follow the times that demands state, not the order in which they arrive. A holder should queue its next demand while
the present one is served; otherwise others always come first.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import ClusterError, ProtocolError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.units import to_s
from emulator_runtime.sharing.demands import MAX_UNIT_NS, Answer, Demand, Piece
from sharing_manager.devices.pool import DevicePool, ManagedDevice
from sharing_manager.grants.grant import Grant
from sharing_manager.persistence.lease_book import LeaseBook

_NOT_ANSWERED = -1, Lease(0, 0)
_RESTORED = ""
"""The holder of a piece from before a restart."""
_log = logging.getLogger("sharing_manager")


@dataclass(frozen=True, slots=True)
class Decision:
    """An engine's answer to a demand of `grant` for the device `uuid`."""

    grant: Grant
    uuid: str
    answer: Answer


class SharedTime:
    """Decides up to the time that `decide` is given.

    `pieces` keeps the last piece of each holder on each device, so that a repeated demand gets the same answer, and the last
    one of each device, which isn't free before; both also after a restart.
    """

    def __init__(self, pool: DevicePool, clock: Clock, pieces: LeaseBook) -> None:
        self._pool, self._clock, self._pieces = pool, clock, pieces
        self._last = dict(pieces.leases())
        self._asked = {slot: number for slot, (number, _) in self._last.items()}
        """The number of the last demand of each holder for each device."""
        self._restored_ns = {slot: last.end_ns for slot, (_, last) in self._last.items()}
        """When the last piece before the restart ends, until its device is used again."""
        self._grants: dict[str, Grant] = {}
        """By holder: the grants whose holders have joined an engine."""
        self._in_use: dict[str, ManagedDevice] = {}
        """By UUID: the devices whose engines have sessions."""
        self._ends_after: dict[str, int] = {}
        """By holder: the number of the last demand that is answered, because the run is to stop."""
        self._undelivered: list[Decision] = []
        for device in pool.all():  # leases of older clients come after these pieces, too
            _, last = self._last.get(_slot("device", device.device.uuid), _NOT_ANSWERED)
            device.arbiter.occupy(_RESTORED, last.start_ns, last.end_ns)

    def demand(self, grant: Grant, uuid: str, wanted: Demand) -> None:
        """Queue a demand of an attached grant. A repeated one is answered again, or replaces the one that waits; one that comes
        after a stop isn't answered. It is ready when the last piece has ended, at the earliest.

        Raises ProtocolError for a device that isn't shared, work that is too long or ready too far ahead, and a number before
        that of the last answer.
        """
        device = self._shared_device(uuid)
        self._check(wanted)
        slot = _slot(grant.digest, uuid)
        number, last = self._last.get(slot, _NOT_ANSWERED)
        if wanted.sequence > self._ends_after.get(grant.holder, wanted.sequence):
            return
        if wanted.sequence == number:
            piece = Piece(last.start_ns, last.end_ns, wanted.work_ns)
            self._undelivered.append(Decision(grant, uuid, Answer(grant.holder, number, last.start_ns, piece)))
        elif wanted.sequence < number:
            raise ProtocolError(f"demand {wanted.sequence} is out of order: demand {number} has been answered")
        elif wanted.sequence != self._asked.get(slot) or not self._is_served(device, grant):
            self._join(device, grant)
            if device.engine.waits(grant.holder):
                device.engine.withdraw(grant.holder)
            device.engine.submit(replace(wanted, ready_ns=max(wanted.ready_ns, last.end_ns)))
            self._asked[slot] = wanted.sequence

    def stop(self, grant: Grant) -> int:
        """The grant's run is to stop after the step that is being served: take back the demands for the next one, which no
        device has begun. Returns the number of the last demand that is answered; -1: none. A second call has no effect."""
        last, waiting = -1, []
        for device in self._devices(grant):
            number = self._asked.get(_slot(grant.digest, device.device.uuid), -1)
            if device.engine.waits(grant.holder):
                waiting.append((device, number))
                number -= 1
            last = max(last, number)
        for device, number in waiting:
            if number > last:
                device.engine.withdraw(grant.holder)
        return self._ends_after.setdefault(grant.holder, last)

    def leave(self, grant: Grant) -> None:
        """The grant's run has ended: what devices would do for it after now isn't done, and its next run numbers its demands
        from anew."""
        now_ns = self._clock.now_ns()
        for device in self._devices(grant):
            if device.engine.uses(grant.holder):
                self._decide(device, now_ns - 1)
                device.engine.leave(grant.holder, now_ns)
                if not device.engine.in_use:
                    self._in_use.pop(device.device.uuid, None)
                    device.settle()
        self._undelivered = [decision for decision in self._undelivered if decision.grant is not grant]
        self._grants.pop(grant.holder, None)
        self._ends_after.pop(grant.holder, None)
        for uuid in grant.uuids:
            self._forget_piece(grant, uuid, now_ns)

    def next_ns(self) -> int | None:
        """When `decide` has something to do; None: not before another demand."""
        if self._undelivered:
            return self._undelivered[0].answer.decided_ns
        due = self._next_device()
        return None if due is None else due[0]

    def decide(self, until_ns: int) -> list[Decision]:
        """All decisions that are due by `until_ns`."""
        while (due := self._next_device()) is not None and due[0] <= until_ns:
            self._decide(self._in_use[due[1]], due[0])
        decided, self._undelivered = self._undelivered, []
        return decided

    def _next_device(self) -> tuple[int, str] | None:
        """Which device decides next, and when. (A node has a few shared devices, so no heap of them is kept.)"""
        times = ((device.engine.next_ns(), uuid) for uuid, device in self._in_use.items())
        return min(((due_ns, uuid) for due_ns, uuid in times if due_ns is not None), default=None)

    def _decide(self, device: ManagedDevice, until_ns: int) -> None:
        uuid = device.device.uuid
        for answer in device.engine.advance(until_ns):
            grant, piece = self._grants[answer.session], answer.piece
            lease = Lease(piece.start_ns, piece.end_ns)
            self._record(_slot(grant.digest, uuid), answer.sequence, lease)
            self._record(_slot("device", uuid), answer.sequence, lease)
            grant.leased_ns += piece.work_ns
            self._pool.book(grant.holder, uuid, lease, self._clock.now_ns(), work_ns=piece.work_ns)
            self._undelivered.append(Decision(grant, uuid, answer))

    def _record(self, slot: str, number: int, lease: Lease) -> None:
        """In memory at least: a full disk must not stop the jobs of the node."""
        self._last[slot] = number, lease
        try:
            self._pieces.record(slot, number, lease)
        except ClusterError as error:
            _log.warning("a restart will not know all device time: %s", error)

    def _forget_piece(self, grant: Grant, uuid: str, now_ns: int) -> None:
        slot, of_device = _slot(grant.digest, uuid), _slot("device", uuid)
        self._asked.pop(slot, None)
        found = self._last.pop(slot, None)
        if found is None:
            return
        self._pieces.forget(slot)
        number, last = found
        if self._last.get(of_device) == found:  # it was the device's last piece, so the device is free now
            free_ns = max(last.start_ns, min(last.end_ns, now_ns))
            self._record(of_device, number, Lease(last.start_ns, free_ns))
            if of_device in self._restored_ns:
                self._restored_ns[of_device] = free_ns
            if (device := self._pool.find(uuid)) is not None:
                device.arbiter.cut(_RESTORED, now_ns)

    def _shared_device(self, uuid: str) -> ManagedDevice:
        device = self._pool.find(uuid)
        if device is None or not device.mode.shared:
            raise ProtocolError(f"field 'resource': device {uuid} isn't shared; ask for a lease of it")
        return device

    def _check(self, wanted: Demand) -> None:
        if wanted.work_ns > MAX_UNIT_NS:
            raise too_long(wanted.work_ns)
        ahead_ns = wanted.ready_ns - self._clock.now_ns()
        if ahead_ns > MAX_UNIT_NS:
            limit_s = to_s(MAX_UNIT_NS)
            raise ProtocolError(
                f"demand {wanted.sequence} is ready in {to_s(ahead_ns):g} s; demand at most {limit_s:g} s ahead"
            )

    def _is_served(self, device: ManagedDevice, grant: Grant) -> bool:
        """Whether the device has begun the holder's last demand."""
        return device.engine.uses(grant.holder) and not device.engine.waits(grant.holder)

    def _join(self, device: ManagedDevice, grant: Grant) -> None:
        self._grants[grant.holder] = grant
        uuid = device.device.uuid
        self._in_use[uuid] = device
        device.engine.hold(max(self._restored_ns.pop(_slot("device", uuid), 0), device.arbiter.free_at_ns()))
        if not device.engine.uses(grant.holder):
            device.engine.join(device.mode.session(grant.holder, grant.terms_of(uuid, device.replicas)))

    def _devices(self, grant: Grant) -> list[ManagedDevice]:
        found = (self._pool.find(uuid) for uuid in grant.uuids)
        return [device for device in found if device is not None]


def too_long(duration_ns: int) -> ProtocolError:
    """The error for a step that others on the device would have to wait for."""
    limit_s = to_s(MAX_UNIT_NS)
    return ProtocolError(
        f"a step of {to_s(duration_ns):g} s on a shared device; at most {limit_s:g} s, others wait for it"
    )


def _slot(owner: str, uuid: str) -> str:
    """The name of the last piece of a grant on a device, or of the device: 32 bytes in hexadecimal, as LeaseFile takes them."""
    return hashlib.sha256(f"{owner} {uuid}".encode()).hexdigest()
