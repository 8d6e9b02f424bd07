"""The front door imports what a command needs and nothing else; a job container has only the standard library."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from emugpu import VERSION
from emugpu.__main__ import COMMANDS, EXTRAS, main, module_of

HEAVY = {"numpy", "scipy", "yaml", "rich", "plotly", "scheduler_sims"}


@pytest.mark.parametrize("arguments", ["--help", "train --help", "smi --help", "smi", "train --steps 5"])
def test_these_import_no_package(arguments: str) -> None:
    code = (
        "import sys, emugpu.__main__ as front\n"
        "try: front.main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments.split()], capture_output=True, text=True, check=True, env={}
    )
    assert not HEAVY & set(done.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_table_is_the_commands_own(name: str) -> None:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    importlib.import_module(module_of(name)).add_parser(subparsers)
    assert [action.help for action in subparsers._choices_actions] == [COMMANDS[name]]


def test_help_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(re.search(rf"^ +{name}\s", out, re.MULTILINE) for name in COMMANDS)


def test_no_command_and_a_misspelt_one(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["trane"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "invalid choice: 'trane'" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"emugpu {VERSION}\n"


@pytest.mark.parametrize("arguments", [["smi", "--fan", "1"], ["gpus", "--fan", "1"], ["smi", "-L", "--fan", "1"]])
def test_an_unknown_option_is_reported_by_its_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"emugpu {arguments[0]}: error: unrecognized arguments: --fan 1; see --help\n"


RUN = "w.csv --cluster c.yaml --policy fifo"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "emugpu: error: the following arguments are required: COMMAND"),
        ("trane", "emugpu: error: argument COMMAND: invalid choice: 'trane' (choose from "),
        (f"compare {RUN} --stretch abc", "emugpu compare: error: argument --stretch: invalid float value: 'abc'"),
        (f"compare {RUN} --speed ''", "emugpu compare: error: argument --speed: invalid float value: ''"),
        (f"compare {RUN} --repeat 1.5", "emugpu compare: error: argument --repeat: invalid int value: '1.5'"),
        (f"simulate {RUN} --seed 1e3", "emugpu simulate: error: argument --seed: invalid int value: '1e3'"),
        ("simulate w.csv 'a\nb'", "emugpu simulate: error: the following arguments are required: --policy"),
        (f"simulate {RUN} 'a\nb'", "emugpu simulate: error: unrecognized arguments: a b"),
        ("dashboard --port abc", "emugpu dashboard: error: argument --port: invalid int value: 'abc'"),
        ("profile show", "emugpu profile show: error: the following arguments are required: MODEL"),
        ("train --steps many", "emugpu train: error: argument --steps: invalid int value: 'many'"),
    ],
)
def test_a_wrong_argument_is_one_line(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    assert ended.value.code == (64 if line.startswith("train") else 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(says)
    assert printed.err.endswith("; see --help\n")
    assert printed.err.count("\n") == 1


def until_read(arguments: list[str], program: str = "emugpu", unbuffered: str = "") -> tuple[int, str]:
    """Exit status and errors where the reader of the output leaves before the first line."""
    command = [sys.executable, "-m", program, *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert process.stdout and process.stderr
    with process:
        process.stdout.close()
        errors = process.stderr.read()
    return process.returncode, errors


@pytest.mark.parametrize("line", ["--help", "smi -h", "gpus", "policies", "profile list --json"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_ends_every_command_alike(line: str, unbuffered: str) -> None:
    assert until_read(line.split(), unbuffered=unbuffered) == (141, "")


def test_a_reader_that_leaves_ends_the_plugin_alike() -> None:
    assert until_read(["jobs", "--help"], "emugpu.kubectl") == (141, "")


def test_a_reader_that_leaves_takes_no_results_with_him(tmp_path: Path) -> None:
    (tmp_path / "w.csv").write_text("job_id,gpu_duration_s\na,1\n")
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8}]")
    for form in ([], ["--json"]):
        out = tmp_path / f"out{len(form)}"
        arguments = ["simulate", f"{tmp_path}/w.csv", "--cluster", f"{tmp_path}/c.yaml", "--policy", "fifo", *form]
        assert until_read([*arguments, "--out", str(out)]) == (141, "fifo: predicted ...\n")
        assert (out / "report.html").exists()
        assert (out / "jobs.csv").exists()


def into_a_full_device(arguments: list[str], program: str = "emugpu", unbuffered: str = "") -> tuple[int, str]:
    """Exit status and errors where the output has no room."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", program, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize("line", ["--help", "gpus --help", "gpus --json", "profile list --json"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_without_room_is_one_line(line: str, unbuffered: str) -> None:
    code, errors = into_a_full_device(line.split(), unbuffered=unbuffered)
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("emugpu: ")
    assert errors.endswith(": No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_without_room_are_said_once_and_written_all_the_same(tmp_path: Path, unbuffered: str) -> None:
    (tmp_path / "w.csv").write_text("job_id,gpu_duration_s\n" + "".join(f"a{n},1\n" for n in range(300)))
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8}]")
    arguments = ["simulate", f"{tmp_path}/w.csv", "--cluster", f"{tmp_path}/c.yaml", "--policy", "fifo", "--json"]
    code, errors = into_a_full_device([*arguments, "--out", str(tmp_path / "out")], unbuffered=unbuffered)
    progress, said, rest = errors.split("\n")
    assert (code, progress, rest) == (2, "fifo: predicted ...", "")
    assert said.endswith(": No space left on device")
    assert (tmp_path / "out" / "report.html").exists()


def test_what_failed_before_its_output_found_no_room_says_why() -> None:
    code, errors = into_a_full_device(["gpus", "--nonsense"])
    assert (code, errors) == (2, "emugpu gpus: error: unrecognized arguments: --nonsense; see --help\n")


@pytest.mark.parametrize(("unbuffered", "status"), [("", 2), ("1", 64)])
def test_the_copy_in_job_containers_has_no_room_either(unbuffered: str, status: int) -> None:
    code, errors = into_a_full_device(["train", "--help"], "emulator_runtime.workloads", unbuffered)
    assert (code, errors.count("\n")) == (status, 1)
    assert errors.endswith(": No space left on device\n")


def test_the_copy_in_job_containers_does_the_same() -> None:
    module = "emulator_runtime.workloads"
    assert until_read(["train", "--help"], module) == (141, "")
    wrong = ["train", "--steps", "many"]
    done = subprocess.run([sys.executable, "-m", module, *wrong], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (64, 1)
    assert done.stderr.endswith("train: error: argument --steps: invalid int value: 'many'; see --help\n")


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("rich", "package rich is missing: pip install 'emugpu[scheduler]'"),
        ("grpc", "package grpc is missing: pip install 'emugpu[node]'"),
        ("kubernetes.aio", "package kubernetes is missing: pip install 'emugpu[operator]'"),
        ("somebodys", "package somebodys is missing: pip install 'somebodys'"),
    ],
)
def test_a_missing_package_is_named_with_what_brings_it(
    module: str, advice: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(_name: str) -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr("emugpu.__main__.import_module", missing)
    assert main(["gpus"]) == 2
    assert capsys.readouterr().err == f"emugpu: the {advice}\n"


def test_a_package_that_a_command_imports(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "emugpu.commands.gpus", raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)
    assert main(["gpus"]) == 2
    assert "package rich is missing: pip install 'emugpu[scheduler]'" in capsys.readouterr().err


def test_every_package_that_an_extra_installs_is_known() -> None:
    """The table says by import names what pyproject.toml says by the names of distributions."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, requirements in project["optional-dependencies"].items():
        for requirement in requirements:
            wanted = distribution(re.split(r"[<>=~! ]", requirement)[0])
            modules = {
                module for module, names in packages_distributions().items() if wanted in map(distribution, names)
            }
            if modules:  # it is installed here
                brought = {module for packages in EXTRAS.values() for module in packages}
                assert modules & brought, f"{requirement} of {extra}"


def distribution(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
