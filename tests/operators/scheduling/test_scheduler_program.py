"""A scheduler program before it has a cluster: its probes, its names, and where its lease is."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from operators.scheduling import program
from operators.scheduling.program import Options, Program
from operators.serving import loop_alive
from operators.testing.fake_api import FakeApi


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Nobody is there, and nobody is asked."""
    path = tmp_path / "config"
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    document = {
        "current-context": "c",
        "contexts": [context],
        "clusters": clusters,
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def made(kubeconfig: Path) -> Callable[..., Program]:
    def make(policy: str = "fifo", **more: object) -> Program:
        return Program(Options(policy, kubeconfig=kubeconfig, **more), print, print)  # type: ignore[arg-type]

    return make


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_program_whose_event_loop_hangs_is_not_healthy(
    made: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "loop_alive", partial(loop_alive, within_s=1.0))
    one, hang = made(), threading.Event()
    loop = one._cluster.event_loop
    working = threading.Thread(target=loop.run_forever)
    working.start()
    server = one.status_server(0)
    server.start()
    try:
        assert get(server.port, "/healthz") == (200, "ok\n")
        loop.call_soon_threadsafe(hang.wait)
        assert get(server.port, "/healthz") == (503, "the event loop did not answer within 1 s\n")
        assert get(server.port, "/readyz") == (503, "the API server has not been asked yet\n")
    finally:
        server.close()
        hang.set()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(5)  # what was asked before is answered too
        loop.call_soon_threadsafe(loop.stop)
        working.join()
        loop.close()


@pytest.mark.parametrize(
    ("options", "namespace"),
    [
        ({}, "emugpu-system"),
        ({"namespace": "lab"}, "lab"),
        ({"lease_namespace": "gpus"}, "gpus"),
        ({"namespace": "lab", "lease_namespace": "gpus"}, "gpus"),
    ],
)
def test_the_lease_is_at_one_place_whatever_the_kubeconfig_says(
    made: Callable[..., Program], options: dict[str, str], namespace: str
) -> None:
    """Else one on a laptop and the chart's would both act."""
    one = made(**options)
    connection = one._cluster._connection
    candidate = connection.leader(FakeApi())._candidate
    assert (connection.namespace, candidate.namespace, candidate.lease) == (*[namespace] * 2, "emugpu-scheduler-fifo")
    assert one._where().endswith(f"; its lease is {namespace}/emugpu-scheduler-fifo")
    one._cluster.close()
