"""Access by Kubernetes' own rules: a TokenReview identifies the user of a token, a SubjectAccessReview their rights.

So the API needs no users and roles of its own: a user who may read EmuJobs with kubectl may read them here.

Tokens that were valid at their last review never wait behind unknown tokens: valid verdicts are answered from memory,
and expired ones are reviewed in a queue of their own. A flood of invented tokens delays first sign-ins only.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Coroutine, Hashable, Mapping
from typing import Any, TypeVar

from operators.api.authentication.access import Principal
from operators.api.authentication.answer_cache import Cache
from operators.api.authentication.review_queue import ReviewQueue
from operators.kube.api import ACCESS_REVIEW, TOKEN_REVIEW, Api, Json
from operators.kube.documents import object_at, text_at

PRINCIPAL_VALID_S, REFUSAL_VALID_S, RIGHTS_VALID_S = 60.0, 10.0, 30.0
"""How long verdicts are used: whose a token is, that a token is invalid, what a user may do."""
MOST_KEPT = 10_000
MOST_TOKEN = 16 * 1024
"""Characters; longer ones are no tokens of an API server, which reads headers of 1 MiB but issues them of 1 to 3 KiB."""

T = TypeVar("T")


class ReviewAccess:
    """Access over an API server. Tokens are kept as digests only. `now_ns`: a monotonic clock."""

    def __init__(self, api: Api, now_ns: Callable[[], int]) -> None:
        self._api = api
        self._principals: Cache[str, Principal] = Cache(now_ns, MOST_KEPT)
        self._refusals: Cache[str, bool] = Cache(now_ns, MOST_KEPT)
        self._rights: Cache[tuple[Principal, str, str], bool] = Cache(now_ns, MOST_KEPT)
        self._known_tokens = ReviewQueue(at_once=8, most=400, most_each=20)
        self._unknown_tokens = ReviewQueue(at_once=4, most=64, most_each=64)
        self._access_reviews = ReviewQueue(at_once=8, most=400, most_each=20)
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}

    async def exchange(self, token: str) -> str | None:
        return token if await self.authenticate(token) is not None else None

    async def authenticate(self, token: str) -> Principal | None:
        if not token or len(token) > MOST_TOKEN or not token.isascii():
            return None
        digest = hashlib.sha256(token.encode()).hexdigest()
        principal = self._principals.get(digest)
        if principal is not None or self._refusals.get(digest):
            return principal
        before = self._principals.last(digest)
        queue, caller = (self._unknown_tokens, "") if before is None else (self._known_tokens, before.tenant)
        return await self._once(digest, lambda: queue.run(caller, lambda: self._review_token(token, digest)))

    async def may(self, who: Principal, verb: str, namespace: str) -> bool:
        key = (who, verb, namespace)
        allowed = self._rights.get(key)
        if allowed is not None:
            return allowed
        return await self._once(key, lambda: self._access_reviews.run(who.tenant, lambda: self._review_access(*key)))

    async def _review_token(self, token: str, digest: str) -> Principal | None:
        review = await self._api.create(TOKEN_REVIEW, _document("authentication", "TokenReview", {"token": token}))
        principal = _principal(object_at(review, "status"))
        if principal is not None:
            self._principals.put(digest, principal, PRINCIPAL_VALID_S)
        else:
            self._principals.drop(digest)
            self._refusals.put(digest, value=True, valid_s=REFUSAL_VALID_S)
        return principal

    async def _review_access(self, who: Principal, verb: str, namespace: str) -> bool:
        review = await self._api.create(ACCESS_REVIEW, _access_review(who, verb, namespace))
        allowed = object_at(review, "status").get("allowed") is True
        self._rights.put((who, verb, namespace), allowed, RIGHTS_VALID_S)
        return allowed

    async def _once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `work`; requests with the same question share one review, which continues if one of them disconnects."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._ended(key, done))
        result: T = await asyncio.shield(task)
        return result

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio doesn't log it if all requesters have disconnected


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
