"""The border to the API server: no other file talks through the client library; its errors become ours here, once.

Only `emugpu.kubectl` knows a part of it too: kubeconfigs and the forms of selectors.

Everything written is a server-side apply with one field manager, so what others own on the same object stays theirs.
A `uid` in an applied object makes it a precondition: a Node that was deleted and made anew is not touched, and one that is
gone is not made (Kubernetes API concepts, server-side apply).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import httpx2
from lightkube import AsyncClient
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ApiError, ConfigError, LoadResourceError
from lightkube.core.generic_client import BasicRequest
from lightkube.types import PatchType

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from operators.kube.api import POD, ApiAwayError, Binding, ConflictError, ForbiddenError, Json, NotThereError, plural_of

WATCH_S = 300.0
"""A watch ends after this time and everything is listed anew: the resync, and the end of a connection that died silently."""


class KubeApi:
    """Api over lightkube. Raises NotThereError, ConflictError, ForbiddenError, ApiAwayError, else ClusterError.

    Each names what was tried.
    """

    def __init__(self, config: SingleConfig | None = None, *, timeout_s: float = 10.0) -> None:
        self._client = _client(config or configured(), httpx2.Timeout(timeout_s))

    async def list(self, resource: type[Any], **options: Any) -> tuple[str, list[Json]]:
        try:
            found = self._client.list(resource, chunk_size=500, **options)
            documents = [_plain(item) async for item in found]
        except Exception as error:
            raise translated(error, f"list {plural_of(resource)}") from error
        return found.resourceVersion, documents

    async def watch(self, resource: type[Any], version: str, **options: Any) -> AsyncIterator[tuple[str, Json]]:
        deadline = asyncio.get_running_loop().time() + WATCH_S
        events = self._client.watch(resource, resource_version=version, **options)
        try:
            async with aclosing(cast(AsyncGenerator[tuple[str, Any], None], events)) as stream:
                while True:
                    async with asyncio.timeout_at(deadline):  # Python 3.11's wait_for can lose a cancellation
                        kind, item = await anext(stream)
                    yield kind, _plain(item)
        except (TimeoutError, StopAsyncIteration):
            return
        except Exception as error:
            raise translated(error, f"watch {plural_of(resource)}") from error

    async def get(self, resource: type[Any], name: str, namespace: str = "") -> Json:
        try:
            return _plain(await self._client.get(resource, name, **_within(namespace)))
        except Exception as error:
            raise translated(error, f"get {plural_of(resource)} {name}") from error

    async def text(self, path: str) -> str:
        client: Any = self._client._client
        try:
            response = await client.send(client.build_adapter_request(BasicRequest("GET", path)))
            client.raise_for_status(response)
        except Exception as error:
            raise translated(error, f"get {path}") from error
        return str(response.text)

    async def apply(self, resource: type[Any], name: str, document: Json, manager: str) -> Json:
        options: Json = {"patch_type": PatchType.APPLY, "field_manager": manager, "force": True}
        within = _within(document["metadata"].get("namespace", ""))
        try:
            patched = await self._client.patch(resource, name, document, **options, **within)
        except Exception as error:
            raise translated(error, f"apply {plural_of(resource)} {name}") from error
        return _plain(patched)

    async def patch(self, resource: type[Any], name: str, document: Json, manager: str) -> Json:
        own = resource._api_info.resource.group.endswith("emugpu.dev")
        options: Json = {"patch_type": PatchType.MERGE if own else PatchType.STRATEGIC, "field_manager": manager}
        within = _within(document["metadata"].get("namespace", ""))
        try:
            return _plain(await self._client.patch(resource, name, document, **options, **within))
        except Exception as error:
            raise translated(error, f"patch {plural_of(resource)} {name}") from error

    async def bind(self, pod: str, namespace: str, uid: str, node: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._client.create(Binding.from_dict(document), pod)
        except Exception as error:
            raise translated(error, f"bind pod {pod}") from error

    async def create(self, resource: type[Any], document: Json, manager: str = "") -> Json:
        try:
            return _plain(await self._client.create(resource(document), field_manager=manager or None))
        except Exception as error:
            raise translated(error, f"create {plural_of(resource)}") from error

    async def replace(self, resource: type[Any], document: Json) -> Json:
        try:
            return _plain(await self._client.replace(resource(document)))
        except Exception as error:
            raise translated(error, f"replace {plural_of(resource)} {document['metadata']['name']}") from error

    async def delete(self, resource: type[Any], name: str, namespace: str = "", *, uid: str = "") -> None:
        try:
            if uid:
                await self._delete_exactly(resource, name, namespace, uid)
            else:
                await self._client.delete(resource, name, **_within(namespace))
        except Exception as error:
            problem = (
                error if isinstance(error, EmuGpuError) else translated(error, f"delete {plural_of(resource)} {name}")
            )
            if not isinstance(problem, NotThereError):
                raise problem from error

    async def _delete_exactly(self, resource: type[Any], name: str, namespace: str, uid: str) -> None:
        """What AsyncClient.delete does, with a body: preconditions can be said in no other way."""
        client: Any = self._client._client
        request = client.prepare_request("delete", resource, None, name, **_within(namespace))
        policy = "Background" if resource is POD else "Foreground"  # pods own nothing, and would wait for the collector
        request.data = {"propagationPolicy": policy, "preconditions": {"uid": uid}}
        client.handle_response("delete", await client.send(client.build_adapter_request(request)), request)

    async def close(self) -> None:
        await self._client.close()


def configured(kubeconfig: Path | None = None, context: str = "") -> SingleConfig:
    """The cluster and the user that a program is told (--kubeconfig, --context), else those of its surroundings.

    Raises ClusterError where there are none.
    """
    try:
        found = KubeConfig.from_file(kubeconfig) if kubeconfig is not None else KubeConfig.from_env()
        config = found.get(context or None)
        if config is None or not isinstance(config.cluster.server, str):
            raise ConfigError("it names no cluster with a server")
    except Exception as error:  # a text that is no kubeconfig may end in any error of yaml, msgspec or Python
        raise _no_way(error, kubeconfig) from error
    return config


def _client(config: SingleConfig, timeout: httpx2.Timeout) -> AsyncClient:
    try:
        return AsyncClient(config=config, timeout=timeout)
    except Exception as error:  # a certificate that is none, an address that is none, no user
        raise _no_way(error, config.fname) from error


def _no_way(error: Exception, kubeconfig: Path | None) -> ClusterError:
    """One line that names the file, where it's known which one."""
    fix = "name a file with --kubeconfig, or set KUBECONFIG"
    environment = os.environ.get("KUBECONFIG")
    file = kubeconfig or (Path(environment) if environment else None)
    what = " ".join(str(error).split())[:200] or type(error).__name__
    if isinstance(error, KeyError):
        what = f"it has no {what}"
    elif isinstance(error, (TypeError, AttributeError)):
        what = "its clusters, contexts and users aren't lists of objects with names"
    if file is None or not file.is_file():
        return ClusterError(f"no way to an API server is configured ({what}); run in a pod, {fix}")
    return ClusterError(f"no way to an API server is configured: {file} can't be used as a kubeconfig ({what}); {fix}")


def translated(error: Exception, doing: str) -> EmuGpuError:
    """The error of ours that a client library's error is; what is no error of the network or the API is raised as it is."""
    if isinstance(error, ApiError):
        code, message = error.status.code or 0, str(error.status.message)
        # Another uid: 409 where there is no object to apply to, 422 where there is another one.
        if code in (404, 410) or "uid mismatch" in message or "metadata.uid: Invalid value" in message:
            return NotThereError(f"{doing}: {message}")
        if code == 409:
            return ConflictError(f"{doing}: {message}")
        if code in (401, 403):
            return ForbiddenError(f"{doing}: {message}{_fix_of_right(code, message)}")
        kind = ApiAwayError if code == 429 or code >= 500 else ClusterError
        return kind(f"{doing}: {message}")
    if isinstance(error, httpx2.HTTPStatusError):  # an answer in plain text: of a proxy, or of no API group at all
        return _of_status(error.response.status_code, f"{doing}: {_body(error.response) or error}")
    if isinstance(error, (httpx2.HTTPError, OSError)):
        return ApiAwayError(f"{doing}: the API server can't be reached: {error or type(error).__name__}")
    if isinstance(error, (ConfigError, LoadResourceError)):
        return ClusterError(f"{doing}: {error}")
    raise error


def _fix_of_right(code: int, message: str) -> str:
    """An admission's refusal is a 403 too, and no matter of rights."""
    missing = code == 401 or " cannot " in message  # as RBAC and the other authorizers say it
    return "; the chart's RBAC gives this right, is it installed as a whole?" if missing else ""


def _of_status(code: int, message: str) -> EmuGpuError:
    if code in (404, 410):
        return NotThereError(message)
    if code in (401, 403):
        return ForbiddenError(message)
    return (ApiAwayError if code == 429 or code >= 500 else ClusterError)(message)


def _body(response: httpx2.Response) -> str:
    """The beginning of the answer; empty for a watch, whose answer isn't read."""
    return str(response.text).strip()[:200] if response.is_stream_consumed else ""


def _within(namespace: str) -> dict[str, Any]:
    return {"namespace": namespace} if namespace else {}


def _plain(item: Any) -> Json:
    return item if type(item) is dict else dict(item)
