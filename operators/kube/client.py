"""The border to the API server: no other file uses the client library (`kubernetes.aio`); its errors become ours here, once.

Requests and answers are plain JSON through the library's ApiClient, whose connections, TLS and credentials come from its own
kubeconfig loader. The library costs half a second and 25 MB (DESIGN.md), so it is imported where a KubeApi is made, not here.

Everything applied is a server-side apply with one field manager, so other managers keep their fields of the same object.
A `uid` in an applied object is a precondition: a Node that was deleted and created anew is not changed, and one that was
deleted is not created again (Kubernetes documentation, "Server-Side Apply").
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from operators.kube.api import (
    POD,
    POD_BINDING,
    ApiAwayError,
    ConflictError,
    ForbiddenError,
    Json,
    NotThereError,
    Resource,
)
from operators.kube.credentials import Credentials
from operators.kube.documents import object_at, text_at, whole_at
from operators.kube.kubeconfig import HOW, Connection, connection

WATCH_S = 300.0
"""A watch ends after this time and everything is listed anew: the resync, and the end of a connection that died silently."""
CHUNK = 500
"""Objects per request of a list, as client-go."""
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_STRATEGIC = "application/strategic-merge-patch+json"


class KubeApi:
    """Api over HTTP. Raises NotThereError, ConflictError, ForbiddenError, ApiAwayError, else ClusterError.

    Each names what was tried. Use it within one event loop, and close it there. `timeout_s`: maximum wait for a connection, and
    for each part of an answer.
    """

    def __init__(self, to: Connection | None = None, *, timeout_s: float = 10.0) -> None:
        import kubernetes.aio.config.kube_config  # noqa: F401  (now: a first request that takes a second may cost a lease)

        self._connection = to if to is not None else connection()
        self._credentials = Credentials(self._connection)
        self._timeout_s = timeout_s
        self._client: Any = None  # kubernetes.aio.client.ApiClient
        self._opening = asyncio.Lock()

    async def list(
        self, resource: Resource, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> tuple[str, list[Json]]:
        query = {"limit": str(CHUNK), **_selection(labels, fields)}
        documents: list[Json] = []
        while True:
            found = await self._json(f"list {resource.plural}", "GET", resource.path(namespace), query)
            documents += found.get("items") or ()
            metadata = object_at(found, "metadata")
            if not text_at(metadata, "continue"):
                return text_at(metadata, "resourceVersion"), documents
            query["continue"] = text_at(metadata, "continue")

    async def watch(
        self, resource: Resource, version: str, *, namespace: str = "", labels: str = "", fields: str = ""
    ) -> AsyncIterator[tuple[str, Json]]:
        doing = f"watch {resource.plural}"
        deadline = asyncio.get_running_loop().time() + WATCH_S
        query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(round(WATCH_S))}
        with _translated(doing):
            response = await self._send("GET", resource.path(namespace), query | _selection(labels, fields), lasts=True)
        try:
            if response.status >= 400:
                with _translated(doing):
                    data = await response.read()
                raise refused(doing, response.status, data)
            buffer = bytearray()
            while True:
                with _translated(doing):
                    try:
                        async with asyncio.timeout_at(
                            deadline
                        ) as limit:  # Python 3.11's wait_for can lose a cancellation
                            data = await response.response.content.readany()
                    except TimeoutError:
                        if limit.expired():
                            return
                        raise
                if not data:
                    return
                buffer += data
                if b"\n" in data:
                    *lines, rest = buffer.split(b"\n")
                    buffer = rest
                    for line in filter(None, lines):
                        yield _event(doing, line)
        finally:
            response.response.close()

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json:
        return await self._json(f"get {resource.plural} {name}", "GET", resource.path(namespace, name))

    async def text(self, path: str) -> str:
        return (await self._read(f"get {path}", "GET", path)).decode(errors="replace")

    async def apply(self, resource: Resource, name: str, document: Json, manager: str) -> Json:
        path, query = resource.path(_namespace(document), name), {"fieldManager": manager, "force": "true"}
        return await self._json(f"apply {resource.plural} {name}", "PATCH", path, query, document, _APPLY)

    async def patch(self, resource: Resource, name: str, document: Json, manager: str) -> Json:
        path, query = resource.path(_namespace(document), name), {"fieldManager": manager}
        form = (
            _MERGE if resource.group.endswith("emugpu.dev") else _STRATEGIC
        )  # custom resources have no strategic merge
        return await self._json(f"patch {resource.plural} {name}", "PATCH", path, query, document, form)

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._json(f"bind pod {pod}", "POST", POD_BINDING.path(namespace, pod), body=document)

    async def create(self, resource: Resource, document: Json, manager: str = "") -> Json:
        query = {"fieldManager": manager} if manager else {}
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
        return await self._json(f"create {resource.plural}", "POST", resource.path(_namespace(document)), query, whole)

    async def replace(self, resource: Resource, document: Json) -> Json:
        name = str(document["metadata"]["name"])
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **document}
        return await self._json(
            f"replace {resource.plural} {name}", "PUT", resource.path(_namespace(document), name), body=whole
        )

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, uid: str = "") -> None:
        policy = "Background" if resource == POD else "Foreground"  # a pod has no dependents to wait for
        options: Json = {"propagationPolicy": policy, "preconditions": {"uid": uid}} if uid else {}
        try:
            await self._json(f"delete {resource.plural} {name}", "DELETE", resource.path(namespace, name), body=options)
        except NotThereError:
            return

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
            await client.configuration.client_session_kwargs["connector"].close()  # the library leaves ours open

    # --- requests ---------------------------------------------------------------------------------------------------

    async def _json(
        self,
        doing: str,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        form: str = "application/json",
    ) -> Json:
        data = await self._read(doing, method, path, query, body, form)
        try:
            found = json.loads(data)
        except ValueError as error:
            raise ClusterError(f"{doing}: the answer is no JSON: {_beginning(data)}") from error
        if not isinstance(found, dict):
            raise ClusterError(f"{doing}: the answer is no object: {_beginning(data)}")
        return found

    async def _read(
        self,
        doing: str,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        form: str = "application/json",
    ) -> bytes:
        with _translated(doing):
            response = await self._send(method, path, query or {}, body, form)
            data: bytes = await response.read()
        if response.status >= 400:
            raise refused(doing, response.status, data)
        return data

    async def _send(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Json | None = None,
        form: str = "application/json",
        *,
        lasts: bool = False,
    ) -> Any:
        """The answer, whose body isn't read yet. `lasts`: a watch, which may be silent for long."""
        from aiohttp import ClientTimeout

        wait_s = self._timeout_s
        timeout = ClientTimeout(total=None, connect=wait_s, sock_connect=wait_s, sock_read=None if lasts else wait_s)
        for again in (True, False):
            client = await self._open()
            method_, url, headers, body_, _ = await client.param_serialize(
                method,
                f"{path}?{urlencode(query)}" if query else path,
                header_params={"Accept": "application/json", "Content-Type": form},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await client.call_api(method_, url, headers, body_, _request_timeout=timeout)
            if response.status != 401 or not again or not self._credentials.renewable:
                break
            self._credentials.expire()
            response.response.release()
        return response

    async def _open(self) -> Any:
        """The client, with credentials that hold."""
        if self._client is not None and not self._credentials.due:
            return self._client
        async with self._opening:
            if self._client is None or self._credentials.due:
                self._client = await _configured(self._connection, self._credentials, self._client)
            return self._client


async def _configured(to: Connection, credentials: Credentials, client: Any) -> Any:
    """A new client, or the old one with new credentials. Raises ClusterError naming the files."""
    from kubernetes.aio.client import ApiClient, Configuration
    from kubernetes.aio.config.kube_config import KubeConfigLoader

    loader: Any = KubeConfigLoader  # without types
    user = await credentials.user()
    configuration = Configuration() if client is None else client.configuration
    configuration.disable_strict_ssl_verification = True  # as kubectl: the CAs of old clusters have no key identifiers
    document = {
        "current-context": "this",
        "contexts": [{"name": "this", "context": {"cluster": "this", "user": "this"}}],
        "clusters": [{"name": "this", "cluster": dict(to.cluster)}],
        "users": [{"name": "this", "user": user}],
    }
    try:
        await loader(document, config_base_path=None).load_and_set(configuration)
        for name, text in (("token", configuration.api_key.get("BearerToken", "")), ("as", to.user.get("as", ""))):
            if not text.isprintable():
                raise ValueError(f"{name} has a line break or another character that no HTTP header may have")
        if client is None:
            client = ApiClient(configuration)
            client.user_agent = "emugpu"
            configuration.client_session_kwargs = {"connector": _connector(client.rest_client.ssl_context)}
            if to.user.get("as"):
                client.set_default_header("Impersonate-User", to.user["as"])
        elif configuration.cert_file:
            client.rest_client.ssl_context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except Exception as error:  # a certificate or key that is none may end in any error of ssl, base64 or the library
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise ClusterError(f"{to.source}: its cluster or user can't be used ({what}); {HOW}") from error
    return client


def _connector(ssl_context: Any) -> Any:
    """Connections that are dropped at once where a watch or a request is cancelled.

    aiohttp waits for TLS's closing handshake (close_notify) in the background instead, and `close()` doesn't wait for that: where
    the API server is busy, the connection outlives the event loop (up to 30 s, Python's limit) and is reported as never closed.
    """
    from aiohttp import TCPConnector

    class Connector(TCPConnector):
        def _release(self, key: Any, protocol: Any, *, should_close: bool = False) -> None:
            if should_close and not self.closed:
                protocol.abort()
            super()._release(key, protocol, should_close=should_close)

    return Connector(ssl=ssl_context)


# --- errors -----------------------------------------------------------------------------------------------------------


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Errors of the network become ApiAwayError."""
    try:
        yield
    except EmuGpuError:
        raise
    except Exception as error:
        import aiohttp

        if isinstance(error, aiohttp.InvalidURL):
            raise ClusterError(f"{doing}: {error} is no address of an API server; {HOW}") from error
        if isinstance(error, (aiohttp.ClientError, OSError)):
            what = " ".join(str(error).split()) or type(error).__name__
            raise ApiAwayError(f"{doing}: the API server can't be reached: {what}") from error
        raise


def refused(doing: str, code: int, body: bytes) -> EmuGpuError:
    """The error of an answer with this HTTP status: a Status object, or the text of a proxy."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    message = text_at(status, "message") if isinstance(status, dict) else ""
    return _of_status(doing, code, message or _beginning(body) or f"HTTP status {code}")


def _of_status(doing: str, code: int, message: str) -> EmuGpuError:
    # Another uid: 409 where there is no object to apply to, 422 where there is another one.
    if code in (404, 410) or "uid mismatch" in message or "metadata.uid: Invalid value" in message:
        return NotThereError(f"{doing}: {message}")
    if code == 409:
        return ConflictError(f"{doing}: {message}")
    if code in (401, 403):
        return ForbiddenError(f"{doing}: {message}{_fix_of_right(code, message)}")
    kind = ApiAwayError if code == 429 or code >= 500 else ClusterError
    return kind(f"{doing}: {message}")


def _fix_of_right(code: int, message: str) -> str:
    """An admission's refusal is a 403 too, and no matter of rights."""
    missing = code == 401 or " cannot " in message  # as RBAC and the other authorizers say it
    return "; the chart's RBAC gives this right, is it installed as a whole?" if missing else ""


def _event(doing: str, line: bytes | bytearray) -> tuple[str, Json]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise ClusterError(f"{doing}: an event is no JSON: {_beginning(line)}") from error
    kind, document = text_at(event, "type"), dict(object_at(event, "object"))
    if kind == "ERROR":  # such as 410 Gone: the version is older than what the API server remembers
        raise _of_status(doing, whole_at(document, "code"), text_at(document, "message") or "the watch failed")
    return kind, document


def _beginning(data: bytes | bytearray) -> str:
    return " ".join(bytes(data[:800]).decode(errors="replace").split())[:200]


def _selection(labels: str, fields: str) -> dict[str, str]:
    return ({"labelSelector": labels} if labels else {}) | ({"fieldSelector": fields} if fields else {})


def _namespace(document: Json) -> str:
    return text_at(object_at(document, "metadata"), "namespace")
