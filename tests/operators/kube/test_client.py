"""The client against a small HTTP server: what is sent, and what becomes of answers that a real API server seldom gives."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from operators.kube import client
from operators.kube.api import (
    EMUJOB,
    JOB,
    NODE,
    POD,
    ApiAwayError,
    ConflictError,
    ForbiddenError,
    NotThereError,
    selector_of,
)
from operators.kube.client import KubeApi, refused
from operators.kube.kubeconfig import from_document

Reply = tuple[int, bytes]
FUTURE, PAST = "2999-01-01T00:00:00Z", "2001-01-01T00:00:00Z"


class Server:
    """Answers each request with the next of `replies`, the last one for ever; `requests`: first line, headers and body.

    `watch` writes the answer of a watch instead, until `over`.
    """

    def __init__(self, *replies: Reply, watch: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None) -> None:
        self._replies, self._watch = list(replies), watch
        self.over = asyncio.Event()
        self.open, self.none_open = 0, asyncio.Event()
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def tokens(self) -> list[str]:
        return [headers.get("authorization", "") for _, headers, _ in self.requests]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append((line.removesuffix(" HTTP/1.1"), headers, body))
                if self._watch is not None:
                    await self._watch(writer)
                    await self.over.wait()
                    break
                status, data = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
                writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self.open -= 1
            self.none_open.set()


@asynccontextmanager
async def serving(
    server: Server, user: dict[str, Any] | None = None, scheme: str = "http", **cluster: object
) -> AsyncIterator[KubeApi]:
    listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"{scheme}://127.0.0.1:{port}", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    api = KubeApi(from_document(document, "config"))
    try:
        yield api
    finally:
        await api.close()
        server.over.set()
        while server.open:
            server.none_open.clear()
            await server.none_open.wait()
        listener.close()
        await listener.wait_closed()


def ask(question: Callable[[KubeApi], Awaitable[Any]], *replies: Reply, user: dict[str, Any] | None = None) -> Server:
    server = Server(*replies)

    async def play() -> None:
        async with serving(server, user) as api:
            await question(api)

    asyncio.run(play())
    return server


def ok(document: object) -> Reply:
    return 200, json.dumps(document).encode()


EMPTY = ok({"metadata": {"resourceVersion": "5"}, "items": []})


def plugin(tmp_path: Path, status: dict[str, object], version: str = "v1", code: int = 0) -> dict[str, Any]:
    """A credential plugin, as EKS and GKE write it into a kubeconfig: it notes what it is asked, then answers."""
    program = tmp_path / "login"
    answer = {"apiVersion": f"client.authentication.k8s.io/{version}", "kind": "ExecCredential", "status": status}
    program.write_text(
        f"#!{sys.executable} -IS\nimport json, os, sys\n"
        f"open({str(tmp_path / 'asked')!r}, 'a').write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
        f"print('log in first', file=sys.stderr)\n"
        f"print({json.dumps(answer)!r}.replace('NUMBER', os.environ['PREFIX'] + sys.argv[1]))\nsys.exit({code})\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    members: dict[str, Any] = {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(program)}
    return members | {"args": ["7"], "env": [{"name": "PREFIX", "value": "n"}], "interactiveMode": "Never"}


def asked(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "asked").read_text(encoding="utf-8").splitlines()]


# -- credentials -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_credential_plugin_gives_the_token_and_runs_once(version: str, tmp_path: Path) -> None:
    async def twice(api: KubeApi) -> None:
        await asyncio.gather(api.list(NODE), api.list(POD))

    user = {"exec": plugin(tmp_path, {"token": "t-NUMBER\n", "expirationTimestamp": FUTURE}, version)}
    server = ask(twice, EMPTY, user=user)
    assert server.tokens == ["Bearer t-n7", "Bearer t-n7"]
    (question,) = asked(tmp_path)
    assert question["apiVersion"] == f"client.authentication.k8s.io/{version}"
    assert question["spec"] == {"interactive": False}


def test_a_credential_plugin_runs_again_when_its_token_has_expired_or_is_refused(tmp_path: Path) -> None:
    async def twice(api: KubeApi) -> None:
        await api.list(NODE)
        await api.list(NODE)

    ask(twice, EMPTY, user={"exec": plugin(tmp_path, {"token": "t", "expirationTimestamp": PAST})})
    assert len(asked(tmp_path)) == 2
    (tmp_path / "asked").unlink()
    server = ask(twice, (401, b""), EMPTY, user={"exec": plugin(tmp_path, {"token": "t"})})
    assert len(asked(tmp_path)) == 2 and len(server.requests) == 3


def test_a_token_that_can_not_be_renewed_is_not_sent_twice() -> None:
    async def once(api: KubeApi) -> None:
        with pytest.raises(ForbiddenError, match="list nodes: HTTP status 401; the chart's RBAC"):
            await api.list(NODE)

    assert len(ask(once, (401, b""), user={"token": "t"}).requests) == 1


def test_a_plugin_learns_the_cluster_where_it_asks_for_it(tmp_path: Path) -> None:
    async def play() -> None:
        user = {"exec": plugin(tmp_path, {"token": "t"}) | {"provideClusterInfo": True}}
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "lab"}}
        async with serving(Server(EMPTY), user, extensions=[extension], **{"tls-server-name": "api"}) as api:
            await api.list(NODE)

    asyncio.run(play())
    cluster = asked(tmp_path)[0]["spec"]["cluster"]
    assert cluster.pop("server").startswith("http://127.0.0.1:")
    assert cluster == {"tls-server-name": "api", "config": {"audience": "lab"}}


@pytest.mark.parametrize(
    ("members", "status", "code", "message"),
    [
        ({"command": "/nowhere/aws"}, {}, 0, "/nowhere/aws can't be run (No such file or directory); install it"),
        ({"command": "/nowhere/aws", "installHint": "get\nit"}, {}, 0, "(No such file or directory); get it"),
        ({}, {"token": "t"}, 3, "ended with 3: log in first; log in again"),
        ({}, {}, 0, "gave neither a token nor a client certificate with its key"),
        ({}, {"clientCertificateData": "c"}, 0, "gave neither a token nor a client certificate with its key"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, {}, 0, "v1alpha1' is not supported; use client.auth"),
        (
            {"apiVersion": "client.authentication.k8s.io/v1beta1"},
            {"token": "t"},
            0,
            "but the kubeconfig asks for client",
        ),
        ({"interactiveMode": "Always"}, {"token": "t"}, 0, "but there is no terminal"),
        ({"command": ""}, {}, 0, "must name the program to run"),
        ({"command": "/bin/echo", "args": ["hello"]}, {}, 0, "/bin/echo printed no JSON"),
        ({"command": "/bin/echo", "args": ["[" * 100_000]}, {}, 0, "/bin/echo printed no JSON"),
        ({"args": ["a\0b"]}, {}, 0, "can't be run (embedded null byte)"),
        ({"env": [{"name": "a=b", "value": ""}]}, {}, 0, "can't be run (illegal environment variable name)"),
    ],
)
def test_what_is_wrong_with_a_plugin_is_said_in_one_line(
    members: dict[str, Any], status: dict[str, object], code: int, message: str, tmp_path: Path
) -> None:
    async def once(api: KubeApi) -> None:
        with pytest.raises(EmuGpuError) as caught:
            await api.list(NODE)
        assert message in str(caught.value) and "\n" not in str(caught.value)
        assert "config: context c: exec" in str(caught.value)

    assert ask(once, EMPTY, user={"exec": plugin(tmp_path, status, code=code) | members}).requests == []


def test_a_plugin_gets_a_certificate_authority_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "ca").write_bytes(b"\xff")
    server = Server(EMPTY)

    async def play() -> None:
        user = {"exec": plugin(tmp_path, {"token": "t"}) | {"provideClusterInfo": True}}
        async with serving(server, user, **{"certificate-authority": str(tmp_path / "ca")}) as api:
            await api.list(NODE)

    asyncio.run(play())
    assert asked(tmp_path)[0]["spec"]["cluster"]["certificate-authority-data"] == "/w=="


@pytest.mark.parametrize(
    ("user", "name"),
    [({"token": "t\n"}, "token"), ({"token": "t", "as": "a\r\nX-More: b"}, "as"), ({"exec": {}}, "token")],
)
def test_what_no_header_can_carry_is_an_error_in_one_line(user: dict[str, Any], name: str, tmp_path: Path) -> None:
    if "exec" in user:
        user = {"exec": plugin(tmp_path, {"token": "t\nu"})}

    async def once(api: KubeApi) -> None:
        with pytest.raises(ClusterError) as caught:
            await api.list(NODE)
        assert f"config: context c: its cluster or user can't be used ({name} has a line break" in str(caught.value)
        assert "\n" not in str(caught.value)

    assert ask(once, EMPTY, user=user).requests == []


def test_a_token_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet renews the token of a service account in place."""
    file = tmp_path / "token"
    file.write_text("first\n", encoding="utf-8")

    async def later(api: KubeApi) -> None:
        await api.list(NODE)
        file.write_text("second\n", encoding="utf-8")
        await api.list(NODE)
        monkeypatch.setattr("operators.kube.credentials.monotonic_ns", lambda: 10**18)
        await api.list(NODE)
        file.unlink()
        monkeypatch.setattr("operators.kube.credentials.monotonic_ns", lambda: 10**19)
        with pytest.raises(ClusterError, match=r"the token can't be read from .*token"):
            await api.list(NODE)

    monkeypatch.setattr("operators.kube.credentials.monotonic_ns", lambda: 10**17)
    server = ask(later, EMPTY, user={"tokenFile": str(file)})
    assert server.tokens == ["Bearer first", "Bearer first", "Bearer second"]


def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old", encoding="utf-8")
    replies = [EMPTY, (401, b""), EMPTY]

    async def later(api: KubeApi) -> None:
        await api.list(NODE)
        file.write_text("new", encoding="utf-8")
        await api.list(NODE)

    assert ask(later, *replies, user={"tokenFile": str(file)}).tokens == ["Bearer old", "Bearer old", "Bearer new"]


def test_names_and_passwords_and_impersonation() -> None:
    async def once(api: KubeApi) -> None:
        await api.list(NODE)

    server = ask(once, EMPTY, user={"username": "u", "password": "p", "as": "eve"})
    assert server.requests[0][1]["authorization"] == "Basic dTpw"
    assert server.requests[0][1]["impersonate-user"] == "eve"


def test_a_certificate_that_is_none_is_named() -> None:
    async def play() -> None:
        for user, cluster in (
            ({"client-certificate-data": "bm9uZQ==", "client-key-data": "bm9uZQ=="}, {}),
            ({}, {"certificate-authority-data": "bm9uZQ=="}),
            ({}, {"certificate-authority-data": "%"}),
        ):
            async with serving(Server(EMPTY), user, "https", **cluster) as api:
                with pytest.raises(ClusterError, match="config: context c: its cluster or user can't be used"):
                    await api.list(NODE)

    asyncio.run(play())


# -- requests ----------------------------------------------------------------------------------------------------------


def test_what_is_sent() -> None:
    document = {"metadata": {"name": "a", "namespace": "lab"}}

    async def all_of_them(api: KubeApi) -> None:
        await api.list(EMUJOB, namespace="lab", labels="a=b,!c", fields="spec.nodeName!=")
        await api.apply(JOB.status, "a", document, "me")
        await api.patch(EMUJOB, "a", document, "me")
        await api.patch(JOB, "a", document, "me")
        await api.bind("p", "lab", "u", "w1")
        await api.create(JOB, document)
        await api.replace(JOB, document)
        await api.delete(JOB, "a", "lab", uid="u")
        await api.delete(POD, "a", "lab", uid="u")
        await api.get(NODE, "w1")

    sent = ask(all_of_them, ok({"items": []})).requests
    batch, lab = "/apis/batch/v1/namespaces/lab/jobs", "/apis/emugpu.dev/v1alpha1/namespaces/lab/emujobs"
    assert [line for line, _, _ in sent] == [
        f"GET {lab}?limit=500&labelSelector=a%3Db,!c&fieldSelector=spec.nodeName!%3D",
        f"PATCH {batch}/a/status?fieldManager=me&force=true",
        f"PATCH {lab}/a?fieldManager=me",
        f"PATCH {batch}/a?fieldManager=me",
        "POST /api/v1/namespaces/lab/pods/p/binding",
        f"POST {batch}",
        f"PUT {batch}/a",
        f"DELETE {batch}/a",
        "DELETE /api/v1/namespaces/lab/pods/a",
        "GET /api/v1/nodes/w1",
    ]
    forms = [headers["content-type"].removeprefix("application/") for _, headers, _ in sent[1:4]]
    assert forms == ["apply-patch+yaml", "merge-patch+json", "strategic-merge-patch+json"]
    bodies = [json.loads(body) for _, _, body in sent[1:9]]
    assert bodies[0] == document and bodies[3]["target"]["name"] == "w1" and bodies[4]["kind"] == "Job"
    assert bodies[6] == {"propagationPolicy": "Foreground", "preconditions": {"uid": "u"}}
    assert bodies[7]["propagationPolicy"] == "Background"


def test_a_list_is_read_in_chunks() -> None:
    async def once(api: KubeApi) -> None:
        version, documents = await api.list(NODE)
        assert (version, [each["n"] for each in documents]) == ("9", [1, 2])

    first = ok({"metadata": {"continue": "next", "resourceVersion": "8"}, "items": [{"n": 1}]})
    sent = ask(once, first, ok({"metadata": {"resourceVersion": "9"}, "items": [{"n": 2}]})).requests
    assert [line for line, _, _ in sent] == [
        "GET /api/v1/nodes?limit=500",
        "GET /api/v1/nodes?limit=500&continue=next",
    ]


def test_a_continuation_that_is_too_old_is_not_there() -> None:
    async def once(api: KubeApi) -> None:
        with pytest.raises(NotThereError, match="list nodes: too old"):
            await api.list(NODE)

    first = ok({"metadata": {"continue": "next"}, "items": []})
    ask(once, first, (410, json.dumps({"kind": "Status", "code": 410, "message": "too old"}).encode()))


def test_an_answer_that_is_no_object_is_an_error() -> None:
    async def twice(api: KubeApi) -> None:
        for words in ("the answer is no JSON: <html>", "the answer is no object: 5"):
            with pytest.raises(ClusterError, match=words):
                await api.get(NODE, "w1")

    ask(twice, (200, b"<html>"), (200, b"5"))


# -- watches -----------------------------------------------------------------------------------------------------------


def watched(*lines: bytes) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []

    async def once(api: KubeApi) -> None:
        async for event in api.watch(NODE, "5"):
            found.append(event)

    server = ask(once, (200, b"".join(lines)))
    assert server.requests[0][0] == "GET /api/v1/nodes?watch=1&resourceVersion=5&timeoutSeconds=300"
    return found


def test_a_watch_gives_one_event_for_each_line_however_long() -> None:
    long = {"type": "ADDED", "object": {"a": "x" * 5_000_000}}
    short = {"type": "DELETED", "object": {"a": 1}}
    found = watched(json.dumps(long).encode() + b"\n", json.dumps(short).encode() + b"\n")
    assert found == [("ADDED", long["object"]), ("DELETED", short["object"])]


def test_a_version_that_is_forgotten_ends_a_watch() -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    with pytest.raises(NotThereError, match="watch nodes: too old resource version"):
        watched(json.dumps(gone).encode() + b"\n")


def test_an_event_that_is_no_json_is_an_error() -> None:
    with pytest.raises(ClusterError, match="watch nodes: an event is no JSON: <html>"):
        watched(b"<html>\n")


@pytest.mark.parametrize("code", [404, 410])
def test_a_watch_that_is_refused_is_an_error(code: int) -> None:
    async def once(api: KubeApi) -> None:
        with pytest.raises(NotThereError, match="watch nodes: gone"):
            async for _ in api.watch(NODE, "5"):
                pass

    ask(once, (code, json.dumps({"kind": "Status", "message": "gone"}).encode()))


def test_a_watch_ends_in_time_where_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the API server doesn't end it: a connection that died silently."""

    async def silent(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def once(api: KubeApi) -> None:
        async for _ in api.watch(NODE, "5"):
            pytest.fail("there is no event")

    monkeypatch.setattr(client, "WATCH_S", 0.2)

    async def play() -> None:
        async with serving(Server(watch=silent)) as api:
            await once(api)

    asyncio.run(play())


@pytest.mark.parametrize("turns", range(6))
def test_a_watch_ends_when_it_is_cancelled_as_news_comes(turns: int) -> None:
    """Whichever comes first in the loop: a cancellation that is lost leaves the program waiting for ever."""
    news = asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n")
        await news.wait()
        line = b'{"type": "ADDED", "object": {}}\n'
        writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    async def follow(api: KubeApi) -> None:
        async for _ in api.watch(NODE, "1"):
            pass

    async def play() -> None:
        async with serving(Server(watch=slow)) as api:
            task = asyncio.create_task(follow(api))
            await asyncio.sleep(0.05)
            news.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            _, late = await asyncio.wait({task}, timeout=20)
            assert not late and task.cancelled()

    asyncio.run(play())


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_api_server_that_is_away_or_silent() -> None:
    async def silent(_writer: asyncio.StreamWriter) -> None:
        return

    async def play() -> None:
        async with serving(Server(watch=silent)) as api:
            api._timeout_s = 0.1
            with pytest.raises(ApiAwayError, match="get nodes w1: the API server can't be reached"):
                await api.get(NODE, "w1")
        with pytest.raises(ApiAwayError, match="can't be reached"):
            await api.get(NODE, "w1")
        await api.close()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("code", "message", "rights"),
    [
        (403, 'pods "a" is forbidden: User "u" cannot patch resource "pods/resize" in API group ""', True),
        (401, "Unauthorized", True),
        (403, 'pods "a" is forbidden: exceeded quota: q, requested: requests.cpu=2', False),
    ],
)
def test_only_a_missing_right_is_blamed_on_the_chart(code: int, message: str, rights: bool) -> None:
    """Quotas and other admissions forbid with the same status."""
    body = json.dumps({"kind": "Status", "code": code, "message": message, "status": "Failure"}).encode()
    found = refused("patch pods a", code, body)
    assert isinstance(found, ForbiddenError) and str(found).startswith(f"patch pods a: {message}")
    assert ("RBAC" in str(found)) is rights


@pytest.mark.parametrize(
    ("code", "body", "kind", "text"),
    [
        (404, b"404 page not found\n", NotThereError, "404 page not found"),
        (409, b'{"message": "m"}', ConflictError, "m"),
        (409, b'{"message": "Operation cannot be fulfilled: uid mismatch"}', NotThereError, "uid mismatch"),
        (422, b'{"message": "metadata.uid: Invalid value: 5"}', NotThereError, "Invalid value"),
        (422, b'{"message": "m"}', ClusterError, "m"),
        (429, b"", ApiAwayError, "HTTP status 429"),
        (503, b"<html>\n" + b"x" * 1000, ApiAwayError, "<html> xxx"),
    ],
)
def test_each_status_has_its_error(code: int, body: bytes, kind: type[Exception], text: str) -> None:
    found = refused("doing", code, body)
    assert type(found) is kind and text in str(found) and len(str(found)) < 300


def test_a_selector_of_labels() -> None:
    assert selector_of({"a": "b", "c": "d"}) == "a=b,c=d"
