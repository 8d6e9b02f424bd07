"""Access on a laptop: the first browser that opens the printed link becomes the owner's and gets a secret of its own."""

from __future__ import annotations

import secrets

from operators.api.authentication.access import Principal

OWNER = Principal("owner")


class OneTimeAccess:
    """Access by a link that works once. `writable`: whether the owner may change anything."""

    def __init__(self, token: str, *, writable: bool) -> None:
        self._token: str | None = token
        self._secret = secrets.token_urlsafe(32)
        self._writable = writable

    async def exchange(self, token: str) -> str | None:
        if self._token is None or not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        self._token = None
        return self._secret

    async def authenticate(self, token: str) -> Principal | None:
        return OWNER if secrets.compare_digest(token.encode(), self._secret.encode()) else None

    async def may(self, who: Principal, verb: str, namespace: str) -> bool:
        return self._writable or verb in ("get", "list")
