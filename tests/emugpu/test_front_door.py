"""The front door imports what a command needs and nothing else; a job container has only the standard library."""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from emugpu import VERSION
from emugpu.__main__ import COMMANDS, EXTRAS, main

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
    importlib.import_module(f"emugpu.commands.{name}").add_parser(subparsers)
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
def test_an_unknown_option_brings_the_usage_of_its_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"usage: emugpu {arguments[0]} ")
    assert err.endswith(f"emugpu {arguments[0]}: error: unrecognized arguments: --fan 1\n")


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("rich", "package rich is missing: pip install 'emugpu[scheduler]'"),
        ("grpc", "package grpc is missing: pip install 'emugpu[node]'"),
        ("lightkube.core", "package lightkube is missing: pip install 'emugpu[operator]'"),
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
