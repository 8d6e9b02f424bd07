"""Cookies for browsers instead of tokens: a browser's event streams and links carry no Authorization header.

A cookie names a session of this process and is signed with a random key of the process: forged cookies are refused without a
look-up, and all sessions end with the process. A session stores the caller's token and is valid as long as the token is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable

from emulator_runtime.domain.units import NS_PER_S

LASTS_S = 8 * 3600
MOST = 1000
_FORM = re.compile(r"([A-Za-z0-9_-]{32})\.([0-9]{1,15})\.([0-9a-f]{64})", re.ASCII)


class Sessions:
    """At most `most` of them, the oldest goes first. `now_ns`: a monotonic clock."""

    def __init__(self, key: bytes, now_ns: Callable[[], int], *, lasts_s: int = LASTS_S, most: int = MOST) -> None:
        self._key, self._now_ns, self._most = key, now_ns, most
        self.lasts_s = lasts_s
        self._tokens: OrderedDict[str, str] = OrderedDict()

    def begin(self, token: str) -> str:
        """A new session for the owner of this token; the cookie's value."""
        name, ends = secrets.token_urlsafe(24), self._now_ns() // NS_PER_S + self.lasts_s
        self._tokens[name] = token
        while len(self._tokens) > self._most:
            self._tokens.popitem(last=False)
        return f"{name}.{ends}.{self._signature(name, ends)}"

    def token(self, cookie: str) -> str | None:
        """The token of the session that this cookie names; None if it is forged, expired or ended."""
        name = self._name(cookie)
        return None if name is None else self._tokens.get(name)

    def end(self, cookie: str) -> None:
        """End the session; a second call does nothing."""
        name = self._name(cookie)
        if name is not None:
            self._tokens.pop(name, None)

    def _name(self, cookie: str) -> str | None:
        match = _FORM.fullmatch(cookie)
        if match is None:
            return None
        name, ends = match[1], int(match[2])
        if not hmac.compare_digest(match[3], self._signature(name, ends)):
            return None
        if ends <= self._now_ns() // NS_PER_S:
            self._tokens.pop(name, None)
            return None
        return name

    def _signature(self, name: str, ends: int) -> str:
        return hmac.new(self._key, f"{name}.{ends}".encode(), hashlib.sha256).hexdigest()
