"""Which device each slot of the kubelet stands for: a permutation of the ids of each resource.

The kubelet picks slots, and a job-level scheduler picks devices. Both are right: slots are what the kubelet counts, and a slot is
given a device when its pod attaches. If a pod has slot A and its scheduler chose device B, slots A and B exchange their devices;
the next pod with slot B gets device A. A slot whose pod holds its device keeps it. Pure; core/pods.py applies it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.node.inventory import Inventory, split_device_id

_NONE = "none:"
"""Begins the id of the device of a slot that has none: its device belongs to a pod whose own slot has left the inventory."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """`devices`: what the slots will stand for. `moved`: the new devices of all slots whose devices change. `missing`: chosen
    devices that can't be had, and `holders` the slots that hold them; then the slots keep their devices."""

    devices: tuple[str, ...]
    moved: Mapping[str, str]
    missing: tuple[str, ...] = ()
    holders: frozenset[str] = frozenset()


class Slots:
    """`moved`: the slots that don't stand for the device of their own name, with their devices."""

    def __init__(self, moved: Mapping[str, str] | None = None) -> None:
        self.moved = dict(moved or {})
        self._resources: dict[str, tuple[str, ...]] = {}
        """The ids of each id's resource."""

    def device(self, slot: str) -> str:
        return self.moved.get(slot, slot)

    def devices(self, slots: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.device(slot) for slot in slots)

    def exchange(self, slots: Sequence[str], wanted: Sequence[str], held: Collection[str]) -> Exchange:
        """How `slots` can stand for devices with the UUIDs `wanted`, as many as slots. Slots in `held` keep their devices.

        Slots that stand for a wanted device keep it. Changes nothing: pass the result's `moved` to `apply`.
        """
        now = {slot: self.device(slot) for slot in self._resources.get(slots[0], ())} if slots else {}
        now |= {slot: self.device(slot) for slot in slots}
        before, at = dict(now), {device: slot for slot, device in now.items()}
        left = list(wanted)
        seeking = [slot for slot in slots if not _took(left, split_device_id(now[slot])[0])]
        missing, holders = list[str](), set[str]()
        for slot, uuid in zip(seeking, left, strict=True):
            of_uuid = [device for device in at if split_device_id(device)[0] == uuid]
            free = [device for device in of_uuid if at[device] not in held and at[device] not in slots]
            if not free:
                missing.append(uuid)
                holders |= {at[device] for device in of_uuid} - {*slots}
                continue
            device = slot if slot in free else free[0]
            other, mine = at[device], now[slot]
            now[slot], now[other], at[device], at[mine] = device, mine, slot, other
        if missing:
            return Exchange(self.devices(slots), {}, tuple(missing), frozenset(holders))
        moved = {slot: device for slot, device in now.items() if device != before[slot]}
        return Exchange(tuple(now[slot] for slot in slots), moved)

    def apply(self, moved: Mapping[str, str]) -> None:
        """Give these slots these devices."""
        self.moved |= moved
        self.moved = {slot: device for slot, device in self.moved.items() if slot != device}

    def settle(self, inventory: Inventory, held: Collection[str]) -> bool:
        """Fit the permutation to the ids of this inventory; returns whether it has changed. Slots in `held` keep their devices,
        even such that have left the inventory."""
        keeping = {slot: self.device(slot) for slot in held}
        before, found = self.moved, dict(keeping)
        self._resources = {}
        for resource in inventory.resources:
            ids = dict.fromkeys(i for entry in resource.devices for i in resource.device_ids(entry))
            self._resources |= dict.fromkeys(ids, tuple(ids))
            kept = {slot: device for slot, device in keeping.items() if slot in ids or device in ids}
            found |= self._assigned(ids, kept)
        self.moved = {slot: device for slot, device in found.items() if slot != device}
        return self.moved != before

    def _assigned(self, ids: Iterable[str], kept: Mapping[str, str]) -> dict[str, str]:
        """The devices of the other slots: as before, else their own, else what is left."""
        taken = set(kept.values())
        left = dict.fromkeys(i for i in ids if i not in taken)
        found = dict[str, str]()
        waiting = [slot for slot in ids if slot not in kept]
        for choice in (self.device, lambda slot: slot):
            for slot in waiting:
                if (device := choice(slot)) in left:
                    found[slot] = device
                    del left[device]
            waiting = [slot for slot in waiting if slot not in found]
        rest = list(left)
        return found | {slot: rest[n] if n < len(rest) else _NONE + slot for n, slot in enumerate(waiting)}


def _took(left: list[str], uuid: str) -> bool:
    """Whether `left` had the UUID; it is then taken out."""
    if uuid not in left:
        return False
    left.remove(uuid)
    return True
