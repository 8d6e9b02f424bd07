"""Chooses the best devices for a container. Pure functions; the kubelet asks for the preference before each Allocate.

Whole devices: first the required ones, then few link groups, then one NUMA node, then the group with the fewest free devices
that has enough, so that large groups stay free for large requests. Shared devices: as many different devices as possible, the
least used first. Example: 2 devices are needed, and the link groups have 2 and 4 free ones: both come from the first group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import DeviceEntry, ResourceEntry

_Key = Callable[[DeviceEntry], int]


def _link_group(entry: DeviceEntry) -> int:
    return entry.link_group


def _numa_node(entry: DeviceEntry) -> int:
    return entry.numa_node


def preferred(resource: ResourceEntry, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
    """`size` ids from `available`, including those in `must`; fewer if there aren't enough usable ones.

    Unknown ids (the resource may just have changed) and unhealthy devices are skipped unless they are in `must`; the kubelet
    then chooses the rest itself. Raises InputError if `must` has more than `size` ids.
    """
    chosen = list(dict.fromkeys(must))
    if size < len(chosen):
        raise InputError(resource.name, f"{len(chosen)} devices must be included in an allocation of {size}")
    known = resource.by_id()
    offered = set(available)
    free = [i for i, entry in known.items() if i in offered and entry.healthy and i not in chosen]
    need = min(size - len(chosen), len(free))
    if resource.replicas > 1:
        return chosen + _spread(resource, free, chosen, need)
    near = [known[i] for i in chosen if i in known]
    ids = {known[i].device.uuid: i for i in free}
    return chosen + [ids[entry.device.uuid] for entry in _together([known[i] for i in free], need, near)]


def _spread(resource: ResourceEntry, free: Sequence[str], chosen: Collection[str], need: int) -> list[str]:
    """Replicas of as many different devices as possible; the least used device first, then by index."""
    known = resource.by_id()
    left: dict[str, list[str]] = {}
    for device_id in free:
        left.setdefault(known[device_id].device.uuid, []).append(device_id)
    taken = Counter(known[i].device.uuid for i in chosen if i in known)
    used = {uuid: resource.replicas - len(ids) for uuid, ids in left.items()}
    picked: list[str] = []
    while len(picked) < need:
        uuid = min((u for u in left if left[u]), key=lambda u: (taken[u], used[u]))  # ties: `left` is in index order
        picked.append(left[uuid].pop(0))
        taken[uuid] += 1
    return picked


def _together(free: list[DeviceEntry], need: int, near: list[DeviceEntry]) -> list[DeviceEntry]:
    """`need` of the free devices, as close to each other and to `near` as possible."""
    if need == 0:
        return []
    group = _fullest_with_room(free, need, near, _link_group)
    if group:
        inner = _fullest_with_room(group, need, near, _numa_node)
        return _by_index(inner)[:need] if inner else _spill(group, need, near, _numa_node)
    return _spill(_fullest_with_room(free, need, near, _numa_node) or free, need, near, _link_group)


def _spill(free: list[DeviceEntry], need: int, near: list[DeviceEntry], key: _Key) -> list[DeviceEntry]:
    """No group has enough: take all of the nearest and largest group, then look for the rest."""
    groups = _groups(free, key)
    first = min(groups, key=lambda name: (-_count(near, name, key), -len(groups[name]), name))
    taken = _by_index(groups.pop(first))[:need]
    rest = [entry for group in groups.values() for entry in group]
    return taken + _together(rest, need - len(taken), near + taken)


def _fullest_with_room(free: list[DeviceEntry], need: int, near: list[DeviceEntry], key: _Key) -> list[DeviceEntry]:
    """Of the groups with at least `need` free devices the nearest, then the one with the fewest; empty if there is none."""
    groups = {name: group for name, group in _groups(free, key).items() if len(group) >= need}
    best = min(groups, key=lambda name: (-_count(near, name, key), len(groups[name]), name), default=None)
    return [] if best is None else groups[best]


def _groups(entries: Iterable[DeviceEntry], key: _Key) -> dict[int, list[DeviceEntry]]:
    groups: dict[int, list[DeviceEntry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups


def _count(entries: Iterable[DeviceEntry], name: int, key: _Key) -> int:
    return sum(key(entry) == name for entry in entries)


def _by_index(entries: Iterable[DeviceEntry]) -> list[DeviceEntry]:
    return sorted(entries, key=lambda entry: entry.device.index)
