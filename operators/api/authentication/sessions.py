"""Cookies for browsers instead of tokens: a browser's event streams and links carry no Authorization header.

A cookie names a session of this process and is signed with a random key of the process: forged cookies are refused without a
look-up, and all sessions end with the process. A session stores the caller's token and is valid as long as the token is.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections import Counter
from collections.abc import Callable

from emulator_runtime.domain.units import NS_PER_S

LASTS_S = 8 * 3600
MOST = 1000
MOST_EACH = 100
"""Generous, since all service accounts of a namespace are one tenant."""
_FORM = re.compile(r"([A-Za-z0-9_-]{32})\.([0-9]{1,15})\.([0-9a-f]{64})", re.ASCII)


class Sessions:
    """At most `most`, at most `most_each` of one tenant. Beyond that the oldest session of the tenant with most of them ends, so
    that nobody ends the sessions of others by signing in again and again. `now_ns`: a monotonic clock.
    """

    def __init__(
        self,
        key: bytes,
        now_ns: Callable[[], int],
        *,
        lasts_s: int = LASTS_S,
        most: int = MOST,
        most_each: int = MOST_EACH,
    ) -> None:
        self._key, self._now_ns, self._most, self._most_each = key, now_ns, most, most_each
        self.lasts_s = lasts_s
        self._sessions: dict[str, tuple[str, str]] = {}  # tenant and token by name, the oldest first

    def begin(self, tenant: str, token: str) -> str:
        """A new session for the owner of this token; the cookie's value."""
        name, ends = secrets.token_urlsafe(24), self._now_ns() // NS_PER_S + self.lasts_s
        self._sessions[name] = tenant, token
        sizes = Counter(each for each, _ in self._sessions.values())
        if sizes[tenant] > self._most_each:
            self._end_oldest(tenant)
        elif len(self._sessions) > self._most:
            self._end_oldest(max(sizes, key=sizes.__getitem__))
        return f"{name}.{ends}.{self._signature(name, ends)}"

    def _end_oldest(self, tenant: str) -> None:
        del self._sessions[next(name for name, (owner, _) in self._sessions.items() if owner == tenant)]

    def token(self, cookie: str) -> str | None:
        """The token of the session that this cookie names; None if it is forged, expired or ended."""
        name = self._name(cookie)
        session = self._sessions.get(name) if name is not None else None
        return session[1] if session is not None else None

    def end(self, cookie: str) -> None:
        """End the session; a second call does nothing."""
        name = self._name(cookie)
        if name is not None:
            self._sessions.pop(name, None)

    def _name(self, cookie: str) -> str | None:
        match = _FORM.fullmatch(cookie)
        if match is None:
            return None
        name, ends = match[1], int(match[2])
        if not hmac.compare_digest(match[3], self._signature(name, ends)):
            return None
        if ends <= self._now_ns() // NS_PER_S:
            self._sessions.pop(name, None)
            return None
        return name

    def _signature(self, name: str, ends: int) -> str:
        return hmac.new(self._key, f"{name}.{ends}".encode(), hashlib.sha256).hexdigest()
