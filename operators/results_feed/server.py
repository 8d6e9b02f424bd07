"""The feed as pages of an HTTP server in the jobs controller: results of all namespaces, for the API's account and nobody else.

A NetworkPolicy lets only the API's pods connect. Clusters may not enforce it, so every request also carries a token of the API's
service account with the audience AUDIENCE, which the API server reviews. A token with this audience has no other use, and
the default tokens of pods are not valid here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.http_server import Reply, Request
from operators.kube.api import TOKEN_REVIEW, Api
from operators.kube.documents import object_at, text_at
from operators.results_feed.feed import ResultsFeed
from operators.results_feed.messages import CHANGES, HISTORY, changes_to_json, history_to_json

AUDIENCE = "emugpu-results"
REVIEW_VALID_S = 60
"""How long a reviewed token is accepted without another review."""
_REVIEW_TIMEOUT_S = 3.0
_JSON = "application/json"
_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_UID = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{0,63}", re.ASCII)


class TokenCheck:
    """Whether a token is one of `readers` (user names) for AUDIENCE. Called in threads; `api` belongs to `loop`."""

    def __init__(
        self, api: Api, loop: asyncio.AbstractEventLoop, readers: frozenset[str], now_ns: Callable[[], int]
    ) -> None:
        self._api, self._loop, self._readers, self._now_ns = api, loop, readers, now_ns
        self._accepted: dict[str, int] = {}

    def __call__(self, token: str) -> bool:
        """Raises EmuGpuError if the API server can't be reached."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        if self._accepted.get(digest, 0) > self._now_ns():
            return True
        reviewing = asyncio.run_coroutine_threadsafe(self._review(token), self._loop)
        try:
            good = reviewing.result(_REVIEW_TIMEOUT_S)
        except TimeoutError as error:
            reviewing.cancel()
            raise ClusterError("the API server did not review the token in time") from error
        if good:  # few: the tokens of one account
            now_ns = self._now_ns()
            valid = {known: until_ns for known, until_ns in self._accepted.items() if until_ns > now_ns}
            self._accepted = valid | {digest: now_ns + REVIEW_VALID_S * NS_PER_S}
        return good

    async def _review(self, token: str) -> bool:
        spec = {"token": token, "audiences": [AUDIENCE]}
        document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": spec}
        return is_reader(object_at(await self._api.create(TOKEN_REVIEW, document), "status"), self._readers)


def is_reader(status: Mapping[str, Any], readers: frozenset[str]) -> bool:
    """Whether a TokenReview's status names a reader. An API server without audiences omits them: then nobody is a reader."""
    audiences = status.get("audiences")
    for_us = isinstance(audiences, list) and AUDIENCE in audiences
    return status.get("authenticated") is True and for_us and text_at(object_at(status, "user"), "username") in readers


def feed_pages(
    feed: Callable[[], ResultsFeed | None], accepted: Callable[[str], bool], leads: Callable[[], bool]
) -> Callable[[Request], Reply]:
    """Answers GET /changes?since=VERSION and /history?uid=UID. `feed` None, or `leads` false: another replica has the store."""

    def answer(request: Request) -> Reply:
        scheme, _, token = request.authorization.partition(" ")
        try:
            if scheme != "Bearer" or not token or not accepted(token):
                return _problem(401, f"send a token of the API's service account with the audience {AUDIENCE}")
            store = feed()
            if store is None or not leads():
                return _problem(503, "this replica of the jobs controller does not lead, another one has the store")
            return _answered(request, store)
        except EmuGpuError as error:
            return _problem(503, str(error))

    return answer


def _answered(request: Request, store: ResultsFeed) -> Reply:
    query = {name: values[0] for name, values in parse_qs(request.query).items()}
    if request.path == CHANGES and _NUMBER.fullmatch(query.get("since", "")):
        return 200, _JSON, changes_to_json(store.changes(int(query["since"])))
    if request.path == HISTORY and _UID.fullmatch(query.get("uid", "")):
        return 200, _JSON, history_to_json(store.history(query["uid"]))
    return _problem(404, f"there are {CHANGES}?since=VERSION and {HISTORY}?uid=UID")


def _problem(status: int, text: str) -> Reply:
    return status, _JSON, json.dumps({"problem": text}).encode()
