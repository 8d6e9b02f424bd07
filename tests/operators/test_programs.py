"""The programs' front doors: settings, probes and metrics over HTTP, and what they say when they can't start."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.timing.host import sleep_ns
from operators.chart_hooks.cleanup import main as cleanup_main
from operators.chart_hooks.prepare import main as prepare_main
from operators.controllers.status_server import status_server
from operators.jobs.__main__ import main as jobs_main
from operators.kube.client import KubeApi
from operators.kube.store import Store
from operators.kube.timestamps import rfc3339, rfc3339_micro
from operators.objects.pool import Pool
from operators.pools.__main__ import main
from tests.support.api_server import ApiServer


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_and_probes() -> None:
    registry, problem = CollectorRegistry(), ["not yet"]
    Counter("things", "Things", registry=registry).inc()
    server = status_server(0, registry, healthy=lambda: "", ready=lambda: problem[0])
    server.start()
    try:
        assert "things_total 1.0" in get(server.port, "/metrics")[1]
        assert get(server.port, "/healthz") == (200, "ok\n")
        assert get(server.port, "/readyz?verbose") == (503, "not yet\n")
        problem[0] = ""
        assert get(server.port, "/readyz") == (200, "ok\n")
        assert get(server.port, "/")[0] == 404
        with pytest.raises(
            ClusterError, match=f"port {server.port} for metrics can't be opened: .*; choose another one"
        ):
            status_server(server.port, registry, healthy=lambda: "", ready=lambda: "")
    finally:
        server.close()


def test_times_have_the_forms_of_kubernetes() -> None:
    wall_ns = 1_772_323_445_123_456_789
    assert rfc3339(wall_ns) == "2026-03-01T00:04:05Z"
    assert rfc3339_micro(wall_ns) == "2026-03-01T00:04:05.123456Z"


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {"KUBECONFIG": "/nowhere"}, "KUBECONFIG: names no file that exists (/nowhere)"),
        (
            [],
            {"EMUGPU_POOLS_METRICS_PORT": "x"},
            "EMUGPU_POOLS_METRICS_PORT: must be a whole number from 0 to 65535, got 'x'",
        ),
        ([], {"EMUGPU_POOLS_PORT": "1"}, "unknown setting 'EMUGPU_POOLS_PORT'"),
        (["clean"], {}, "takes no arguments; see --help"),
    ],
)
def test_the_controller_says_why_it_cannot_start(
    arguments: list[str],
    environment: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "EMUGPU_POOLS_METRICS_PORT" in capsys.readouterr().out
    assert prepare_main(["--help"]) == 0
    assert "EMUGPU_PREPARE_DEFINITIONS" in capsys.readouterr().out
    assert prepare_main(["x"]) == 2
    assert cleanup_main(["--help"]) == 0
    assert "EMUGPU_CLEANUP_NAMESPACE" in capsys.readouterr().out


def test_no_configuration_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(InputError, match="give --kubeconfig FILE or set KUBECONFIG"):
        KubeApi()


def test_an_echo_of_an_older_state_is_no_news() -> None:
    def document(version: str, generation: int) -> dict[str, object]:
        return {"metadata": {"name": "p", "resourceVersion": version, "generation": generation}}

    store = Store(Pool.read)
    assert store.replace([document("5", 1)])
    assert not store.replace([document("5", 1)])
    assert not store.update("MODIFIED", document("4", 0))
    assert not store.update("DELETED", document("4", 0))
    assert not store.update("MODIFIED", document("6", 1))
    assert store.update("MODIFIED", document("7", 2))
    assert store.update("DELETED", document("8", 2))
    assert not store.update("DELETED", document("8", 2))
    assert store.values() == []
    assert store.update("ADDED", document("opaque", 3))


def test_the_program_runs_and_ends_on_a_signal(cluster: ApiServer, tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(json.dumps(cluster.kubeconfig("emugpu-pools")), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "KUBECONFIG": str(config), "EMUGPU_POOLS_METRICS_PORT": str(port)}
    command = [sys.executable, "-W", "error", "-m", "operators.pools"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        try:
            for _ in range(200):
                try:
                    if get(port, "/readyz")[0] == 200:
                        break
                except OSError:
                    pass
                sleep_ns(50_000_000)
            assert get(port, "/readyz") == (200, "ok\n")
            assert get(port, "/healthz") == (200, "ok\n")
            assert "emugpu_pools_reconcile_seconds_count" in get(port, "/metrics")[1]
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 0
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({}, "EMUGPU_JOBS_IMAGE: is missing"),
        ({"IMAGE": "i", "IDENTITY": "p", "PULL_POLICY": "Sometimes"}, "EMUGPU_JOBS_PULL_POLICY: unknown pull policy"),
        ({"IMAGE": "i", "IDENTITY": "p", "LEASE_S": "2"}, "EMUGPU_JOBS_LEASE_S: must be a whole number from 3 to 300"),
        ({"IMAGE": "i", "IDENTITY": "p"}, "KUBECONFIG: names no file that exists (/nowhere)"),
    ],
)
def test_the_controller_of_emujobs_says_why_it_cannot_start(
    environment: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    for name, value in environment.items():
        monkeypatch.setenv(f"EMUGPU_JOBS_{name}", value)
    assert jobs_main([]) == 2
    assert words in capsys.readouterr().err
    assert jobs_main(["x"]) == 2
    assert jobs_main(["--help"]) == 0
    assert "EMUGPU_JOBS_LEASE_S" in capsys.readouterr().out
