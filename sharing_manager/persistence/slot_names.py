"""The names of slots in files of pieces (lease_book.py): of a session of a grant on a device, or of the device itself.

A name has a part for each, so that after a restart it is known which slots belong to a device or to a grant on it, even if the
session never comes back.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

_DEVICE, _GRANT, _SESSION = 24, 20, 20
"""Hexadecimal characters for each part of a slot's name, which has 64 together."""


@lru_cache(maxsize=4096)
def slot_of(uuid: str, digest: str = "", session: str = "") -> str:
    """The name of a slot: of a session of the grant `digest` on a device, or of the device."""
    parts = ((uuid, _DEVICE), (digest, _GRANT), (session, _SESSION))
    return "".join(sha256(text.encode()).hexdigest()[:length] for text, length in parts)


_NOBODY = slot_of("")[_DEVICE:]


def device_part(slot: str) -> str:
    """What the names of all slots of a device begin with."""
    return slot[:_DEVICE]


def grant_part(slot: str) -> str:
    """What the names of all slots of a grant on a device begin with."""
    return slot[: _DEVICE + _GRANT]


def device_slot(slot: str) -> str:
    """The name of the device's own slot."""
    return device_part(slot) + _NOBODY
