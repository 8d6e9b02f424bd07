from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError
from sharing_manager.kubernetes import api_server
from sharing_manager.kubernetes.api_server import ApiServer, ApiServerError, Endpoint, Timeouts
from tests.support.fake_node_api import DROP, GARBAGE, HANG, FakeApiServer, make_certificate

NODES = ("/api/v1/nodes", {"fieldSelector": "metadata.name=n1"})
FAST = Timeouts(connect_s=1.0, answer_s=0.4, quiet_s=0.7)


@pytest.fixture
def tls(tmp_path):
    """An API server with TLS and a token, as in a cluster, and where its client finds the files."""
    ca_file, context = make_certificate(tmp_path)
    fake = FakeApiServer(context, token="first")
    fake.start()
    (tmp_path / "token").write_text("first\n")
    yield fake, tmp_path, ca_file
    fake.stop()


def in_cluster(fake: FakeApiServer, directory: Path) -> ApiServer:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(fake.port)}
    return ApiServer(Endpoint.in_cluster(environ, directory), FAST)


def test_in_a_cluster_with_tls_and_a_token_that_is_rotated(tls) -> None:
    fake, directory, _ = tls
    api = in_cluster(fake, directory)
    assert api.get(*NODES)["items"] == []
    fake.token = "second"
    with pytest.raises(ApiServerError, match=r"401 .*; is the service account's token mounted") as caught:
        api.get(*NODES)
    assert caught.value.status == 401 and caught.value.retry_helps
    (directory / "token").write_text("second")
    assert api.get(*NODES)["items"] == []


def test_a_server_with_another_certificate_is_not_trusted(tls, tmp_path) -> None:
    fake, directory, ca_file = tls
    (tmp_path / "other").mkdir()
    make_certificate(tmp_path / "other")
    ca_file.write_bytes((tmp_path / "other" / "ca.crt").read_bytes())
    with pytest.raises(ApiServerError, match="CERTIFICATE_VERIFY_FAILED"):
        in_cluster(fake, directory).get(*NODES)
    assert not fake.requests


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_missing_file_is_named(tls, name) -> None:
    fake, directory, _ = tls
    (directory / name).unlink()
    with pytest.raises(ApiServerError, match=r"No such file|Errno 2"):
        in_cluster(fake, directory).get(*NODES)


def test_outside_a_cluster_the_fix_is_named() -> None:
    with pytest.raises(InputError, match="KUBERNETES_SERVICE_HOST: is not set: run in a pod"):
        Endpoint.in_cluster({})
    with pytest.raises(InputError, match="KUBERNETES_SERVICE_PORT: must be a port number, got 'tcp'"):
        Endpoint.in_cluster({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "tcp"})


@pytest.mark.parametrize("status", [401, 403, 404, 410, 429, 500, 503])
def test_a_refusal_says_what_was_asked_and_why(fake, api, status) -> None:
    fake.fail(status)
    with pytest.raises(ApiServerError, match=f"GET /api/v1/nodes: as the test wants it: {status}") as caught:
        api.get(*NODES)
    assert caught.value.status == status
    fake.release()
    assert api.get(*NODES)["items"] == []


@pytest.mark.parametrize("fault", [DROP, GARBAGE, HANG])
def test_no_usable_answer(fake, api, fault, in_time) -> None:
    fake.fail(fault)
    began = time.monotonic()
    with pytest.raises(ApiServerError, match="GET /api/v1/nodes: no usable answer: ") as caught:
        api.get(*NODES)
    assert caught.value.status == 0 and in_time(most_s=2, since_s=began)


def test_nobody_listens(fake) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        api = ApiServer(Endpoint("127.0.0.1", reserved.getsockname()[1]), FAST)
        with pytest.raises(ApiServerError, match="Connection refused"):
            api.get(*NODES)


def raw_server(answer) -> tuple[socket.socket, threading.Thread]:
    """One connection, answered by hand."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as peer:
            peer.recv(65536)
            with contextlib.suppress(OSError):  # the client has given up, as it should
                answer(peer)

    thread = threading.Thread(target=serve)
    thread.start()
    return listener, thread


def test_an_answer_that_drips_is_given_up_as_a_whole(in_time) -> None:
    def drip(peer) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        for _ in range(100):
            peer.sendall(b" ")
            time.sleep(0.1)

    listener, thread = raw_server(drip)
    began = time.monotonic()
    with pytest.raises(ApiServerError, match=r"not complete after 0\.4 s"):
        ApiServer(Endpoint("127.0.0.1", listener.getsockname()[1]), FAST).get(*NODES)
    assert in_time(most_s=2, since_s=began)
    thread.join()


def test_an_endless_answer_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(api_server, "MAX_BODY_BYTES", 1000)
    listener, thread = raw_server(lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000))
    with pytest.raises(ApiServerError, match="more than 1000 bytes"):
        ApiServer(Endpoint("127.0.0.1", listener.getsockname()[1]), FAST).get(*NODES)
    thread.join()


def test_a_page_of_a_proxy_stays_out_of_the_message() -> None:
    page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>"
    listener, thread = raw_server(lambda peer: peer.sendall(page))
    with pytest.raises(ApiServerError, match=r"GET /api/v1/nodes: 502 Bad Gateway$"):
        ApiServer(Endpoint("127.0.0.1", listener.getsockname()[1]), FAST).get(*NODES)
    thread.join()


def test_a_watch_that_brings_nothing_is_given_up(fake, api, in_time) -> None:
    began = time.monotonic()
    with pytest.raises(ApiServerError, match="timed out"):
        next(api.watch(NODES[0], {**NODES[1], "watch": "1", "resourceVersion": "100"}))
    assert time.monotonic() - began > 0.6
    assert in_time(most_s=3, since_s=began)


def test_close_ends_a_request_in_another_thread(tls) -> None:
    fake, directory, _ = tls
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(fake.port)}
    api, ended = ApiServer(Endpoint.in_cluster(environ, directory)), []

    def watch() -> None:
        try:
            ended.append(list(api.watch(NODES[0], {**NODES[1], "watch": "1", "resourceVersion": "100"})))
        except ApiServerError as error:
            ended.append(error)

    thread = threading.Thread(target=watch)
    thread.start()
    while not fake.requests:
        time.sleep(0.005)
    time.sleep(0.05)
    api.close()
    thread.join(2)
    assert not thread.is_alive() and len(ended) == 1
    with pytest.raises(ApiServerError, match="closed"):
        api.get(*NODES)
