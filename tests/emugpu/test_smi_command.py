"""`emugpu smi` and the static nvidia-smi print the same bytes: the files in golden_smi, for each of them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emugpu import VERSION
from emugpu.commands import smi
from emugpu.smi.spelling import edit_distance
from emulator_runtime.domain.errors import RefusedError
from emulator_runtime.ipc.frames import encode
from tests.support.fake_manager import answering

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).with_name("golden_smi")
GIB, MIB = 1024**3, 1024**2
UUIDS = [f"GPU-{n}0000000-0000-5000-8000-000000000000" for n in range(3)]
TRAIN = {"pid": 4711, "name": "python3 train.py", "used_bytes": 10 * GIB}
STRANGE = {"pid": 12, "name": "a\x1b[31m\nlong " + "name " * 30, "used_bytes": 3 * MIB // 2}
DEVICES = [
    {"index": 3, "uuid": UUIDS[1], "gpu_type": "Lab[1]-GPU", "memory_bytes": 8 * GIB, "used_bytes": 0,
     "utilisation": 0.0, "healthy": True, "processes": []},
    {"index": 0, "uuid": UUIDS[0], "gpu_type": "NVIDIA-A100-SXM4-80GB", "memory_bytes": 80 * GIB,
     "used_bytes": 10 * GIB + 3 * MIB // 2, "utilisation": 0.974, "healthy": True, "processes": [TRAIN, STRANGE]},
    {"index": 12, "uuid": UUIDS[2], "gpu_type": "Tesla_V100-PCIE-32GB", "memory_bytes": 32510 * MIB, "used_bytes": 5,
     "utilisation": 1.0, "healthy": False, "processes": []},
]  # fmt: skip
CUT = "NVIDIA_A100-SXM4-40GB-MIG"
INSTANCES = [
    {"index": 9 + n, "uuid": f"MIG-{n}0000000-0000-5000-8000-000000000000", "gpu_type": f"{CUT}-{profile}",
     "memory_bytes": gib * GIB, "mig": {"gpu": gpu, "gpu_uuid": UUIDS[gpu]}, "used_bytes": 5, "utilisation": 0.5,
     "healthy": True, "processes": []}
    for n, (gpu, profile, gib) in enumerate([(1, "3g.20gb", 20), (1, "1g.5gb", 5), (2, "7g.40gb", 40)])
] + [{"index": 0, "uuid": UUIDS[0], "gpu_type": "Tesla-T4", "memory_bytes": 16 * GIB}]  # fmt: skip
ALL = "index,gpu_name,uuid,memory.total,memory.used,memory.free,utilization.gpu,temperature.gpu,power.draw,pstate"


@dataclass(frozen=True)
class Case:
    """Arguments and surroundings; its output is in golden_smi/NAME.txt."""

    arguments: Sequence[str] = ()
    code: int = 0
    answer: Any = field(default_factory=lambda: {"ok": True, "devices": DEVICES})
    token: str = "t"
    files: bool = False


REFUSAL = RefusedError("unknown token: it was never granted on this node, or its grant has ended")
CASES = {
    "table": Case(),
    "list": Case(["-L"]),
    "query": Case([f"--query-gpu={ALL},driver_version,compute_cap,count", "--format=csv"]),
    "query_bare": Case(["--query-gpu", ALL, "--format", "csv,noheader,nounits"]),
    "query_rest": Case(["--query-gpu=name,gpu_uuid,clocks.sm,clocks.mem,fan.speed,compute_mode,mig.mode.current"]),
    "mig_list": Case(["-L"], answer={"ok": True, "devices": INSTANCES}),
    "mig_query": Case(
        ["--query-gpu=index,name,uuid,memory.total,compute_cap,mig.mode.current", "--format=csv"],
        answer={"ok": True, "devices": INSTANCES},
    ),
    "mig_of_one_gpu": Case(["-L", "-i", "3"], answer={"ok": True, "devices": INSTANCES}),
    "apps": Case(["--query-compute-apps=pid,used_memory,name,gpu_uuid,gpu_bus_id", "--format=csv"]),
    "apps_none": Case(["-i", "1", "--query-compute-apps=pid,used_gpu_memory", "--format=csv,noheader"]),
    "by_index": Case(["-i", "2,1", "--query-gpu=index,uuid,count", "--format=csv,noheader"]),
    "by_uuid": Case([f"--id={UUIDS[0]}", "-L"]),
    "no_such_id": Case(["-i", "12"], code=6),  # the node's index of one of them
    "misspelt": Case(["--query-gpu=index,memory.totl"], code=2),
    "unknown": Case(["--query-compute-apps=color"], code=2),
    "wrong_format": Case(["--query-gpu=index", "--format=json"], code=2),
    "wrong_loop": Case(["--loop=-1"], code=2),
    "id_twice": Case(["-i", "0", "--id=1", "-L"], code=2),
    "query_twice": Case(["--query-gpu=name", "--query-gpu", "index"], code=2),
    "format_twice": Case(["--query-gpu=name", "--format=csv", "--format=csv,noheader"], code=2),
    "loop_twice": Case(["-l", "1", "--loop=2"], code=2),
    "format_of_nothing": Case(["-L", "--format=csv"], code=2),
    "gpu_fields": Case(["--help-query-gpu"]),
    "app_fields": Case(["--help-query-compute-apps"]),
    "version": Case(["--version"]),
    "no_gpu": Case(token="", code=9),
    "away": Case(answer=None, files=True),
    "away_query": Case([f"--query-gpu={ALL}", "--format=csv,nounits"], answer=None, files=True),
    "away_no_files": Case(answer=None, code=9),
    "refused": Case(answer=REFUSAL, files=True),
    "malformed": Case(answer={"ok": True, "devices": [{"index": 1}]}, files=True),
    "no_token": Case(["-L"], token="", files=True),
    "empty": Case(answer={"ok": True, "devices": []}, code=6),
}


@pytest.fixture(scope="session")
def nvidia_smi(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The Go program, built as the image builds it."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed, so the static nvidia-smi can't be built here")
    binary = tmp_path_factory.mktemp("smi") / "nvidia-smi"
    environ = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    command = [go, "build", "-trimpath", "-ldflags=-s -w", "-o", str(binary), "."]
    done = subprocess.run(command, cwd=ROOT / "smi", env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [str(binary)]


@pytest.fixture
def environ(short_directory: Path) -> Callable[[Case], contextlib.AbstractContextManager[dict[str, str]]]:
    """What the container of a case has: variables, device files, a manager that answers."""

    @contextlib.contextmanager
    def prepare(case: Case) -> Iterator[dict[str, str]]:
        files, socket = short_directory / "edev", short_directory / "manager.sock"
        files.mkdir()
        if case.files:
            for device in DEVICES:
                facts = {name: device[name] for name in ("index", "uuid", "gpu_type", "memory_bytes")}
                (files / str(device["index"])).write_text(json.dumps(facts | {"node": "n1", "links": {}}))
            (files / "99").write_text("half a file {")
        variables = {name: value for name, value in os.environ.items() if not name.startswith("EMUGPU_")}
        variables |= {"EMUGPU_EDEV_DIR": str(files), "EMUGPU_MANAGER_SOCKET": str(socket)}
        if case.token:
            variables["EMUGPU_TOKEN"] = case.token
        with contextlib.ExitStack() as stack:
            if case.answer is not None:
                requests = stack.enter_context(answering(socket, lambda connection, message: reply(case.answer)))
            yield variables
            if case.answer is not None:
                assert all(request == {"op": "query", "token": case.token} for request in requests)

    return prepare


def reply(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def printed(command: Sequence[str], arguments: Sequence[str], environ: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run([*command, *arguments], env=environ, capture_output=True, text=True, timeout=20, check=False)
    return done.returncode, f"{done.stdout}--- stderr\n{done.stderr}"


@pytest.mark.parametrize("name", CASES)
def test_emugpu_smi_prints_the_golden_file(
    name: str,
    environ: Callable[[Case], contextlib.AbstractContextManager[dict[str, str]]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EMUGPU_WRITE_GOLDEN=1 writes the files anew; then look at them."""
    case, path = CASES[name], GOLDEN / f"{name}.txt"
    with environ(case) as variables:
        code = in_process(case.arguments, variables, monkeypatch)
    captured = capsys.readouterr()
    called = re.sub("^emugpu smi: ", "nvidia-smi: ", captured.err, flags=re.MULTILINE)  # each says how it was called
    assert "nvidia-smi: " not in captured.err
    text = f"{captured.out}--- stderr\n{called}"
    if os.environ.get("EMUGPU_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert (code, text) == (case.code, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_the_static_nvidia_smi_prints_the_golden_file(
    name: str, environ: Callable[[Case], contextlib.AbstractContextManager[dict[str, str]]], nvidia_smi: list[str]
) -> None:
    case = CASES[name]
    with environ(case) as variables:
        seen = printed(nvidia_smi, case.arguments, variables)
    assert seen == (case.code, (GOLDEN / f"{name}.txt").read_text(encoding="utf-8"))


def full(path: Path) -> tuple[socket.socket, list[socket.socket]]:
    """A socket at `path` whose queue is full, and those who stand in it."""
    listener, standing = socket.socket(socket.AF_UNIX), list[socket.socket]()
    listener.bind(str(path))
    listener.listen(1)
    with contextlib.suppress(BlockingIOError):
        while len(standing) < 100:
            standing.append(socket.socket(socket.AF_UNIX))
            standing[-1].setblocking(False)
            standing[-1].connect(str(path))
    return listener, standing


def test_the_static_nvidia_smi_waits_where_many_connect_at_once(
    environ: Callable[[Case], contextlib.AbstractContextManager[dict[str, str]]], nvidia_smi: list[str]
) -> None:
    with environ(Case(answer=None)) as variables, contextlib.ExitStack() as stack:
        listener, standing = full(Path(variables["EMUGPU_MANAGER_SOCKET"]))
        for sock in (listener, *standing):
            stack.enter_context(sock)
        started = subprocess.Popen([*nvidia_smi, "-L"], env=variables, stdout=subprocess.PIPE, text=True)
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(0.3)  # told to come again, it would have ended
        for _ in standing[:-1]:  # the last one didn't get in
            listener.accept()[0].close()
        connection = stack.enter_context(listener.accept()[0])
        connection.recv(65536)
        connection.sendall(encode({"ok": True, "devices": DEVICES}))
        output, _ = started.communicate(timeout=20)
    assert (started.returncode, output.count("UUID: GPU-")) == (0, 3)


def test_the_static_nvidia_smi_says_why_it_was_turned_away(
    environ: Callable[[Case], contextlib.AbstractContextManager[dict[str, str]]], nvidia_smi: list[str]
) -> None:
    """Whether the manager hangs up before or after the request has been written: it is the one or the other by chance."""
    word = encode({"ok": False, "code": "manager-unavailable", "error": "16 connections open"})
    with environ(Case(answer=None, files=True)) as variables, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(variables["EMUGPU_MANAGER_SOCKET"])
        listener.listen(1)
        for _ in range(20):
            started = subprocess.Popen(
                nvidia_smi, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            with listener.accept()[0] as connection:
                connection.send(word)
            output, _ = started.communicate(timeout=20)
            assert "the sharing manager refused: 16 connections open" in output


def in_process(arguments: Sequence[str], variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> int:
    import argparse

    for variable in ("EMUGPU_TOKEN", "EMUGPU_EDEV_DIR", "EMUGPU_MANAGER_SOCKET"):
        monkeypatch.delenv(variable, raising=False)
        if variable in variables:
            monkeypatch.setenv(variable, variables[variable])
    parser = argparse.ArgumentParser(prog="emugpu")
    smi.add_parser(parser.add_subparsers())
    args = parser.parse_args(["smi", *arguments])
    status: int = args.run(args)
    return status


def test_emulated_is_written_on_it() -> None:
    table = (GOLDEN / "table.txt").read_text()
    assert "EMULATED" in table
    assert len({len(line) for line in table.splitlines() if line.startswith(("|", "+"))}) == 1


def test_the_program_is_small_and_static(nvidia_smi: list[str]) -> None:
    content = Path(nvidia_smi[0]).read_bytes()
    assert len(content) < 3_000_000
    (table, entries) = struct.unpack_from("<Q", content, 32)[0], struct.unpack_from("<H", content, 56)[0]
    kinds = [struct.unpack_from("<I", content, table + 56 * index)[0] for index in range(entries)]
    assert 3 not in kinds, "it asks for a dynamic linker (PT_INTERP)"


def test_what_go_embeds_is_current() -> None:
    spec = importlib.util.spec_from_file_location("write_capabilities", ROOT / "smi" / "write_capabilities.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TABLE.read_text() == module.content(), "run python smi/write_capabilities.py"


def test_one_version_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (in_go,) = re.findall(r'version += "(.*)"', (ROOT / "smi" / "columns.go").read_text())
    assert project == VERSION == in_go


def test_images_without_a_glibc_for_cuda_programs() -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed, so its tests can't run")
    environ = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [go, "test", "./..."], cwd=ROOT / "smi", env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("which", ["python", "go"])
def test_a_loop_goes_on_until_it_is_ended(
    which: str, environ: Callable[[Case], contextlib.AbstractContextManager[dict[str, str]]], nvidia_smi: list[str]
) -> None:
    command = nvidia_smi if which == "go" else [sys.executable, "-m", "emugpu", "smi"]
    with environ(Case()) as variables:
        arguments = [*command, "--query-gpu=timestamp,index", "--format=csv,noheader", "-l", "0.05"]
        process = subprocess.Popen(arguments, env=variables, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(9)]
        process.terminate()
        process.communicate(timeout=10)
    assert process.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)  # a shell says 143 of both
    assert [line.split(", ")[1].strip() for line in lines] == ["0", "1", "2"] * 3
    assert all(re.match(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}, ", line) for line in lines)


def test_an_option_that_is_none(nvidia_smi: list[str]) -> None:
    assert printed(nvidia_smi, ["--fan"], {}) == (
        2,
        '--- stderr\nnvidia-smi: "--fan" is not an option; see nvidia-smi --help\n',
    )
    assert printed(nvidia_smi, ["-i"], {})[0] == 2
    assert printed(nvidia_smi, ["--query-gpu=index", "--query-compute-apps=pid"], {})[0] == 2
    code, text = printed(nvidia_smi, ["-h"], {})
    assert code == 0
    assert text.startswith("usage: nvidia-smi")


def test_the_owner_of_a_node_sees_all_of_it(
    short_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = short_directory / "admin.sock"
    status = {"index": 5, "uuid": UUIDS[0], "gpu_type": "T4", "memory_bytes": GIB, "used_bytes": MIB, "holders": ["a"]}
    with answering(socket, lambda connection, message: {"ok": True, "devices": [status]}) as requests:
        arguments = ["--admin", str(socket), "--query-gpu=index,memory.used,utilization.gpu", "--format=csv,noheader"]
        assert in_process(arguments, {}, monkeypatch) == 0
    assert requests == [{"op": "status"}]
    assert capsys.readouterr().out == "5, 1 MiB, [N/A]\n"


def test_an_admin_socket_where_nobody_listens(short_directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "emugpu", "smi", "--admin", str(short_directory / "none")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("emugpu: --admin: nobody answers at ")


@given(st.text("abc", max_size=6), st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_edit_distance_is_a_distance(one: str, other: str, third: str) -> None:
    assert edit_distance(one, other) == edit_distance(other, one)
    assert (edit_distance(one, other) == 0) == (one == other)
    assert edit_distance(one, third) <= edit_distance(one, other) + edit_distance(other, third)
    assert abs(len(one) - len(other)) <= edit_distance(one, other) <= max(len(one), len(other))
