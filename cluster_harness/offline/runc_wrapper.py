"""A wrapper around runc for machines whose root lacks CAP_SYS_RESOURCE, where `docker run --privileged` would fail.

It removes that capability from the container's specification, raises a negative OOM score to 0 (lowering one's score needs
the same capability), and then executes the real runc. Docker runs this file, so it imports the standard library only.
Sources: OCI runtime specification, config.md (process.capabilities, process.oomScoreAdj); runc(8): create, run, exec.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

CAPABILITY = "CAP_SYS_RESOURCE"
CAPABILITY_BIT = 24  # linux/capability.h
_BUNDLE_COMMANDS = ("create", "run", "restore")


def is_missing(status: str | None = None) -> bool:
    """Whether the capability is not in this process's bounding set (CapBnd in /proc/self/status)."""
    text = Path("/proc/self/status").read_text(encoding="ascii") if status is None else status
    bounding = next((line.split()[1] for line in text.splitlines() if line.startswith("CapBnd:")), "0")
    return not int(bounding, 16) >> CAPABILITY_BIT & 1


def without_capability(process: dict[str, Any]) -> dict[str, Any]:
    """The `process` section of a specification without what this machine can't grant."""
    granted = process.get("capabilities") or {}
    process = {
        **process,
        "capabilities": {kind: [c for c in names if c != CAPABILITY] for kind, names in granted.items()},
    }
    if (process.get("oomScoreAdj") or 0) < 0:
        process["oomScoreAdj"] = 0
    return process


def specification_of(arguments: list[str]) -> tuple[Path, bool] | None:
    """The specification file that a runc command line names, and whether it is a whole bundle; None for other commands."""
    for command in (*_BUNDLE_COMMANDS, "exec"):
        if command in arguments:
            rest = arguments[arguments.index(command) + 1 :]
            if command == "exec":
                process = _option(rest, "--process", "-p")
                return (Path(process), False) if process else None
            return Path(_option(rest, "--bundle", "-b") or ".") / "config.json", True
    return None


def _option(arguments: list[str], *names: str) -> str | None:
    for index, argument in enumerate(arguments):
        for name in names:
            if argument == name and index + 1 < len(arguments):
                return arguments[index + 1]
            if argument.startswith(f"{name}="):
                return argument.partition("=")[2]
    return None


def rewrite(arguments: list[str]) -> None:
    """Changes the specification that this command line names, if it names one."""
    named = specification_of(arguments)
    if named is None:
        return
    path, whole_bundle = named
    content = json.loads(path.read_text(encoding="utf-8"))
    if whole_bundle:
        content["process"] = without_capability(content["process"])
    else:
        content = without_capability(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def script(python: str, runc: str) -> str:
    """The text of the executable that Docker's daemon.json names as its runtime."""
    module = Path(__file__).resolve()
    return f'#!/bin/sh\nexec {python} -IS {module} {runc} "$@"\n'


if __name__ == "__main__":
    rewrite(sys.argv[2:])
    os.execv(sys.argv[1], sys.argv[1:])
