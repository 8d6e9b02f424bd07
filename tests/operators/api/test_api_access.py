"""Who may see and do what: tokens, cookies, namespaces, other sites' pages, other names of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from operators.api.application import application
from operators.api.authentication.access import Principal
from operators.api.authentication.one_time_link import OneTimeAccess
from operators.api.authentication.sessions import Sessions
from operators.api.authentication.token_reviews import ReviewAccess
from operators.api.replies.problems import BusyError
from operators.api.services import Services
from operators.kube.api import ApiAwayError

READS = (
    *("/clusters", "/nodes", "/devices", "/jobs", "/queue", "/occupancy", "/experiments", "/experiments/e"),
    *("/policies", "/metrics-summary", "/events"),
)
OF_A_JOB = ("/jobs/u1", "/jobs/u1/steps")
OWN = {"X-Emugpu-Request": "1"}


@pytest.mark.parametrize("path", [*READS, *OF_A_JOB, "/session"])
@pytest.mark.parametrize("token", ["", "wrong", "Bearer", "root-token\u00e9"])
def test_without_a_good_token_nothing_is_reported(place: Any, path: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
    reply = place.client.get(f"/api/v1{path}", headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (401, "sign-in")
    assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("scheme", ["Basic cm9vdA==", "root-token", "", "bearer"])
def test_other_schemes_are_no_tokens(place: Any, scheme: str) -> None:
    assert place.client.get("/api/v1/nodes", headers={"Authorization": scheme}).status_code == 401


@pytest.mark.parametrize("path", READS)
def test_who_may_not_list_everything_names_a_namespace(place: Any, path: str) -> None:
    assert place.status(path, "bob-token") == (403, "forbidden")
    assert place.status(path, "ann-token") == (403, "forbidden")
    assert place.status(path, "ann-token", namespace="other") == (403, "forbidden")
    if path not in ("/events", "/experiments/e"):
        assert place.status(path, "ann-token", namespace="lab")[0] == 200


def test_a_namespaces_reader_sees_its_jobs_only(place: Any) -> None:
    assert [each["uid"] for each in place.get("/jobs", "ann-token", namespace="lab")["items"]] == ["u1", "u3"]
    assert place.get("/clusters", "ann-token", namespace="lab")["items"][0]["jobs"] == {"Running": 1, "Succeeded": 1}
    assert place.status("/jobs/u2", "ann-token") == (403, "forbidden")
    assert place.status("/jobs/u2/steps", "ann-token") == (403, "forbidden")
    assert place.status("/jobs/u1", "ann-token")[0] == 200
    spans = place.get("/occupancy", "ann-token", namespace="lab")["spans"]
    assert {span["job"] for span in spans} == {"u1", "u3"}


def test_by_whom_a_device_is_held_is_for_its_namespaces_readers(place: Any) -> None:
    held = place.source.now.devices[0]
    devices = (replace(held, holders=("u1", "u2")), *place.source.now.devices[1:])
    place.source.now = replace(place.source.now, devices=devices)
    first = place.get("/devices", "ann-token", namespace="lab")["items"][0]
    assert (first["held"], first["holders"]) == (True, ["u1"])


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_a_reader_is_no_writer(place: Any, verb: str) -> None:
    assert place.status(f"/jobs/u1/{verb}", "", "POST") == (401, "sign-in")
    assert place.status(f"/jobs/u1/{verb}", "wrong", "POST") == (401, "sign-in")
    assert place.status(f"/jobs/u1/{verb}", "ed-token", "POST") == (403, "forbidden")
    assert place.status(f"/jobs/u2/{verb}", "ann-token", "POST") == (403, "forbidden")
    assert place.source.asked == []
    assert place.status(f"/jobs/u1/{verb}", "ann-token", "POST")[0] == 200


# --- cookies ----------------------------------------------------------------------------------------------------------------


def sign_in(place: Any, token: str = "root-token") -> Any:
    reply = place.client.post("/api/v1/session", headers={"Authorization": f"Bearer {token}"})
    assert reply.status_code == 201, reply.text
    return reply


def test_a_token_becomes_a_cookie(place: Any) -> None:
    reply = sign_in(place)
    assert reply.json() == {"user": "root", "everything": True, "lasts_s": 3600}
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith("emugpu-8765=")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=3600"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert "root-token" not in cookie
    assert place.client.get("/api/v1/nodes").status_code == 200
    assert place.client.get("/api/v1/session").json()["user"] == "root"


def test_beyond_loopback_the_cookie_is_for_tls_only(place: Any) -> None:
    client = TestClient(place.app, base_url="https://emugpu.example.com")
    cookie = client.post("/api/v1/session", headers={"Authorization": "Bearer root-token"}).headers["set-cookie"]
    assert cookie.startswith("__Host-emugpu=")
    assert {"Secure", "HttpOnly", "Path=/"} <= set(cookie.split("; "))
    assert client.get("/api/v1/nodes").status_code == 200


def test_signing_out_ends_the_session_itself(place: Any) -> None:
    value = sign_in(place).cookies["emugpu-8765"]
    assert place.client.delete("/api/v1/session").status_code == 403  # without our header
    assert place.client.delete("/api/v1/session", headers=OWN).status_code == 204
    assert place.client.get("/api/v1/session").status_code == 401
    place.client.cookies.set("emugpu-8765", value)  # whoever kept a copy
    assert place.client.get("/api/v1/session").status_code == 401


def test_a_session_ends_with_its_token_and_with_its_time(place: Any) -> None:
    sign_in(place)
    place.now_ns = 3599 * 10**9
    assert place.client.get("/api/v1/nodes").status_code == 200
    user = place.access.tokens.pop("root-token")
    assert place.client.get("/api/v1/nodes").status_code == 401
    place.access.tokens["root-token"] = user
    assert place.client.get("/api/v1/nodes").status_code == 200
    place.now_ns = 3600 * 10**9
    assert place.client.get("/api/v1/nodes").status_code == 401


def test_a_wrong_token_begins_no_session(place: Any) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic cm9vdA=="}):
        reply = place.client.post("/api/v1/session", headers=headers)
        assert (reply.status_code, "set-cookie" in reply.headers) == (401, False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(data=st.data())
def test_forged_cookies_are_nobodys(place: Any, data: st.DataObject) -> None:
    """Whatever is done to a good cookie, it is not good any more."""
    place.client.cookies.clear()
    good = sign_in(place).cookies["emugpu-8765"]
    name, ends, signature = good.split(".")
    signs = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='",;\\')
    forged = data.draw(
        st.one_of(
            st.text(signs, max_size=150),
            st.integers(0, len(good) - 1).map(lambda i: good[:i] + ("A" if good[i] != "A" else "B") + good[i + 1 :]),
            st.integers(0, len(good) - 1).map(lambda i: good[:i]),
            st.integers(1, 10**9).map(lambda more: f"{name}.{int(ends) + more}.{signature}"),
            st.just(f"{name}.{ends}.{'0' * 64}"),
            st.just(f"{name}.{ends}.{signature.upper()}"),
            st.just(good + "."),
        ).filter(lambda value: value != good and not value.startswith(good))
    )
    headers = {"Cookie": f"emugpu-8765={forged}"}
    place.client.cookies.clear()
    assert place.client.get("/api/v1/nodes", headers=headers).status_code == 401


def test_a_cookie_of_another_process_is_nobodys(place: Any) -> None:
    value = Sessions(b"another key", lambda: 0, lasts_s=3600).begin("root", "root-token")
    assert place.client.get("/api/v1/nodes", headers={"Cookie": f"emugpu-8765={value}"}).status_code == 401


def test_whoever_signs_in_again_and_again_ends_own_sessions_only() -> None:
    sessions = Sessions(b"k", lambda: 0, most=5, most_each=3)
    victim = sessions.begin("victim", "token")
    own = [sessions.begin("mallory", f"token-{n}") for n in range(4)]
    assert [sessions.token(cookie) for cookie in (victim, *own)] == ["token", None, "token-1", "token-2", "token-3"]
    sessions.end(own[1])
    assert sessions.token(sessions.begin("mallory", "another")) == "another"
    assert sessions.token(own[2]) == "token-2", "an ended session takes no place"


def test_when_all_places_are_taken_the_tenant_with_most_sessions_loses_the_oldest() -> None:
    sessions = Sessions(b"k", lambda: 0, most=3, most_each=3)
    victim = sessions.begin("victim", "token")
    own = [sessions.begin("mallory", f"token-{n}") for n in range(2)]
    other = sessions.begin("other", "of-other")
    assert [sessions.token(cookie) for cookie in (victim, *own, other)] == ["token", None, "token-1", "of-other"]


def test_a_user_who_signs_in_too_often_loses_an_own_session(place: Any) -> None:
    cookies = []
    for token in ("root-token", *["ann-token"] * 4):
        cookies.append(sign_in(place, token).headers["set-cookie"].split(";")[0])
        place.client.cookies.clear()
    codes = [place.client.get("/api/v1/session", headers={"Cookie": cookie}).status_code for cookie in cookies]
    assert codes == [200, 401, 200, 200, 200]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        (OWN, 200),
        (OWN | {"Sec-Fetch-Site": "same-origin"}, 200),
        (OWN | {"Sec-Fetch-Site": "cross-site"}, 403),
        (OWN | {"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 403),
    ],
)
def test_another_sites_page_changes_nothing(place: Any, headers: dict[str, str], status: int) -> None:
    sign_in(place)
    assert place.client.post("/api/v1/jobs/u1/suspend", headers=headers).status_code == status
    assert len(place.source.asked) == (status == 200)


def test_no_other_site_is_let_in_by_cors(place: Any) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    reply = place.client.options("/api/v1/jobs/u1/suspend", headers=headers)
    assert reply.status_code == 405
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_only_the_names_that_were_given_are_answered(place: Any) -> None:
    known: Services = place.app.state.services
    client = TestClient(
        application(replace(known, hosts=frozenset({"127.0.0.1:8765"}))), base_url="http://127.0.0.1:8765"
    )
    good = {"Authorization": "Bearer root-token"}
    assert client.get("/api/v1/nodes", headers=good).status_code == 200
    for host in ("evil.example", "127.0.0.1", "127.0.0.1:8766", "127.0.0.1:8765.evil.example", ""):
        reply = client.get("/api/v1/nodes", headers=good | {"Host": host})
        assert (reply.status_code, reply.json()["code"]) == (421, "misdirected-request")
    assert client.get("/healthz", headers={"Host": "10.0.0.7:9404"}).status_code in (200, 503)


@pytest.mark.parametrize("path", ["/", "/jobs", "/sign-in", "/api/v1/nodes", "/nothing"])
def test_every_reply_is_guarded(place: Any, path: str) -> None:
    headers = place.client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "script-src 'unsafe" not in policy and "unsafe-eval" not in policy


# --- a laptop's link --------------------------------------------------------------------------------------------------------


def test_a_link_works_once() -> None:
    async def story() -> None:
        access = OneTimeAccess("token", writable=False)
        assert await access.authenticate("token") is None
        assert await access.exchange("other") is None
        secret = await access.exchange("token")
        assert secret is not None and secret != "token"
        assert await access.exchange("token") is None
        owner = await access.authenticate(secret)
        assert owner is not None
        assert await access.may(owner, "list", "")
        assert not await access.may(owner, "patch", "")

    asyncio.run(story())


# --- reviews ----------------------------------------------------------------------------------------------------------------


class Reviewer:
    """Answers reviews as an API server does, and counts them."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.allowed = True

    async def create(self, _resource: Any, document: dict[str, Any], _manager: str = "") -> dict[str, Any]:
        self.asked.append(document)
        if self.failure is not None:
            raise self.failure
        if document["kind"] == "TokenReview":
            good = document["spec"]["token"] == "good"
            user = {"username": "ann", "uid": "1", "groups": ["dev"], "extra": {"scope": ["a", "b"]}}
            return document | {"status": {"authenticated": True, "user": user} if good else {"authenticated": False}}
        return document | {"status": {"allowed": self.allowed}}


def reviewing(story: Callable[[Reviewer, ReviewAccess, list[int]], Any]) -> None:
    reviewer, now = Reviewer(), [0]
    asyncio.run(story(reviewer, ReviewAccess(reviewer, lambda: now[0]), now))  # type: ignore[arg-type]


def test_reviews_hold_for_a_short_time() -> None:
    async def story(reviewer: Reviewer, access: ReviewAccess, now: list[int]) -> None:
        ann = Principal("ann", "1", ("dev",), {"scope": ("a", "b")})
        for _ in range(3):
            assert await access.authenticate("good") == ann
            assert await access.authenticate("bad") is None
            assert await access.may(ann, "get", "lab")
        assert len(reviewer.asked) == 3
        now[0] = 11 * 10**9  # a token that was nobody's may have become somebody's
        assert await access.authenticate("bad") is None
        assert len(reviewer.asked) == 4
        now[0], reviewer.allowed = 31 * 10**9, False
        assert not await access.may(ann, "get", "lab")
        now[0] = 61 * 10**9
        assert await access.authenticate("good") == ann
        assert len(reviewer.asked) == 6

    reviewing(story)


def test_a_review_says_who_and_what() -> None:
    async def story(reviewer: Reviewer, access: ReviewAccess, _now: list[int]) -> None:
        ann = await access.authenticate("good")
        assert ann is not None
        await access.may(ann, "patch", "lab")
        spec = reviewer.asked[-1]["spec"]
        assert spec["resourceAttributes"] == {
            "group": "emugpu.dev",
            "resource": "emujobs",
            "verb": "patch",
            "namespace": "lab",
        }
        assert (spec["user"], spec["groups"], spec["extra"]) == ("ann", ["dev"], {"scope": ["a", "b"]})

    reviewing(story)


@pytest.mark.parametrize("token", ["", "é", "x" * 20_000])
def test_what_is_no_token_is_not_asked_about(token: str) -> None:
    async def story(reviewer: Reviewer, access: ReviewAccess, _now: list[int]) -> None:
        assert await access.authenticate(token) is None
        assert reviewer.asked == []

    reviewing(story)


def test_a_review_that_fails_is_not_kept() -> None:
    async def story(reviewer: Reviewer, access: ReviewAccess, _now: list[int]) -> None:
        reviewer.failure = ApiAwayError("away")
        with pytest.raises(ApiAwayError):
            await access.authenticate("good")
        reviewer.failure = None
        assert await access.authenticate("good") is not None

    reviewing(story)


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": True},
        {"authenticated": True, "user": {}},
        {"authenticated": "true", "user": {"username": "x"}},
        {"user": {"username": "x"}},
    ],
)
def test_half_an_answer_is_nobody(status: dict[str, Any]) -> None:
    class Odd(Reviewer):
        async def create(self, _resource: Any, document: dict[str, Any], _manager: str = "") -> dict[str, Any]:
            return document | {"status": status}

    assert asyncio.run(ReviewAccess(Odd(), lambda: 0).authenticate("good")) is None  # type: ignore[arg-type]


class SlowReviewer(Reviewer):
    """Answers TokenReviews of unknown tokens when the test opens `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.answered = 0

    async def create(self, resource: Any, document: dict[str, Any], manager: str = "") -> dict[str, Any]:
        if document["spec"].get("token", "good") != "good":
            await self.gate.wait()
        await asyncio.sleep(0)
        self.answered += 1
        return await super().create(resource, document, manager)


def test_a_known_user_does_not_wait_behind_strangers() -> None:
    async def story() -> None:
        reviewer, now = SlowReviewer(), [0]
        access = ReviewAccess(reviewer, lambda: now[0])  # type: ignore[arg-type]
        ann = await access.authenticate("good")
        assert ann is not None
        strangers = [asyncio.create_task(access.authenticate(f"stranger-{n}")) for n in range(500)]
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert await access.authenticate("good") == ann  # from memory
            assert await access.may(ann, "get", "lab")
            now[0] = 61 * 10**9  # the verdict has expired: reviewed in the queue of known tokens
            assert await access.authenticate("good") == ann
            assert await access.may(ann, "get", "lab")
        refused = [task for task in strangers if task.done()]
        assert len(refused) == 500 - 64
        for task in refused:
            with pytest.raises(BusyError):
                task.result()
        reviewer.gate.set()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*(task for task in strangers if task not in refused)) == [None] * 64

    asyncio.run(story())


def test_made_up_tokens_do_not_push_verdicts_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.api.authentication.token_reviews.MOST_KEPT", 5)

    async def story(reviewer: Reviewer, access: ReviewAccess, _now: list[int]) -> None:
        assert await access.authenticate("good") is not None
        for number in range(20):
            assert await access.authenticate(f"stranger-{number}") is None
        asked = len(reviewer.asked)
        assert await access.authenticate("good") is not None
        assert len(reviewer.asked) == asked

    reviewing(story)


def test_requests_with_one_token_share_one_review() -> None:
    async def story(reviewer: Reviewer, access: ReviewAccess, _now: list[int]) -> None:
        pages = [asyncio.create_task(access.authenticate("good")) for _ in range(30)]
        await asyncio.sleep(0)
        pages[0].cancel()  # who asked first hangs up
        found = await asyncio.gather(*pages, return_exceptions=True)
        assert {each.user for each in found[1:] if isinstance(each, Principal)} == {"ann"}
        assert len(found) == 30
        assert len(reviewer.asked) == 1

    reviewing(story)


def test_one_user_cannot_take_all_reviews_of_rights() -> None:
    async def story() -> None:
        reviewer = SlowReviewer()

        async def slow(*arguments: Any) -> Any:
            await reviewer.gate.wait()
            return await Reviewer.create(reviewer, *arguments)

        reviewer.create = slow  # type: ignore[method-assign]
        access = ReviewAccess(reviewer, lambda: 0)  # type: ignore[arg-type]
        greedy = [asyncio.create_task(access.may(Principal("eve"), "get", f"n{n}")) for n in range(100)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        modest = asyncio.create_task(access.may(Principal("ann"), "get", "lab"))
        await asyncio.sleep(0)
        reviewer.gate.set()
        async with asyncio.timeout(20):
            assert await modest
            results = await asyncio.gather(*greedy, return_exceptions=True)
        assert sum(result is True for result in results) == 20
        assert sum(isinstance(result, BusyError) for result in results) == 80

    asyncio.run(story())


# --- redirects --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *("//evil.example", "/.//evil.example", "//evil.example/", "/jobs/", "/sign-in/", "/\\evil.example/", "/%2f/"),
        *("/sign-in?next=//evil.example", "/sign-in?next=/.//evil.example", "/api/v1/jobs/", "/%5cevil.example/"),
        *("/%0d%0aLocation:%20https://evil.example", "/assets//evil.example/", "/https://evil.example/"),
    ],
)
def test_the_server_redirects_nobody(place: Any, path: str) -> None:
    for headers in ({}, {"Host": "evil.example"}):
        request = place.client.build_request("GET", "http://127.0.0.1:8765/", headers=headers)
        request.url = request.url.copy_with(raw_path=path.encode())
        reply = place.client.send(request, follow_redirects=False)
        assert reply.status_code in (200, 401, 404), (path, reply.headers)
        assert "location" not in reply.headers
