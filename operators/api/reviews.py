"""Access by Kubernetes' own rules: TokenReview says whose a token is, SubjectAccessReview what they may.

The API needs no users and no roles of its own then; who may read EmuJobs with kubectl may read them here, and nobody else.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from operators.api.access import Principal
from operators.api.cache import Cache
from operators.kube.api import ACCESS_REVIEW, TOKEN_REVIEW, Api, Json
from operators.kube.documents import object_at, text_at

KNOWN_S, UNKNOWN_S, RIGHTS_S = 60.0, 10.0, 30.0
"""How long an answer holds: whose a token is, that it is nobody's, what somebody may."""
MOST_KEPT = 10_000
MOST_AT_ONCE = 8
MOST_TOKEN = 16 * 1024
"""Characters; longer ones are no tokens of an API server, which reads headers of 1 MiB but issues them of 1 to 3 KiB."""


class ReviewAccess:
    """Access over an API server. Tokens are kept as digests only."""

    def __init__(self, api: Api, now_ns: Callable[[], int]) -> None:
        self._api = api
        self._known: Cache[str, Principal | None] = Cache(now_ns, MOST_KEPT)
        self._rights: Cache[tuple[Principal, str, str], bool] = Cache(now_ns, MOST_KEPT)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def exchange(self, token: str) -> str | None:
        return token if await self.authenticate(token) is not None else None

    async def authenticate(self, token: str) -> Principal | None:
        if not token or len(token) > MOST_TOKEN or not token.isascii():
            return None
        digest = hashlib.sha256(token.encode()).hexdigest()
        async with self._turns:
            known = self._known.get(digest)
            if known is not None:
                return known[0]
            review = await self._api.create(TOKEN_REVIEW, _document("authentication", "TokenReview", {"token": token}))
            found = _principal(object_at(review, "status"))
            self._known.put(digest, found, UNKNOWN_S if found is None else KNOWN_S)
            return found

    async def may(self, who: Principal, verb: str, namespace: str) -> bool:
        key = (who, verb, namespace)
        async with self._turns:
            known = self._rights.get(key)
            if known is not None:
                return known[0]
            review = await self._api.create(ACCESS_REVIEW, _access_review(who, verb, namespace))
            allowed = object_at(review, "status").get("allowed") is True
            self._rights.put(key, allowed, RIGHTS_S)
            return allowed


def _document(group: str, kind: str, spec: Json) -> Json:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}


def _access_review(who: Principal, verb: str, namespace: str) -> Json:
    attributes = {"group": "emugpu.dev", "resource": "emujobs", "verb": verb, "namespace": namespace}
    extra = {name: list(values) for name, values in who.extra.items()}
    subject = {"user": who.user, "uid": who.uid, "groups": list(who.groups), "extra": extra}
    return _document("authorization", "SubjectAccessReview", {"resourceAttributes": attributes, **subject})


def _principal(status: Mapping[str, Any]) -> Principal | None:
    user = object_at(status, "user")
    name = text_at(user, "username")
    if status.get("authenticated") is not True or not name:
        return None
    extra = {
        key: tuple(map(str, values)) for key, values in object_at(user, "extra").items() if isinstance(values, list)
    }
    groups = user.get("groups")
    return Principal(name, text_at(user, "uid"), tuple(map(str, groups)) if isinstance(groups, list) else (), extra)
