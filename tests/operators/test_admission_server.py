"""The webhook behind TLS: what it answers over the wire, how it takes a new certificate, what it says when it can't start."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import sleep_ns
from operators.admission.__main__ import main
from operators.admission.server import MAX_BODY_BYTES, Webhook, application
from tests.support.api_server import ApiServer

CHART = Path(__file__).parents[2] / "charts" / "emugpu"


def certificate(directory: Path, name: str) -> Path:
    directory.mkdir(exist_ok=True)
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    files = ["-keyout", str(directory / "tls.key"), "-out", str(directory / "tls.crt")]
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, *files, *subject], check=True, capture_output=True)
    return directory


class Serving:
    """A webhook in a thread of its own, on a free port."""

    def __init__(self, certificates: Path, alias: str = "emuGPU") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.certificates = certificates
        self.webhook = Webhook(application(alias, "emugpu.dev/emuGPU"), certificates, self.port)
        self.webhook.server.config.host = "127.0.0.1"
        self.waits: list[threading.Event] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self.webhook.serve()))

    def __enter__(self) -> Serving:
        self._thread.start()
        while not self.webhook.server.started:
            sleep_ns(5_000_000)
        return self

    def __exit__(self, *_exception: object) -> None:
        self.webhook.server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        context = ssl.create_default_context(cafile=str(self.certificates / "tls.crt"))
        request = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=10, context=context) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(certificate(tmp_path_factory.mktemp("tls"), "webhook")) as running:
        yield running


def test_a_review_over_the_wire(serving: Serving) -> None:
    pod = {"kind": "Pod", "spec": {"containers": [{"name": "c", "resources": {"limits": {"emuGPU": "2"}}}]}}
    body = {"request": {"uid": "u", "kind": {"kind": "Pod"}, "object": pod}}
    status, reply = serving.ask("/review", json.dumps(body).encode())
    assert status == 200
    response = json.loads(reply)["response"]
    assert response["allowed"] is True
    assert json.loads(base64.b64decode(response["patch"]))[0]["op"] == "move"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, b"Expecting property name"),
        (b"[]", 400, b"AdmissionReview: request is missing"),
        (b"[" * 100_000, 400, b"recursion"),
        (b" " * (MAX_BODY_BYTES + 1), 413, b"are no AdmissionReview"),
    ],
)
def test_what_is_no_review_is_refused(serving: Serving, body: bytes, status: int, words: bytes) -> None:
    found, reply = serving.ask("/review", body)
    assert (found, words in reply) == (status, True), reply


def test_probes(serving: Serving) -> None:
    assert serving.ask("/healthz") == (200, b"ok\n")
    assert serving.ask("/readyz") == (200, b"ok\n")
    assert serving.ask("/else")[0] == 404


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(tmp_path: Path) -> None:
    first, second = certificate(tmp_path / "a", "first"), certificate(tmp_path / "b", "second")
    used = Path(shutil.copytree(first, tmp_path / "used"))
    webhook = Webhook(application("emuGPU", "emugpu.dev/emuGPU"), used, 1)
    loaded: list[str] = []
    context = webhook.server.config.ssl
    assert context is not None
    steps = iter(
        [
            lambda: None,
            lambda: shutil.copy(second / "tls.crt", used),  # the key of another certificate: half of a change
            lambda: (used / "tls.key").unlink(),
            lambda: shutil.copy(second / "tls.key", used),
            lambda: None,
        ]
    )

    async def step(_seconds: float) -> None:
        loaded.append(subject_served(context, tmp_path))
        try:
            next(steps)()
        except StopIteration:
            raise asyncio.CancelledError from None

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(webhook.reload_for_ever(step))
    assert loaded == ["first", "first", "first", "first", "second", "second"]


def subject_served(context: ssl.SSLContext, directory: Path) -> str:
    """The subject that a handshake with this server context shows."""
    client_context = ssl.create_default_context()
    client_context.check_hostname = False
    client_context.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    der = client.getpeercert(binary_form=True)
    assert der is not None
    path = directory / "seen.der"
    path.write_bytes(der)
    command = ["openssl", "x509", "-inform", "der", "-in", str(path), "-noout", "-subject"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("=")[-1].strip()


def test_a_missing_certificate_is_reported_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}: has no usable tls.crt and tls.key"):
        Webhook(application("emuGPU", "emugpu.dev/emuGPU"), tmp_path, 1)


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "EMUGPU_ADMISSION_CERTIFICATES: is missing"),
        ({"CERTIFICATES": "/nowhere"}, "/nowhere: has no usable tls.crt and tls.key"),
        ({"CERTIFICATES": "/nowhere", "PORT": "0"}, "EMUGPU_ADMISSION_PORT: must be a whole number from 1 to 65535"),
        (
            {"CERTIFICATES": "/nowhere", "RESOURCE": "emuGPU"},
            "EMUGPU_ADMISSION_RESOURCE: 'emuGPU' is no name of an extended",
        ),
        ({"CERTIFICATE": "/nowhere"}, "unknown setting 'EMUGPU_ADMISSION_CERTIFICATE'"),
    ],
)
def test_wrong_settings_end_the_program(
    environment: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(f"EMUGPU_ADMISSION_{name}", value)
    assert main([]) == 2
    assert words in capsys.readouterr().err


def test_help_and_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "EMUGPU_ADMISSION_CERTIFICATES" in capsys.readouterr().out
    assert main(["x"]) == 2


def test_the_charts_webhook_configuration_on_a_real_server(
    cluster: ApiServer, helm: str, tmp_path: Path, object_of: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """With another alias than the policy's, so that it is the webhook that acts."""
    arguments = ["--set", "alias.mode=webhook,alias.name=fakes", "--show-only", "templates/alias/webhook.yaml"]
    command = [helm, "template", "emugpu", str(CHART), "--namespace", "emugpu", *arguments]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (configuration,) = [d for d in yaml.safe_load_all(rendered) if d["kind"] == "MutatingWebhookConfiguration"]
    directory = certificate(tmp_path / "tls", "webhook")
    with Serving(directory, "fakes") as running:
        ca = base64.b64encode((directory / "tls.crt").read_bytes()).decode()
        configuration["webhooks"][0]["clientConfig"] = {
            "url": f"https://127.0.0.1:{running.port}/review",
            "caBundle": ca,
        }
        base = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
        assert cluster.request("POST", base, configuration)[0] == 201
        try:
            pods = "/api/v1/namespaces/default/pods?dryRun=All"
            asked = object_of({"kind": "Pod", "resources": {"limits": {"fakes": 2}}})
            for _ in range(100):
                status, reply = cluster.request("POST", pods, asked)
                if status == 201:
                    break
                sleep_ns(50_000_000)
            assert reply["spec"]["containers"][0]["resources"]["limits"] == {"emugpu.dev/emuGPU": "2"}
            half = object_of({"kind": "Pod", "resources": {"limits": {"fakes": 0.5}}})
            _, reply = cluster.request("POST", pods, half)
            assert (
                'denied the request: fakes counts whole devices: 0.5 in spec.containers[0] ("train")'
                in reply["message"]
            )
            for namespace, status in (("kube-system", 422), ("emugpu", 422)):
                path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
                asked["metadata"]["namespace"] = namespace
                assert cluster.request("POST", path, asked)[0] == status
        finally:
            cluster.request("DELETE", f"{base}/{configuration['metadata']['name']}")
    plain = object_of({"kind": "Pod", "resources": {"limits": {"cpu": "1"}}})
    assert cluster.request("POST", pods, plain)[0] == 201
