"""Makes torch.distributed believe that all ranks of a job are there (`emugpu trace --world-size`).

The other ranks aren't asked for anything: each process group has a store of its own in this process, which answers at once, and
Gloo gives way to PyTorch's group that communicates nothing. The emulated NCCL, which does the same for tensors on GPUs, gets
the members of each group, so that the records name them.

It runs in the program's Python, so it needs nothing but that; nothing happens before the program imports torch.distributed.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import emugpu_virtual_objects

RANKS, FOLDER, PRESENT = "EMUGPU_VIRTUAL_RANKS", "EMUGPU_VIRTUAL_FOLDER", "EMUGPU_VIRTUAL_PRESENT"
"""The number of ranks; where objects are exchanged; which ranks are recorded before or beside this one."""

_MODULE = "torch.distributed.distributed_c10d"
_UNIQUE_ID_BYTES, _UNIQUE_ID_BEGINS = 128, b"EEMUID01"
_PAIR = re.compile(r"(\d+):(\d+)$")
"""The key of the unique id for messages between two ranks of a group."""


class _Finder(importlib.abc.MetaPathFinder):
    """Patches the module when it is imported."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                patch(module)

            spec.loader.exec_module = exec_module
        return spec


def install() -> None:
    """From now on the import of torch.distributed is patched, if this process is a rank of a job with virtual ranks."""
    if os.environ.get(RANKS) and os.environ.get("RANK") and not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def patch(c10d: Any) -> None:
    """Replace what would wait for other ranks in the module torch.distributed.distributed_c10d."""
    _patch_groups(c10d, _store_class(c10d))
    if hasattr(c10d, "ProcessGroupGloo"):
        c10d.ProcessGroupGloo = _silent_class(c10d.ProcessGroupGloo)
    present = {int(word) for word in os.environ.get(PRESENT, "").split(",") if word}
    emugpu_virtual_objects.patch(c10d, emugpu_virtual_objects.Mail(os.environ[FOLDER], present))


def name_group(unique_id: bytes, name: str, ranks: Sequence[int]) -> bytes:
    """Tell the emulated NCCL the name of a unique id's group and its ranks in the job. Zeros become an id; answers the id."""
    nccl = ctypes.CDLL("libnccl.so.2")
    content = ctypes.create_string_buffer(unique_id, _UNIQUE_ID_BYTES)
    status = nccl.emugpuNameGroup(content, name.encode(), (ctypes.c_int * len(ranks))(*ranks), len(ranks))
    if status != 0:
        raise RuntimeError(f"the emulated NCCL doesn't take the group {name} of {len(ranks)} ranks: status {status}")
    return content.raw


def _store_class(c10d: Any) -> Any:
    class GroupStore(c10d.Store):  # type: ignore[misc]
        """The store of a process group with these members. What nobody has set is a unique id of NCCL, which a rank asks its
        group's first one for; what somebody waits for is there; counters count this rank only."""

        def __init__(self, name: str, ranks: Sequence[int]) -> None:
            super().__init__()
            self._name, self._ranks, self._values = name, ranks, dict[str, bytes]()

        def set(self, key: str, value: str | bytes) -> None:
            content = _bytes(value)
            if len(content) == _UNIQUE_ID_BYTES and content.startswith(_UNIQUE_ID_BEGINS):
                self._name_group(key, content)
            self._values[key] = content

        def get(self, key: str) -> bytes:
            if key not in self._values:
                self._values[key] = self._name_group(key, bytes(_UNIQUE_ID_BYTES))
            return self._values[key]

        def _name_group(self, key: str, unique_id: bytes) -> bytes:
            pair = _PAIR.search(key)
            ranks = [self._ranks[int(place)] for place in pair.groups()] if pair else self._ranks
            return name_group(unique_id, f"{self._name}/{key}", ranks)

        def add(self, key: str, number: int) -> int:
            total = int(self._values.get(key, b"0")) + number
            self._values[key] = b"%d" % total
            return total

        def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
            if self._values.get(key, b"") == _bytes(expected):
                self._values[key] = _bytes(desired)
            return self._values.get(key, _bytes(expected))

        def append(self, key: str, value: str | bytes) -> None:
            self._values[key] = self._values.get(key, b"") + _bytes(value)

        def multi_get(self, keys: Sequence[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
            for key, value in zip(keys, values, strict=True):
                self.set(key, value)

        def has_extended_api(self) -> bool:
            return True

        def check(self, keys: Sequence[str]) -> bool:
            return all(key in self._values for key in keys)

        def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
            return None

        def delete_key(self, key: str) -> bool:
            return self._values.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self._values)

        def set_timeout(self, timeout: Any) -> None:
            return None

    return GroupStore


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _patch_groups(c10d: Any, store_class: Any) -> None:
    make, start = c10d._new_process_group_helper, c10d.init_process_group
    stores: list[Any] = []  # groups have references that don't keep a Python object

    def new_store(name: str, ranks: Sequence[int]) -> Any:
        stores.append(store_class(name, ranks))
        return stores[-1]

    def new_process_group_helper(
        group_size: int, group_rank: Any, ranks: Any, backend: Any, store: Any, group_name: Any, *rest: Any, **more: Any
    ) -> Any:
        own = new_store(str(group_name), list(ranks) or list(range(group_size)))
        return make(group_size, group_rank, ranks, backend, own, group_name, *rest, **more)

    def init_process_group(
        backend: Any = None,
        init_method: Any = None,
        timeout: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        *rest: Any,
        **more: Any,
    ) -> None:
        size = world_size if world_size > 0 else int(os.environ["WORLD_SIZE"])
        own = rank if rank >= 0 else int(os.environ["RANK"])
        start(backend, None, timeout, size, own, new_store("start", list(range(size))), *rest, **more)

    def split_group(
        parent_pg: Any = None,
        split_ranks: Any = None,
        timeout: Any = None,
        pg_options: Any = None,
        *rest: Any,
        **more: Any,
    ) -> Any:
        members = c10d.get_process_group_ranks(parent_pg if parent_pg is not None else c10d.GroupMember.WORLD)
        for places in split_ranks or ():
            ranks = [members[place] for place in places]
            if c10d.get_rank() in ranks:
                return c10d.new_group(ranks, timeout, pg_options=pg_options, use_local_synchronization=True)
        return c10d.GroupMember.NON_GROUP_MEMBER

    c10d._new_process_group_helper = new_process_group_helper
    c10d.init_process_group = init_process_group
    c10d.split_group = split_group
    c10d._get_split_source = lambda *arguments, **more: None  # NCCL doesn't know who else is in a part


def _silent_class(gloo: Any) -> Any:
    fake = sys.modules["torch._C._distributed_c10d"].FakeProcessGroup
    fake._set_sequence_number_for_group = lambda group: None  # not all releases have it

    class Silent(type):
        def __call__(cls, store: Any, rank: int, size: int, *rest: Any, **more: Any) -> Any:
            return fake._create_internal(rank, size)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (gloo, fake))

    return Silent("ProcessGroupGloo", (), {})
