"""Python objects that virtual ranks send each other (see emugpu_virtual_torch.py).

A pickle needs its true bytes, so what a rank sends is left in a folder for those that are recorded beside it or later. Where the
sender isn't recorded, what a rank has itself stands for it, or there is an error if it has nothing.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections import Counter
from collections.abc import Collection
from typing import Any


class Mail:
    """Objects that ranks leave for others in a folder. `present`: ranks whose objects are there, or will be."""

    def __init__(self, folder: str, present: Collection[int], pause_s: float = 0.02) -> None:
        self._folder, self._present, self._pause_s = folder, present, pause_s

    def leave(self, key: tuple[object, ...], content: object) -> None:
        """Stores an object for the rank that receives it."""
        path = self._path(key)
        os.makedirs(self._folder, exist_ok=True)
        with open(f"{path}.{os.getpid()}", "wb") as file:
            pickle.dump(content, file)
        os.replace(f"{path}.{os.getpid()}", path)

    def take(self, key: tuple[object, ...], sender: int) -> tuple[Any] | None:
        """A tuple of what `sender` leaves; None: it won't. Waits while the sender runs."""
        path, ended = self._path(key), os.path.join(self._folder, f"ended-{sender}")
        while sender in self._present:
            over = os.path.exists(ended)  # asked first: it may leave something before it ends
            if os.path.exists(path):
                with open(path, "rb") as file:
                    return (pickle.load(file),)
            if over:
                break
            time.sleep(self._pause_s)
        return None

    def _path(self, key: tuple[object, ...]) -> str:
        return os.path.join(self._folder, hashlib.sha256(repr(key).encode()).hexdigest()[:32])


class _Calls:
    """The calls of this process, each with a key that sender and receiver compute alike."""

    def __init__(self, c10d: Any, mail: Mail) -> None:
        self._c10d, self._mail = c10d, mail
        self._counts = Counter[tuple[object, ...]]()

    def group(self, group: Any) -> Any:
        return group or self._c10d._get_default_group()

    def key(self, kind: str, group: Any, *places: int) -> tuple[object, ...]:
        key = (kind, str(self._c10d._get_process_group_name(self.group(group))), *places)
        self._counts[key] += 1
        return (*key, self._counts[key])

    def rank(self, rank: int | None, group: Any, group_rank: int | None) -> int:
        """That of the job."""
        if rank is None and group_rank is not None:
            return int(self._c10d.get_global_rank(self.group(group), group_rank))
        return rank or 0

    def received(self, key: tuple[object, ...], sender: int) -> Any:
        found = self._mail.take(key, sender)
        if found is None:
            raise RuntimeError(
                f"rank {self._c10d.get_rank()} needs objects of rank {sender}, which isn't recorded before or beside it; "
                "record more ranks at once (emugpu trace --at-once)"
            )
        return found[0]


def patch(c10d: Any, mail: Mail) -> None:
    """Replace the functions of torch.distributed that send objects. What they take beside these arguments doesn't matter here."""
    calls = _Calls(c10d, mail)

    def broadcast_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
        **more: Any,
    ) -> None:
        if c10d._rank_not_in_group(group):
            return
        sender = calls.rank(src, group, group_src)
        key = calls.key("broadcast", group, sender)
        if sender == c10d.get_rank():
            mail.leave(key, list(object_list))
        elif (found := mail.take(key, sender)) is not None:
            object_list[:] = found[0]

    def scatter_object_list(
        scatter_object_output_list: list[Any],
        scatter_object_input_list: Any = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
        **more: Any,
    ) -> None:
        if c10d._rank_not_in_group(group):
            return
        sender = calls.rank(src, group, group_src)
        key = calls.key("scatter", group, sender)
        if sender == c10d.get_rank():
            mail.leave(key, list(scatter_object_input_list))
        inputs = scatter_object_input_list if sender == c10d.get_rank() else calls.received(key, sender)
        scatter_object_output_list[0] = inputs[c10d.get_rank(group)]

    def send_object_list(
        object_list: Any,
        dst: int | None = None,
        group: Any = None,
        device: Any = None,
        group_dst: int | None = None,
        **more: Any,
    ) -> None:
        if not c10d._rank_not_in_group(group):
            receiver = calls.rank(dst, group, group_dst)
            mail.leave(calls.key("send", group, c10d.get_rank(), receiver), list(object_list))

    def recv_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: Any = None,
        group_src: int | None = None,
        **more: Any,
    ) -> int:
        if c10d._rank_not_in_group(group):
            return -1
        sender = calls.rank(src, group, group_src)
        object_list[:] = calls.received(calls.key("send", group, sender, c10d.get_rank()), sender)
        return sender

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None, **more: Any) -> None:
        if not c10d._rank_not_in_group(group):
            object_list[:] = _copies(obj, len(object_list))

    def gather_object(
        obj: Any, object_gather_list: list[Any] | None = None, dst: Any = None, group: Any = None, **more: Any
    ) -> None:
        if object_gather_list is not None and not c10d._rank_not_in_group(group):
            object_gather_list[:] = _copies(obj, len(object_gather_list))

    c10d.broadcast_object_list = broadcast_object_list
    c10d.scatter_object_list = scatter_object_list
    c10d.send_object_list = send_object_list
    c10d.recv_object_list = recv_object_list
    c10d.all_gather_object = all_gather_object
    c10d.gather_object = gather_object


def _copies(content: object, count: int) -> list[Any]:
    text = pickle.dumps(content)
    return [pickle.loads(text) for _ in range(count)]
