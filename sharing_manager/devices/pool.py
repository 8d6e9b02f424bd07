"""The devices of a node with their holders: the time, memory, health and use of each device."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from emulator_runtime.domain.errors import DeviceLostError, ProtocolError, RefusedError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.domain.units import MAX_UNIT_NS, to_s
from emulator_runtime.memory.admission import MemoryBook
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.sharing.demands import Engine, Terms
from emulator_runtime.sharing.demands import Session as DemandingSession
from emulator_runtime.sharing.modes import EXCLUSIVE, MODES, Mode
from sharing_manager.devices.bookings import Bookings
from sharing_manager.devices.busy_time import BusyTime
from sharing_manager.devices.host_resources import ManagedResource

REMOVED = "it is no longer in the node's inventory"
REPLACED = "another device has taken its place"


@dataclass(slots=True)
class ManagedDevice:
    """One device with its holders, its memory book and the device time that is booked and was leased. Where several holders
    share the device, `engine` decides who is served next.

    `reason` says why it is unhealthy, "" if it is healthy. `replaced_for` has the holders of the device that had this
    UUID before. `wanted` is the mode of the inventory; it applies as soon as no session uses the engine of the present one.
    """

    device: Device
    memory: MemoryBook
    bookings: Bookings = field(default_factory=Bookings)
    holders: set[str] = field(default_factory=set)
    leased_ns: int = 0
    reason: str = ""
    removed: bool = False
    replaced_for: set[str] = field(default_factory=set)
    resource: str = ""
    replicas: int = 1
    longest_unit_ns: int = MAX_UNIT_NS
    mode: Mode = EXCLUSIVE
    wanted: Mode = EXCLUSIVE
    engine: Engine = field(default_factory=EXCLUSIVE.engine)
    busy: BusyTime = field(default_factory=BusyTime)
    name: str = field(init=False)
    """Its UUID, by which time is demanded."""

    def __post_init__(self) -> None:
        self.name = self.device.uuid

    @property
    def healthy(self) -> bool:
        return not self.reason

    def session_of(self, holder: str, terms: Terms) -> DemandingSession:
        """The holder as the engine knows it."""
        return self.mode.session(holder, terms)

    def free_at_ns(self) -> int:
        """When what is booked has ended."""
        return self.bookings.free_at_ns

    @property
    def exclusive(self) -> bool:
        """Whether it may have one holder only; also while it changes to such a mode: nobody joins those who are there."""
        return not (self.mode.shared and self.wanted.shared)

    def check(self, holder: str, leaving: Collection[str] = ()) -> None:
        """Raises RefusedError if there is no room for `holder` after the holders in `leaving` have left."""
        others = self.holders.difference({holder}, leaving) if self.exclusive else ()
        if others:
            raise RefusedError(
                f"device {self.name}: it is exclusive and {', '.join(sorted(others))} holds it; wait until that ends, "
                "or share the device"
            )

    def book(self, holder: str, end_ns: int) -> None:
        """The holder has the device until then; its engine begins nothing before."""
        self.bookings.add(holder, end_ns)
        self.engine.hold(self.free_at_ns())

    def cut(self, holder: str, now_ns: int) -> None:
        """Cancel the holder's device time after `now_ns`; what nobody uses now counts as not leased."""
        self.bookings.cut(holder, now_ns, alone=self.exclusive and self.holders <= {holder})
        self.engine.hold(self.free_at_ns())
        self.leased_ns = max(0, self.leased_ns - self.busy.cut(max(now_ns, self.free_at_ns())))

    def settle(self) -> None:
        """Change to the wanted mode, unless sessions use the engine of the present one."""
        if self.mode is not self.wanted and not self.engine.in_use:
            self.mode, self.engine, self.memory.rule = self.wanted, self.wanted.engine(), self.wanted.memory
            self.engine.hold(self.free_at_ns())

    def loss_reason(self, holder: str) -> str:
        """Why this holder has lost the device; "" if it hasn't."""
        return self.reason or (REPLACED if holder in self.replaced_for else "")


Served = ManagedDevice | ManagedResource
"""What processes demand time of."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A device that some of its holders have lost."""

    uuid: str
    reason: str
    holders: frozenset[str]


class DevicePool:
    """All devices of a node, and what jobs share there beside them. An operation on several devices applies to all of them or to
    none.

    `devices`, `mode` and `resources` (the storage, the network and the links of the node, as far as they are shared) serve a node
    without an inventory. With `apply_inventory`, each resource of devices names its mode.
    """

    def __init__(
        self, devices: Iterable[Device] = (), mode: Mode = EXCLUSIVE, resources: Iterable[HostResource] = ()
    ) -> None:
        self.inventory: Inventory | None = None
        """The one that was applied last."""
        self.resources = {resource.name: ManagedResource(resource) for resource in resources}
        self._devices: dict[str, ManagedDevice] = {}
        self._absent: dict[str, list[tuple[str, Lease]]] = {}  # leases of devices that aren't in the inventory (yet)
        for device in devices:
            self._devices[device.uuid] = _managed(device, mode)

    def all(self) -> list[ManagedDevice]:
        """The devices of the inventory. A removed device that still has holders isn't included."""
        return [device for device in self._devices.values() if not device.removed]

    def specs(self, uuids: Iterable[str]) -> list[Device]:
        return [self._get(uuid).device for uuid in uuids]

    def mode(self, uuid: str) -> Mode:
        """The way in which the device is shared; exclusive if it isn't of this node (any more)."""
        device = self._devices.get(uuid)
        return EXCLUSIVE if device is None else device.mode

    def find(self, uuid: str) -> ManagedDevice | None:
        return self._devices.get(uuid)

    def resources_for(self, uuids: Collection[str]) -> list[ManagedResource]:
        """What a job with these devices shares with others beside them."""
        return [managed for managed in self.resources.values() if managed.offered and managed.serves(uuids)]

    def served(self, name: str) -> Served | None:
        """The device or resource with an engine for demands, by UUID or name."""
        return self._devices.get(name) or self.resources.get(name)

    def check_length(self, uuid: str, work_ns: int) -> None:
        """Raises ProtocolError for work for which other holders would have to wait for too long."""
        device = self._devices.get(uuid)
        most_ns = MAX_UNIT_NS if device is None else device.longest_unit_ns
        if work_ns > most_ns:
            setting = (
                "" if most_ns == MAX_UNIT_NS else "; make steps shorter, or raise spec.sharing.longestUnit of its pool"
            )
            where = uuid if uuid in self.resources else "a shared device"
            raise ProtocolError(
                f"a step of {to_s(work_ns):g} s on {where}; at most {to_s(most_ns):g} s, others wait for it{setting}"
            )

    # --- inventory --------------------------------------------------------------------------------------------------

    def apply_inventory(self, inventory: Inventory) -> list[Loss]:
        """Replace devices, health and sharing by those of the inventory. Returns the losses of the holders.

        Holders of a device keep its time and memory. A device that is removed while it is held counts as lost until its
        holders have left. A device that returns, or becomes healthy, serves again, including its earlier holders.
        """
        self.inventory = inventory
        self._apply_resources(inventory)
        before = {uuid: self._losses_by_holder(uuid) for uuid in self._devices}
        wanted = {
            entry.device.uuid: (entry, resource) for resource in inventory.resources for entry in resource.devices
        }
        for uuid, (entry, resource) in wanted.items():
            self._add_or_update(uuid, entry, resource)
        for uuid in self._devices.keys() - wanted.keys():
            self._remove(uuid)
        return list(self._losses(before))

    def _apply_resources(self, inventory: Inventory) -> None:
        """None is forgotten, for the jobs that attached while it was there."""
        wanted = {resource.name: resource for resource in inventory.host_resources}
        for name, managed in self.resources.items():
            managed.apply(wanted.pop(name, None))
        self.resources |= {name: ManagedResource(resource) for name, resource in wanted.items()}

    def _add_or_update(self, uuid: str, entry: DeviceEntry, resource: ResourceEntry) -> None:
        mode = MODES[resource.sharing]
        managed = self._devices.get(uuid)
        if managed is None:
            managed = self._devices[uuid] = _managed(entry.device, mode)
            for holder, lease in self._absent.pop(uuid, []):
                managed.book(holder, lease.end_ns)
        elif managed.device != entry.device:
            managed.replaced_for |= managed.holders
            managed.device = entry.device
            managed.memory.resize(entry.device.usable_memory_bytes, entry.device.memory_bytes)
        managed.wanted = mode
        managed.settle()
        managed.resource, managed.replicas, managed.removed = resource.name, resource.replicas, False
        managed.longest_unit_ns = resource.longest_unit_ns
        managed.reason = "" if entry.healthy else entry.reason or "it is unhealthy"

    def _remove(self, uuid: str) -> None:
        managed = self._devices[uuid]
        if managed.holders:
            managed.removed, managed.reason = True, REMOVED
        else:
            self._forget(uuid)

    def _forget(self, uuid: str) -> None:
        """Remove the device, but remember when its last lease ends, in case it returns."""
        managed = self._devices.pop(uuid)
        free_at_ns = managed.free_at_ns()
        if free_at_ns:
            self._absent[uuid] = [("", Lease(free_at_ns, free_at_ns))]

    def _losses_by_holder(self, uuid: str) -> dict[str, str]:
        managed = self._devices[uuid]
        return {holder: reason for holder in managed.holders if (reason := managed.loss_reason(holder))}

    def _losses(self, before: dict[str, dict[str, str]]) -> Iterator[Loss]:
        for uuid in self._devices:
            now, known = self._losses_by_holder(uuid), before.get(uuid, {})
            new = {holder: reason for holder, reason in now.items() if holder not in known}
            for reason in sorted(set(new.values())):
                yield Loss(uuid, reason, frozenset(h for h, r in new.items() if r == reason))

    def check(self, holder: str, uuids: Iterable[str]) -> None:
        """Raises DeviceLostError if a device is unhealthy, removed, or not the device that `holder` was given."""
        for uuid in uuids:
            managed = self._devices.get(uuid)
            reason = managed.loss_reason(holder) if managed is not None else REMOVED
            if reason:
                raise DeviceLostError(f"device {uuid} is lost: {reason}; start again on another device")

    def is_own(self, holder: str, uuid: str) -> bool:
        """Whether the device is exclusive, and the holder hasn't lost it."""
        device = self._devices.get(uuid)
        return device is not None and not device.mode.shared and not device.loss_reason(holder)

    def check_room(self, holder: str, uuids: Iterable[str], leaving: Collection[str]) -> None:
        """Raises RefusedError if `admit` would refuse `holder` after the holders in `leaving` have left."""
        for uuid in uuids:
            self._get(uuid).check(holder, leaving)

    # --- holders ----------------------------------------------------------------------------------------------------

    def admit(self, job_id: str, uuids: Iterable[str]) -> None:
        """Register a holder. Raises RefusedError for a device that doesn't exist or has no room for another holder."""
        devices = [self._get(uuid) for uuid in uuids]
        for device in devices:
            device.check(job_id)
        for device in devices:
            device.holders.add(job_id)

    def reserve(self, job_id: str, uuids: Iterable[str], wanted: Reservation) -> None:
        """Reserve memory on each of these devices. Raises OutOfMemoryError; then nothing has changed."""
        devices = [self._get(uuid) for uuid in uuids]
        before = [device.memory.held.get(job_id) for device in devices]
        try:
            for device in devices:
                device.memory.reserve(job_id, wanted)
        except BaseException:
            for device, held in zip(devices, before, strict=True):
                device.memory.release(job_id)
                if held is not None:
                    device.memory.reserve(job_id, held)
            raise

    def free_memory(self, job_id: str, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            if (device := self._devices.get(uuid)) is not None:
                device.memory.release(job_id)

    def lease(self, job_id: str, uuids: Iterable[str], earliest_ns: int, duration_ns: int, now_ns: int) -> Lease:
        """Book the next interval in which all these devices are free. Without devices (a job on CPUs only) it starts at
        once."""
        devices = [self._get(uuid) for uuid in uuids]
        start_ns = max([earliest_ns, *(device.free_at_ns() for device in devices)])
        end_ns = start_ns + duration_ns
        lease = Lease(start_ns, end_ns)
        for device in devices:
            self.book(job_id, device.device.uuid, lease, now_ns, work_ns=duration_ns)
        return lease

    def book(self, holder: str, uuid: str, lease: Lease, now_ns: int, *, work_ns: int) -> None:
        """Count an interval in which the device does `work_ns` of work for `holder`."""
        device = self._get(uuid)
        device.book(holder, held_until_ns(lease, now_ns))
        device.leased_ns += work_ns
        device.busy.add(lease.start_ns, lease.end_ns, now_ns)

    def restore(self, holder: str, uuids: Iterable[str], lease: Lease) -> None:
        """Book a lease from before a restart. The device itself may be added later."""
        lease = Lease(lease.start_ns, held_until_ns(lease))
        for uuid in uuids:
            device = self._devices.get(uuid)
            if device is None:
                self._absent.setdefault(uuid, []).append((holder, lease))
            else:
                device.book(holder, lease.end_ns)

    def cut(self, holder: str, uuids: Iterable[str], now_ns: int) -> None:
        """Return the holder's device time after `now_ns`."""
        for uuid in uuids:
            device = self._devices.get(uuid)
            if device is not None:
                device.cut(holder, now_ns)
            elif uuid in self._absent:
                self._absent[uuid] = [_shortened(*booked, holder, now_ns) for booked in self._absent[uuid]]

    def leave(self, job_id: str, uuids: Iterable[str], now_ns: int) -> None:
        """Return the job's device time and memory and remove it from the holders."""
        uuids = list(uuids)
        self.cut(job_id, uuids, now_ns)
        for uuid in uuids:
            device = self._devices.get(uuid)
            if device is not None:
                device.memory.release(job_id)
                device.holders.discard(job_id)
                device.replaced_for.discard(job_id)
                if device.removed and not device.holders:
                    self._forget(uuid)

    def _get(self, uuid: str) -> ManagedDevice:
        try:
            return self._devices[uuid]
        except KeyError:
            raise RefusedError(f"there is no device {uuid} on this node") from None


def held_until_ns(lease: Lease, now_ns: int = 0) -> int:
    """Until when others wait for a device that is booked now for this interval: as long as for a demand at most. (It may be its
    holder's own now and be shared then.)"""
    return min(lease.end_ns, max(lease.start_ns, now_ns) + MAX_UNIT_NS)


def _managed(device: Device, mode: Mode) -> ManagedDevice:
    memory = MemoryBook(device.uuid, device.usable_memory_bytes, mode.memory, nominal_bytes=device.memory_bytes)
    return ManagedDevice(device, memory, mode=mode, wanted=mode, engine=mode.engine())


def _shortened(holder: str, lease: Lease, leaving: str, now_ns: int) -> tuple[str, Lease]:
    if holder != leaving:
        return holder, lease
    return holder, Lease(lease.start_ns, max(lease.start_ns, min(lease.end_ns, now_ns)))
