"""The command that runs a program in a pod, against a real sharing manager: what it reports, and how it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator_runtime.workloads.command.arguments import PROFILES_VARIABLE
from emulator_runtime.workloads.command.program import main
from emulator_runtime.workloads.pod import container_gpu_types
from tests.emugpu.test_train_with_manager import Node, ended

pytestmark = pytest.mark.processes
PYTHON = sys.executable


@pytest.fixture
def node(short_directory: Path) -> Iterator[Node]:
    node = Node(short_directory)
    yield node
    node.kill()


def begin(node: Node, *arguments: str, token: str, **variables: str) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EMUGPU_")}
    access = {"EMUGPU_TOKEN": token, "EMUGPU_MANAGER_SOCKET": str(node.socket)}
    return subprocess.Popen(
        [PYTHON, "-m", "emulator_runtime.workloads", "program", "--steps", "40", "--step-time-s", "0.5", *arguments],
        env=environ | access | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def events(node: Node) -> list[str]:
    return [str(event["event"]) for event in node.events("a")]


def test_a_program_that_ends_has_done_all_steps(node: Node) -> None:
    code = "import os; print(os.environ['EMUGPU_TOKEN'] != '')"
    status, output, errors = ended(begin(node, "--", PYTHON, "-c", code, token=node.grant("a", 0)))
    assert (status, output) == (0, "True\n"), errors
    assert events(node)[-1] == "finished" and node.events("a")[-1]["steps_done"] == 40


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("raise SystemExit(5)", 64, "ended with exit status 5"),
        ("import os; os.kill(os.getpid(), 9)", 1, "ended by SIGKILL"),
    ],
)
def test_a_program_that_fails_fails_the_run(node: Node, code: str, status: int, said: str) -> None:
    found, _, errors = ended(begin(node, "--", PYTHON, "-c", code, token=node.grant("a", 0)))
    assert found == status and said in errors
    assert events(node)[-1] == "failed" and said in node.events("a")[-1]["detail"]


def test_a_stop_releases_the_devices(node: Node, tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    code = f"import time; open({str(started)!r}, 'w').close(); time.sleep(60)"
    run = begin(node, "--", PYTHON, "-c", code, token=node.grant("a", 0))
    started.read_bytes()  # until the program has opened it
    run.send_signal(signal.SIGTERM)
    assert ended(run)[0] == 143
    assert events(node)[-1] == "released" and node.events("a")[-1]["steps_done"] == 0, "it begins anew"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "4", "--step-time-s", "1"], "a command is missing: program OPTIONS -- COMMAND ..."),
        (["--steps", "4", "--step-time-s", "1", "--"], "a command is missing"),
    ],
)
def test_a_command_is_needed(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        main(arguments)
    assert status.value.code == 64 and said in capsys.readouterr().err


def test_outside_of_a_pod_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--steps", "4", "--step-time-s", "1", "--", "true"]) == 64
    assert "EMUGPU_TOKEN: is missing: this container has no emulated GPU" in capsys.readouterr().err


def test_profiles_of_the_environment_that_are_wrong_end_training() -> None:
    environ = {**os.environ, PROFILES_VARIABLE: '{"mine": {"gpus": {}}}'}
    command = [
        PYTHON,
        "-m",
        "emulator_runtime.workloads",
        "train",
        "--steps",
        "1",
        "--model",
        "mine",
        "--batch-size",
        "1",
    ]
    access = {"EMUGPU_TOKEN": "t", "EMUGPU_MANAGER_SOCKET": "/no/socket"}
    done = subprocess.run(command, env=environ | access, capture_output=True, text=True, check=False)
    assert done.returncode == 64 and "EMUGPU_PROFILES: mine: sample_bytes is missing" in done.stderr


def test_gpu_types_are_those_of_the_device_files(tmp_path: Path) -> None:
    for index, text in enumerate(
        [json.dumps({"gpu_type": "T4"}), "no JSON", json.dumps(["T4"]), json.dumps({"gpu_type": "V100"})]
    ):
        (tmp_path / str(index)).write_text(text)
    assert container_gpu_types(tmp_path) == ("T4", "V100")
