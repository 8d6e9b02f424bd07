"""Reads the node's inventory from files, and publishes it to a file, which is replaced as a whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.json_document import Field
from emulator_runtime.domain.mig import check_places
from emulator_runtime.domain.wording import NESTED_TOO_DEEPLY
from emulator_runtime.files import write_whole
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry, mig_place
from emulator_runtime.node.layout import GPU_RESOURCE
from emulator_runtime.node.sharing_file import apply_sharing


def read_inventory(path: Path, node: str) -> Inventory | list[Device]:
    """Read an inventory file: resources with devices, or just a list of devices (in a local cluster).

    Raises InputError that names the file and the entry.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"can't read the inventory: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"not valid JSON: {error}") from error
    if text.lstrip().startswith("{"):
        inventory = Inventory.from_json(text, str(path))
        if inventory.node != node:
            raise InputError(f"{path}: node", f"must be {node}, as EMUGPU_MANAGER_NODE says, not {inventory.node}")
        return inventory
    return _devices(text, path, node)


def _devices(text: str, path: Path, node: str) -> list[Device]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"not valid JSON: {error}") from error
    if not isinstance(entries, list):
        raise InputError(str(path), "must hold a list of devices, or an inventory with resources")
    devices = [_device(entry, node, f"{path}: [{number}]") for number, entry in enumerate(entries)]
    for number, device in enumerate(devices):
        if any(device.index == earlier.index for earlier in devices[:number]):
            raise InputError(f"{path}: [{number}]", f"index {device.index} is taken by an entry before it")
    check_places(devices, str(path))
    return devices


def _device(entry: object, node: str, place: str) -> Device:
    match entry:
        case {"index": bool()} | {"memory_bytes": bool()}:
            pass
        case {"index": int(index), "gpu_type": str(gpu_type), "memory_bytes": int(memory), **more} if (
            index >= 0 and memory > 0
        ):
            mig = mig_place(Field(place, "mig", more["mig"])) if "mig" in more else None
            return Device(node, index, gpu_type, memory, mig)
    raise InputError(place, "must have index (>= 0), gpu_type (a text) and memory_bytes (> 0)")


def of_devices(devices: list[Device], node: str) -> Inventory:
    """Make an inventory with these devices as one resource, GPU_RESOURCE."""
    return Inventory(node, (ResourceEntry(GPU_RESOURCE, tuple(DeviceEntry(device) for device in devices)),))


def read_sharing(path: Path) -> Mapping[str, object]:
    """Read a sharing file (YAML). Raises InputError that names the file."""
    import yaml  # imported only if such a file is used, because it needs memory

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), f"can't read the sharing configuration: {error.strerror}") from error
    except RecursionError as error:
        raise InputError(str(path), NESTED_TOO_DEEPLY) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise InputError(str(path), "must hold an object with version and sharing")
    return document


def shared(inventory: Inventory, sharing_config: str) -> Inventory:
    """The inventory with the sharing that the file configures; unchanged if the name is "". Raises InputError."""
    if not sharing_config:
        return inventory
    return apply_sharing(inventory, read_sharing(Path(sharing_config)), sharing_config)


def publish(path: Path, inventory: Inventory) -> None:
    """Write the inventory for the device plugin, unless the file has the same content. Raises InputError if that fails.

    The file isn't synced: this runs in the thread that answers jobs, and after a power cut it is written again.
    """
    text = inventory.to_json() + "\n"
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        write_whole(path, text, sync=False, mode=0o644)
    except OSError as error:
        raise InputError(str(path), f"can't be written: {error.strerror}; make room or give access") from error


def published(path: Path, node: str, report: Callable[[str], None]) -> Inventory | None:
    """The inventory that was published before a restart. None if there is none, or if it is invalid; then `report` gets
    the reason."""
    if not path.exists():
        return None
    try:
        inventory = read_inventory(path, node)
    except InputError as error:
        report(f"{error}; waiting for a new one")
        return None
    if not isinstance(inventory, Inventory):
        report(f"{path}: holds no inventory with resources; waiting for a new one")
        return None
    return inventory
