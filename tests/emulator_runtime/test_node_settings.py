"""Settings and directories that every daemon of a node shares."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.node.layout import NodeLayout
from emulator_runtime.node.settings import EnvSettings, setting


@dataclass(frozen=True)
class Example(EnvSettings):
    PREFIX: ClassVar[str] = "EX_"
    node: str = setting("name of the node")
    port: int = setting("a port", 80, least=1, most=65535)
    size: int = setting("a size", 10, least=4)
    loud: bool = setting("say more", default=False)


def test_values_defaults_and_other_peoples_variables():
    assert Example.from_env({"EX_NODE": "n", "EX_LOUD": "1", "EXTRA": "x"}) == Example("n", 80, 10, True)
    assert Example.from_env({"EX_NODE": "n", "EX_LOUD": "", "EX_PORT": ""}) == Example("n")


def test_missing_and_unknown_variables():
    for environ in ({}, {"EX_NODE": ""}):
        with pytest.raises(InputError, match="EX_NODE: is missing: name of the node"):
            Example.from_env(environ)
    with pytest.raises(UnknownNameError, match="unknown setting 'EX_PROT'; did you mean EX_PORT"):
        Example.from_env({"EX_NODE": "n", "EX_PROT": "1"})


def test_help_has_a_line_for_each():
    assert Example.help().splitlines() == [
        "  EX_NODE  name of the node (required)",
        "  EX_PORT  a port (default '80')",
        "  EX_SIZE  a size (default '10')",
        "  EX_LOUD  say more (default '0')",
    ]


def test_whole_numbers_and_flags():
    def of(**given: str) -> Example:
        return Example.from_env({"EX_NODE": "n"} | {f"EX_{name.upper()}": text for name, text in given.items()})

    assert (of(port="8080").port, of(size="01000").size) == (8080, 1000)
    for text in ("-1", "0", "65536", "٣", "1e3", " 1"):
        with pytest.raises(InputError, match=f"EX_PORT: must be a whole number from 1 to 65535, got '{text}'"):
            of(port=text)
    for text in ("3", "x", "-1", "1e9"):
        with pytest.raises(InputError, match=f"EX_SIZE: must be a whole number, at least 4, got '{text}'"):
            of(size=text)
    assert [of(loud=text).loud for text in ("0", "1")] == [False, True]
    with pytest.raises(InputError, match="EX_LOUD: must be 1 or 0, got 'true'"):
        of(loud="true")


def test_directories_and_their_modes_whatever_the_umask(tmp_path):
    layout = NodeLayout(tmp_path / "deep" / "node")
    before = os.umask(0o077)
    try:
        layout.make()
        layout.admin_dir.chmod(0o777)
        layout.make()  # the other daemon
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [layout.root, *layout.root.iterdir()]}
    assert modes == {"node": 0o755, "run": 0o755, "grants": 0o755, "tools": 0o755, "admin": 0o700, "state": 0o700}


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "node").write_text("")
    with pytest.raises(InputError, match="node: can't be made with mode 0755: File exists; give a node directory"):
        NodeLayout(tmp_path / "node").make()


def test_names_below_the_root():
    layout = NodeLayout(Path("/n"))
    assert [str(path) for path in (layout.manager_socket, layout.admin_socket, layout.inventory_file)] == [
        "/n/run/manager.sock",
        "/n/admin/admin.sock",
        "/n/inventory.json",
    ]
    assert [str(path) for path in (layout.nvidia_smi, layout.python_dir)] == ["/n/tools/nvidia-smi", "/n/tools/python"]
