"""A fake kubelet and a fake API server, which answer as the real ones do and fail on request. For these tests and for
users'.

They speak the real protocols over real sockets, so tests run the real client code.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import grpc

from emulator_runtime.node.layout import INVENTORY_ANNOTATION
from sharing_manager.grants.identity import PodAllocation
from sharing_manager.kubernetes.api import podresources_pb2 as api
from sharing_manager.kubernetes.api_server import Endpoint

HANG, DROP, GARBAGE = "hang", "drop", "garbage"
"""Faults besides HTTP statuses: no answer until `release`, a closed connection, an answer that isn't JSON."""
_LONGEST_HANG_S = 30.0


class FakeKubelet:
    """The kubelet's PodResources service on a Unix socket."""

    def __init__(self, socket_path: Path) -> None:
        self._path = socket_path
        self._server: grpc.Server | None = None
        self._released = threading.Event()
        self.allocations: list[PodAllocation] = []
        self.fault: grpc.StatusCode | str | None = None
        """A status to answer with, or HANG."""
        self.calls = 0

    def start(self) -> None:
        """Listen. After `stop` this acts as a restarted kubelet: a new socket at the same path."""
        self._released.clear()
        handler = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=api.ListPodResourcesRequest.FromString,
            response_serializer=api.ListPodResourcesResponse.SerializeToString,
        )
        self._server = grpc.server(ThreadPoolExecutor(2))
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix:{self._path}")
        self._server.start()

    def stop(self) -> None:
        self._released.set()
        if self._server is not None:
            self._server.stop(None).wait()
        self._path.unlink(missing_ok=True)

    def _list(self, _: api.ListPodResourcesRequest, context: grpc.ServicerContext) -> api.ListPodResourcesResponse:
        self.calls += 1
        if isinstance(self.fault, grpc.StatusCode):
            context.abort(self.fault, "as the test wants it")
        if self.fault == HANG:
            self._released.wait(_LONGEST_HANG_S)
        return api.ListPodResourcesResponse(pod_resources=_pod_resources(self.allocations))


def _pod_resources(allocations: Iterable[PodAllocation]) -> Iterator[api.PodResources]:
    """The kubelet's format: one entry per device, grouped by pod."""
    pods: dict[tuple[str, str], list[PodAllocation]] = {}
    for allocation in allocations:
        pods.setdefault((allocation.namespace, allocation.pod), []).append(allocation)
    for (namespace, pod), held in pods.items():
        containers = [
            api.ContainerResources(
                name=one.container,
                devices=[
                    api.ContainerDevices(resource_name=one.resource, device_ids=[device_id])
                    for device_id in sorted(one.device_ids)
                ],
            )
            for one in held
        ]
        yield api.PodResources(name=pod, namespace=namespace, containers=containers)


@dataclass
class Fault:
    """`what`: an HTTP status or one of HANG, DROP, GARBAGE. `requests`: "nodes", "watch" (of nodes), "pods", "pod
    watch", "events". `times`: how many more requests fail."""

    what: int | str
    requests: frozenset[str]
    times: int = 1_000_000


@dataclass
class FakeApiServer:
    """Nodes, pods and events of an API server on the loopback address; plain HTTP, or TLS with `context`."""

    context: ssl.SSLContext | None = None
    token: str = ""
    """The token that clients must send; "" accepts all."""
    page: int = 100
    pods: list[dict[str, object]] = field(default_factory=list)
    events: list[dict[str, object]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and query of all requests so far."""
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._nodes: dict[str, dict[str, object]] = {}
        self._version = 100
        self._oldest = 0
        self._history: list[tuple[int, str, dict[str, object]]] = []
        self._cut = 0
        self._hung = threading.Event()
        self._stopped = False

    # --- start and stop ---------------------------------------------------------------------------------------------

    def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1. With the same port as before, this acts as a restarted server."""
        self._stopped = False
        self._hung.clear()
        server = _Server(("127.0.0.1", port), _Handler)
        server.fake = self
        if self.context is not None:
            server.socket = self.context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self.release()
        self.cut_watches()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def endpoint(self, token_file: Path | None = None, ca_file: Path | None = None) -> Endpoint:
        """The endpoint for a client."""
        context = None if ca_file is None else lambda: ssl.create_default_context(cafile=str(ca_file))
        return Endpoint("127.0.0.1", self.port, token_file, context)

    # --- objects ----------------------------------------------------------------------------------------------------

    def set_node(self, name: str, inventory: str | None) -> None:
        """Create or change a Node; `inventory` is its annotation."""
        annotations = {} if inventory is None else {INVENTORY_ANNOTATION: inventory}
        with self._changed:
            kind = "MODIFIED" if name in self._nodes else "ADDED"
            self._version += 1
            before = self._nodes.get(name)
            uid = _uid_of(before) if before else f"uid-{self._version}"  # a recreated Node has a new uid
            metadata = {"name": name, "uid": uid, "annotations": annotations}
            node: dict[str, object] = {"kind": "Node", "metadata": {**metadata, "resourceVersion": str(self._version)}}
            self._nodes[name] = node
            self._history.append((self._version, kind, node))
            self._changed.notify_all()

    def set_pod(self, pod: dict[str, object]) -> None:
        """Create or change a pod, and report it to watches. (A change of `pods` alone is visible only in lists.)"""
        with self._changed:
            uids = [_uid_of(one) for one in self.pods]
            kind = "MODIFIED" if _uid_of(pod) in uids else "ADDED"
            self.pods = [one for one in self.pods if _uid_of(one) != _uid_of(pod)] + [self._version_of(pod)]
            self._history.append((self._version, kind, self.pods[-1]))
            self._changed.notify_all()

    def delete_pod(self, uid: str) -> None:
        with self._changed:
            (pod,) = [one for one in self.pods if _uid_of(one) == uid]
            self.pods = [one for one in self.pods if _uid_of(one) != uid]
            self._history.append((self._version + 1, "DELETED", self._version_of(pod)))
            self._changed.notify_all()

    def _version_of(self, item: Mapping[str, object]) -> dict[str, object]:
        """A copy of the object with the next version."""
        self._version += 1
        metadata = item["metadata"]
        assert isinstance(metadata, dict)
        return {**item, "metadata": {**metadata, "resourceVersion": str(self._version)}}

    def delete_node(self, name: str) -> None:
        with self._changed:
            self._version += 1
            self._history.append((self._version, "DELETED", self._nodes.pop(name)))
            self._changed.notify_all()

    def bookmark(self) -> None:
        """Send a bookmark to all watches."""
        with self._changed:
            self._version += 1
            item: dict[str, object] = {"kind": "Node", "metadata": {"resourceVersion": str(self._version)}}
            self._history.append((self._version, "BOOKMARK", item))
            self._changed.notify_all()

    def forget_history(self) -> None:
        """Forget old versions, as a compaction does: watches from an older version get status 410."""
        with self._changed:
            self._version += 1
            self._oldest = self._version
            self._history.clear()
            self._changed.notify_all()

    def cut_watches(self) -> None:
        """End the streams of all watches abruptly."""
        with self._changed:
            self._cut += 1
            self._changed.notify_all()

    # --- faults -----------------------------------------------------------------------------------------------------

    def fail(self, what: int | str, *requests: str, times: int = 1_000_000) -> None:
        """Make requests fail: `what` as in Fault. Without `requests`, all fail."""
        self._hung.clear()
        self.faults = [Fault(what, frozenset(requests or ("nodes", "watch", "pods", "pod watch", "events")), times)]

    def release(self) -> None:
        """Remove all faults, and answer the hanging requests."""
        self.faults = []
        self._hung.set()

    def wait_released(self) -> None:
        self._hung.wait(_LONGEST_HANG_S)

    def take_fault(self, request: str) -> int | str | None:
        for fault in self.faults:
            if request in fault.requests and fault.times > 0:
                fault.times -= 1
                return fault.what
        return None

    # --- answers ----------------------------------------------------------------------------------------------------

    def list_nodes(self, name: str) -> dict[str, object]:
        with self._changed:
            items = [node for key, node in self._nodes.items() if key == name]
            return {"kind": "NodeList", "metadata": {"resourceVersion": str(self._version)}, "items": items}

    def list_pods(self, node: str, start: int, label: str = "") -> dict[str, object]:
        pods = [pod for pod in self.pods if _selected(pod, node, label)]
        end = start + self.page
        metadata = {"resourceVersion": str(self._version), "continue": str(end) if end < len(pods) else ""}
        return {"kind": "PodList", "metadata": metadata, "items": pods[start:end]}

    def changes(self, selected: Callable[[Mapping[str, object]], bool], version: int) -> Iterator[dict[str, object]]:
        """The changes after `version` to the objects that `selected` accepts, until the stream is cut."""
        cut = self._cut
        while not self._stopped and self._cut == cut:
            with self._changed:
                news = [entry for entry in self._history if entry[0] > version]
                oldest = self._oldest
                if version >= oldest and not news and not self._stopped and self._cut == cut:
                    self._changed.wait(_LONGEST_HANG_S)
                    continue
            if version < oldest:
                message = f"too old resource version: {version} ({oldest})"
                yield {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": message}}
                return
            for _, kind, item in news:
                if kind == "BOOKMARK" or selected(item):
                    yield {"type": kind, "object": item}
            version = max(version, *(entry[0] for entry in news)) if news else version


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    fake: FakeApiServer

    def handle_error(self, *_: object) -> None:
        """Print nothing: some tests make clients disconnect or refuse the certificate."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Print nothing; tests read `requests`."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        fake = self.server.fake
        fake.requests.append((url.path, query))
        name, label = query.get("fieldSelector", "").partition("=")[2], query.get("labelSelector", "")
        watched = query.get("watch") == "1"
        if url.path == "/api/v1/pods" and watched:
            if self._let_through("pod watch"):
                pods = partial(_selected, node=name, label=label)
                self._stream(fake.changes(pods, int(query["resourceVersion"])))
        elif url.path == "/api/v1/pods":
            self._answer("pods", lambda: fake.list_pods(name, int(query.get("continue", "0")), label))
        elif url.path == "/api/v1/nodes" and watched:
            if self._let_through("watch"):
                self._stream(fake.changes(lambda item: _is_node(item, name), int(query["resourceVersion"])))
        elif url.path == "/api/v1/nodes":
            self._answer("nodes", lambda: fake.list_nodes(name))
        else:
            self._send(404, _status(404, "no such path"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fake = self.server.fake
        fake.requests.append((self.path, {}))

        def create() -> Mapping[str, object]:
            fake.events.append(json.loads(body))
            return {"kind": "Event"}

        self._answer("events", create, 201)

    def _answer(self, request: str, answer: Callable[[], Mapping[str, object]], status: int = 200) -> None:
        if self._let_through(request):
            self._send(status, json.dumps(answer()).encode())

    def _let_through(self, request: str) -> bool:
        """Whether to answer normally; False if a fault has been sent instead."""
        fake = self.server.fake
        fault = fake.take_fault(request)
        if fault == HANG:
            fake.wait_released()
        if fake.token and self.headers.get("Authorization") != f"Bearer {fake.token}":
            fault = 401
        if isinstance(fault, int):
            self._send(fault, _status(fault, "as the test wants it"))
        elif fault == GARBAGE:
            self._send(200, b"<html>a proxy's page</html>")
        elif fault in (HANG, DROP):
            self.close_connection = True
        return fault is None

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, changes: Iterator[dict[str, object]]) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            for change in changes:
                line = json.dumps(change).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))


def pod_object(
    name: str,
    uid: str,
    node: str,
    containers: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """A Pod in the API's format. `containers`: name -> container id, "" if the kubelet hasn't reported it yet."""
    statuses = [{"name": key, "containerID": f"containerd://{value}"} for key, value in containers.items() if value]
    notes = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, **notes},
        "spec": {"nodeName": node, "containers": [{"name": key} for key in containers]},
        "status": {"containerStatuses": statuses},
    }


def make_certificate(directory: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1, made by the openssl command. Returns the file to trust and the server's context."""
    certificate, key = directory / "ca.crt", directory / "tls.key"
    request = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *names, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def _status(code: int, message: str) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "message": message}).encode()


def _name_of(item: Mapping[str, object]) -> str:
    metadata = item["metadata"]
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _uid_of(item: Mapping[str, object]) -> str:
    metadata = item["metadata"]
    return str(metadata.get("uid", "")) if isinstance(metadata, dict) else ""


def _is_node(item: Mapping[str, object], name: str) -> bool:
    return item.get("kind") == "Node" and _name_of(item) == name


def _selected(pod: Mapping[str, object], node: str, label: str) -> bool:
    """Whether this is a pod of that node with the label."""
    metadata, spec = pod["metadata"], pod.get("spec")
    assert isinstance(metadata, dict)
    labelled = not label or label in metadata.get("labels", {})
    return isinstance(spec, dict) and spec.get("nodeName", "") == node and labelled
