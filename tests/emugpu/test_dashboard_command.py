"""`emugpu dashboard`: which comparison it takes, the link, and its end; as a process of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emugpu.__main__ import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "allox-40"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `emugpu simulate` leaves."""
    directory = tmp_path_factory.mktemp("cwd") / "out" / "mine"
    arguments = [str(EXAMPLE / "workload.csv"), "--cluster", str(EXAMPLE / "cluster.yaml"), "--policy", "allox"]
    assert main(["simulate", *arguments, "--out", str(directory), "--json"]) == 0
    return directory


@contextmanager
def dashboard(*arguments: str, cwd: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the link that it prints."""
    command = [sys.executable, "-m", "emugpu", "dashboard", "--no-browser", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "http://" in line, line + (process.stderr.read() if process.stderr is not None else "")
            yield process, line
        finally:
            process.kill()


def ask(port: int, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.getheader("set-cookie", "")
    finally:
        connection.close()


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_newest_comparison_behind_a_link_that_works_once(out: Path, number: signal.Signals) -> None:
    with dashboard("--port", "0", cwd=out.parents[1]) as (process, line):
        assert line.startswith("dashboard of out/mine: ")
        match = re.search(r"http://127\.0\.0\.1:(\d+)/sign-in#token=(\S+)", line)
        assert match is not None
        port, bearer = int(match[1]), {"Authorization": f"Bearer {match[2]}"}
        assert ask(port, "GET", "/api/v1/jobs", {})[0] == 401
        assert ask(port, "GET", "/api/v1/jobs", bearer)[0] == 401  # a link is no token
        status, _, cookie = ask(port, "POST", "/api/v1/session", bearer)
        assert (status, cookie.split("=")[0]) == (201, f"emugpu-{port}")
        assert ask(port, "POST", "/api/v1/session", bearer)[0] == 401  # a second time
        signed_in = {"Cookie": cookie.split(";")[0]}
        status, body, _ = ask(port, "GET", "/api/v1/jobs?limit=1", signed_in)
        assert (status, json.loads(body)["total"]) == (200, 40)
        uid = json.loads(body)["items"][0]["uid"]
        held = ask(port, "POST", f"/api/v1/jobs/{uid}/suspend", signed_in | {"X-Emugpu-Request": "1"})
        assert held[0] == 403
        assert ask(port, "GET", "/api/v1/jobs", signed_in | {"Host": f"evil.example:{port}"})[0] == 421
        process.send_signal(number)
        assert process.wait(20) == 0
        assert process.stderr is not None and process.stderr.read() == ""


@pytest.mark.processes
def test_a_folder_of_comparisons_shows_all(out: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "all" / name).mkdir(parents=True)
        for file in out.iterdir():
            (tmp_path / "all" / name / file.name).write_bytes(file.read_bytes())
    with dashboard("--port", "0", "all", cwd=tmp_path) as (_, line):
        assert line.startswith("dashboard of all/a, all/b: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "out/: has no comparison; run `make demo`"),
        (["nowhere"], "nowhere: has no summary.json"),
        (["x", "--context", "lab"], "DIR: names comparisons"),
        (["--port", "70000"], "--port: must be from 0 to 65535"),
        (["--kubeconfig", "nowhere.yaml"], "give --kubeconfig FILE"),
        (["--kubeconfig", __file__], f"{__file__}: can't be read as a kubeconfig"),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["dashboard", *arguments]) == 2
    told = capsys.readouterr().err
    assert problem in told
    assert told.count("\n") == 1


def test_a_port_that_is_taken_is_said(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["dashboard", str(out), "--port", str(port), "--no-browser"]) == 2
    assert f"127.0.0.1, port {port}: can't listen there" in capsys.readouterr().err


def test_half_a_comparison_is_said(out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "summary.json").write_bytes((out / "summary.json").read_bytes())
    assert main(["dashboard", str(tmp_path), "--no-browser", "--port", "0"]) == 2
    assert "jobs.csv: can't be read" in capsys.readouterr().err
