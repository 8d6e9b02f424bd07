"""The keys of pieces of device time (interval_table.py): of a session of a grant on a device, or of the device itself.

A key has a part for each, so that after a restart it is known which entries belong to a device or to a grant on it, even if the
session never comes back.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

_DEVICE, _GRANT, _SESSION = 24, 20, 20
"""Hexadecimal characters for each part of a key, which has 64 together."""


@lru_cache(maxsize=4096)
def key_of(uuid: str, digest: str = "", session: str = "") -> str:
    """The key of a session of the grant `digest` on a device, or of the device itself."""
    parts = ((uuid, _DEVICE), (digest, _GRANT), (session, _SESSION))
    return "".join(sha256(text.encode()).hexdigest()[:length] for text, length in parts)


_NOBODY = key_of("")[_DEVICE:]


def device_part(key: str) -> str:
    """What all keys of a device begin with."""
    return key[:_DEVICE]


def grant_part(key: str) -> str:
    """What all keys of a grant on a device begin with."""
    return key[: _DEVICE + _GRANT]


def device_key(key: str) -> str:
    """The device's own key."""
    return device_part(key) + _NOBODY
